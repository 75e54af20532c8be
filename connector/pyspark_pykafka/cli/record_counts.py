"""
Reads a number of records of each partition: offsets without a record do not count.

Compaction, aborted transactions and transaction markers leave offsets without a record.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark_pykafka.offsets import TopicPartition

    #: Returns the first records of each range, each with its range; without a number all records.
    ReadRanges = Callable[[list[OffsetRange], int | None], Iterable[tuple[OffsetRange, "T"]]]

T = TypeVar("T")


def first_records(
    read: ReadRanges[T],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    count: int,
) -> Iterator[tuple[TopicPartition, T]]:
    """
    Yield the first ``count`` records between two offsets of each partition.
    """
    for offset_range, record in read(ranges_between(starts, ends), count):
        yield offset_range.tp, record


def last_records(
    read: ReadRanges[T],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    count: int,
) -> Iterator[tuple[TopicPartition, T]]:
    """
    Yield the last ``count`` records between two offsets of each partition.

    Reads ranges from the end backwards; the records of one range are in offset order. Each range
    is twice as large as the one before, so that a few records cost little, and a large gap takes
    few requests.
    """
    ends, missing, size = dict(ends), dict.fromkeys(starts, count), count
    while missing:
        limits = {tp: max(ends[tp] - size, starts[tp]) for tp in missing}
        found: dict[TopicPartition, deque[T]] = {
            tp: deque(maxlen=number) for tp, number in missing.items()
        }
        for offset_range, record in read(ranges_between(limits, ends), None):
            found[offset_range.tp].append(record)
        for tp, records in found.items():
            yield from ((tp, record) for record in records)
            missing[tp] -= len(records)
        ends, size = limits, size * 2
        missing = {tp: n for tp, n in missing.items() if n > 0 and starts[tp] < ends[tp]}


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """
    Return the ranges that are not empty; a partition without an end has been deleted.
    """
    return [
        OffsetRange(tp, start, ends[tp])
        for tp, start in starts.items()
        if start < ends.get(tp, start)
    ]
