"""
Resolves the start and end that the options give (earliest, offsets, times, ...) to offsets.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    LogEnds,
    Offsets,
    TopicPartition,
    format_partitions,
)
from pyspark_pykafka.options import (
    AtTime,
    Committed,
    Earliest,
    GlobalTimestamp,
    LastOffsets,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
    TimeAgo,
)
from pyspark_pykafka.source.planner import RangeLimitOption, require_assigned
from pyspark_pykafka.timestamps import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark_pykafka.options import OffsetLimit, Position

    ResolvedOffsets = Mapping[TopicPartition, int | None]

_TIME_CONDITION = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
_FUTURE_CONDITION = "STARTING_OFFSETS_IN_THE_FUTURE"

_START = RangeLimitOption(
    "startingOffsets",
    "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
    "use -1 for latest and -2 for earliest",
)
_END = RangeLimitOption(
    "endingOffsets", "KAFKA_END_OFFSET_DOES_NOT_MATCH_ASSIGNED", "use -1 for latest"
)


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
        Return the end offset of each partition: the last stable offset under ``read_committed``.
        """

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return the high watermarks, whatever the isolation level is, with the leader epochs.
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
    limit: OffsetLimit,
    tps: Sequence[TopicPartition],
    source: OffsetSource,
    fallback: int | None = None,
    now: Callable[[], float] = time.time,
) -> Offsets:
    """
    Return the start offset of each partition; EARLIEST and LATEST are kept.

    ``fallback``, EARLIEST or LATEST, is for partitions that ``limit`` does not name. Raises
    :class:`OffsetsError` for such partitions without a fallback, for a partition without a
    record at or after its time if the strategy is ``error``, and for a time in the future.
    """
    _check_topics(limit, tps, _START)
    _check_past(limit, now)
    may_start_at_end = _has_times(_positions(limit)) and _strategy(limit) == "latest"
    # Read before the times are looked up, so that no record appended in between is skipped.
    log_ends = source.end_offsets(tps) if may_start_at_end else {}
    resolved = _resolve(limit, tps, source, now, option=_START, fallback=fallback)
    unmatched = [tp for tp, offset in resolved.items() if offset is None]
    if unmatched and _strategy(limit) == "error":
        tp = unmatched[0]
        msg = (
            f"No offset matched from request of topic-partition {tp} and timestamp "
            f"{_time(limit, tp)}: all its records are earlier. Set "
            "startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
        )
        raise OffsetsError("NO_OFFSET_MATCHED_FROM_TIMESTAMP", msg)
    start_offsets = {tp: offset for tp, offset in resolved.items() if offset is not None}
    return start_offsets | {tp: log_ends[tp] for tp in unmatched if tp in log_ends}


def resolve_end(
    limit: OffsetLimit,
    tps: Sequence[TopicPartition],
    source: OffsetSource,
    log_ends: Offsets | None = None,
    now: Callable[[], float] = time.time,
    *,
    starts: Offsets | None = None,
) -> Offsets:
    """
    Return the end offset of each partition; LATEST is kept.

    If all records of a partition are earlier than the time, the end is the log's end, read before
    the time is looked up: records appended in between may be at or after the time. ``log_ends`` has
    these ends if they are known. A partition whose start in ``starts`` lies beyond the last stable
    offset ends at the start, or at its high watermark if that is lower.
    """
    _check_topics(limit, tps, _END)
    if log_ends is None:
        log_ends = source.end_offsets(tps) if _has_times(_positions(limit)) else {}
        log_ends = _with_uncommitted(log_ends, starts or {}, source)
    resolved = _resolve(limit, tps, source, now, option=_END)
    return _with_ends(resolved, log_ends)


def _with_uncommitted(log_ends: Offsets, starts: Offsets, source: OffsetSource) -> Offsets:
    # Invariant R9 (last stable offset).
    older = [tp for tp, end in log_ends.items() if end < starts.get(tp, end)]
    if not older:
        return log_ends
    ends = source.high_watermarks(older).offsets
    return log_ends | {tp: min(starts[tp], end) for tp, end in ends.items()}


def with_names(limit: OffsetLimit, has_name: Callable[[TopicPartition | str], bool]) -> OffsetLimit:
    """
    Return the limit without the partitions and topics whose names ``has_name`` rejects.
    """
    if isinstance(limit, SpecificOffsets):
        offsets = tuple(pair for pair in limit.offsets if has_name(pair[0]))
        return SpecificOffsets(offsets, tuple(pair for pair in limit.topics if has_name(pair[0])))
    if isinstance(limit, SpecificTimestamps):
        times = tuple(pair for pair in limit.timestamps if has_name(pair[0]))
        return SpecificTimestamps(times, limit.strategy)
    return limit


