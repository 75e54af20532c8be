"""
Ending the transactions of a batch write together: all of them, or none.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
from pyspark_pykafka.engines.wire.transactions.settlement import Outcome, settle
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.errors import ExactlyOnceError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.sink.transactional_ids import other_attempt_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.engines.transaction_contract import TransactionalIdPattern
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import (
        TransactionDescription,
    )

    Waiting = Iterable[tuple[str, int, int]]

logger = logging.getLogger("pyspark_pykafka")

#: A write of more is warned of.
MANY_MARKERS = 100_000

# What may be waited for a broker that nothing but attempts that lost are known to be on, if any.
_CLEARING_SECONDS = 2.0
# The same, where there probably are some.
_LISTING_SECONDS = 5.0

# What holds readers up: a partition may not know yet of one that is being aborted.
_IN_THE_WAY = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_EPOCH_FENCE,
    TransactionState.PREPARE_ABORT,
)


def commit_write(
    transactions: Transactions, prepared: Waiting, names: TransactionalIdPattern, end: str
) -> None:
    """
    Commit every transaction of a write, once all of them are known to be open still.

    What else is open under its names is of attempts that lost, and is aborted; those that come
    later find the mark ``end``. A reader of committed records that comes afterwards sees all rows.
    Raises :class:`FencedError` or :class:`TimeoutExceededError` if none is committed, nor will
    be, and :class:`ExactlyOnceError` if some are, or that cannot be told.
    """
    waiting = [PreparedTransaction(*one) for one in prepared]
    started = check_open(transactions, waiting)
    try:
        transactions.end_all(waiting, commit=True)
    except PykafkaError as error:
        _check_decided(transactions, waiting, error, started)
    try:
        swept = _abort_lost_attempts(transactions, waiting, names, end)
        transactions.wait_until_visible([*(one.transactional_id for one in waiting), *swept])
    except PykafkaError as error:
        # An error would have the user write again what is committed.
        logger.warning(
            "everything is committed, but the write could not be brought to its end: %s; readers "
            "see all of it once the brokers have done so, or the transactions' time is over",
            error,
        )


def abort_write(
    transactions: Transactions, prepared: Waiting, names: TransactionalIdPattern, end: str
) -> None:
    """
    Abort every transaction of a write, and what else is open under its names.

    Spark does not wait for tasks that it stops: those that come later find the mark ``end``. An
    error is raised when all else has been tried, :class:`ExactlyOnceError` if a commit landed
    before.
    """
    with ExitStack() as steps:
        # They run from the last to the first, each whether or not those before it have failed.
        steps.callback(abort_lingering, transactions, names)
        waiting = [PreparedTransaction(*one) for one in prepared]
        steps.callback(transactions.end_all, waiting, commit=False)
        steps.callback(transactions.register_id, end)


def _check_decided(
    transactions: Transactions,
    waiting: Sequence[PreparedTransaction],
    error: PykafkaError,
    started: Mapping[str, int] | None = None,
) -> None:
    """
    Raise an error after which nothing is committed, or say what is; return if everything is.

    Whatever is still under way for the transactions is refused before anything is said of them.
    """
    outcomes = Counter(settle(transactions, waiting, started).values())
    done, total = outcomes[Outcome.COMMITTED], len(waiting)
    if done == total:
        logger.info("%s; but all of the %d transactions are committed", error, total)
        return
    if outcomes[Outcome.ABORTED] == total:
        raise _came_to_nothing(error) from error
    later = ", and may still become visible" if outcomes[Outcome.UNKNOWN] else ""
    unknown = outcomes[Outcome.UNKNOWN] + outcomes[Outcome.LOST]
    condition = "EXACTLY_ONCE_COMMITTED_IN_PART" if done else "EXACTLY_ONCE_OUTCOME_UNKNOWN"
    msg = (
        f"the rows of {done} of {total} tasks are visible to readers of committed records, or will "
        f"be; of {unknown} tasks it is not known whether they are{later}; the other "
        f"{outcomes[Outcome.ABORTED]} are not, and will not be: {error}. To write all of them "
        "again would repeat those that are there; pykafka transactions list --all shows their state"
    )
    raise ExactlyOnceError(condition, msg) from error


def _came_to_nothing(error: PykafkaError) -> PykafkaError:
    msg = (
        f"{error}. The transactions were aborted: nothing of this write is visible to readers of "
        "committed records, nor will be; run it again"
    )
    return FencedError(msg) if isinstance(error, FencedError) else TimeoutExceededError(msg)


def check_open(
    transactions: Transactions, waiting: Sequence[PreparedTransaction]
) -> dict[str, int]:
    """
    Raise :class:`FencedError` unless all are open; warn of what ending them costs the brokers.

    Returns when they were begun, in milliseconds, by their names.
    """
    described = transactions.describe_all([one.transactional_id for one in waiting])
    for one in waiting:
        _check(one, described[one.transactional_id])
    markers = sum(it.partitions for it in described.values() if it is not None)
    if markers > MANY_MARKERS:
        logger.warning(
            "%d tasks of this write have rows in %d partitions on average, and the brokers write "
            "one marker for each when they end its transaction: %d, which takes them long, and "
            "holds up readers of committed records. Write fewer, larger tasks, or let each write "
            "to fewer partitions (docs/scaling.md)",
            *(len(waiting), round(markers / len(waiting)), markers),
        )
    return {name: it.started_ms for name, it in described.items() if it is not None}


def _check(wanted: PreparedTransaction, found: TransactionDescription | None) -> None:
    ours = found is not None and found.prepared == wanted
    if found is not None and ours and found.state is TransactionState.ONGOING:
        return
    what = "unknown to the brokers" if found is None else f"in the state {found.state.value}"
    if found is not None and not ours:
        what += " of another producer"
    msg = (
        f"the transaction {wanted.transactional_id} is {what}: the write took longer than "
        "kafka.transaction.timeout.ms, or another one uses the same transactionalIdPrefix. "
        "Nothing of this write is visible to readers of committed records; run it again"
    )
    raise FencedError(msg)


def _abort_lost_attempts(
    transactions: Transactions,
    winners: Sequence[PreparedTransaction],
    names: TransactionalIdPattern,
    end: str,
) -> list[str]:
    """
    Abort what attempts that lost have left open, and return its names.
    """
    quick = transactions.with_time_limit(_CLEARING_SECONDS)
    _best_effort(lambda: quick.register_id(end))
    found = find_lost_attempts(transactions, [one.transactional_id for one in winners], names)
    _best_effort(lambda: transactions.abort_ids(found))
    return found


def find_lost_attempts(
    transactions: Transactions, winners: Iterable[str], names: TransactionalIdPattern
) -> list[str]:
    """
    Return what attempts of the winners' tasks that lost have left open.

    They are looked up by the names that they would have; all brokers are asked for more only where
    Spark has run a task again. Nobody can commit them, and they end by themselves when their time
    is over: a broker that is needed for nothing else is waited for a moment only.
    """
    won = set(winners)
    others = other_attempt_ids(won)
    quick = transactions.with_time_limit(_CLEARING_SECONDS)
    described = quick.describe_reachable([*others.transactional_ids, *others.notice_ids])
    found = {name for name, it in described.items() if it and it.state in _IN_THE_WAY}
    if (
        found
        or others.were_retried
        or any(described.get(notice_id) for notice_id in others.notice_ids)
    ):
        found |= set(list_open_ids(transactions, names))
    return sorted(found - won)


def _best_effort(step: Callable[[], None]) -> None:
    try:
        step()
    except PykafkaError as error:
        logger.warning(
            "everything is committed, but %s; attempts of tasks that lost may hold up readers "
            "until their transactions' time is over",
            error,
        )


def abort_lingering(transactions: Transactions, names: TransactionalIdPattern) -> list[str]:
    """
    Abort what is open still, and return its names; it would hold readers up until its time is over.
    """
    found = list_open_ids(transactions, names)
    transactions.abort_ids(found)
    return found


def list_open_ids(transactions: Transactions, names: TransactionalIdPattern) -> list[str]:
    """
    Return what is open, as far as brokers say so in time.
    """
    quick = transactions.with_time_limit(_LISTING_SECONDS)
    return quick.list_reachable_ids(names, _IN_THE_WAY)
