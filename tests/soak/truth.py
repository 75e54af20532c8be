"""
The expected and the actual output of each query shape, in the terms of the checker.

Values are ``label/partition/number``, then ``=count`` where rows are counted, and ``|tag``: the
micro-batch and the task attempt that wrote the row.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.verify.checker import COMMITTED, UNKNOWN
from pyspark_pykafka.verify.records import ReadRow, WrittenRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

KEYS = 12
#: The number of a record is also its event time, in seconds.
WINDOW, DELAY = 500, 2_000
ROWS_PER_BATCH = 200

_VALUE = re.compile(rb"(?P<label>\w+)/(?P<place>\d+)(?:/(?P<number>\d+))?(?:=(?P<count>\d+))?")
_NOWHERE = -1

Truth = dict[tuple[str, int], list[WrittenRecord]]


class SourceRecord(NamedTuple):
    """
    A committed record of an input topic: its place in the log, its number and its value.
    """

    partition: int
    offset: int
    number: int
    value: bytes


@dataclass(frozen=True, slots=True)
class OutputRow:
    """
    A row of an output topic: where it is, the row of the checker, and which attempt wrote it.
    """

    partition: int
    offset: int
    row: ReadRow
    batch: int
    attempt: str


def output_row(partition: int, offset: int, value: bytes | None) -> OutputRow:
    """
    Parse a row; a row that no query writes gets an impossible position.
    """
    text, _, tag = (value or b"").partition(b"|")
    batch, _, attempt = tag.decode(errors="replace").partition(".")
    number = int(batch) if batch.isdigit() else _NOWHERE
    return OutputRow(partition, offset, _row(text, offset, number), number, attempt)


def kept_row(value: bytes, index: int, batch: int) -> ReadRow:
    """
    Parse a row of the sink that keeps each micro-batch.
    """
    return _row(value, index, batch)


def _row(text: bytes, index: int, batch: int) -> ReadRow:
    match = _VALUE.fullmatch(text)
    if match is None:
        return ReadRow("", _NOWHERE, index, text)
    # All keys of a complete result are written in each micro-batch.
    number = batch if match["number"] is None else int(match["number"])
    return ReadRow(match["label"].decode(), int(match["place"]), number, text)


def forwarded(inputs: Iterable[Truth]) -> Truth:
    """
    Return the truth of queries that forward their input topics.
    """
    return {partition: records for truth in inputs for partition, records in truth.items()}


def windowed(records: Iterable[SourceRecord]) -> Truth:
    """
    Return the counts by key and window in append mode; open windows may or may not be written.
    """
    all_records = list(records)
    counts = Counter((r.number % KEYS, r.number - r.number % WINDOW) for r in all_records)
    watermark = max((r.number for r in all_records), default=0) - DELAY
    truth: Truth = {("windowed", key): [] for key in range(KEYS)}
    for (key, start), count in sorted(counts.items()):
        state = COMMITTED if start + WINDOW <= watermark else UNKNOWN
        value = f"windowed/{key}/{start}={count}".encode()
        truth["windowed", key].append(WrittenRecord(start, value, state))
    return truth


def complete(records: Sequence[SourceRecord], ends: Mapping[int, Mapping[int, int]]) -> Truth:
    """
    Return the counts by key after each micro-batch; ``ends`` are the end offsets of each.
    """
    truth: Truth = {("complete", key): [] for key in range(KEYS)}
    for batch, end in sorted(ends.items()):
        counts = Counter(r.number % KEYS for r in records if r.offset < end.get(r.partition, 0))
        for key, count in counts.items():
            value = f"complete/{key}={count}".encode()
            truth["complete", key].append(WrittenRecord(batch, value, COMMITTED))
    return truth


def joined(left: Iterable[SourceRecord], right: Iterable[SourceRecord]) -> Truth:
    """
    Return the numbers that are in both topics.
    """
    common = {(r.partition, r.number) for r in left} & {(r.partition, r.number) for r in right}
    truth: Truth = {}
    for partition, number in sorted(common):
        record = WrittenRecord(number, f"join/{partition}/{number}".encode(), COMMITTED)
        truth.setdefault(("join", partition), []).append(record)
    return truth


def rated(committed: int, planned: int) -> Truth:
    """
    Return the rows of Spark's rate source after these numbers of committed and planned batches.
    """
    done = committed * ROWS_PER_BATCH
    return {
        ("rate", 0): [
            WrittenRecord(
                number, f"rate/0/{number}".encode(), COMMITTED if number < done else UNKNOWN
            )
            for number in range(planned * ROWS_PER_BATCH)
        ]
    }


# --- Checkpoints ----------------------------------------------------------------------------------


def committed_batch(checkpoint: Path) -> int:
    """
    Return the last micro-batch that Spark has committed, or -1.
    """
    return _last(checkpoint / "commits")


def planned_batch(checkpoint: Path) -> int:
    """
    Return the last micro-batch that Spark has planned, or -1.
    """
    return _last(checkpoint / "offsets")


def committed_ends(checkpoint: Path) -> dict[int, list[dict[int, int]]]:
    """
    Return where each committed micro-batch ended, in each of its sources, by partition.
    """
    last = committed_batch(checkpoint)
    return {
        batch: batch_ends(checkpoint, batch)
        for batch in _numbers(checkpoint / "offsets")
        if batch <= last
    }


def _last(folder: Path) -> int:
    return max(_numbers(folder), default=-1)


def _numbers(folder: Path) -> list[int]:
    if not folder.exists():
        return []
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())


def batch_ends(checkpoint: Path, batch: int) -> list[dict[int, int]]:
    """
    Return where a micro-batch ends, in each of its sources, by partition.
    """
    # The version, the metadata of the batch, and a line for each source.
    _, _, *sources = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return [_of_topic(source) for source in sources]


def _of_topic(source: str) -> dict[int, int]:
    document = json.loads(source) if source.startswith("{") else {}
    return {
        int(partition): int(end)
        for name, ends in document.items()
        if not name.startswith("@")
        for partition, end in ends.items()
    }
