"""
Reads a number of records of a partition: offsets without a record do not count.

Compaction, aborted transactions and transaction markers leave offsets without a record.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


def first_records(
    read: Callable[[int, int], Iterable[T]], start: int, end: int, count: int
) -> Iterator[T]:
    """
    Yield the first ``count`` records between two offsets; ``read`` returns those of a range.

    The ranges double in size, so that a few records cost little and a large gap few requests.
    """
    missing, size = count, count
    while missing and start < end:
        limit = min(start + size, end)
        for record in islice(read(start, limit), missing):
            missing -= 1
            yield record
        start, size = limit, size * 2


def last_records(
    read: Callable[[int, int], Iterable[T]], start: int, end: int, count: int
) -> Iterator[T]:
    """
    Yield the last ``count`` records between two offsets, as :func:`first_records` does.

    The ranges come in reverse order; the records of each are in offset order.
    """
    missing, size = count, count
    while missing and start < end:
        limit = max(end - size, start)
        records = read(limit, end)
        # The first range has at most as many records as are missing, so it is not collected.
        for record in records if size == count else deque(records, maxlen=missing):
            missing -= 1
            yield record
        end, size = limit, size * 2
