"""
Describes brokers and a user's permissions for the command line; queries do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.errors import UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import Iterable

    # Only people read these types: mypy skips them, since the client's stubs are wrong.
    from confluent_kafka import admin
    from confluent_kafka.admin import AclOperation, AdminClient, ConfigEntry

    from pyspark_pykafka.engines.librdkafka.admin import Futures
    from pyspark_pykafka.settings import KafkaSettings

_CLUSTER = "cluster"


class ClusterDescription(NamedTuple):
    """
    The brokers of a cluster by id, and the operations on the cluster that the user may use.
    """

    cluster_id: str
    brokers: dict[int, str]
    operations: frozenset[str]


class TopicDescription(NamedTuple):
    """
    The number of partitions of a topic, and the operations on it that the user may use.
    """

    partitions: int
    operations: frozenset[str]


class ClusterInspection:
    """
    Requests of an admin client; each raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._admin = RetryingAdmin(kafka)

    def describe_cluster(self) -> ClusterDescription:
        """
        Return the brokers, and the operations that the user may use on the cluster.
        """

        def describe(
            client: AdminClient, seconds: float
        ) -> Futures[str, admin.DescribeClusterResult]:
            future = client.describe_cluster(
                include_authorized_operations=True, request_timeout=seconds
            )
            return {_CLUSTER: future}

        cluster = self._admin.call(describe, "describing the cluster")[_CLUSTER]
        brokers = {node.id: f"{node.host}:{node.port}" for node in cluster.nodes}
        return ClusterDescription(
            cluster.cluster_id, brokers, _names(cluster.authorized_operations)
        )

    def broker_settings(self, broker: int) -> dict[str, str]:
        """
        Return the settings of a broker; requires permission to describe the cluster's configs.
        """

        def describe(
            client: AdminClient, seconds: float
        ) -> Futures[ConfigResource, dict[str, ConfigEntry]]:
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            futures: Futures[ConfigResource, dict[str, ConfigEntry]] = client.describe_configs(
                [resource], request_timeout=seconds
            )
            return futures

        action = f"describing the settings of broker {broker}"
        (entries,) = self._admin.call(describe, action).values()
        return {name: str(entry.value) for name, entry in entries.items()}

    def describe_topic(self, topic: str) -> TopicDescription:
        """
        Return the partitions of a topic, and the operations that the user may use on it.
        """

        def describe(client: AdminClient, seconds: float) -> Futures[str, admin.TopicDescription]:
            futures: Futures[str, admin.TopicDescription] = client.describe_topics(
                TopicCollection([topic]),
                include_authorized_operations=True,
                request_timeout=seconds,
            )
            return futures

        descriptions = self._admin.call(describe, f"describing the topic {topic}")
        if topic not in descriptions:
            msg = f"the brokers do not have the topic '{topic}'"
            raise UnknownTopicError(msg)
        description = descriptions[topic]
        operations = _names(description.authorized_operations)
        return TopicDescription(len(description.partitions), operations)

    def newest_timestamp(self, topic: str, partitions: int) -> int | None:
        """
        Return the highest timestamp of a topic's records in ms, or None if it has none.
        """

        def list_offsets(
            client: AdminClient, seconds: float
        ) -> Futures[TopicPartition, admin.ListOffsetsResultInfo]:
            requests = {
                TopicPartition(topic, number): OffsetSpec.max_timestamp()
                for number in range(partitions)
            }
            futures: Futures[TopicPartition, admin.ListOffsetsResultInfo]
            futures = client.list_offsets(requests, request_timeout=seconds)
            return futures

        action = f"looking for the newest record of {topic}"
        results = self._admin.call(list_offsets, action).values()
        return max((r.timestamp for r in results if r.timestamp >= 0), default=None)


def _names(operations: Iterable[AclOperation] | None) -> frozenset[str]:
    return frozenset(operation.name for operation in operations or ())
