"""
Topic partitions, offsets and offset ranges: the values that planning computes with.

An offset is always the offset of the *next* record to read; a range is ``[start, end)``.
Nothing here does I/O or imports Spark or a Kafka client.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.errors import OffsetsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Sentinel offsets, numbered as in Spark's Kafka connector and Kafka's ListOffsets request.
EARLIEST = -2
LATEST = -1

#: Prefix of the keys of an offset document that are not topics: no topic name contains '@'.
RESERVED_PREFIX = "@"

#: The id of each topic (KIP-516), which identifies a topic that was deleted and recreated.
TOPIC_IDS = "@topicIds"

#: The query's start offsets, stored in the end offset of its first batch.
INITIAL = "@initial"

#: The query's id, its number of batches and its progress store; see :class:`QueryIdentity`.
QUERY = "@query"

#: By partition, the leader epoch in which the log up to the offset was read (KIP-320).
LEADER_EPOCHS = "@leaderEpochs"

#: By partition, the end time (epoch ms) that the stream has reached at or before the offset.
END_TIMES = "@endTimes"

#: All keys of an offset document that are not topics.
RESERVED_KEYS = frozenset({TOPIC_IDS, INITIAL, QUERY, LEADER_EPOCHS, END_TIMES})

#: Kafka's number for an unknown leader epoch.
NO_EPOCH = -1

#: An offset in the checkpoint: ``{"topic": {"0": 23}, "@topicIds": {"topic": "id"}, ...}``.
Document = dict[str, Any]


class TopicPartition(NamedTuple):
    """
    One partition of a topic; sorts by topic, then by partition number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


#: The next offset to read, by partition.
Offsets = dict[TopicPartition, int]
#: Leader epochs, by partition.
LeaderEpochs = dict[TopicPartition, int]


class LogEnds(NamedTuple):
    """
    The end offsets of logs, and the leader epochs of the partitions whose leader returned one.
    """

    offsets: Offsets
    epochs: LeaderEpochs


# Invariant R1 (range).
@dataclass(frozen=True, slots=True)
class OffsetRange:
    """
    The records ``[start, end)`` of one partition; in a batch each limit may be EARLIEST or LATEST.

    ``topic_id`` selects one of several topics that have had the name; None accepts any.
    ``start_epoch`` and ``end_epoch`` are the leader epochs in which the log before ``start`` and
    before ``end`` was read (KIP-320). ``log_start`` is the log's start when a range from EARLIEST
    was planned. It is 0 if all offsets before the end count as part of the range.
    """

    tp: TopicPartition
    start: int
    end: int
    topic_id: str | None = None
    start_epoch: int = NO_EPOCH
    end_epoch: int = NO_EPOCH
    log_start: int = 0

    @property
    def size(self) -> int:
        """
        The number of offsets in the range; only meaningful if it is resolved.
        """
        return self.end - self.start

    @property
    def resolved(self) -> bool:
        """
        Whether both limits are offsets, not sentinels.
        """
        return self.start >= 0 and self.end >= 0

    @property
    def is_empty(self) -> bool:
        """
        Whether the range will never have a record, whatever arrives.
        """
        start = self.log_start if self.start == EARLIEST else self.start
        return self.end >= 0 and start >= self.end

    def __str__(self) -> str:
        return f"{self.tp}[{_limit_text(self.start)}, {_limit_text(self.end)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle in half the time of a dataclass: a plan can hold thousands of ranges.
        """
        rest = (self.start_epoch, self.end_epoch, self.log_start)
        return _range, (*self.tp, self.start, self.end, self.topic_id, *rest)


def _range(topic: str, partition: int, *rest: Any) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), *rest)


def _limit_text(offset: int) -> str:
    return {EARLIEST: "earliest", LATEST: "latest"}.get(offset, str(offset))


def offset_document(value: object) -> Document | None:
    """
    Return an offset document of Spark's progress reports, which hold it as an object or as JSON
    text; None for anything else, such as the offset of another kind of source.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """
    Return ``{"topic": {"0": 23}}``, the form of Spark's JVM connector, in a stable order.

    Spark compares offsets as JSON text, so equal offsets must have equal text.
    """
    document: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return document


