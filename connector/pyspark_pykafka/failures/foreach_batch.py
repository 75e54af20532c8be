"""
``foreachBatch`` without records that block it: a batch that fails is narrowed down to its culprits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as sf

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.failures.bisection import FailedRecord, PoisonPolicy, RecordSet, bisect
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger("pyspark_pykafka")

BatchFunction = Callable[["DataFrame", int], None]

#: Where culprits go, with the number of their batch; :class:`DeadLetterTopic` is one.
DeadLetterSink = Callable[[Sequence[FailedRecord], int], None]

_PLACE = ("topic", "partition", "offset")


def isolate_poison(
    process: BatchFunction, dead_letter: DeadLetterSink, policy: PoisonPolicy = PoisonPolicy()
) -> BatchFunction:
    """
    Return a function for ``foreachBatch`` that sets records aside which ``process`` cannot take.

    When ``process`` fails, parts of the batch are run until each culprit stands alone; what has
    succeeded is not run again. All culprits then go to ``dead_letter``, and the batch is done. If
    it looks like an outage, or there are more than the policy allows, the last error is raised
    and nothing is set aside. ``process`` should write a part whole or not at all.

    The frame needs the source's columns ``topic``, ``partition`` and ``offset``; rows that were
    made of one record stay together. Raises :class:`~pyspark_pykafka.errors.OptionsError` without
    them.
    """

    def processing(frame: DataFrame, batch_id: int) -> None:
        _check_columns(frame)
        try:
            process(frame, batch_id)
        except Exception as failure:  # noqa: BLE001 (whatever the user's function raises is judged)
            _isolate(frame, batch_id, failure)

    def _isolate(frame: DataFrame, batch_id: int, failure: Exception) -> None:
        logger.warning(
            "micro-batch %d fails as a whole, looking for the records that do it: %s",
            batch_id,
            str(failure).split("\n", 1)[0],
        )
        # Every part would be read from Kafka anew otherwise.
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            whole = _whole(kept)
            if len(whole) == 0:
                raise failure
            extents = dict(whole.offsets)
            culprits = bisect(
                whole,
                failure,
                lambda part: process(kept.filter(_condition(part, extents)), batch_id),
                lambda: process(kept.limit(0), batch_id),
                policy=policy,
            )
        finally:
            kept.unpersist()
        if culprits:
            dead_letter(culprits, batch_id)
            logger.warning(
                "micro-batch %d is done without %d of its records: %s",
                *(batch_id, len(culprits), _named(culprits)),
            )

    return processing


def _check_columns(frame: DataFrame) -> None:
    missing = [name for name in _PLACE if name not in frame.columns]
    if missing:
        msg = (
            f"isolate_poison needs the columns {', '.join(_PLACE)} to tell records apart, and the "
            f"frame lacks {', '.join(missing)}; keep them in what foreachBatch is given"
        )
        raise OptionsError((msg,))


def _whole(frame: DataFrame) -> RecordSet:
    """
    Return the batch's offsets: as ranges where they have no gaps, which costs no memory.
    """
    found = (
        frame.groupBy("topic", "partition")
        .agg(
            sf.min("offset").alias("first"),
            sf.max("offset").alias("last"),
            sf.count_distinct("offset").alias("number"),
        )
        .collect()
    )
    offsets: dict[TopicPartition, Sequence[int]] = {}
    gaps = []
    for row in found:
        tp = TopicPartition(row["topic"], row["partition"])
        offsets[tp] = range(row["first"], row["last"] + 1)
        if row["number"] < len(offsets[tp]):
            gaps.append(tp)
    for tp in gaps:
        rows = frame.filter(_in(tp)).select("offset").distinct().sort("offset")
        offsets[tp] = rows.toArrow()["offset"].to_numpy()
    return RecordSet(tuple(sorted(offsets.items(), key=lambda each: each[0])))


def _condition(part: RecordSet, extents: dict[TopicPartition, Sequence[int]]) -> Column:
    """
    Return what selects a part; partitions that are in it whole share one condition for their topic.
    """
    whole: dict[str, list[int]] = {}
    conditions: list[Column] = []
    for tp, offsets in part.offsets:
        if len(offsets) == len(extents[tp]):
            whole.setdefault(tp.topic, []).append(tp.partition)
        else:
            between = sf.col("offset").between(int(offsets[0]), int(offsets[-1]))
            conditions.append(_in(tp) & between)
    conditions += [
        (sf.col("topic") == topic) & sf.col("partition").isin(partitions)
        for topic, partitions in whole.items()
    ]
    return reduce(or_, conditions)


def _in(tp: TopicPartition) -> Column:
    return (sf.col("topic") == tp.topic) & (sf.col("partition") == tp.partition)


def _named(culprits: Sequence[FailedRecord]) -> str:
    return ", ".join(f"{one.tp} at {one.offset}" for one in culprits[:20])
