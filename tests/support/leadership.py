"""
Finds the leader of a partition, and moves the leadership without a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Position
from kafka.protocol.admin import AlterPartitionReassignmentsRequest

from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark_pykafka.testing import KafkaCluster

NODES = {1, 2, 3}
SECONDS = 30


def leader(cluster: KafkaCluster, topic: str, partition: int = 0) -> int:
    """
    Return the broker that leads a partition, once a running broker reports one.
    """
    admin = cluster.admin(",".join(cluster.running_addresses()))
    known: list[int] = []

    def missing() -> str | None:
        # A broker that has just been started may not know the partition yet.
        partitions = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        if partition in partitions and partitions[partition].leader >= 0:
            known.append(int(partitions[partition].leader))
        return None if known else f"no leader of {topic}-{partition} is known"

    wait_until(missing, SECONDS)
    return known[-1]


def move_leader(cluster: KafkaCluster, topic: str, partition: int, node: int) -> None:
    """
    Make one of three brokers the partition's preferred replica, and wait until it is elected.
    """
    topic_type = AlterPartitionReassignmentsRequest.ReassignableTopic
    replicas = [node, *sorted(NODES - {node})]
    reassignment = topic_type.ReassignablePartition(partition_index=partition, replicas=replicas)
    host, port = cluster.running_addresses()[0].split(":")
    config = wire_config(KafkaSettings.of({"bootstrap.servers": cluster.bootstrap}))
    deadline = Deadline.after(SECONDS)
    connection = Connection.open(Address(host, int(port)), config, deadline)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=SECONDS * 1_000,
        topics=[topic_type(name=topic, partitions=[reassignment])],
        version=connection.version(AlterPartitionReassignmentsRequest, 0),
    )
    response = connection.request(request, deadline)
    connection.close()
    assert [p.error_code for t in response.responses for p in t.partitions] == [0]
    # Without this reference, the admin client would be closed while its request is in flight.
    admin = cluster.admin()
    admin.elect_leaders(ElectionType.PREFERRED, [Position(topic, partition)]).result(SECONDS)
    wait_until(
        lambda: None if leader(cluster, topic, partition) == node else "no election", SECONDS
    )
