"""
Topic partitions, offsets and ranges: the values that planning computes with.

An offset is always that of the *next* record to read; a range is ``[start, end)``.
Nothing here does I/O or imports Spark or a Kafka client.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.errors import OffsetsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Offset words as Spark's Kafka connector and the Kafka protocol number them (ListOffsets).
EARLIEST = -2
LATEST = -1

#: Keys of an offset document that are not topics. Kafka topic names cannot contain '@'.
RESERVED_PREFIX = "@"

#: The id of each topic (KIP-516): tells a topic that was deleted and made again.
TOPIC_IDS = "@topicIds"

#: Where the query started, in the end offset of its first batch.
INITIAL = "@initial"

#: Which query the checkpoint is of, and how many batches it has read, where progress is recorded.
QUERY = "@query"

#: The leader epoch of each partition under which everything before its offset was seen (KIP-320).
LEADER_EPOCHS = "@leaderEpochs"

_RESERVED = frozenset({TOPIC_IDS, INITIAL, QUERY, LEADER_EPOCHS})

#: Kafka's number for a leader epoch that is not known.
NO_EPOCH = -1

Document = dict[str, Any]


class TopicPartition(NamedTuple):
    """
    One partition of one topic; sorts by topic, then by number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]
LeaderEpochs = dict[TopicPartition, int]


class LogEnds(NamedTuple):
    """
    Where logs end, and the leader epoch that each was seen in, for partitions whose leader told it.
    """

    offsets: Offsets
    epochs: LeaderEpochs


# Invariant R1 (range).
@dataclass(frozen=True, slots=True)
class OffsetRange:
    """
    The records ``[start, end)`` of one partition; a border may be EARLIEST or LATEST in batch.

    ``topic_id`` says of which topic, where more than one had the name; None is any. The leader
    epochs are those under which everything before ``start``, and before ``end``, was seen.
    """

    tp: TopicPartition
    start: int
    end: int
    topic_id: str | None = None
    start_epoch: int = NO_EPOCH
    end_epoch: int = NO_EPOCH

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

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle in half of a dataclass's own time: a plan can hold thousands of ranges.
        """
        epochs = (self.start_epoch, self.end_epoch)
        return _range, (*self.tp, self.start, self.end, self.topic_id, *epochs)


def _range(topic: str, partition: int, *rest: Any) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), *rest)


def _border(offset: int) -> str:
    return {EARLIEST: "earliest", LATEST: "latest"}.get(offset, str(offset))


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """
    Return ``{"topic": {"0": 23}}``, the form of Spark's JVM connector, in a stable order.

    Spark compares offsets by their JSON text, so equal offsets must give equal text.
    """
    document: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return document


def offsets_from_json(document: Mapping[str, Any]) -> Offsets:
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


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    The partitions that a query reads, in order, and the ids of their topics.

    An id is the text that Kafka prints (KIP-516); topics on brokers before 2.8 have none.
    """

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """
    The id of the query that a checkpoint is of, the number of the batch that ended there, and the
    name of the store that its progress goes to.

    Spark tells its own ids to tasks only, not to the process that plans. Batches are counted from
    0 and only those that Spark plans for new offsets.
    """

    id: str
    batch: int
    store: str = ""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """
    Where a stream stands, as it is kept in Spark's checkpoint.

    ``initial`` is where the query started, kept in the first batch's end: Spark stores no initial
    offset for a Python source, so a query whose first batch failed would ask for it again, and
    "latest" would by then lie behind records that were never read.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    initial: StreamOffset | None = None
    query: QueryIdentity | None = None
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    def recreated_topics(self, earlier: StreamOffset) -> set[str]:
        """
        Return the topics that were deleted and made again since ``earlier``.
        """
        # Invariant R15 (topic id).
        known = earlier.topic_ids
        return {t for t, made in self.topic_ids.items() if known.get(t, made) != made}

    def to_json(self) -> Document:
        """
        Return the form of Spark's JVM connector, with what is ours under reserved keys.
        """
        document: Document = {**offsets_to_json(self.offsets)}
        if self.topic_ids:
            document[TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        if self.epochs:
            document[LEADER_EPOCHS] = offsets_to_json(self.epochs)
        if self.initial is not None:
            document[INITIAL] = self.initial.to_json()
        if self.query is not None:
            document[QUERY] = asdict(self.query)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """
        Read a document of ours or of the JVM connector.

        Raises :class:`OffsetsError` for anything else, and for what a later version wrote.
        """
        later = sorted(k for k in document if k.startswith(RESERVED_PREFIX) and k not in _RESERVED)
        if later:
            msg = (
                f"the checkpoint's offsets hold {', '.join(later)}, which this version of pykafka "
                "does not know: a newer one wrote them; use that version or a later one"
            )
            raise OffsetsError("MALFORMED_OFFSET", msg)
        initial = document.get(INITIAL)
        return cls(
            offsets_from_json(document),
            _topic_ids(document.get(TOPIC_IDS, {})),
            None if initial is None else cls.from_json(initial),
            _query_mark(document.get(QUERY)),
            _leader_epochs(document.get(LEADER_EPOCHS, {})),
        )


def _topic_ids(given: object) -> dict[str, str]:
    if isinstance(given, dict) and all(isinstance(text, str) for text in given.values()):
        return given
    msg = (
        f"the checkpoint's {TOPIC_IDS} is {given!r}; it must be a map from topic to id. "
        "Was the checkpoint written by another source?"
    )
    raise OffsetsError("MALFORMED_OFFSET", msg)


def _leader_epochs(given: object) -> LeaderEpochs:
    try:
        return offsets_from_json(given)  # type: ignore[arg-type]
    except (AttributeError, OffsetsError) as cause:
        msg = (
            f"the checkpoint's {LEADER_EPOCHS} is {str(given)[:200]}; it must have leader epochs "
            'by partition, as {"t": {"0": 5}}. Was the checkpoint written by another source?'
        )
        raise OffsetsError("MALFORMED_OFFSET", msg) from cause


def _query_mark(given: object) -> QueryIdentity | None:
    if given is None:
        return None
    try:
        return QueryIdentity(str(given["id"]), int(given["batch"]), str(given["store"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as cause:
        msg = (
            f"the checkpoint's {QUERY} is {given!r}; it must have an id, a batch and a store. "
            "Was the checkpoint written by another source?"
        )
        raise OffsetsError("MALFORMED_OFFSET", msg) from cause


def format_partitions(tps: Iterable[TopicPartition], limit: int = 20) -> str:
    """
    Name partitions for a message; a topic can have thousands, so at most ``limit`` are spelled out.
    """
    names = [str(tp) for tp in sorted(tps)]
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
