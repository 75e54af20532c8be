"""
Turning the user's start and end (words, offsets, times) into offsets of the assigned partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition, format_partitions
from pyspark_pykafka.options import (
    Committed,
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_pykafka.source.planner import require_assigned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Limit = Committed | Earliest | Latest | SpecificOffsets | SpecificTimestamps | GlobalTimestamp

_OFFSET_CONDITION = "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
_TIME_CONDITION = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"


class OffsetSource(Protocol):
    """
    Whoever knows the offsets of partitions; :class:`MetadataClient` does.
    """

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the first offsets that are still held.
        """

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offsets that the next records will get.
        """

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """
        Return the first offsets at or after times in epoch ms; None where there is none.
        """

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offsets that the consumer group of the settings committed, where it has any.
        """


def resolve_start(
    limit: Limit,
    tps: Sequence[TopicPartition],
    source: OffsetSource,
    fallback: int | None = None,
) -> Offsets:
    """
    Return where reading starts; EARLIEST and LATEST stay words.

    ``fallback`` is such a word for the partitions of which ``limit`` says nothing. Raises
    :class:`OffsetsError` when there are some and no fallback, or when no record is as young as a
    time and the strategy is ``error``.
    """
    border = _border(limit, tps, source, fallback)
    unmatched = [tp for tp, offset in border.items() if offset is None]
    if unmatched and _strategy(limit) == "error":
        tp = unmatched[0]
        msg = (
            f"No offset matched from request of topic-partition {tp} and timestamp "
            f"{_time(limit, tp)}: it has no record as young. Set "
            "startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
        )
        raise OffsetsError("NO_OFFSET_MATCHED_FROM_TIMESTAMP", msg)
    known = {tp: offset for tp, offset in border.items() if offset is not None}
    return {**known, **source.end_offsets(unmatched)} if unmatched else known


def resolve_end(limit: Limit, tps: Sequence[TopicPartition], source: OffsetSource) -> Offsets:
    """
    Return where reading ends; a time that no record reaches means LATEST, as in the JVM connector.
    """
    border = _border(limit, tps, source)
    return {tp: LATEST if offset is None else offset for tp, offset in border.items()}


def may_start_at_latest(limit: Limit) -> bool:
    """
    Whether the same words, asked again later, can mean a later offset because records came.
    """
    if isinstance(limit, SpecificOffsets):
        return LATEST in {*dict(limit.offsets).values(), *dict(limit.topics).values()}
    return isinstance(limit, Latest) or _strategy(limit) == "latest"


def resolve_sentinels(border: Offsets, source: OffsetSource) -> Offsets:
    """
    Replace EARLIEST and LATEST by the offsets that they stand for now.
    """
    earliest = source.log_start_offsets([tp for tp, offset in border.items() if offset == EARLIEST])
    latest = source.end_offsets([tp for tp, offset in border.items() if offset == LATEST])
    return {**border, **earliest, **latest}


def _border(
    limit: Limit,
    tps: Sequence[TopicPartition],
    source: OffsetSource,
    fallback: int | None = None,
) -> Mapping[TopicPartition, int | None]:
    if isinstance(limit, Earliest | Latest):
        return dict.fromkeys(tps, EARLIEST if isinstance(limit, Earliest) else LATEST)
    if isinstance(limit, GlobalTimestamp):
        return source.offsets_for_times(dict.fromkeys(tps, limit.timestamp_ms))
    rest = {} if fallback is None else dict.fromkeys(tps, fallback)
    if isinstance(limit, Committed):
        return _all_committed({**rest, **source.committed_offsets(tps)}, tps)
    if isinstance(limit, SpecificOffsets):
        given = {**rest, **_by_topic(limit, tps), **dict(limit.offsets)}
        return require_assigned(given, tps, _OFFSET_CONDITION)
    times = dict(limit.timestamps)
    if fallback is None:
        return source.offsets_for_times(require_assigned(times, tps, _TIME_CONDITION))
    require_assigned({**rest, **times}, tps, _TIME_CONDITION)
    return {**rest, **source.offsets_for_times(times)}


def _by_topic(limit: SpecificOffsets, tps: Sequence[TopicPartition]) -> Offsets:
    words = dict(limit.topics)
    unknown = words.keys() - {tp.topic for tp in tps}
    if unknown:
        msg = (
            f"a start is given for {', '.join(sorted(unknown))}, of which no partition is read; "
            "correct the name, or leave it out"
        )
        raise OffsetsError(_OFFSET_CONDITION, msg)
    return {tp: words[tp.topic] for tp in tps if tp.topic in words}


def _all_committed(found: Offsets, tps: Sequence[TopicPartition]) -> Offsets:
    missing = set(tps) - found.keys()
    if not missing:
        return found
    msg = (
        f"the consumer group has committed no offset for {format_partitions(missing)}; set "
        "startingOffsetsFallback to earliest or latest to say where such partitions start"
    )
    raise OffsetsError("NO_COMMITTED_OFFSET", msg)


def _strategy(limit: Limit) -> str:
    return limit.strategy if isinstance(limit, GlobalTimestamp | SpecificTimestamps) else "error"


def _time(limit: Limit, tp: TopicPartition) -> int | None:
    if isinstance(limit, GlobalTimestamp):
        return limit.timestamp_ms
    return dict(limit.timestamps).get(tp) if isinstance(limit, SpecificTimestamps) else None
