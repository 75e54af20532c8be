"""
Completes commits that a driver decided, as its intents in the ledger show, but did not finish.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import TransactionState
from pyspark_pykafka.errors import TimeoutExceededError
from pyspark_pykafka.retry import Backoff
from pyspark_pykafka.sink.intents import (
    find_intents,
    find_unreleased_intents,
    is_binding,
    named_transactions,
)
from pyspark_pykafka.sink.ledger import open_ledger
from pyspark_pykafka.sink.ledger_entries import ReadBarrier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import TransactionDescription
    from pyspark_pykafka.sink.ledger import Ledger

logger = logging.getLogger("pyspark_pykafka")

_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.01, 1.0
# A task looks for an earlier commit for about this long at most. A request that begins in this time
# may take a few seconds longer.
_LOOKING_SECONDS = 10.0


def complete_earlier_commit(
    transactions: Transactions, ids: tuple[str, str], batch: int, write: str
) -> None:
    """
    Complete the commit that an earlier write of a micro-batch had decided, before this write has
    written its rows.

    ``ids`` are prefix and query. The commit of this write does the same, but by then the
    transactions may have timed out. Looking for such a commit takes little time, or fails;
    completing it may take as long as any commit, since a part of it may be lost if it is left
    half-done. Raises the error of brokers that do not answer in time.
    """
    prefix, query = ids
    deadline = transactions.cluster.new_deadline(_LOOKING_SECONDS)

    def ledger() -> Ledger:
        return open_ledger(transactions.with_time_limit(deadline.remaining()), prefix)

    log_start, stable_end = ledger().watermarks()
    reported_end = ledger().high_watermark()
    entries = ledger().read_all(stable_end, reported_end)
    intents = [intent for _, intent in find_intents(query, entries) if intent.batch == batch]
    # A late attempt of a task finds the intent of its own write.
    if not intents or any(intent.write == write for intent in intents):
        return
    # Invariant I7 (proof of absence): a release must not be missed.
    end = ledger().append(ReadBarrier())
    roll_forward(transactions, open_ledger(transactions, prefix), ids, log_start, (stable_end, end))


def roll_forward(
    transactions: Transactions,
    ledger: Ledger,
    ids: tuple[str, str],
    log_start: int,
    offsets: tuple[int, int],
) -> list[PreparedTransaction]:
    """
    Commit the open transactions that earlier writes of a query had decided to commit.

    ``ids`` are prefix and query; ``offsets`` are the ledger's ``[start, end)`` to search. An intent
    lies after the markers of the transactions that it names, and no marker of an open transaction
    lies before the last stable offset, so a search from that offset finds the intent. Intents
    before a release do not count. Returns all decided transactions.
    """
    prefix, query = ids
    decided: list[PreparedTransaction] = []
    for offset, intent in find_unreleased_intents(query, ledger.read_all(*offsets)):
        prepared = named_transactions(prefix, intent)
        entries = ledger.read_all(max(log_start, intent.first), offset + 1)
        if not is_binding(intent, entries):
            continue
        # Invariant I3 (delegation): any process may commit what a binding intent names.
        decided += prepared
        if commit_open(transactions, prepared):
            logger.warning(
                "the commit of batch %d of the query %s had been decided before a failure: of "
                "its %d transactions, those still open are committed now",
                *(intent.batch, query, len(prepared)),
            )
    return decided


def commit_open(transactions: Transactions, prepared: Sequence[PreparedTransaction]) -> bool:
    """
    Commit the transactions that are still open, and return whether there were any.
    """
    deadline = transactions.cluster.new_deadline(transactions.config.block_seconds)
    backoff = Backoff(_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS)
    any_open = False
    last_error: FencedError | None = None
    while still_open := select_open(transactions, prepared):
        if any_open:
            if deadline.expired:
                raise _still_open_error(still_open, last_error) from last_error
            deadline.pause(backoff.next_pause())
        any_open = True
        try:
            transactions.end_all(still_open, commit=True)
        except FencedError as error:
            # One transaction has just timed out; the rest are retried.
            logger.info("%s", error)
            last_error = error
    return any_open


def _still_open_error(
    still_open: Sequence[PreparedTransaction], last_error: FencedError | None
) -> TimeoutExceededError:
    # Without an error, a former coordinator answers.
    reason = (
        "after each commit the brokers confirm it, but still report these transactions as open"
        if last_error is None
        else f"their commit failed: {last_error}"
    )
    msg = (
        f"{len(still_open)} transactions that must be committed are still open, "
        f"{still_open[0].transactional_id} among them; {reason}"
    )
    return TimeoutExceededError(msg)


def select_open(
    transactions: Transactions, prepared: Sequence[PreparedTransaction]
) -> list[PreparedTransaction]:
    """
    Return the transactions that are still open.
    """
    descriptions = transactions.describe_all(
        [transaction.transactional_id for transaction in prepared]
    )
    return [
        transaction
        for transaction in prepared
        if (description := descriptions[transaction.transactional_id]) is not None
        and description.prepared == transaction
        and description.state is TransactionState.ONGOING
    ]


def select_undecided(
    transactions: Transactions, open_ids: Sequence[str], decided: Sequence[PreparedTransaction]
) -> list[str]:
    """
    Return the ids whose open transaction no driver has decided to commit.

    A former coordinator may have reported an open, decided transaction as not open. Such a
    transaction is spared: a later roll forward commits it, and until then the ledger is blocked.
    """
    by_id = {transaction.transactional_id: transaction for transaction in decided}
    doubtful = [name for name in open_ids if name in by_id]
    descriptions = transactions.describe_all(doubtful)
    spared = {name for name in doubtful if not _is_later(by_id[name], descriptions[name])}
    for name in sorted(spared):
        logger.info("the commit of %s is decided, and it seems to be still open", name)
    return [name for name in open_ids if name not in spared]


def _is_later(decided: PreparedTransaction, description: TransactionDescription | None) -> bool:
    """
    Return whether the open transaction of an id started after the decided one.
    """
    if description is None or description.state is not TransactionState.ONGOING:
        return False
    return description.producer_id != decided.producer_id or description.epoch > decided.epoch