def end_times(limit: OffsetLimit, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Return the end time (epoch ms) of each partition for which ``limit`` is a time.

    Times that are relative to the present are left out.
    """
    if isinstance(limit, GlobalTimestamp | AtTime):
        return dict.fromkeys(tps, limit.timestamp_ms)
    if isinstance(limit, SpecificTimestamps):
        times = dict(limit.timestamps)
        return {tp: times[tp] for tp in tps if tp in times}
    if not isinstance(limit, SpecificOffsets):
        return {}
    offsets, topics = dict(limit.offsets), dict(limit.topics)
    positions = {tp: offsets.get(tp, topics.get(tp.topic)) for tp in tps}
    return {tp: end.timestamp_ms for tp, end in positions.items() if isinstance(end, AtTime)}


def specified_offsets(limit: OffsetLimit) -> Offsets:
    """
    Return the offsets that the user gives as numbers; EARLIEST and LATEST are left out.
    """
    if not isinstance(limit, SpecificOffsets):
        return {}
    numbers = {tp: offset for tp, offset in limit.offsets if isinstance(offset, int)}
    return {tp: offset for tp, offset in numbers.items() if offset >= 0}


def may_start_at_latest(limit: OffsetLimit) -> bool:
    """
    Whether the same limit can resolve to a later start when new records have arrived.
    """
    if isinstance(limit, GlobalTimestamp | SpecificTimestamps):
        return limit.strategy == "latest"
    return any(
        position == LATEST or isinstance(position, Latest | AtTime | TimeAgo | LastOffsets)
        for position in _positions(limit)
    )


def starts_of_added_partitions(
    limit: OffsetLimit, topics: Collection[str], fallback: int | None = None
) -> dict[str, int | Position | None]:
    """
    Return the start that ``limit`` gives, by topic, to partitions added after it was resolved.

    The start is ``fallback`` if ``limit`` applies only to the partitions that it names.
    """
    start: int | Position | None
    if isinstance(limit, SpecificOffsets):
        starts = dict(limit.topics)
        return {topic: starts.get(topic, fallback) for topic in topics}
    if isinstance(limit, Earliest | Latest):
        start = EARLIEST if isinstance(limit, Earliest) else LATEST
    elif isinstance(limit, GlobalTimestamp):
        start = AtTime(limit.timestamp_ms)
    else:
        start = fallback if isinstance(limit, Committed | SpecificTimestamps) else limit
    return dict.fromkeys(topics, start)


def topics_ending_at_latest(limit: OffsetLimit, topics: Iterable[str]) -> list[str]:
    """
    Return the topics that end at LATEST as a whole; the ends of single partitions do not count.
    """
    if isinstance(limit, SpecificOffsets):
        ends = dict(limit.topics)
        return [topic for topic in topics if ends.get(topic) == LATEST]
    return [*topics] if isinstance(limit, Latest) else []


def _positions(limit: OffsetLimit) -> list[object]:
    if isinstance(limit, SpecificOffsets):
        return [*dict(limit.offsets).values(), *dict(limit.topics).values()]
    return [limit]


def _has_times(positions: Iterable[object]) -> bool:
    times = GlobalTimestamp | SpecificTimestamps | AtTime | TimeAgo
    return any(isinstance(position, times) for position in positions)


def _check_past(limit: OffsetLimit, now: Callable[[], float]) -> None:
    """
    Raise :class:`OffsetsError` for a time in the future: the read would return records that arrive
    before that time.
    """
    times = [
        position.timestamp_ms for position in _positions(limit) if isinstance(position, AtTime)
    ]
    latest_ms, present = max(times, default=0), now()
    # Times were rounded up to whole milliseconds, so the present is rounded up, too.
    if latest_ms > math.ceil(present * 1000):
        msg = (
            f"startingOffsets is {format_timestamp(latest_ms)}, which is in the future: this "
            f"machine's clock shows {format_timestamp(int(present * 1000))}. Give an earlier time, "
            "or set startingOffsets to latest"
        )
        raise OffsetsError(_FUTURE_CONDITION, msg)


def resolve_sentinels(offsets: Offsets, source: OffsetSource) -> Offsets:
    """
    Replace EARLIEST and LATEST by the current log start and end offsets.
    """
    log_starts = source.log_start_offsets(
        [tp for tp, offset in offsets.items() if offset == EARLIEST]
    )
    log_ends = source.end_offsets([tp for tp, offset in offsets.items() if offset == LATEST])
    return {**offsets, **log_starts, **log_ends}


def _resolve(
    limit: OffsetLimit,
    tps: Sequence[TopicPartition],
    source: OffsetSource,
    now: Callable[[], float],
    *,
    option: RangeLimitOption,
    fallback: int | None = None,
) -> ResolvedOffsets:
    if isinstance(limit, Earliest | Latest):
        return dict.fromkeys(tps, EARLIEST if isinstance(limit, Earliest) else LATEST)
    if isinstance(limit, GlobalTimestamp):
        limit = AtTime(limit.timestamp_ms)
    if isinstance(limit, AtTime | TimeAgo | LastOffsets):
        return resolve_positions(dict.fromkeys(tps, limit), source, now)
    defaults = {} if fallback is None else dict.fromkeys(tps, fallback)
    if isinstance(limit, Committed):
        return _require_committed({**defaults, **source.committed_offsets(tps)}, tps)
    if isinstance(limit, SpecificOffsets):
        positions = {**defaults, **_of_topics(limit, tps), **dict(limit.offsets)}
        return resolve_positions(require_assigned(positions, tps, option), source, now)
    times = dict(limit.timestamps)
    by_timestamp = RangeLimitOption(
        f"{option.name}ByTimestamp", _TIME_CONDITION, "give a time for each of them"
    )
    require_assigned({**defaults, **times}, tps, by_timestamp)
    return {**defaults, **source.offsets_for_times(times)}


def resolve_positions(
    positions: Mapping[TopicPartition, int | Position],
    source: OffsetSource,
    now: Callable[[], float] = time.time,
) -> dict[TopicPartition, int | None]:
    """
    Return the offset at each position; None where no record is that late. Numbers are kept.
    """
    present_ms = int(now() * 1000)
    counts: Offsets = {}
    times: dict[TopicPartition, int] = {}
    resolved: dict[TopicPartition, int | None] = {}
    for tp, position in positions.items():
        if isinstance(position, LastOffsets):
            counts[tp] = position.count
        elif isinstance(position, AtTime):
            times[tp] = position.timestamp_ms
        elif isinstance(position, TimeAgo):
            times[tp] = max(present_ms - position.milliseconds, 0)
        else:
            resolved[tp] = position
    if times:
        resolved |= source.offsets_for_times(times)
    if counts:
        resolved |= _last_offsets(counts, source)
    return resolved


def offsets_at(positions: Mapping[TopicPartition, int | Position], source: OffsetSource) -> Offsets:
    """
    Return the current offset at each position: the log end where no record is that late.
    """
    return resolve_sentinels(starts_at(positions, source), source)


def starts_at(positions: Mapping[TopicPartition, int | Position], source: OffsetSource) -> Offsets:
    """
    Return the same offsets as :func:`offsets_at`, but keep EARLIEST and LATEST.
    """
    # Read before the times are looked up, so that no record appended in between is skipped.
    log_ends = source.end_offsets(positions) if _has_times(positions.values()) else {}
    resolved = resolve_positions(positions, source)
    existing = {tp: end for tp, end in resolved.items() if end is not None or tp in log_ends}
    return _with_ends(existing, log_ends)


def _with_ends(resolved: ResolvedOffsets, log_ends: Offsets) -> Offsets:
    return {
        tp: log_ends.get(tp, LATEST) if offset is None else offset
        for tp, offset in resolved.items()
    }


def _last_offsets(counts: Offsets, source: OffsetSource) -> Offsets:
    log_starts, log_ends = source.log_start_offsets(counts), source.end_offsets(counts)
    existing = [tp for tp in counts if tp in log_starts and tp in log_ends]
    return {tp: max(log_starts[tp], log_ends[tp] - counts[tp]) for tp in existing}


def _check_topics(
    limit: OffsetLimit, tps: Sequence[TopicPartition], option: RangeLimitOption
) -> None:
    """
    Raise :class:`OffsetsError` if ``limit`` names a topic that the query does not read.
    """
    if not isinstance(limit, SpecificOffsets):
        return
    unknown = dict(limit.topics).keys() - {tp.topic for tp in tps}
    if unknown:
        msg = (
            f"{option.name} is given for {', '.join(sorted(unknown))}, but the query reads no "
            "partition of it; correct the name, or remove it"
        )
        raise OffsetsError(option.condition, msg)


def _of_topics(
    limit: SpecificOffsets, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, int | Position]:
    by_topic = dict(limit.topics)
    return {tp: by_topic[tp.topic] for tp in tps if tp.topic in by_topic}


def _require_committed(committed: Offsets, tps: Sequence[TopicPartition]) -> Offsets:
    missing = set(tps) - committed.keys()
    if not missing:
        return committed
    msg = (
        f"the consumer group has committed no offset for {format_partitions(missing)}; set "
        "startingOffsetsFallback to earliest or latest, the start of such partitions"
    )
    raise OffsetsError("NO_COMMITTED_OFFSET", msg)


def _strategy(limit: OffsetLimit) -> str:
    return limit.strategy if isinstance(limit, GlobalTimestamp | SpecificTimestamps) else "latest"


def _time(limit: OffsetLimit, tp: TopicPartition) -> int | None:
    if isinstance(limit, GlobalTimestamp):
        return limit.timestamp_ms
    return dict(limit.timestamps).get(tp) if isinstance(limit, SpecificTimestamps) else None
