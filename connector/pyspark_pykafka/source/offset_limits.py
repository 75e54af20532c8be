"""
Resolves the start and end that the options give (earliest, offsets, times, ...) to offsets.
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
    The offsets of partitions, as :class:`MetadataClient` reads them; missing ones are left out.
    """

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the first offset that each log still holds.
        """

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offset of each partition's next record.
        """

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """
        Return the first offset at or after each time (epoch ms); None if there is none.
        """

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offsets that the consumer group of the options has committed.
        """


def resolve_start(
    limit: Limit,
    tps: Sequence[TopicPartition],
    source: OffsetSource,
    fallback: int | None = None,
) -> Offsets:
    """
    Return the start offset of each partition; EARLIEST and LATEST are kept.

    ``fallback``, EARLIEST or LATEST, is for partitions that ``limit`` does not name. Raises
    :class:`OffsetsError` for such partitions without a fallback, and for a partition without a
    record at or after its time if the strategy is ``error``.
    """
    resolved = _resolve(limit, tps, source, fallback)
    unmatched = [tp for tp, offset in resolved.items() if offset is None]
    if unmatched and _strategy(limit) == "error":
        tp = unmatched[0]
        msg = (
            f"No offset matched from request of topic-partition {tp} and timestamp "
            f"{_time(limit, tp)}: all its records are earlier. Set "
            "startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
        )
        raise OffsetsError("NO_OFFSET_MATCHED_FROM_TIMESTAMP", msg)
    known = {tp: offset for tp, offset in resolved.items() if offset is not None}
    return {**known, **source.end_offsets(unmatched)} if unmatched else known


def resolve_end(limit: Limit, tps: Sequence[TopicPartition], source: OffsetSource) -> Offsets:
    """
    Return the end offset of each partition; LATEST if all records are earlier than its time.
    """
    resolved = _resolve(limit, tps, source)
    return {tp: LATEST if offset is None else offset for tp, offset in resolved.items()}


def may_start_at_latest(limit: Limit) -> bool:
    """
    Whether the same limit can resolve to a later start when new records have arrived.
    """
    if isinstance(limit, SpecificOffsets):
        return LATEST in {*dict(limit.offsets).values(), *dict(limit.topics).values()}
    return isinstance(limit, Latest) or _strategy(limit) == "latest"


def resolve_sentinels(offsets: Offsets, source: OffsetSource) -> Offsets:
    """
    Replace EARLIEST and LATEST by the present log start and end offsets.
    """
    log_starts = source.log_start_offsets(
        [tp for tp, offset in offsets.items() if offset == EARLIEST]
    )
    log_ends = source.end_offsets([tp for tp, offset in offsets.items() if offset == LATEST])
    return {**offsets, **log_starts, **log_ends}


def _resolve(
    limit: Limit,
    tps: Sequence[TopicPartition],
    source: OffsetSource,
    fallback: int | None = None,
) -> Mapping[TopicPartition, int | None]:
    if isinstance(limit, Earliest | Latest):
        return dict.fromkeys(tps, EARLIEST if isinstance(limit, Earliest) else LATEST)
    if isinstance(limit, GlobalTimestamp):
        return source.offsets_for_times(dict.fromkeys(tps, limit.timestamp_ms))
    defaults = {} if fallback is None else dict.fromkeys(tps, fallback)
    if isinstance(limit, Committed):
        return _require_committed({**defaults, **source.committed_offsets(tps)}, tps)
    if isinstance(limit, SpecificOffsets):
        offsets = {**defaults, **_of_topics(limit, tps), **dict(limit.offsets)}
        return require_assigned(offsets, tps, _OFFSET_CONDITION)
    times = dict(limit.timestamps)
    if fallback is None:
        return source.offsets_for_times(require_assigned(times, tps, _TIME_CONDITION))
    require_assigned({**defaults, **times}, tps, _TIME_CONDITION)
    return {**defaults, **source.offsets_for_times(times)}


def _of_topics(limit: SpecificOffsets, tps: Sequence[TopicPartition]) -> Offsets:
    by_topic = dict(limit.topics)
    unknown = by_topic.keys() - {tp.topic for tp in tps}
    if unknown:
        msg = (
            f"a start is given for {', '.join(sorted(unknown))}, but the query reads no partition "
            "of it; correct the name, or remove it"
        )
        raise OffsetsError(_OFFSET_CONDITION, msg)
    return {tp: by_topic[tp.topic] for tp in tps if tp.topic in by_topic}


def _require_committed(committed: Offsets, tps: Sequence[TopicPartition]) -> Offsets:
    missing = set(tps) - committed.keys()
    if not missing:
        return committed
    msg = (
        f"the consumer group has committed no offset for {format_partitions(missing)}; set "
        "startingOffsetsFallback to earliest or latest, where such partitions are to start"
    )
    raise OffsetsError("NO_COMMITTED_OFFSET", msg)


def _strategy(limit: Limit) -> str:
    return limit.strategy if isinstance(limit, GlobalTimestamp | SpecificTimestamps) else "error"


def _time(limit: Limit, tp: TopicPartition) -> int | None:
    if isinstance(limit, GlobalTimestamp):
        return limit.timestamp_ms
    return dict(limit.timestamps).get(tp) if isinstance(limit, SpecificTimestamps) else None
