"""
The commands on a transactional-id prefix: describe, release or complete its last batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.sink.batch_committer import abort_lingering
from pyspark_pykafka.sink.decided_commits import roll_forward, select_open
from pyspark_pykafka.sink.intents import (
    find_unreleased_intents,
    is_binding,
    named_transactions,
)
from pyspark_pykafka.sink.ledger import open_ledger
from pyspark_pykafka.sink.ledger_entries import Completion, Intent, Release
from pyspark_pykafka.sink.replay import batch_state, prefix_owner
from pyspark_pykafka.sink.transactional_ids import any_query_pattern, query_pattern

if TYPE_CHECKING:
    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.sink.ledger import Ledger
    from pyspark_pykafka.sink.ledger_entries import EntriesWithOffsets, Marker
    from pyspark_pykafka.sink.replay import BatchState


def read_prefix_owner(transactions: Transactions, prefix: str) -> Marker | None:
    """
    Return the last committed marker of the query that owns a prefix, or None.

    Raises :class:`UnknownTopicError` if the prefix never had a ledger.
    """
    ledger = open_ledger(transactions, prefix)
    return prefix_owner(ledger.read_committed(*ledger.watermarks()))


def read_batch_state(transactions: Transactions, owner: Marker, prefix: str) -> BatchState:
    """
    Return the committed state of the last batch of the query that owns a prefix.
    """
    ledger = open_ledger(transactions, prefix)
    log_start, _ = ledger.watermarks()
    return _batch_state(ledger, owner, ledger.read_all(log_start, ledger.high_watermark()))


def find_partly_committed(transactions: Transactions, prefix: str) -> list[PreparedTransaction]:
    """
    Return the open transactions of writes that are committed in part.
    """
    ledger = open_ledger(transactions, prefix)
    log_start, stable_end = ledger.watermarks()
    entries = ledger.read_all(stable_end, ledger.high_watermark())
    in_doubt: list[PreparedTransaction] = []
    for query in sorted({entry.query for _, entry in entries if isinstance(entry, Intent)}):
        for offset, intent in find_unreleased_intents(query, entries):
            prepared = named_transactions(prefix, intent)
            still_open = select_open(transactions, prepared)
            # A write does not name the tasks that earlier writes have committed.
            in_part = len(prepared) < intent.written or len(still_open) < len(prepared)
            start = max(log_start, intent.first)
            if still_open and in_part and is_binding(intent, ledger.read_all(start, offset + 1)):
                in_doubt += still_open
    return in_doubt


def release_prefix(transactions: Transactions, owner: Marker, prefix: str) -> None:
    """
    Free the prefix for another query, and let its owner write its last batch whole again.

    All open transactions of queries with the prefix are aborted. Those of coordinators that do not
    respond stay open: the query's next run aborts them.
    """
    abort_lingering(transactions, any_query_pattern(prefix))
    open_ledger(transactions, prefix).append(Release(owner.query))


def complete_batch(transactions: Transactions, owner: Marker, prefix: str) -> BatchState:
    """
    Declare the last batch of the query that owns the prefix complete; return its state.

    Open transactions that a driver had decided to commit are committed; the others are aborted.
    """
    ledger = open_ledger(transactions, prefix)
    end = ledger.high_watermark()
    log_start, stable_end = ledger.watermarks()
    roll_forward(transactions, ledger, (prefix, owner.query), log_start, (stable_end, end))
    abort_lingering(transactions, query_pattern(prefix, owner.query))
    ledger.wait_until_stable(end)
    state = _batch_state(ledger, owner, ledger.read_all(log_start, end))
    if not state.is_whole:
        ledger.append(Completion(owner.query, owner.batch))
    return state


def _batch_state(ledger: Ledger, owner: Marker, entries: EntriesWithOffsets) -> BatchState:
    log_start, stable_end = ledger.watermarks()
    # An intent counts at any offset; a marker only once it is committed.
    intents = [entry for _, entry in entries if isinstance(entry, Intent)]
    committed = ledger.read_committed(log_start, stable_end)
    return batch_state(owner.query, owner.batch, [*committed, *intents])
