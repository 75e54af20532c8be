"""
Topic partitions, offsets and ranges: the values that planning computes with.

An offset is always that of the *next* record to read; a range is ``[start, end)``.
Nothing here does I/O or imports Spark or a Kafka client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.errors import OffsetsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Offset words as Spark's Kafka connector and the Kafka protocol number them (ListOffsets).
EARLIEST = -2
LATEST = -1

#: Keys of an offset document that are not topics. Kafka topic names cannot contain '@'.
RESERVED_PREFIX = "@"


class TopicPartition(NamedTuple):
    """
    One partition of one topic; sorts by topic, then by number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """
    The records ``[start, end)`` of one partition; a border may be EARLIEST or LATEST in batch.
    """

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """
        How many offsets lie in the range; meaningful for resolved borders only.
        """
        return self.end - self.start

    @property
    def resolved(self) -> bool:
        """
        Whether both borders are offsets, not words.
        """
        return self.start >= 0 and self.end >= 0

    def __str__(self) -> str:
        return f"{self.tp}[{_border(self.start)}, {_border(self.end)})"


def _border(offset: int) -> str:
    return {EARLIEST: "earliest", LATEST: "latest"}.get(offset, str(offset))


def to_document(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """
    Return ``{"topic": {"0": 23}}``, the form of Spark's JVM connector, in a stable order.

    Spark compares offsets by their JSON text, so equal offsets must give equal text.
    """
    document: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return document


def from_document(document: Mapping[str, Any]) -> Offsets:
    """
    Read ``{"topic": {"0": 23}}``; reserved ``@`` keys are for the caller.

    Raises :class:`OffsetsError` for anything that is not of that form.
    """
    offsets: Offsets = {}
    for topic, partitions in document.items():
        if topic.startswith(RESERVED_PREFIX):
            continue
        for partition, offset in _partitions(topic, partitions):
            offsets[TopicPartition(topic, partition)] = offset
    return offsets


def _partitions(topic: str, partitions: object) -> Iterable[tuple[int, int]]:
    try:
        return [(int(number), int(offset)) for number, offset in partitions.items()]  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError) as cause:
        msg = (
            f"the checkpoint's offsets of topic '{topic}' are {partitions!r}; they must be a map "
            'from partition to offset, as {"0": 23}. Was the checkpoint written by another source?'
        )
        raise OffsetsError("MALFORMED_OFFSET", msg) from cause


def describe(tps: Iterable[TopicPartition], limit: int = 20) -> str:
    """
    Name partitions for a message; a topic can have thousands, so at most ``limit`` are spelled out.
    """
    names = [str(tp) for tp in sorted(tps)]
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
