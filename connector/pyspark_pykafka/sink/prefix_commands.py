"""
The commands on a transactional-id prefix: describe, release or complete its last batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from pyspark_pykafka.engines.wire.transactions.values import is_committed
from pyspark_pykafka.sink.batch_committer import abort_open_transactions, list_open_ids
from pyspark_pykafka.sink.decided_commits import roll_forward, select_open, select_undecided
from pyspark_pykafka.sink.intents import (
    find_unreleased_intents,
    is_binding,
    named_transactions,
    named_transactions_by_task,
)
from pyspark_pykafka.sink.ledger import open_ledger
from pyspark_pykafka.sink.ledger_entries import (
    Completion,
    EmptyWriteClaim,
    Intent,
    Marker,
    ReadBarrier,
    Release,
    Withdrawal,
)
from pyspark_pykafka.sink.ledger_loss import is_truncated, records_commit
from pyspark_pykafka.sink.replay import batch_state, prefix_owner
from pyspark_pykafka.sink.transactional_ids import any_query_pattern, query_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import TransactionDescription
    from pyspark_pykafka.sink.ledger import Ledger
    from pyspark_pykafka.sink.ledger_entries import EntriesWithOffsets
    from pyspark_pykafka.sink.replay import BatchState

    Describe: TypeAlias = Callable[[Sequence[str]], Mapping[str, TransactionDescription | None]]


def read_prefix_owner(transactions: Transactions, prefix: str) -> Marker | None:
    """
    Return the last committed marker of the query that owns a prefix, or None.

    Coordinators that do not respond are ignored, unless no owner is known without them. Raises
    :class:`UnknownTopicError` if the prefix never had a ledger.
    """
    ledger = open_ledger(transactions, prefix)
    committed = _read_committed(ledger, prefix, transactions.describe_reachable)
    return prefix_owner(committed) or prefix_owner(
        _read_committed(ledger, prefix, transactions.describe_all)
    )


def read_batch_state(transactions: Transactions, owner: Marker, prefix: str) -> BatchState:
    """
    Return the committed state of the last batch of the query that owns a prefix.
    """
    ledger = open_ledger(transactions, prefix)
    committed = _read_committed(ledger, prefix, transactions.describe_all)
    return batch_state(owner.query, owner.batch, committed)


def is_ledger_unused(transactions: Transactions, prefix: str) -> bool:
    """
    Return whether the ledger of a prefix shows no commit, neither completed nor decided.

    The entries of a write that was refused because the ledger is new do not count.
    """
    ledger = open_ledger(transactions, prefix)
    log_start, stable_end = ledger.watermarks()
    unstable = ledger.read_all(stable_end, ledger.high_watermark())
    # The commit of an intent may be decided as long as transactions are open.
    appended = [
        entry
        for _, entry in unstable
        if not isinstance(entry, Marker | EmptyWriteClaim | Withdrawal | ReadBarrier)
    ]
    committed = ledger.read_committed(log_start, stable_end)
    return not appended and not records_commit(entry for _, entry in committed)


def is_ledger_truncated(transactions: Transactions, prefix: str) -> bool:
    """
    Return whether entries of the ledger were deleted, and no release has accepted that.
    """
    ledger = open_ledger(transactions, prefix)
    return is_truncated(ledger, ledger.watermarks().log_start)


def find_partly_committed(
    transactions: Transactions, prefix: str, *, execute: bool = True
) -> list[PreparedTransaction]:
    """
    Return the transactions of decided commits that are finished only in part.

    Some of these transactions have ended. Only the coordinators' lists of open transactions show
    which: a former coordinator may describe an open transaction as one that has ended. ``execute``
    is False for a dry run, which appends nothing: then a former leader may hide the last intents.
    """
    ledger = open_ledger(transactions, prefix)
    log_start, stable_end = ledger.watermarks()
    entries = ledger.read_up_to_barrier(stable_end) if execute else ledger.read_all_from(stable_end)
    in_doubt: list[PreparedTransaction] = []
    for query in sorted({entry.query for _, entry in entries if isinstance(entry, Intent)}):
        for offset, intent in find_unreleased_intents(query, entries):
            prepared = named_transactions(prefix, intent)
            # An intent does not name the tasks that earlier writes have committed.
            in_part = len(prepared) < intent.written or (
                len(select_open(transactions, prepared)) < len(prepared)
            )
            start = max(log_start, intent.first)
            if in_part and is_binding(intent, ledger.read_all(start, offset + 1)):
                ids = [transaction.transactional_id for transaction in prepared]
                later = select_undecided(transactions, ids, prepared)
                in_doubt += [
                    transaction
                    for transaction in prepared
                    if transaction.transactional_id not in later
                ]
    return in_doubt


def release_prefix(transactions: Transactions, owner: Marker, prefix: str) -> None:
    """
    Free the prefix for another query, and let its owner write its last batch whole again.

    All open transactions of queries with the prefix are aborted. Those of coordinators that do not
    respond stay open: the query's next run aborts them, but a run of another query waits until they
    time out. Raises :class:`ConcurrentWriteError` if a driver has appended an intent in the
    meantime; then the prefix is not released.
    """
    ledger = open_ledger(transactions, prefix)
    end = ledger.append(ReadBarrier())
    abort_open_transactions(transactions, any_query_pattern(prefix))
    ledger.append_command(Release(owner.query, end, uuid4().hex), "release")


def complete_batch(transactions: Transactions, owner: Marker, prefix: str) -> BatchState:
    """
    Declare the last batch of the query that owns the prefix complete; return its state.

    Open transactions that a driver had decided to commit are committed; the others are aborted.
    Raises :class:`ConcurrentWriteError` as :func:`release_prefix` does, and
    :class:`TimeoutExceededError` if decided transactions stay open, for example because a former
    coordinator reports them as ended.
    """
    ledger = open_ledger(transactions, prefix)
    end = ledger.append(ReadBarrier())
    log_start, stable_end = ledger.watermarks()
    ids, offsets = (prefix, owner.query), (stable_end, end)

    def end_open_transactions() -> None:
        decided = roll_forward(transactions, ledger, ids, log_start, offsets)
        open_ids = list_open_ids(transactions, query_pattern(*ids))
        transactions.abort_ids(select_undecided(transactions, open_ids, decided))

    end_open_transactions()
    ledger.wait_until_stable(end, end_open_transactions)
    committed = _read_committed(ledger, prefix, transactions.describe_all, end)
    state = batch_state(owner.query, owner.batch, committed)
    if not state.is_whole:
        ledger.append_command(Completion(owner.query, owner.batch, end), "complete")
    return state


def _read_committed(
    ledger: Ledger, prefix: str, describe: Describe, min_end: int = 0
) -> EntriesWithOffsets:
    """
    Return all committed entries of a ledger, also those after the last stable offset.

    A transaction that is still open hides later entries from readers of committed records, but the
    coordinators know which of the transactions that an intent names are committed. The ledger is
    read up to ``min_end`` at least.
    """
    log_start, stable_end = ledger.watermarks()
    committed = ledger.read_committed(log_start, stable_end)
    unstable = ledger.read_all(stable_end, max(ledger.high_watermark(), min_end))
    # Several attempts of a task may have written a marker, but only one of them is committed.
    known = {(entry.write, entry.task) for _, entry in committed if isinstance(entry, Marker)}
    last_offsets = {
        (entry.write, entry.task): offset for offset, entry in unstable if isinstance(entry, Marker)
    }
    offsets = {
        last_offsets[task]
        for task in _committed_tasks(prefix, unstable, describe) - known
        if task in last_offsets
    }
    shown = [
        (offset, entry)
        for offset, entry in unstable
        if offset in offsets or not isinstance(entry, Marker)
    ]
    return [*committed, *shown]


def _committed_tasks(
    prefix: str, entries: EntriesWithOffsets, describe: Describe
) -> set[tuple[str, int]]:
    """
    Return the tasks that intents name and whose transactions are committed, as (write, task).
    """
    intents = {entry.write: entry for _, entry in entries if isinstance(entry, Intent)}
    tasks = {
        (intent.write, task): transaction
        for intent in intents.values()
        for task, transaction in named_transactions_by_task(prefix, intent).items()
    }
    descriptions = describe([transaction.transactional_id for transaction in tasks.values()])
    return {
        task
        for task, transaction in tasks.items()
        if is_committed(transaction, descriptions.get(transaction.transactional_id))
    }
