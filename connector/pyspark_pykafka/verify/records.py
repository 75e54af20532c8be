"""
The numbered records of a run: their values, and the outcome of each.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.verify.checker import ABORTED, COMMITTED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

_VALUE = re.compile(rb"(\w+)/(\d+)/(\d+)")
_NO_PARTITION = -1


class WrittenRecord(NamedTuple):
    """
    A record that was passed to the producer; ``offset`` is its number within the partition.
    """

    offset: int
    value: bytes
    state: str
    key: bytes | None = None


class ReadRow(NamedTuple):
    """
    A record of the output topic, at the position of the source record that it must copy.
    """

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None


def encode(run: str, partition: int, number: int) -> bytes:
    """
    Return the value of a record, which :func:`decode` parses.
    """
    return f"{run}/{partition}/{number}".encode()


def decode(topic: str, value: bytes | None, offset: int) -> ReadRow:
    """
    Return the row of a value that was read at an offset of the output topic. A value that does not
    begin like those of :func:`encode` gets a position that no record has.
    """
    match = _VALUE.match(value or b"")
    if match is None:
        return ReadRow(topic, _NO_PARTITION, offset, value)
    return ReadRow(topic, int(match[2]), int(match[3]), value)


@dataclass
class WrittenRecords:
    """
    All records that were passed to the producer, by partition; only one thread adds records.
    """

    topic: str
    partitions: int
    records: dict[tuple[str, int], list[WrittenRecord]] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """
        Give each partition an empty list of records.
        """
        self.records = {(self.topic, number): [] for number in range(self.partitions)}

    def add(self, partition: int, records: Iterable[tuple[int, bytes]], state: str) -> None:
        """
        Add records of one partition whose transaction has ended.
        """
        new = [WrittenRecord(number, value, state) for number, value in records]
        self.records[self.topic, partition] += new
        self.states[state] += len(new)

    @property
    def committed(self) -> int:
        """
        The number of records whose commit was acknowledged.
        """
        return self.states[COMMITTED]

    @property
    def aborted(self) -> int:
        """
        The number of records whose transaction was aborted.
        """
        return self.states[ABORTED]

    @property
    def unknown(self) -> int:
        """
        The number of records whose commit request got no response.
        """
        return self.states[UNKNOWN]
