"""
The metadata requests of the driver; both engines implement them.

Both return equal results, and raise the same errors of :mod:`pyspark_pykafka.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.offsets import LogEnds, Offsets, TopicPartition


class Topic(NamedTuple):
    """
    A topic with its partitions in order.

    ``id`` is the topic id as text (KIP-516), or None on brokers before 2.8.
    """

    id: str | None
    is_internal: bool
    partitions: Sequence[int]


class MetadataBackend(Protocol):
    """
    Sends metadata requests; each takes at most ``kafka.default.api.timeout.ms``, even in an outage,
    and less until a broker has answered (:mod:`~pyspark_pykafka.engines.first_contact`).

    Topics and partitions that do not exist are missing from the result. The librdkafka backend,
    however, raises :class:`~pyspark_pykafka.errors.UnknownTopicError` for the offset of a partition
    that it does not know, since its cached metadata may be old.
    """

    @property
    def timeout_seconds(self) -> float:
        """
        The time limit of the next request, retries included.
        """

    def describe_topics(self, names: Collection[str]) -> dict[str, Topic]:
        """
        Return the topics with these names, without creating any.

        Without names, only check that a broker answers.
        """

    def describe_matching_topics(self, matches: Callable[[str], object]) -> dict[str, Topic]:
        """
        Return the topics with matching names among all that the user may describe.
        """

    def topic_settings(self, topics: Collection[str], name: str) -> dict[str, str | PykafkaError]:
        """
        Return the value of a setting of each topic, empty if it has none, or the topic's error.

        The error is :class:`~pyspark_pykafka.errors.AuthorizationError` without the permission
        DescribeConfigs on the topic, and :class:`~pyspark_pykafka.errors.UnknownTopicError` if a
        broker does not know the topic (yet).
        """

    def leader_addresses(self, names: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return the (host, port) of the leader of each partition of these topics that has one.
        """

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the first offset with a timestamp at or after the time (epoch ms), or -1.

        EARLIEST means the log start offset, LATEST the end offset that the isolation level
        makes visible. Waits while a partition has no leader.
        """

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return each partition's end offset, as :meth:`list_offsets` does, and its leader epoch.

        Brokers before 2.1 do not send leader epochs (KIP-320); the result then lacks the epochs.
        """

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return each partition's high watermark and leader epoch, at any isolation level.

        Leader epochs may be missing, as in :meth:`log_ends`.
        """

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the end offset of each leader epoch (KIP-320); -1 if the leader does not know it.

        Partitions on brokers before 2.3, which lack the request, are left out. librdkafka returns
        none: it checks the log itself when it starts to read a range.
        """
