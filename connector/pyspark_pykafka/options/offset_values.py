"""
The start and end positions of a read, as options specify them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition

NoMatch = Literal["error", "latest"]


@dataclass(frozen=True, slots=True)
class Earliest:
    """
    The first available offset of every partition.
    """


@dataclass(frozen=True, slots=True)
class Latest:
    """
    The end of every partition, after its last record.
    """


@dataclass(frozen=True, slots=True)
class AtTime:
    """
    The first record at or after a time in ms since 1970 UTC, or the end if there is none.
    """

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TimeAgo:
    """
    The first record that is at most ``milliseconds`` old when offsets are resolved, or the end if
    there is none.
    """

    milliseconds: int


@dataclass(frozen=True, slots=True)
class LastOffsets:
    """
    The last ``count`` offsets of a partition, or all offsets in the log if there are fewer.
    """

    count: int


#: A position in a partition that is resolved to an offset when a read begins.
Position = AtTime | TimeAgo | LastOffsets


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """
    One offset per partition, sorted by partition; EARLIEST (-2) and LATEST (-1) are allowed.

    ``topics`` holds (topic, EARLIEST or LATEST) for all partitions of a topic. A topic is in either
    ``offsets`` or ``topics``. In place of an offset both may hold a :data:`Position`.
    """

    offsets: tuple[tuple[TopicPartition, int | Position], ...]
    topics: tuple[tuple[str, int | Position], ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """
    The committed offsets of the consumer group ``kafka.group.id``, or those in ZooKeeper.
    """


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """
    The first record at or after each partition's timestamp in ms since 1970 UTC, by partition.

    ``timestamps`` is sorted. ``strategy`` applies if no such record exists; for an end it is always
    ``latest``.
    """

    timestamps: tuple[tuple[TopicPartition, int], ...]
    strategy: NoMatch


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """
    The first record of every partition at or after one timestamp in ms since 1970 UTC.

    ``strategy`` applies if no such record exists; for an end it is always ``latest``.
    """

    timestamp_ms: int
    strategy: NoMatch


OffsetLimit = (
    Committed
    | Earliest
    | Latest
    | SpecificOffsets
    | SpecificTimestamps
    | GlobalTimestamp
    | AtTime
    | TimeAgo
    | LastOffsets
)
