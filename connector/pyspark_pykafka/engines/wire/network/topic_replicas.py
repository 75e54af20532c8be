"""
The replication factor of a topic and the number of brokers, read from Metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.retry import Deadline

# Every broker since 2.0 supports at least one of these versions; none is flexible.
_OLDEST, _NEWEST, _FLEXIBLE = 5, 8, 9
_LEADER_EPOCHS = 7


class TopicReplicas(NamedTuple):
    """
    The number of brokers, and the number of replicas of the topic's first partition.

    ``replication_factor`` is None if the topic does not exist.
    """

    broker_count: int
    replication_factor: int | None


def fetch_topic_replicas(cluster: Cluster, topic: str, deadline: Deadline) -> TopicReplicas:
    """
    Return the number of brokers and of a topic's replicas, as one broker reports them; do not
    create the topic.
    """
    connection = cluster.any_connection(deadline)
    version = connection.version(_REPLICAS)
    body = metadata_request(version, [topic], allow_auto_topic_creation=False).body
    return cluster.request(connection, Request(_REPLICAS, version, body), deadline)


def decode_topic_replicas(body: memoryview, version: int) -> TopicReplicas:
    """
    Decode a Metadata response for one topic.
    """
    reader = Reader(body, version, _FLEXIBLE)
    # throttle_time_ms
    reader.int32()
    broker_count = reader.int32()
    # Of each broker: node_id, host, port, rack.
    for _ in range(broker_count):
        reader.skip(INT32.size)
        reader.skip_string()
        reader.skip(INT32.size)
        reader.skip_string()
    # cluster_id, controller_id
    reader.skip_string()
    reader.int32()
    replication_factor = None
    for _ in range(reader.count()):
        replication_factor = _read_topic(reader, version)
    return TopicReplicas(broker_count, replication_factor)


def _read_topic(reader: Reader, version: int) -> int | None:
    """
    Read a topic, and return the number of replicas of its first partition.
    """
    # error_code, name, is_internal
    reader.int16()
    reader.skip_string()
    reader.boolean()
    counts = []
    for _ in range(reader.count()):
        # error_code
        reader.int16()
        # partition_index, leader_id, leader_epoch
        reader.skip(INT32.size * (3 if version >= _LEADER_EPOCHS else 2))
        # replica_nodes, isr_nodes, offline_replicas
        sizes = []
        for _array in range(3):
            sizes.append(max(reader.count(), 0))
            reader.skip(sizes[-1] * INT32.size)
        counts.append(sizes[0])
    if version == _NEWEST:
        # topic_authorized_operations
        reader.int32()
    return counts[0] if counts else None


_REPLICAS = ApiSpec(
    "Metadata", METADATA.API_KEY, (_OLDEST, _NEWEST), _FLEXIBLE, decode_topic_replicas
)
