"""
The order of the rows that a stream has written: per key, across micro-batches and within a task.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.verify.checker import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.simulation.spark.endpoints import PlainSource
    from tests.simulation.spark.query import Checkpoint

    from pyspark_pykafka.verify.checker import TrueRecord, Verdict

_Place = tuple[int, int, int]


def check_order(
    verdict: Verdict,
    truth: Mapping[tuple[str, int], Sequence[TrueRecord]],
    places: Mapping[bytes, _Place],
) -> None:
    """
    Check each partition for rows of one key that precede rows written earlier.

    Of equal rows only the first counts. ``places`` has the micro-batch, the task and the number of
    each row; rows of different tasks are written at the same time.
    """
    for tp, records in truth.items():
        last: dict[bytes | None, int] = {}
        numbers: dict[tuple[bytes | None, int, int], int] = {}
        for record in _first_occurrences(records):
            batch, task, number = places[record.value or b""]
            key = (record.key, batch, task)
            if batch < last.get(record.key, -1) or number < numbers.get(key, -1):
                verdict.add("non-monotonic", [(*tp, record.offset, record.value)])
            last[record.key], numbers[key] = max(batch, last.get(record.key, -1)), number


def _first_occurrences(records: Sequence[TrueRecord]) -> Iterable[Any]:
    seen: set[bytes | None] = set()
    for record in records:
        if record.state == COMMITTED and record.value not in seen:
            seen.add(record.value)
            yield record


def places_of(plain: PlainSource, checkpoint: Checkpoint) -> dict[bytes, _Place]:
    """
    Return where each row of completed micro-batches was written, if the tasks that read also write.
    """
    places = {}
    start = 0
    for batch in sorted(checkpoint.completed):
        end = checkpoint.ends[batch]
        starts = [first for first, _ in plain.partitions(start, end)]
        for number in range(start, end):
            task = bisect_right(starts, number)
            places[plain.rows[number].value] = (batch, task, number)
        start = end
    return places
