"""
Changes of topics in the simulated cluster: added partitions, and brokers that lack topics.
"""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import MetadataRequest
from tests.simulation.kafka.codes import Code
from tests.support.simulated_kafka import SimulatedKafka

_VERSION = 9


@pytest.fixture
def kafka() -> SimulatedKafka:
    """
    Three brokers with a topic ``t`` of one partition and three replicas.
    """
    kafka = SimulatedKafka()
    kafka.cluster.create_topic("t", 1)
    return kafka


def described(kafka: SimulatedKafka, node: int) -> tuple[int, int]:
    """
    Return the error code of the topic ``t``, and the number of its partitions.
    """
    topics = [MetadataRequest.MetadataRequestTopic(name="t")]
    response = kafka.request(node, MetadataRequest(topics=topics), _VERSION)
    return response.topics[0].error_code, len(response.topics[0].partitions)


def test_brokers_learn_of_added_partitions(kafka: SimulatedKafka) -> None:
    """
    Added partitions have leaders at once, and reach each broker's metadata after a moment.
    """
    kafka.cluster.add_partitions("t", 2)
    assert kafka.cluster.leader("t", 2) in kafka.cluster.node_ids
    kafka.time.run(1.0)

    assert [described(kafka, node) for node in kafka.cluster.node_ids] == [(Code.NONE, 3)] * 3


def test_a_broker_lacks_topics_for_a_time(kafka: SimulatedKafka) -> None:
    """
    A broker that has forgotten its topics reports them as unknown, until it knows them again.
    """
    kafka.cluster.forget_topics(1, 2.0)
    assert described(kafka, 1) == (Code.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert described(kafka, 2) == (Code.NONE, 1)
    kafka.time.run(3.0)

    assert described(kafka, 1) == (Code.NONE, 1)


def test_removed_records_are_still_known_to_checkers(kafka: SimulatedKafka) -> None:
    """
    Records that retention removes are gone from the log, but stay among all appended records.
    """
    for value in (b"a", b"b"):
        kafka.produce(value)
    kafka.cluster.delete_records("t", 0, 1)

    assert [record.value for record in kafka.cluster.records("t", 0)] == [b"b"]
    assert [record.value for record in kafka.cluster.appended("t", 0)] == [b"a", b"b"]
