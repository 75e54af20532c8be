"""
Reads the partitions that were added after a batch read was planned.

Spark 4.1 and later plan a DataFrame or view once, for all queries on it; Spark 4.0 keeps the plan
of a DataFrame that is collected again. Tasks resolve EARLIEST and LATEST, so each query sees new
records. So that each query also sees added partitions, the task of a plan's last range looks for
partitions that the plan does not have. It does not look for any if the options fix the end, name
the partitions or push down filters.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.offsets import LATEST, OffsetRange, format_partitions
from pyspark_pykafka.options import Assign, Subscribe
from pyspark_pykafka.source.offset_limits import (
    OffsetSource,
    starts_at,
    starts_of_added_partitions,
    topics_ending_at_latest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.offsets import Assignment
    from pyspark_pykafka.options import Position, SourceOptions, Strategy

logger = logging.getLogger("pyspark_pykafka")

# Stands for any topic that did not exist when the read was planned.
_NEW_TOPIC = ""


class TopicLookup(OffsetSource, Protocol):
    """
    An :class:`OffsetSource` that also knows which partitions exist: :class:`MetadataClient`.
    """

    def assignment(self, strategy: Strategy) -> Assignment:
        """
        Return the existing partitions that a strategy selects.
        """

    def existing(self, topics: Iterable[str]) -> Assignment:
        """
        Return the partitions of the topics, without topics that do not exist.
        """


@dataclass(frozen=True, slots=True)
class LastRange:
    """
    The value of a plan's last input partition, whose task also reads the added partitions.

    ``range`` is the last range of the plan, or None if the plan is empty. ``partition_counts`` and
    ``topic_ids`` are by topic, as of the planning.
    """

    range: OffsetRange | None
    partition_counts: Mapping[str, int]
    topic_ids: Mapping[str, str]


def with_last_range(
    ranges: Sequence[OffsetRange], assigned: Assignment, options: SourceOptions
) -> list[OffsetRange | LastRange]:
    """
    Return the values of a plan's input partitions, one for each range.

    If partitions that are added later belong to the read, the last value is a :class:`LastRange`.
    It contains the number of partitions of each topic in ``assigned``, so that its task can detect
    the added ones.
    """
    partition_counts = Counter(tp.topic for tp in assigned.partitions)
    if not may_have_added(options, partition_counts):
        return [*ranges]
    last = ranges[-1] if ranges else None
    topic_ids = dict(assigned.topic_ids)
    return [*ranges[:-1], LastRange(last, dict(partition_counts), topic_ids)]


def may_have_added(options: SourceOptions, topics: Iterable[str]) -> bool:
    """
    Whether the read includes partitions that are added to its ``topics`` later, or new topics.
    """
    # The user guarantees that a plan narrowed by filters is used by one query only.
    if isinstance(options.strategy, Assign) or options.push_down_filters:
        return False
    is_closed = isinstance(options.strategy, Subscribe)
    candidates = {*topics} if is_closed else {*topics, _NEW_TOPIC}
    return bool(_starts_of_added(options, candidates))


def ranges_of(
    value: OffsetRange | LastRange | None,
    options: SourceOptions,
    lookup: Callable[[], TopicLookup],
) -> Iterator[OffsetRange]:
    """
    Yield the ranges that the task of an input partition reads; added partitions come last.

    The metadata is requested after the planned range has been read. Raises the errors of
    :mod:`pyspark_pykafka.errors`.
    """
    planned = value.range if isinstance(value, LastRange) else value
    if planned is not None:
        yield planned
    if isinstance(value, LastRange):
        yield from _added_ranges(value, options, lookup())


def _added_ranges(
    plan: LastRange, options: SourceOptions, lookup: TopicLookup
) -> list[OffsetRange]:
    existing = _existing(options.strategy, lookup)
    ids = existing.topic_ids
    start_by_topic = _starts_of_added(options, {tp.topic for tp in existing.partitions})
    starts = {
        tp: start_by_topic[tp.topic]
        for tp in existing.partitions
        if tp.partition >= plan.partition_counts.get(tp.topic, 0)
        # A topic that was recreated is reported by the tasks that read its ranges.
        and plan.topic_ids.get(tp.topic) in {None, ids.get(tp.topic)}
        and tp.topic in start_by_topic
    }
    if not starts:
        return []
    logger.info("reading partitions added since the plan, too: %s", format_partitions(starts))
    # Unlike resolve_start on the driver, this never fails if all records are earlier than a time.
    offsets = starts_at(starts, lookup)
    return [OffsetRange(tp, offsets[tp], LATEST, ids.get(tp.topic)) for tp in sorted(offsets)]


def _existing(strategy: Strategy, lookup: TopicLookup) -> Assignment:
    if isinstance(strategy, Subscribe):
        # A topic that was deleted is reported by the tasks that read its ranges.
        return lookup.existing(strategy.topics)
    return lookup.assignment(strategy)


def _starts_of_added(options: SourceOptions, topics: Iterable[str]) -> dict[str, int | Position]:
    """
    Return the start of added partitions, for each topic whose added partitions the read includes.
    """
    open_topics = topics_ending_at_latest(options.ending_offsets, topics)
    fallback = options.starting_offsets_fallback
    starts = starts_of_added_partitions(options.starting_offsets, open_topics, fallback)
    return {topic: start for topic, start in starts.items() if start is not None}
