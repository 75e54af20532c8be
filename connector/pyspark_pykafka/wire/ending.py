"""
Ending the transactions of many tasks together: all of them, or none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.replay import (
    Release,
    check_alone,
    check_owner,
    committed_tasks,
    ledger_topic,
    owner,
)
from pyspark_pykafka.transactional_ids import of_any_query, of_query
from pyspark_pykafka.wire.ledger import Ledger
from pyspark_pykafka.wire.transactions import FencedError, Prepared, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.replay import Marker, WrittenBatch
    from pyspark_pykafka.transactional_ids import Family
    from pyspark_pykafka.wire.transactions import Described, Transactions

    Waiting = Iterable[tuple[str, int, int]]

logger = logging.getLogger("pyspark_pykafka")

_UNDER_WAY = (State.ONGOING, State.PREPARE_EPOCH_FENCE)

# Offsets to look back for each task: its marker and the end of its transaction, in two batches.
_OFFSETS_PER_TASK = 4
_LEAST_OFFSETS = 64


def commit_all(transactions: Transactions, prepared: Waiting, names: Family, end: str) -> None:
    """
    Commit every transaction of a write, once all of them are known to be open still.

    What else is open under its names is of attempts that lost, and is aborted; those that come
    later find the mark ``end``. A reader of committed records that comes afterwards sees all rows.
    Raises :class:`FencedError` if one is not open any more; then none has been committed.
    """
    waiting = [Prepared(*one) for one in prepared]
    _check_open(transactions, waiting)
    transactions.end_all(waiting, commit=True)
    try:
        transactions.mark(end)
        _sweep(transactions, names)
        transactions.wait_until_visible([one.transactional_id for one in waiting])
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
    ledger = Ledger(transactions.cluster, transactions.config, ledger_topic(batch.prefix))
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


def abort_all(
    transactions: Transactions, prepared: Waiting, names: Family, end: str | None = None
) -> None:
    """
    Abort every transaction of a write, and what else is open under its names.

    Spark does not wait for tasks that it stops: those that come later find the mark ``end``.
    """
    if end is not None:
        transactions.mark(end)
    for one in prepared:
        try:
            transactions.end(Prepared(*one), commit=False)
        except FencedError as gone:
            logger.info("%s; nothing of it is left to abort", gone)
    _sweep(transactions, names)


def owner_of(transactions: Transactions, prefix: str) -> Marker | None:
    """
    Return the last committed entry of the query that a prefix belongs to, or None.

    Raises :class:`UnknownTopicError` if the prefix never had a ledger.
    """
    ledger = Ledger(transactions.cluster, transactions.config, ledger_topic(prefix))
    return owner(ledger.committed(*ledger.ended()))


def release(transactions: Transactions, held: Marker, prefix: str) -> None:
    """
    Let another query have the prefix, and the same one write a batch whole again.

    What queries have open under the prefix is aborted.
    """
    _sweep(transactions, of_any_query(prefix))
    ledger = Ledger(transactions.cluster, transactions.config, ledger_topic(prefix))
    ledger.append(Release(held.query))


def _committed_before(
    transactions: Transactions, ledger: Ledger, batch: WrittenBatch
) -> frozenset[int]:
    """
    Return the tasks that an earlier write has committed, once every earlier one has ended.
    """
    first = batch.first
    low, ended = ledger.ended()
    ended = min(ended, first)
    width = _OFFSETS_PER_TASK * batch.tasks + _LEAST_OFFSETS
    committed = ledger.committed_back(low, ended, batch.batch, width)
    check_owner(batch, committed)
    # Only now: another query's transactions are none of ours to abort.
    _sweep(transactions, of_query(batch.prefix, batch.query), batch)
    if ended < first:
        ledger.wait_until_ended(first)
        committed += ledger.committed(ended, first)
        check_owner(batch, committed)
    check_alone(batch, ledger.all_since(first))
    return committed_tasks(batch, committed)


def _check_open(transactions: Transactions, waiting: Sequence[Prepared]) -> None:
    described = transactions.describe_all([one.transactional_id for one in waiting])
    for one in waiting:
        _check(one, described[one.transactional_id])


def _check(wanted: Prepared, found: Described | None) -> None:
    ours = found is not None and Prepared(wanted[0], found.producer_id, found.epoch) == wanted
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


def _sweep(transactions: Transactions, names: Family, but: WrittenBatch | None = None) -> None:
    """
    Abort what is open still: it would hold readers of committed records up until its time is over.
    """
    ours = {task.prepared[0] for task in but.written} if but else set()
    for name in transactions.names(names.head, _UNDER_WAY):
        if names.has(name) and name not in ours:
            transactions.abort(name)
