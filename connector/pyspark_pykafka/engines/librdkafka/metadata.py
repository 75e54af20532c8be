"""
The driver's metadata requests through librdkafka's admin client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from pyspark_pykafka.engines.error_mapping import map_read_error, to_read_error, translating_errors
from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin, describe_cluster
from pyspark_pykafka.engines.metadata_contract import Topic
from pyspark_pykafka.errors import BrokerUnavailableError, KafkaClientError, UnknownTopicError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    LogEnds,
    Offsets,
    TopicPartition,
    format_partitions,
)
from pyspark_pykafka.retry import Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, TopicDescription

    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.settings import KafkaSettings

K = TypeVar("K")
R = TypeVar("R")

_MIN_PAUSE, _MAX_PAUSE = 0.1, 1.0

# librdkafka's OFFSET_INVALID. librdkafka 2.16 returns it without an error for a partition whose
# leader was killed during the request; -1 means "no record with that timestamp or a later one".
_NO_RESPONSE = -1001

# The zero UUID as Kafka prints it: the topic id on brokers before 2.8.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class AdminMetadata:
    """
    Implements :class:`~pyspark_pykafka.engines.metadata_contract.MetadataBackend`.
    """

    def __init__(self, kafka: KafkaSettings, isolation_level: str) -> None:
        self._admin = RetryingAdmin(kafka)
        self._isolation = IsolationLevel[isolation_level.upper()]

    @property
    def timeout_seconds(self) -> float:
        """
        The time limit of the next request, retries included.
        """
        return self._admin.timeout_seconds

    def describe_topics(self, names: Collection[str]) -> dict[str, Topic]:
        """
        Return the topics with these names, without creating any.
        """
        if not names:
            self._admin.call(describe_cluster, "connecting")
            return {}
        return {name: _topic(description) for name, description in self._describe(names).items()}

    def describe_matching_topics(self, matches: Callable[[str], object]) -> dict[str, Topic]:
        """
        Return the visible topics with matching names.
        """
        with translating_errors("listing topics", map_read_error):
            self._admin.call(describe_cluster, "connecting")
            listed = self._admin.client().list_topics(timeout=self._admin.timeout_seconds)
        return self.describe_topics([name for name in listed.topics if matches(name)])

    def topic_settings(self, topics: Collection[str], name: str) -> dict[str, str | PykafkaError]:
        """
        Return the value of a setting of each topic, empty if it has none, or the topic's error.
        """
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        errors: dict[ConfigResource, PykafkaError] = {}
        described = self._admin.call(
            lambda client, seconds: client.describe_configs(resources, request_timeout=seconds),
            f"reading the setting {name} of topics",
            on_error=errors.__setitem__,
        )
        values: dict[str, str | PykafkaError] = {}
        for resource in resources:
            topic = str(resource.name)
            if resource in described:
                entry = described[resource].get(name)
                values[topic] = "" if entry is None else str(entry.value or "")
            elif resource in errors:
                values[topic] = to_read_error(errors[resource])
            else:
                msg = f"the brokers do not have the topic {topic}"
                values[topic] = UnknownTopicError(msg)
        return values

    def leader_addresses(self, names: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return the (host, port) of the leader of each partition that has one.
        """
        return {
            TopicPartition(name, partition.id): (partition.leader.host, partition.leader.port)
            for name, topic in self._describe(names).items()
            for partition in topic.partitions
            if partition.leader is not None
        }

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the offsets, retrying until every leader has responded or the timeout has passed.
        """
        return self._list_offsets(times, self._isolation).offsets

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return the end offsets and leader epochs, with retries as in :meth:`list_offsets`.
        """
        return self._list_offsets(dict.fromkeys(tps, LATEST), self._isolation)

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return the high watermarks and leader epochs, with retries as in :meth:`list_offsets`.
        """
        return self._list_offsets(dict.fromkeys(tps, LATEST), IsolationLevel.READ_UNCOMMITTED)

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:  # noqa: ARG002
        """
        Return nothing: librdkafka makes this request only when it starts to read.
        """
        return {}

    def _describe(self, names: Collection[str]) -> dict[str, TopicDescription]:
        if not names:
            return {}
        ordered = sorted(names)
        return self._call(
            lambda client, seconds: client.describe_topics(
                TopicCollection(ordered), request_timeout=seconds
            ),
            f"reading the partitions of {', '.join(ordered[:20])}",
        )

    def _call(
        self,
        request: Callable[[AdminClient, float], Mapping[K, Future[R]]],
        action: str,
        deadline: Deadline | None = None,
    ) -> dict[K, R]:
        try:
            return self._admin.call(request, action, deadline)
        except KafkaClientError as error:
            raise to_read_error(error) from error

    def _list_offsets(
        self, times: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> LogEnds:
        if not times:
            return LogEnds({}, {})
        deadline = self._admin.new_deadline()
        backoff = Backoff(_MIN_PAUSE, _MAX_PAUSE)
        return retry_until(
            lambda: self._offsets_of_all(times, isolation, deadline), deadline, backoff
        )

    def _offsets_of_all(
        self, times: Mapping[TopicPartition, int], isolation: IsolationLevel, deadline: Deadline
    ) -> LogEnds:
        ends = self._request_offsets(times, isolation, deadline)
        missing = [tp for tp, offset in ends.offsets.items() if offset == _NO_RESPONSE]
        if missing:
            # librdkafka 2.16 keeps sending requests to the old leader, thousands of times a second.
            self._admin.reset()
            msg = (
                f"{format_partitions(missing)}: no leader returned the offsets; are all brokers up?"
            )
            raise BrokerUnavailableError(msg)
        return ends

    def _request_offsets(
        self, times: Mapping[TopicPartition, int], isolation: IsolationLevel, deadline: Deadline
    ) -> LogEnds:
        positions = {Position(tp.topic, tp.partition): _spec(time) for tp, time in times.items()}
        results = self._call(
            lambda client, seconds: client.list_offsets(
                positions, isolation_level=isolation, request_timeout=seconds
            ),
            f"reading the offsets of {format_partitions(times)}",
            deadline,
        )
        ends = LogEnds({}, {})
        for position, result in results.items():
            tp = TopicPartition(position.topic, position.partition)
            ends.offsets[tp] = result.offset
            if result.leader_epoch is not None:
                ends.epochs[tp] = result.leader_epoch
        return ends


def _topic(description: TopicDescription) -> Topic:
    topic_id = str(description.topic_id)
    partitions = sorted(partition.id for partition in description.partitions)
    return Topic(None if topic_id == _NO_ID else topic_id, description.is_internal, partitions)


def _spec(time: int) -> OffsetSpec:
    if time == EARLIEST:
        return OffsetSpec.earliest()
    return OffsetSpec.latest() if time == LATEST else OffsetSpec.for_timestamp(time)
