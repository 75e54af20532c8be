"""
Ending the transactions of a micro-batch: what the ledger says of it decides.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import PykafkaError
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
from pyspark_pykafka.wire.ending import _check_open, _open, _sweep
from pyspark_pykafka.wire.ledger import Ledger
from pyspark_pykafka.wire.transactions import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.replay import WrittenBatch, WrittenTask
    from pyspark_pykafka.wire.transactions import Transactions

logger = logging.getLogger("pyspark_pykafka")

# Offsets to look back for each task: its marker and the end of its transaction, in two batches.
_OFFSETS_PER_TASK = 4
_LEAST_OFFSETS = 64


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
