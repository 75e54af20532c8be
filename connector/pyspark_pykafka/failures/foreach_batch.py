"""
``foreachBatch`` that survives poison records: a failing batch is bisected to its failing records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as sf

from pyspark_pykafka.errors import OptionsError, error_text
from pyspark_pykafka.failures.bisection import FailedRecord, PoisonPolicy, RecordSet, bisect
from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

logger = logging.getLogger("pyspark_pykafka")

BatchFunction = Callable[["DataFrame", int], None]

#: Receives the failed records of a batch and the batch's id, as :class:`DeadLetterTopic` does.
DeadLetterSink = Callable[[Sequence[FailedRecord], int], None]

_POSITION_COLUMNS = ("topic", "partition", "offset")


def isolate_poison(
    process: BatchFunction, dead_letter: DeadLetterSink, policy: PoisonPolicy = PoisonPolicy()
) -> BatchFunction:
    """
    Return a function for ``foreachBatch`` that sets aside the records that ``process`` fails on.

    When ``process`` fails, parts of the batch are run until each failing record is found; records
    that succeeded are not run again. The failing records then go to ``dead_letter`` and the batch
    succeeds. If the failures look like an outage, or more records fail than ``policy`` allows, the
    last error is raised and nothing is set aside. ``process`` should write a part completely or
    not at all.

    The frame needs the source's columns ``topic``, ``partition`` and ``offset``, otherwise
    :class:`~pyspark_pykafka.errors.OptionsError` is raised. If one of them is null in a row of a
    batch that fails, as after an outer join, the batch's error is raised and nothing is set aside.
    Rows made from one record stay together::

        def process(frame, batch_id):
            frame.write.mode("append").saveAsTable("orders")

        handler = isolate_poison(process, DeadLetterTopic("orders-dead", options))
        frame.writeStream.foreachBatch(handler).option("checkpointLocation", path).start()
    """

    def process_batch(frame: DataFrame, batch_id: int) -> None:
        _check_columns(frame)
        try:
            process(frame, batch_id)
        except Exception as failure:  # noqa: BLE001 (any error of the user's function counts)
            logger.warning(
                "Micro-batch %d failed; searching for the records that cause it: %s",
                batch_id,
                error_text(failure).split("\n", 1)[0],
            )
            if isinstance(dead_letter, DeadLetterTopic):
                # Without this check, a missing topic would fail the batch only after a long search.
                dead_letter.check()
            failed = _find_failed_records(process, frame, batch_id, failure, policy)
            if failed:
                dead_letter(failed, batch_id)
                logger.warning(
                    "Micro-batch %d succeeded except for %d records, which were set aside: %s",
                    *(batch_id, len(failed), _positions(failed)),
                )

    return process_batch


def _find_failed_records(
    process: BatchFunction,
    frame: DataFrame,
    batch_id: int,
    failure: Exception,
    policy: PoisonPolicy,
) -> Sequence[FailedRecord]:
    """
    Process the parts of a batch that has failed, and return the records that cannot be processed.
    """
    # Without the cache, every part would be read from Kafka again.
    cached = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        partitions = _summarise_partitions(cached)
        unidentified = sum(row["unidentified"] for row in partitions)
        if unidentified:
            logger.warning(
                "%d rows of micro-batch %d have no topic, partition or offset (null, as after an "
                "outer join), so its records cannot be isolated: the batch fails, and no record "
                "is set aside",
                *(unidentified, batch_id),
            )
            raise failure
        batch = _record_set(cached, partitions)
        if len(batch) == 0:
            raise failure
        all_offsets = dict(batch.offsets)
        return bisect(
            batch,
            failure,
            lambda part: process(cached.filter(_condition(part, all_offsets)), batch_id),
            lambda: process(cached.limit(0), batch_id),
            policy=policy,
        )
    finally:
        cached.unpersist()


def _check_columns(frame: DataFrame) -> None:
    missing = [name for name in _POSITION_COLUMNS if name not in frame.columns]
    if missing:
        msg = (
            f"isolate_poison needs the columns {', '.join(_POSITION_COLUMNS)} to identify records; "
            f"the frame lacks {', '.join(missing)}: keep them in the streaming query"
        )
        raise OptionsError((msg,))


def _summarise_partitions(frame: DataFrame) -> list[Row]:
    """
    Return the offsets of each partition, and the number of its rows without a complete position.
    """
    is_null = reduce(or_, [sf.col(name).isNull() for name in _POSITION_COLUMNS])
    return (
        frame.groupBy("topic", "partition")
        .agg(
            sf.min("offset").alias("first"),
            sf.max("offset").alias("last"),
            sf.count_distinct("offset").alias("number"),
            sf.count_if(is_null).alias("unidentified"),
        )
        .collect()
    )


def _record_set(frame: DataFrame, partitions: Sequence[Row]) -> RecordSet:
    """
    Return the positions of a batch's records; offsets without gaps become ranges, to save memory.
    """
    offsets: dict[TopicPartition, Sequence[int]] = {}
    gaps = []
    for row in partitions:
        tp = TopicPartition(row["topic"], row["partition"])
        offsets[tp] = range(row["first"], row["last"] + 1)
        if row["number"] < len(offsets[tp]):
            gaps.append(tp)
    for tp in gaps:
        distinct = frame.filter(_in_partition(tp)).select("offset").distinct().sort("offset")
        offsets[tp] = distinct.toArrow()["offset"].to_numpy()
    return RecordSet(tuple(sorted(offsets.items(), key=lambda entry: entry[0])))


def _condition(part: RecordSet, all_offsets: dict[TopicPartition, Sequence[int]]) -> Column:
    """
    Return the filter for a part; its complete partitions share one condition per topic.
    """
    complete: dict[str, list[int]] = {}
    conditions: list[Column] = []
    for tp, offsets in part.offsets:
        if len(offsets) == len(all_offsets[tp]):
            complete.setdefault(tp.topic, []).append(tp.partition)
        else:
            between = sf.col("offset").between(int(offsets[0]), int(offsets[-1]))
            conditions.append(_in_partition(tp) & between)
    conditions += [
        (sf.col("topic") == topic) & sf.col("partition").isin(partitions)
        for topic, partitions in complete.items()
    ]
    return reduce(or_, conditions)


def _in_partition(tp: TopicPartition) -> Column:
    return (sf.col("topic") == tp.topic) & (sf.col("partition") == tp.partition)


def _positions(records: Sequence[FailedRecord]) -> str:
    return ", ".join(f"{record.tp} at {record.offset}" for record in records[:20])
