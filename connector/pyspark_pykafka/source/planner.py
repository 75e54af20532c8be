"""
Plans the offset ranges that a batch reads, and splits them over tasks. Pure: no I/O.

The same input gives the same ranges in the same order, even when a batch is replayed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    OffsetRange,
    Offsets,
    StreamOffset,
    TopicPartition,
    format_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")


PARTITIONS_DELETED = "KAFKA_DATA_LOSS.PARTITIONS_DELETED"


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """
    The minimum number of tasks of a batch, and the maximum number of offsets of a task.
    """

    min_partitions: int | None = None
    max_records_per_partition: int | None = None

    @property
    def splits_ranges(self) -> bool:
        """
        Whether the policy can split a range.
        """
        return self.min_partitions is not None or self.max_records_per_partition is not None


@dataclass(frozen=True, slots=True)
class DataLoss:
    """
    A loss of planned offsets, with the JVM connector's condition name for it.
    """

    condition: str
    explanation: str


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """
    The ranges of one micro-batch, its data losses, and partitions no longer subscribed to.
    """

    ranges: tuple[OffsetRange, ...]
    losses: tuple[DataLoss, ...] = ()
    unsubscribed: tuple[TopicPartition, ...] = ()


def split(ranges: Iterable[OffsetRange], policy: SplitPolicy) -> list[OffsetRange]:
    """
    Drop empty ranges and split large ones until the policy is met.

    The rule is Spark's (KafkaOffsetRangeCalculator): a range is split into near-equal pieces, and
    the last ones take the remainder. Ranges too small to split are kept whole; only the others
    are divided in proportion to their sizes. Sizes count offsets, not records.
    """
    # Invariant R2 (deterministic planning): the sizes and the policy alone decide.
    filled = [r for r in ranges if r.size > 0]
    parts = _parts_by_cap(filled, policy.max_records_per_partition)
    minimum = policy.min_partitions
    if minimum is not None and sum(parts) < minimum:
        parts = [max(pair) for pair in zip(parts, _parts_by_share(filled, minimum), strict=True)]
    return [piece for r, count in zip(filled, parts, strict=True) for piece in _divide(r, count)]


def _parts_by_cap(ranges: Sequence[OffsetRange], cap: int | None) -> list[int]:
    return [1 if cap is None else -(-r.size // cap) for r in ranges]


def _parts_by_share(ranges: Sequence[OffsetRange], parts: int) -> list[int]:
    total = sum(r.size for r in ranges)
    small = {r for r in ranges if _share(r.size, total, parts) == 1}
    rest = total - sum(r.size for r in small)
    rest_parts = max(parts - len(small), 1)
    return [1 if r in small else _share(r.size, rest, rest_parts) for r in ranges]


def _share(size: int, total: int, parts: int) -> int:
    # Scala's math.round, which rounds halves up; Python's round() rounds them to even.
    return max(math.floor(size / total * parts + 0.5), 1)


def _divide(r: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    # A range with fewer offsets than parts has one piece for each offset.
    parts = min(parts, r.size)
    start = r.start
    for part in range(parts):
        end = start + (r.end - start) // (parts - part)
        if end > start:
            # Invariant R16: the log of the end's epoch has all records before the end.
            epoch = r.start_epoch if start == r.start else r.end_epoch
            yield OffsetRange(r.tp, start, end, r.topic_id, epoch, r.end_epoch)
        start = end


def plan_batch(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    log_starts: Mapping[TopicPartition, int],
    log_ends: Mapping[TopicPartition, int],
    policy: SplitPolicy,
    *,
    topic_ids: Mapping[str, str],
    log_starts_at_planning: Mapping[TopicPartition, int] | None = None,
) -> list[OffsetRange]:
    """
    Plan a batch query; a start or end may be EARLIEST or LATEST.

    EARLIEST and LATEST are kept, so that each run of the same DataFrame reads the topic's current
    log; a split fixes only the offsets in between. ``log_starts`` and ``log_ends`` are needed only
    if the policy splits ranges, for the partitions that have EARLIEST or LATEST.
    ``log_starts_at_planning`` has the log start of each range from EARLIEST whose end the connector
    has resolved, such as the end for a time: earlier records are not part of such a range. Raises
    :class:`OffsetsError` if a start is beyond its end.
    """
    _check_same_partitions(starts, ends)
    log_start_of = log_starts_at_planning or {}
    ranges = [
        OffsetRange(
            tp, starts[tp], ends[tp], topic_ids.get(tp.topic), log_start=log_start_of.get(tp, 0)
        )
        for tp in sorted(starts)
    ]
    _check_order(ranges)
    if not policy.splits_ranges:
        return [r for r in ranges if not r.is_empty]
    resolved = [
        replace(
            r,
            start=log_starts[r.tp] if r.start == EARLIEST else r.start,
            end=log_ends[r.tp] if r.end == LATEST else r.end,
        )
        for r in ranges
    ]
    return _restore_sentinels(split(resolved, policy), ranges)


def _restore_sentinels(
    pieces: Sequence[OffsetRange], ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    unresolved = {r.tp: r for r in ranges}
    starts = {piece.tp: piece.start for piece in reversed(pieces)}
    ends = {piece.tp: piece.end for piece in pieces}
    restored = []
    for piece in pieces:
        unsplit = unresolved[piece.tp]
        is_first, is_last = piece.start == starts[piece.tp], piece.end == ends[piece.tp]
        start = unsplit.start if is_first else piece.start
        end = unsplit.end if is_last else piece.end
        log_start = piece.start if start == EARLIEST else 0
        restored.append(replace(piece, start=start, end=end, log_start=log_start))
    unsplit_ranges = [r for r in ranges if r.tp not in starts]
    return restored + [r for r in unsplit_ranges if not r.resolved and not r.is_empty]


def _check_same_partitions(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    if starts.keys() != ends.keys():
        msg = (
            f"start offsets name {format_partitions(starts)}; end offsets name "
            f"{format_partitions(ends)}. Both must name the same partitions"
        )
        raise OffsetsError("MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET", msg)


def _check_order(ranges: Iterable[OffsetRange]) -> None:
    for r in ranges:
        if r.resolved and r.size < 0:
            msg = (
                f"the start offset {r.start} of {r.tp} is beyond its end offset {r.end}; "
                "a batch reads from the start up to, but not including, the end"
            )
            raise OffsetsError("RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET", msg)


class RangeLimitOption(NamedTuple):
    """
    The option that gives a start or an end: its name, the condition of an error, and advice.
    """

    name: str
    condition: str
    advice: str


def require_assigned(
    specified: Mapping[TopicPartition, T],
    assigned: Iterable[TopicPartition],
    option: RangeLimitOption,
) -> dict[TopicPartition, T]:
    """
    Return the given offsets or times; raise :class:`OffsetsError` unless they name exactly the
    assigned partitions.
    """
    partitions = set(assigned)
    if specified.keys() == partitions:
        return dict(specified)
    missing, unknown = partitions - specified.keys(), specified.keys() - partitions
    details = [
        f"missing: {format_partitions(missing)}" if missing else "",
        f"not assigned: {format_partitions(unknown)}" if unknown else "",
    ]
    msg = (
        f"{option.name} does not name the partitions that the query reads "
        f"({'; '.join(d for d in details if d)}); it must name exactly these {len(partitions)}; "
        f"{option.advice}"
    )
    raise OffsetsError(option.condition, msg)


def plan_stream(
    start: StreamOffset,
    end: StreamOffset,
    new_partition_starts: Offsets,
    policy: SplitPolicy,
    is_subscribed: Callable[[TopicPartition], bool],
) -> StreamPlan:
    """
    Plan the micro-batch ``[start, end)``.

    ``new_partition_starts`` holds the log start of each of the :func:`new_partitions` that still
    exists. A partition that is no longer subscribed to is not a data loss.
    """
    new = new_partitions(start, end)
    starts = {
        tp: offset for tp, offset in start.offsets.items() if tp not in new
    } | new_partition_starts
    deleted = sorted(start.offsets.keys() - end.offsets.keys())
    losses = [
        *_deleted([tp for tp in deleted if is_subscribed(tp)]),
        *_recreated(start, end),
        *_unusual_starts(start, end, starts, new),
    ]
    ranges = [
        OffsetRange(
            tp,
            starts[tp],
            range_end,
            end.topic_ids.get(tp.topic),
            NO_EPOCH if tp in new else start.epochs.get(tp, NO_EPOCH),
            end.epochs.get(tp, NO_EPOCH),
        )
        for tp, range_end in sorted(end.offsets.items())
        if tp in starts
    ]
    unsubscribed = tuple(tp for tp in deleted if not is_subscribed(tp))
    return StreamPlan(tuple(split(ranges, policy)), tuple(losses), unsubscribed)


def new_partitions(start: StreamOffset, end: StreamOffset) -> set[TopicPartition]:
    """
    Return the partitions of ``end`` that are not in ``start``, and all those of recreated topics.
    """
    recreated = end.recreated_topics(start)
    return {tp for tp in end.offsets if tp not in start.offsets or tp.topic in recreated}


def with_added_partitions(start: StreamOffset, end: StreamOffset, sentinel: int) -> StreamOffset:
    """
    Return ``start``; if ``sentinel`` is LATEST, with added partitions at their end offsets.
    """
    if sentinel != LATEST:
        return start
    added = {tp: offset for tp, offset in end.offsets.items() if tp not in start.offsets}
    return replace(start, offsets={**start.offsets, **added})


def partitions_behind_start(start: StreamOffset, end: StreamOffset) -> list[TopicPartition]:
    """
    Return the partitions whose end offset is below their start offset, except those of recreated
    topics.
    """
    recreated = end.recreated_topics(start)
    return [
        tp
        for tp, offset in start.offsets.items()
        if end.offsets.get(tp, offset) < offset and tp.topic not in recreated
    ]


def offset_change_losses(start: StreamOffset, end: StreamOffset) -> list[DataLoss]:
    """
    Return a loss for each partition that :func:`partitions_behind_start` returns.
    """
    return [
        _offset_changed(tp, start.offsets[tp], end.offsets[tp])
        for tp in sorted(partitions_behind_start(start, end))
    ]


def _deleted(tps: Sequence[TopicPartition]) -> Iterable[DataLoss]:
    if tps:
        text = (
            f"partitions no longer exist: {format_partitions(tps)}. Some of their records may "
            "never have been read"
        )
        yield DataLoss(PARTITIONS_DELETED, text)


def _recreated(start: StreamOffset, end: StreamOffset) -> Iterable[DataLoss]:
    for topic in sorted(end.recreated_topics(start)):
        text = (
            f"the topic {topic} was deleted and recreated: its id was {start.topic_ids[topic]} "
            f"and is {end.topic_ids[topic]} now. Records of the deleted topic may never have been "
            "read; the new topic is read from its start"
        )
        yield DataLoss("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", text)


def _unusual_starts(
    start: StreamOffset, end: StreamOffset, starts: Offsets, new: set[TopicPartition]
) -> Iterable[DataLoss]:
    recreated = end.recreated_topics(start)
    for tp, range_end in sorted(end.offsets.items()):
        if tp not in starts:
            yield _unknown_start(tp)
        elif starts[tp] > range_end:
            yield _offset_changed(tp, starts[tp], range_end)
        elif tp in new and tp.topic not in recreated and starts[tp] != 0:
            yield _late_start(tp, starts[tp])


def _late_start(tp: TopicPartition, offset: int) -> DataLoss:
    text = (
        f"the added partition {tp} starts at offset {offset}, not at 0: "
        f"{offset} of its records were never read"
    )
    return DataLoss("KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", text)


def _unknown_start(tp: TopicPartition) -> DataLoss:
    text = f"the added partition {tp} was deleted before it could be read"
    return DataLoss("KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", text)


def _offset_changed(tp: TopicPartition, start: int, end: int) -> DataLoss:
    text = (
        f"the offset of {tp} was changed from {start} to {end}: the topic was deleted and "
        "recreated, or lost records in an unclean leader election"
    )
    return DataLoss("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", text)
