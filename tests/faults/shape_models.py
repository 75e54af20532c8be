"""
Models in plain Python of the rows that each shape of query must write.

The numbers of a topic are distributed to its partitions in turn. The output of a stateful query
depends on its micro-batches, which Spark's checkpoint records.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.support.row_checker import row_of

from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PARTITIONS = 2
KEYS = 12
#: A number is also its event time, in seconds.
WINDOW_SECONDS = 40
#: The first number of a union's second topic.
SECOND = 10_000
#: Columns in which each run of a batch writes different values.
RANDOM_COLUMNS = frozenset({"random", "uuid"})

Rows = list[str]


def records(numbers: Iterable[int]) -> list[Record]:
    """
    Return the records of a topic.
    """
    return [
        Record(str(number).encode(), key_of(number).encode(), index % PARTITIONS)
        for index, number in enumerate(numbers)
    ]


def key_of(number: int) -> str:
    """
    Return the key of a number.
    """
    return f"k{number % KEYS}"


def each_once(numbers: Iterable[int]) -> Rows:
    """
    Return the rows of a query that forwards its input.
    """
    return [row_of({"id": number, "key": key_of(number)}) for number in numbers]


def windowed(numbers: Iterable[int]) -> Rows:
    """
    Return the counts by window and key in append mode: each once, when its window has closed.

    No record is late: the numbers arrive in order, batch by batch.
    """
    ordered = sorted(numbers)
    counts: Counter[tuple[int, str]] = Counter()
    last: dict[tuple[int, str], int] = {}
    for number in ordered:
        group = (number - number % WINDOW_SECONDS, key_of(number))
        counts[group] += 1
        last[group] = number
    return [
        row_of({"start": start, "key": key, "count": counts[start, key], "last": event})
        for (start, key), event in last.items()
        if start + WINDOW_SECONDS <= ordered[-1]
    ]


def complete(batches: Iterable[Iterable[int]]) -> Rows:
    """
    Return the counts by key in complete mode: all of them, after each batch.
    """
    rows: Rows = []
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    for batch in batches:
        for number in batch:
            key = key_of(number)
            counts[key] += 1
            last[key] = max(number, last.get(key, 0))
        rows += [row_of({"key": key, "count": counts[key], "last": last[key]}) for key in counts]
    return rows


def batches_of(checkpoint: Path) -> Iterator[list[int]]:
    """
    Return the numbers of each non-empty micro-batch of a query that reads one topic from 0 on.
    """
    before: dict[str, int] = {}
    for file in sorted(offset_files(checkpoint), key=lambda path: int(path.name)):
        (after,) = _offsets(file)
        batch = [
            offset * PARTITIONS + int(partition)
            for partition, end in after.items()
            for offset in range(before.get(partition, 0), end)
        ]
        if batch:
            yield batch
        before = after


def offset_files(checkpoint: Path) -> list[Path]:
    """
    Return the files of the checkpoint that hold each batch's offsets.
    """
    return [file for file in (checkpoint / "offsets").glob("*") if file.name.isdigit()]


def _offsets(file: Path) -> list[dict[str, int]]:
    # The version, the metadata of the batch, and a line for each source.
    _, _, *sources = file.read_text().splitlines()
    return [_of_topic(json.loads(source)) for source in sources]


def _of_topic(document: dict[str, Any]) -> dict[str, int]:
    (offsets,) = (value for name, value in document.items() if not name.startswith("@"))
    return dict(offsets)
