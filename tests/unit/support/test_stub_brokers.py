"""
The stub brokers are Kafka enough for a client that nobody here wrote, and odd where a test says so.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

TOPIC = "t"
LIST_OFFSETS = 2


class NothingThere(Behaviour):
    """
    Says truly where the log ends, and gives no records.
    """

    def fetch(self, _node: int, topic: str, partition: int, _offset: int) -> FetchAnswer:
        return FetchAnswer(0, self.end(topic, partition))


class NoOffsets(Behaviour):
    """
    Refuses to list offsets.
    """

    def offsets(self, *_: object) -> tuple[int, int]:
        return KafkaError.TOPIC_AUTHORIZATION_FAILED, -1


def consumed(stubs: StubCluster, count: int, seconds: float = 5.0) -> list[bytes | None]:
    """
    Return the values that librdkafka reads of the first partition.
    """
    consumer = Consumer({"bootstrap.servers": stubs.bootstrap, "group.id": "g", "log_level": 0})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        return [message.value() for message in consumer.consume(count, seconds)]
    finally:
        consumer.close()


def test_librdkafka_reads_a_stub() -> None:
    """
    Records come with all their values, from as many brokers as there are.
    """
    with StubCluster(Behaviour(brokers=3, high_watermark=250)) as stubs:
        values = consumed(stubs, 250)
        stats = stubs.stats()

    assert values == [b"v%d" % at for at in range(250)]
    assert stats["connections"] >= 1


def test_librdkafka_reads_what_was_produced() -> None:
    """
    A stub keeps what is written to it.
    """
    with StubCluster(Behaviour(brokers=3)) as stubs:
        producer = Producer({"bootstrap.servers": stubs.bootstrap, "log_level": 0})
        for at in range(10):
            producer.produce(TOPIC, b"w%d" % at, partition=0)
        assert producer.flush(5) == 0
        # Produced records come behind no others: a log that is written to is kept as it is.
        assert consumed(stubs, 10) == [b"w%d" % at for at in range(10)]


def test_an_odd_answer_is_seen() -> None:
    """
    A behaviour of a test module is what the stub's process runs.
    """
    with StubCluster(NothingThere()) as stubs:
        assert consumed(stubs, 1, 1.0) == []
        assert stubs.stats()["requests"][1] > 0


def test_an_error_is_seen() -> None:
    """
    A client meets the error that the behaviour gives.
    """
    with StubCluster(NoOffsets()) as stubs:
        consumer = Consumer({"bootstrap.servers": stubs.bootstrap, "group.id": "g", "log_level": 0})
        try:
            with pytest.raises(KafkaException, match="Topic authorization failed"):
                consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=5)
        finally:
            consumer.close()


def test_attributes_can_be_changed() -> None:
    """
    What a test sets counts from the next request on.
    """
    with StubCluster(Behaviour(high_watermark=10)) as stubs:
        stubs.set(high_watermark=20)
        assert len(consumed(stubs, 20)) == 20
        assert stubs.get("high_watermark") == 20
