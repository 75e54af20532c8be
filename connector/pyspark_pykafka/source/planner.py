"""
Deciding which offsets a batch reads, and how they are split over tasks.

Pure arithmetic over values: the same input gives the same ranges in the same order, on a replay
too. Whoever calls it has asked the brokers already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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


PARTITIONS_DELETED = "KAFKA_DATA_LOSS.PARTITIONS_DELETED"


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """
    How many tasks a batch should have at least, and how many offsets a task may have at most.
    """

    min_partitions: int | None = None
    max_records_per_partition: int | None = None

    @property
    def splits_ranges(self) -> bool:
        """
        Whether a range can come out as more than one.
        """
        return self.min_partitions is not None or self.max_records_per_partition is not None


@dataclass(frozen=True, slots=True)
class DataLoss:
    """
    Offsets that were to be read and are gone, under the JVM connector's condition name.
    """

    condition: str
    explanation: str


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """
    What one micro-batch reads, what it can no longer read, and what it was told to leave out.
    """

    ranges: tuple[OffsetRange, ...]
    losses: tuple[DataLoss, ...] = ()
    unsubscribed: tuple[TopicPartition, ...] = ()


def split(ranges: Iterable[OffsetRange], policy: SplitPolicy) -> list[OffsetRange]:
    """
    Drop empty ranges and divide large ones until the policy is met.

    The rule is Spark's (KafkaOffsetRangeCalculator): a range is cut into near-equal pieces, the
    remainder goes to the last ones; ranges too small to be worth a cut stay whole and do not
    count in the proportion. Sizes count offsets, not records.
    """
    whole = [r for r in ranges if r.size > 0]
    parts = _parts_by_cap(whole, policy.max_records_per_partition)
    wanted = policy.min_partitions
    if wanted is not None and sum(parts) < wanted:
        parts = [max(pair) for pair in zip(parts, _parts_by_share(whole, wanted), strict=True)]
    return [piece for r, count in zip(whole, parts, strict=True) for piece in _divide(r, count)]


def _parts_by_cap(ranges: Sequence[OffsetRange], cap: int | None) -> list[int]:
    return [1 if cap is None else -(-r.size // cap) for r in ranges]


def _parts_by_share(ranges: Sequence[OffsetRange], wanted: int) -> list[int]:
    total = sum(r.size for r in ranges)
    small = {r for r in ranges if _share(r.size, total, wanted) == 1}
    rest = total - sum(r.size for r in small)
    left = max(wanted - len(small), 1)
    return [1 if r in small else _share(r.size, rest, left) for r in ranges]


def _share(size: int, total: int, parts: int) -> int:
    # Scala's math.round, which rounds halves up; Python's round() goes to the even neighbour.
    return max(math.floor(size / total * parts + 0.5), 1)


def _divide(whole: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    start = whole.start
    for part in range(parts):
        end = start + (whole.end - start) // (parts - part)
        if end > start:
            # All before the end was seen at once.
            epoch = whole.start_epoch if start == whole.start else whole.end_epoch
            yield OffsetRange(whole.tp, start, end, whole.topic_id, epoch, whole.end_epoch)
        start = end


def plan_batch(
    starting: Mapping[TopicPartition, int],
    ending: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    policy: SplitPolicy,
) -> list[OffsetRange]:
    """
    Plan a batch query from borders that may be EARLIEST or LATEST.

    Words stay words, so that each run of the same DataFrame reads what is there then; a split
    fixes only the borders inside. ``earliest`` and ``latest`` need entries for words only when
    the policy splits. Raises :class:`OffsetsError` when a start lies beyond its end.
    """
    _check_same_partitions(starting, ending)
    ranges = [OffsetRange(tp, starting[tp], ending[tp]) for tp in sorted(starting)]
    _check_order(ranges)
    if not policy.splits_ranges:
        return [r for r in ranges if not r.resolved or r.size > 0]
    known = [
        OffsetRange(
            r.tp,
            earliest[r.tp] if r.start == EARLIEST else r.start,
            latest[r.tp] if r.end == LATEST else r.end,
        )
        for r in ranges
    ]
    return _restore_words(split(known, policy), ranges)


def _restore_words(
    pieces: Sequence[OffsetRange], ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    words = {r.tp: r for r in ranges}
    first = {piece.tp: piece.start for piece in reversed(pieces)}
    last = {piece.tp: piece.end for piece in pieces}
    restored = []
    for piece in pieces:
        word = words[piece.tp]
        opens, closes = piece.start == first[piece.tp], piece.end == last[piece.tp]
        start = word.start if opens else piece.start
        restored.append(OffsetRange(piece.tp, start, word.end if closes else piece.end))
    return restored + [r for r in ranges if r.tp not in first and not r.resolved]


def _check_same_partitions(
    starting: Mapping[TopicPartition, int], ending: Mapping[TopicPartition, int]
) -> None:
    if starting.keys() != ending.keys():
        msg = (
            f"start offsets name {format_partitions(starting)}; "
            f"end offsets name {format_partitions(ending)}. Both must name the same partitions"
        )
        raise OffsetsError("MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET", msg)


def _check_order(ranges: Iterable[OffsetRange]) -> None:
    for r in ranges:
        if r.resolved and r.size < 0:
            msg = (
                f"the start offset {r.start} of {r.tp} lies beyond its end offset {r.end}; "
                "a batch reads from start up to, not including, end"
            )
            raise OffsetsError("RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET", msg)


def require_assigned(
    given: Mapping[TopicPartition, int], assigned: Iterable[TopicPartition], condition: str
) -> Offsets:
    """
    Return the given offsets or times if they name exactly the assigned partitions.
    """
    partitions = set(assigned)
    if given.keys() == partitions:
        return dict(given)
    missing, unknown = partitions - given.keys(), given.keys() - partitions
    details = [
        f"missing: {format_partitions(missing)}" if missing else "",
        f"not assigned: {format_partitions(unknown)}" if unknown else "",
    ]
    msg = (
        f"every one of the {len(partitions)} partitions that are read must be given, and no other; "
        f"{'; '.join(d for d in details if d)}. Use -1 for latest and -2 for earliest"
    )
    raise OffsetsError(condition, msg)


def plan_stream(
    start: StreamOffset,
    end: StreamOffset,
    new_partition_starts: Offsets,
    policy: SplitPolicy,
    matches: Callable[[TopicPartition], bool],
) -> StreamPlan:
    """
    Plan the micro-batch ``[start, end)``.

    ``new_partition_starts`` holds the log start of each existing partition of
    :func:`new_partitions`. ``matches`` returns whether the options still subscribe to a partition;
    a partition that is no longer subscribed to is not reported as data loss.
    """
    new = new_partitions(start, end)
    begin = {tp: at for tp, at in start.offsets.items() if tp not in new} | new_partition_starts
    gone = sorted(start.offsets.keys() - end.offsets.keys())
    losses = [
        *_deleted([tp for tp in gone if matches(tp)]),
        *_remade(start, end),
        *_unusual_starts(start, end, begin, new),
    ]
    ranges = [
        OffsetRange(
            tp,
            begin[tp],
            until,
            end.topic_ids.get(tp.topic),
            NO_EPOCH if tp in new else start.epochs.get(tp, NO_EPOCH),
            end.epochs.get(tp, NO_EPOCH),
        )
        for tp, until in sorted(end.offsets.items())
        if tp in begin
    ]
    unsubscribed = tuple(tp for tp in gone if not matches(tp))
    return StreamPlan(tuple(split(ranges, policy)), tuple(losses), unsubscribed)


def new_partitions(start: StreamOffset, end: StreamOffset) -> set[TopicPartition]:
    """
    Return the partitions that appeared between the two offsets, those of remade topics included.
    """
    remade = end.recreated_topics(start)
    return {tp for tp in end.offsets if tp not in start.offsets or tp.topic in remade}


def starting_new_partitions_at(begin: StreamOffset, until: StreamOffset, word: int) -> StreamOffset:
    """
    Return ``begin`` with the partitions that appeared since, where ``word`` says LATEST of them.
    """
    if word != LATEST:
        return begin
    added = {tp: end for tp, end in until.offsets.items() if tp not in begin.offsets}
    return replace(begin, offsets={**begin.offsets, **added})


def _deleted(gone: Sequence[TopicPartition]) -> Iterable[DataLoss]:
    if gone:
        text = (
            f"partitions are gone: {format_partitions(gone)}. "
            "Some records in them may never have been read"
        )
        yield DataLoss(PARTITIONS_DELETED, text)


def _remade(start: StreamOffset, end: StreamOffset) -> Iterable[DataLoss]:
    for topic in sorted(end.recreated_topics(start)):
        text = (
            f"the topic {topic} was deleted and made again: its id was {start.topic_ids[topic]} "
            f"and is {end.topic_ids[topic]} now. Records of the old one may never have been read; "
            "the new one is to be read from its start"
        )
        yield DataLoss("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", text)


def _unusual_starts(
    start: StreamOffset, end: StreamOffset, begin: Offsets, new: set[TopicPartition]
) -> Iterable[DataLoss]:
    remade = end.recreated_topics(start)
    for tp, until in sorted(end.offsets.items()):
        if tp not in begin:
            yield _unknown_start(tp)
        elif begin[tp] > until:
            yield _went_back(tp, begin[tp], until)
        elif tp in new and tp.topic not in remade and begin[tp] != 0:
            yield _late_start(tp, begin[tp])


def _late_start(tp: TopicPartition, offset: int) -> DataLoss:
    text = (
        f"the added partition {tp} starts at offset {offset}, not at 0: "
        f"{offset} records in it were never read"
    )
    return DataLoss("KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", text)


def _unknown_start(tp: TopicPartition) -> DataLoss:
    text = f"the added partition {tp} has vanished again before it could be read"
    return DataLoss("KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", text)


def _went_back(tp: TopicPartition, begin: int, end: int) -> DataLoss:
    text = (
        f"the offset of {tp} was changed from {begin} to {end}: the topic was deleted and made "
        "again, or lost records in an unclean leader election"
    )
    return DataLoss("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", text)
