"""
The replication factor of a topic, in every supported version of Metadata.
"""

from __future__ import annotations

import pytest
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.topic_replicas import (
    TopicReplicas,
    decode_topic_replicas,
    fetch_topic_replicas,
)
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import wire_producer_config


@pytest.mark.parametrize("version", range(5, 9))
@pytest.mark.parametrize("replicas", [(), (1,), (2, 1, 3)])
def test_replicas_are_decoded(version: int, replicas: tuple[int, ...]) -> None:
    """
    The number of brokers and of the first partition's replicas are decoded as kafka-python encodes
    them.
    """
    from kafka.protocol.metadata import MetadataResponse

    kind = MetadataResponse
    partitions = [
        kind.MetadataResponseTopic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=1,
            leader_epoch=7,
            replica_nodes=list(replicas),
            isr_nodes=[1, 2],
            offline_replicas=[3],
        )
    ]
    topic = kind.MetadataResponseTopic(
        error_code=0, name="orders-ledger", is_internal=False, partitions=partitions
    )
    brokers = [
        kind.MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092, rack=None)
        for node in (1, 2)
    ]
    response = kind(
        version=version,
        throttle_time_ms=0,
        brokers=brokers,
        cluster_id="c",
        controller_id=1,
        topics=[topic],
    )
    body = memoryview(response.encode(version=version))

    assert decode_topic_replicas(body, version) == TopicReplicas(2, len(replicas))


@pytest.mark.parametrize(("topic", "replicas"), [("orders-ledger", 1), ("other", None)])
def test_replicas_of_a_missing_topic(topic: str, replicas: int | None) -> None:
    """
    A missing topic has no replication factor, unlike an existing one.
    """
    with StubCluster(Behaviour(brokers=2, topics={"orders-ledger": 1})) as stubs:
        kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap})
        cluster = Cluster(wire_producer_config(kafka).wire)
        topic_replicas = fetch_topic_replicas(cluster, topic, Deadline.after(10))
        cluster.close()

    assert (topic_replicas.broker_count, topic_replicas.replication_factor) == (2, replicas)