def offsets_from_json(document: Mapping[str, object]) -> Offsets:
    """
    Parse ``{"topic": {"0": 23}}``, ignoring reserved ``@`` keys.

    Raises :class:`OffsetsError` for any other form.
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
    except (AttributeError, OverflowError, TypeError, ValueError) as cause:
        msg = (
            f"the checkpoint's offsets of topic '{topic}' are {partitions!r}; they must be a map "
            'from partition to offset, such as {"0": 23}. Was the checkpoint written by another '
            "source?"
        )
        raise OffsetsError("MALFORMED_OFFSET", msg) from cause


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    The partitions that a query reads, in order, and the ids of their topics.

    Ids are in Kafka's text form (KIP-516); topics on brokers before 2.8 have none.
    """

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """
    The id of a checkpoint's query, the number of the batch that ended at this offset, and the name
    of the query's progress store.

    Id and number are the connector's own: Spark passes its ids to tasks, not to the planning
    process. Batches are counted from 0; only those that Spark plans for new offsets count.
    """

    id: str
    batch: int
    store: str = ""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """
    The position of a stream, as stored in Spark's checkpoint.

    ``initial`` is the query's start, stored in the end offset of the first batch: Spark stores no
    initial offset for a Python source, so a query whose first batch failed would resolve it again,
    and "latest" would then skip records that were never read.

    ``end_times`` holds, in epoch ms, the end time of each partition that has reached it: the first
    record of its log with this timestamp or a later one was at the offset or before it. The record
    itself may be deleted by now.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    initial: StreamOffset | None = None
    query: QueryIdentity | None = None
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    end_times: Mapping[TopicPartition, int] = field(default_factory=dict)

    def recreated_topics(self, earlier: StreamOffset) -> set[str]:
        """
        Return the topics that were deleted and recreated since ``earlier``.
        """
        # Invariant R15 (topic id).
        earlier_ids = earlier.topic_ids
        return {t for t, new in self.topic_ids.items() if earlier_ids.get(t, new) != new}

    def to_json(self) -> Document:
        """
        Return the form of Spark's JVM connector, with our own data under reserved keys.
        """
        document: Document = {**offsets_to_json(self.offsets)}
        if self.topic_ids:
            document[TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        if self.epochs:
            document[LEADER_EPOCHS] = offsets_to_json(self.epochs)
        if self.end_times:
            document[END_TIMES] = offsets_to_json(self.end_times)
        if self.initial is not None:
            document[INITIAL] = self.initial.to_json()
        if self.query is not None:
            document[QUERY] = asdict(self.query)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """
        Parse an offset written by this connector or by the JVM connector.

        Raises :class:`OffsetsError` for any other form, and for keys of a later version.
        """
        unknown = sorted(
            k for k in document if k.startswith(RESERVED_PREFIX) and k not in RESERVED_KEYS
        )
        if unknown:
            msg = (
                f"the checkpoint's offsets hold {', '.join(unknown)}, which this version of "
                "pykafka does not know: a newer version wrote them; use that version or a later one"
            )
            raise OffsetsError("MALFORMED_OFFSET", msg)
        return cls(
            offsets_from_json(document),
            _topic_ids(document.get(TOPIC_IDS, {})),
            _initial_offset(document.get(INITIAL)),
            _query_identity(document.get(QUERY)),
            _by_partition(document, LEADER_EPOCHS, "leader epochs"),
            _by_partition(document, END_TIMES, "times in ms"),
        )


def _initial_offset(value: object) -> StreamOffset | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return StreamOffset.from_json(value)
    msg = (
        f"the checkpoint's {INITIAL} is {value!r}; it must be the offsets of the query's start. "
        "Was the checkpoint written by another source?"
    )
    raise OffsetsError("MALFORMED_OFFSET", msg)


def _topic_ids(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    msg = (
        f"the checkpoint's {TOPIC_IDS} is {value!r}; it must be a map from topic to id. "
        "Was the checkpoint written by another source?"
    )
    raise OffsetsError("MALFORMED_OFFSET", msg)


def _by_partition(document: Mapping[str, Any], key: str, content: str) -> Offsets:
    value = document.get(key, {})
    try:
        return offsets_from_json(value)
    except (AttributeError, OffsetsError) as cause:
        msg = (
            f"the checkpoint's {key} is {str(value)[:200]}; it must be a map of {content} by "
            'partition, such as {"t": {"0": 5}}. Was the checkpoint written by another source?'
        )
        raise OffsetsError("MALFORMED_OFFSET", msg) from cause


def _query_identity(value: object) -> QueryIdentity | None:
    if value is None:
        return None
    try:
        return QueryIdentity(str(value["id"]), int(value["batch"]), str(value["store"]))  # type: ignore[index]
    except (KeyError, OverflowError, TypeError, ValueError) as cause:
        msg = (
            f"the checkpoint's {QUERY} is {value!r}; it must have an id, a batch and a store. "
            "Was the checkpoint written by another source?"
        )
        raise OffsetsError("MALFORMED_OFFSET", msg) from cause


def format_partitions(tps: Iterable[TopicPartition], limit: int = 20) -> str:
    """
    Return partitions as text for a message: at most ``limit`` names, and the number of the rest.
    """
    names = [str(tp) for tp in sorted(tps)]
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
