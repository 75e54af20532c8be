"""
Ending the transactions of a batch write together: all of them, or none.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import ExactlyOnceError, PykafkaError
from pyspark_pykafka.wire.transactions import FencedError, Prepared, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.transactional_ids import Family
    from pyspark_pykafka.wire.transactions import Described, Transactions

    Waiting = Iterable[tuple[str, int, int]]

logger = logging.getLogger("pyspark_pykafka")

_COMMITTED = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
# What holds readers up: a partition may not know yet of one that is being aborted.
_IN_THE_WAY = (State.ONGOING, State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT)


def commit_all(transactions: Transactions, prepared: Waiting, names: Family, end: str) -> None:
    """
    Commit every transaction of a write, once all of them are known to be open still.

    What else is open under its names is of attempts that lost, and is aborted; those that come
    later find the mark ``end``. A reader of committed records that comes afterwards sees all rows.
    Raises :class:`FencedError` if one is not open any more; then none has been committed. Raises
    :class:`ExactlyOnceError` if some are committed, and others cannot be.
    """
    waiting = [Prepared(*one) for one in prepared]
    _check_open(transactions, waiting)
    try:
        transactions.end_all(waiting, commit=True)
    except PykafkaError as error:
        _check_decided(transactions, waiting, error)
    try:
        transactions.mark(end)
        swept = _sweep(transactions, names)
        transactions.wait_until_visible([*(one.transactional_id for one in waiting), *swept])
    except PykafkaError as error:
        # An error would have the user write again what is committed.
        logger.warning(
            "everything is committed, but the write could not be brought to its end: %s; readers "
            "see all of it once the brokers have done so, or the transactions' time is over",
            error,
        )


def abort_all(transactions: Transactions, prepared: Waiting, names: Family, end: str) -> None:
    """
    Abort every transaction of a write, and what else is open under its names.

    Spark does not wait for tasks that it stops: those that come later find the mark ``end``. An
    error is raised when all else has been tried.
    """
    with ExitStack() as steps:
        # They run from the last to the first, each whether or not those before it have failed.
        steps.callback(_sweep, transactions, names)
        waiting = [Prepared(*one) for one in prepared]
        steps.callback(transactions.end_all, waiting, commit=False)
        steps.callback(transactions.mark, end)


def _check_decided(
    transactions: Transactions, waiting: Sequence[Prepared], error: PykafkaError
) -> None:
    """
    Raise an error after which nothing is committed, or say what is; return if everything is.
    """
    total = len(waiting)
    found = transactions.describe_some([one.transactional_id for one in waiting])
    done = sum(_is_committed(one, found.get(one.transactional_id)) for one in waiting)
    if done == total:
        logger.info("%s; but all of the %d transactions are committed", error, total)
        return
    if not done and len(found) == total:
        raise error
    msg = (
        f"the rows of {done} of {total} tasks are visible to readers of committed records, or will "
        f"be; of {total - len(found)} tasks it is not known; the others are not: {error}. To write "
        "all of them again would repeat those that are there"
    )
    raise ExactlyOnceError("EXACTLY_ONCE_COMMITTED_IN_PART", msg) from error


def _is_committed(wanted: Prepared, found: Described | None) -> bool:
    return found is not None and found.prepared == wanted and found.state in _COMMITTED


def _check_open(transactions: Transactions, waiting: Sequence[Prepared]) -> None:
    described = transactions.describe_all([one.transactional_id for one in waiting])
    for one in waiting:
        _check(one, described[one.transactional_id])


def _check(wanted: Prepared, found: Described | None) -> None:
    ours = found is not None and found.prepared == wanted
    if found is not None and ours and found.state is State.ONGOING:
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


def _sweep(transactions: Transactions, names: Family) -> list[str]:
    """
    Abort what is open still, and return its names; it would hold readers up until its time is over.
    """
    found = _open(transactions, names)
    for name in found:
        transactions.abort(name)
    return found


def _open(transactions: Transactions, names: Family) -> list[str]:
    return [name for name in transactions.names(names.head, _IN_THE_WAY) if names.has(name)]
