"""
What the driver asks the brokers, whoever carries the questions there.

All engines give equal answers, and raise the same errors of :mod:`pyspark_pykafka.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark_pykafka.offsets import LogEnds, Offsets, TopicPartition


class Topic(NamedTuple):
    """
    A topic as the brokers format_partitions it, its partitions in order.

    The id is the text that Kafka prints (KIP-516), None on brokers before 2.8.
    """

    id: str | None
    is_internal: bool
    partitions: Sequence[int]


class MetadataBackend(Protocol):
    """
    Each question takes ``kafka.default.api.timeout.ms`` at most, whatever brokers go meanwhile.

    What does not exist is left out of an answer; librdkafka only raises
    :class:`~pyspark_pykafka.errors.UnknownTopicError` for the offset of a partition of which it has
    not heard, since its memory of the topic may be old.
    """

    #: The time limit of each request, retries included.
    timeout_seconds: float

    def describe_topics(self, names: Collection[str]) -> dict[str, Topic]:
        """
        Return the topics of these names; none is made by asking.
        """

    def describe_matching_topics(self, matches: Callable[[str], object]) -> dict[str, Topic]:
        """
        Return the topics whose names are chosen, of all that we may see.
        """

    def leader_addresses(self, names: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return host and port of the leader of each partition of these topics, where it has one.
        """

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the first offset whose record is as young as the time (epoch ms), -1 for no such.

        EARLIEST and LATEST are times, too: the first offset still held, and that of the next
        record, as the isolation level sees it. A partition without a leader is waited for.
        """

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return each partition's end offset, as :meth:`list_offsets` does, and its leader epoch.

        Brokers before 2.1 do not send leader epochs (KIP-320): they are left out.
        """

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the offset behind the last record up to each leader epoch (KIP-320); -1 where its
        leader does not know the epoch.

        Partitions are left out whose leader cannot be asked: brokers before 2.3 cannot, and
        librdkafka asks by itself, when it begins to read a range.
        """
