"""
The stub brokers work with an independent client, and misbehave as a test defines.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

TOPIC = "t"
LIST_OFFSETS = 2


class NothingThere(Behaviour):
    """
    Returns the true log end, and no records.
    """

    def fetch(self, _node: int, topic: str, partition: int, _offset: int) -> FetchAnswer:
        return FetchAnswer(0, self.end(topic, partition))


class NoOffsets(Behaviour):
    """
    Rejects ListOffsets.
    """

    def offsets(self, *_: object) -> tuple[int, int]:
        return KafkaError.TOPIC_AUTHORIZATION_FAILED, -1


def consumed(stubs: StubCluster, count: int, seconds: float = 5.0) -> list[bytes | None]:
    """
    Return the values that librdkafka reads from the first partition.
    """
    consumer = Consumer({"bootstrap.servers": stubs.bootstrap, "group.id": "g", "log_level": 0})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        return [message.value() for message in consumer.consume(count, seconds)]
    finally:
        consumer.close()


def test_librdkafka_reads_a_stub() -> None:
    """
    An independent client gets all values of a partition of a stub cluster, in order.
    """
    with StubCluster(Behaviour(brokers=3, high_watermark=250)) as stubs:
        values = consumed(stubs, 250)
        stats = stubs.stats()

    assert values == [b"v%d" % number for number in range(250)]
    assert stats["connections"] >= 1


def test_librdkafka_reads_produced_records() -> None:
    """
    A stub keeps the records that are written to it.
    """
    with StubCluster(Behaviour(brokers=3)) as stubs:
        producer = Producer({"bootstrap.servers": stubs.bootstrap, "log_level": 0})
        for number in range(10):
            producer.produce(TOPIC, b"w%d" % number, partition=0)
        assert producer.flush(5) == 0
        # A partition with produced records has no generated ones.
        assert consumed(stubs, 10) == [b"w%d" % number for number in range(10)]


def test_a_behaviour_of_a_test_module_is_used() -> None:
    """
    The stub's process runs the behaviour that a test module defines.
    """
    with StubCluster(NothingThere()) as stubs:
        assert consumed(stubs, 1, 1.0) == []
        assert stubs.stats()["requests"][1] > 0


class Misspelt(Behaviour):
    """
    Misspells the name of the method ``offsets``.
    """

    def list_offset(self, node: int) -> int:
        return node


def test_a_method_that_overrides_nothing_is_refused() -> None:
    """
    A method that overrides nothing is an error: a stub would never call it.
    """
    with pytest.raises(AssertionError, match="Misspelt overrides no method of a stub"):
        StubCluster(Misspelt())


class Unreadable(Behaviour):
    """
    Ends the process that unpickles it.
    """

    def __setstate__(self, _: object) -> None:
        raise SystemExit(7)


def test_a_process_that_ends_is_reported() -> None:
    """
    If the stub's process ends, the error has its exit code; other stubs are not affected.
    """
    with StubCluster(Behaviour()) as other:
        with pytest.raises(RuntimeError, match="ended with exit code 1"):
            StubCluster(Unreadable()).__enter__()

        assert other.get("brokers") == 1


def test_an_error_reaches_the_client() -> None:
    """
    A client receives the error that the behaviour returns.
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
    A changed attribute applies from the next request on.
    """
    with StubCluster(Behaviour(high_watermark=10)) as stubs:
        stubs.set(high_watermark=20)
        assert len(consumed(stubs, 20)) == 20
        assert stubs.get("high_watermark") == 20
