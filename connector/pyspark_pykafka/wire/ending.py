"""
Ending the transactions of many tasks together: all of them, or none.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import ExactlyOnceError, PykafkaError
from pyspark_pykafka.replay import (
    Intent,
    Marker,
    Release,
    check_alone,
    check_newest,
    check_owner,
    committed_tasks,
    intruder,
    ledger_topic,
    owner,
)
from pyspark_pykafka.transactional_ids import of_any_query, of_query
from pyspark_pykafka.wire.ledger import Ledger
from pyspark_pykafka.wire.transactions import FencedError, Prepared, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.replay import WrittenBatch, WrittenTask
    from pyspark_pykafka.transactional_ids import Family
    from pyspark_pykafka.wire.transactions import Described, Transactions

    Waiting = Iterable[tuple[str, int, int]]

logger = logging.getLogger("pyspark_pykafka")

_COMMITTED = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
# What holds readers up: a partition may not know yet of one that is being aborted.
_IN_THE_WAY = (State.ONGOING, State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT)

# Offsets to look back for each task: its marker and the end of its transaction, in two batches.
_OFFSETS_PER_TASK = 4
_LEAST_OFFSETS = 64


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


def commit_batch(transactions: Transactions, batch: WrittenBatch) -> None:
    """
    Commit what tasks of a micro-batch wrote, but for what an earlier write of it has committed.

    Raises :class:`ExactlyOnceError` if that cannot be told or is not allowed, and
    :class:`FencedError` if a transaction is not open any more. None has been committed then.
    """
    ledger = _ledger(transactions, batch.prefix)
    done = _committed_before(transactions, ledger, batch)
    prepared = {task.task: Prepared(*task.prepared) for task in batch.written}
    _check_open(transactions, list(prepared.values()))
    new = [one for task, one in prepared.items() if task not in done]
    if new:
        ledger.append(batch.intent)
        transactions.end_all(new, commit=True)
    if done:
        logger.warning(
            "batch %d of the query %s had been committed in part before a failure: of %d tasks "
            "%d were not written again",
            *(batch.batch, batch.query, batch.tasks, len(done)),
        )
        again = [one for task, one in prepared.items() if task in done]
        transactions.end_all(again, commit=False)


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


def abort_batch(
    transactions: Transactions, prefix: str, query: str, write: str, written: Sequence[WrittenTask]
) -> None:
    """
    Abort what tasks of a micro-batch wrote, and what else is open under the query's names.

    If another process has gone on with the query, or may have, what is open is that one's.
    """
    if not written:
        # Nothing tells whether another process has gone on; the next micro-batch clears up.
        return
    transactions.end_all([Prepared(*task.prepared) for task in written], commit=False)
    try:
        later = _ledger(transactions, prefix).all_since(min(task.marked for task in written))
    except PykafkaError as error:
        logger.warning(
            "it cannot be told whether another process has gone on with the query %s: %s; what "
            "attempts that lost have left open is left to the next micro-batch",
            *(query, error),
        )
        return
    batch = next((it.batch for it in later if isinstance(it, Marker) and it.write == write), None)
    if batch is not None and intruder(query, write, batch, later) is None:
        _sweep(transactions, of_query(prefix, query))


def owner_of(transactions: Transactions, prefix: str) -> Marker | None:
    """
    Return the last committed entry of the query that a prefix belongs to, or None.

    Raises :class:`UnknownTopicError` if the prefix never had a ledger.
    """
    ledger = _ledger(transactions, prefix)
    return owner(ledger.committed(*ledger.ended()))


def release(transactions: Transactions, held: Marker, prefix: str) -> None:
    """
    Let another query have the prefix, and the same one write a batch whole again.

    What queries have open under the prefix is aborted.
    """
    _sweep(transactions, of_any_query(prefix))
    _ledger(transactions, prefix).append(Release(held.query))


def _ledger(transactions: Transactions, prefix: str) -> Ledger:
    return Ledger(transactions.cluster, transactions.config, ledger_topic(prefix))


def _committed_before(
    transactions: Transactions, ledger: Ledger, batch: WrittenBatch
) -> frozenset[int]:
    """
    Return the tasks that an earlier write has committed, once every earlier one has ended.
    """
    # Without rows there is no marker: then all counts that is there now.
    first = ledger.end() if batch.first is None else batch.first
    low, ended = ledger.ended()
    ended = min(ended, first)
    width = _OFFSETS_PER_TASK * batch.tasks + _LEAST_OFFSETS
    committed = ledger.committed_back(low, ended, batch.batch, width)
    check_owner(batch, committed)
    check_newest(batch, committed)
    _clear(transactions, ledger, batch, first if batch.written else ended)
    if ended < first:
        if owner(committed) is not None:
            _clear_strangers(transactions, ledger, batch, (ended, first))
        ledger.wait_until_ended(first)
        committed += ledger.committed(ended, first)
        check_owner(batch, committed)
    later = ledger.all_since(first)
    check_alone(batch, later)
    # A driver that has died may have a process that tells of its intent only now.
    return committed_tasks(batch, [*committed, *(it for it in later if isinstance(it, Intent))])


def _clear(transactions: Transactions, ledger: Ledger, batch: WrittenBatch, since: int) -> None:
    """
    Abort what earlier writes have left open, once it is sure that this one is the last.
    """
    ours = {task.prepared[0] for task in batch.written}
    names = _open(transactions, of_query(batch.prefix, batch.query))
    left = [name for name in names if name not in ours]
    if not left:
        return
    check_alone(batch, ledger.all_since(since))
    for name in left:
        transactions.abort(name)


def _clear_strangers(
    transactions: Transactions, ledger: Ledger, batch: WrittenBatch, between: tuple[int, int]
) -> None:
    """
    Abort what queries have open that do not own the prefix, but stand before our first marker.
    """
    entries = ledger.all_between(*between)
    strangers = {it.query for it in entries if isinstance(it, Marker)} - {batch.query}
    for query in sorted(strangers):
        _sweep(transactions, of_query(batch.prefix, query))


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
