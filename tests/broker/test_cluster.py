"""A KafkaCluster starts, takes what tests do to it, and leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.testing import (
    KAFKA_VERSION,
    DeliveryError,
    ExternalCluster,
    KafkaCluster,
    Record,
    ServerError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = [
    Record(b"first", key=b"key", partition=0, timestamp=1_700_000_000_000),
    Record(None, key=b"tombstone", partition=1, headers=(("trace", b"1"), ("empty", None))),
    Record(b"", partition=0),
]


@pytest.fixture(scope="module")
def single() -> Iterator[KafkaCluster]:
    with KafkaCluster() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def triple() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3) as kafka:
        yield kafka


@pytest.mark.parametrize("version", ["3.9.2", "4.0.2", KAFKA_VERSION])
def test_every_supported_version_keeps_records(version: str) -> None:
    """Each broker version gives back what was written, in order, with its place filled in."""
    with KafkaCluster(version=version) as kafka:
        kafka.create_topic("records", partitions=2)
        written = kafka.produce("records", RECORDS)
        read = kafka.consume("records")
    assert read == sorted(written, key=lambda one: (one.partition, one.offset))
    assert [one.value for one in read] == [b"first", b"", None]


def test_aborted_records_show_only_without_read_committed(single: KafkaCluster) -> None:
    """A consumer sees uncommitted records unless it asks for committed ones."""
    from confluent_kafka import Producer

    topic = single.create_topic("aborted")
    settings = {"bootstrap.servers": single.bootstrap, "transactional.id": "aborting"}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush(30)
    producer.abort_transaction(30)
    assert [one.value for one in single.consume(topic)] == [b"never"]
    assert single.consume(topic, config={"isolation.level": "read_committed"}) == []


def test_a_large_record_fits(single: KafkaCluster) -> None:
    """A record of 8 MB is taken without any setting."""
    topic = single.create_topic("large")
    single.produce(topic, [Record(bytes(8 * 1024 * 1024))])
    assert [len(one.value or b"") for one in single.consume(topic)] == [8 * 1024 * 1024]


def test_a_refused_record_raises(single: KafkaCluster) -> None:
    """A record that the broker refuses is an error, not a silent gap."""
    topic = single.create_topic("small", config={"max.message.bytes": 1000})
    with pytest.raises(DeliveryError, match=r"not written to small.*: .*MSG_SIZE_TOO_LARGE"):
        single.produce(topic, [Record(bytes(5000))])


def test_topics_do_not_appear_by_themselves(single: KafkaCluster) -> None:
    """Writing to a misspelt topic fails and makes no topic."""
    with pytest.raises(DeliveryError, match="not written to misspelt"):
        single.produce("misspelt", [Record(b"lost")], config={"message.timeout.ms": 2000})
    assert "misspelt" not in single.admin().list_topics(timeout=10).topics


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_single_broker_comes_back_with_its_data(single: KafkaCluster, end: str) -> None:
    """After a kill and after a shutdown, a restart finds the address and the records again."""
    topic = single.create_topic(f"kept-after-{end}")
    single.produce(topic, RECORDS[:1])
    before = single.bootstrap
    if end == "kill":
        single.kill(1)
    else:
        single.stop(1)
    assert single.answering() == []
    single.restart(1)
    assert single.bootstrap == before
    assert [one.value for one in single.consume(topic)] == [b"first"]


def test_a_paused_broker_answers_again_when_resumed(single: KafkaCluster) -> None:
    """While paused, a broker takes no record; resumed, it does."""
    topic = single.create_topic("paused")
    single.pause()
    with pytest.raises(DeliveryError, match="not written"):
        single.produce(topic, RECORDS[:1], seconds=1.0)
    single.resume()
    single.produce(topic, [Record(b"second")])
    assert Record(b"second").value in [one.value for one in single.consume(topic)]


def test_three_brokers_lose_any_one_and_nothing_else(triple: KafkaCluster) -> None:
    """With three brokers, killing one after another keeps every acknowledged record."""
    topic = triple.create_topic("replicated", partitions=3)
    for node in (1, 3):
        triple.kill(node)
        triple.produce(topic, [Record(str(node).encode(), partition=number) for number in range(3)])
        triple.restart(node)
    assert sorted(one.value or b"" for one in triple.consume(topic)) == [b"1"] * 3 + [b"3"] * 3


def test_brokers_come_back_one_after_another(triple: KafkaCluster) -> None:
    """A broker is back before others that are down, whose only copies nobody can serve yet."""
    topic = triple.create_topic("single-copies", partitions=3, replication_factor=1)
    triple.produce(topic, [Record(b"%d" % number, partition=number) for number in range(3)])
    for node in (1, 3):
        triple.kill(node)
    for node in (1, 3):
        triple.restart(node)
    assert sorted(one.value or b"" for one in triple.consume(topic)) == [b"0", b"1", b"2"]


def test_three_brokers_keep_three_copies(triple: KafkaCluster) -> None:
    """Topics and Kafka's own topics are spread over all three brokers."""
    triple.create_topic("copies")
    partition = triple.admin().list_topics(timeout=10).topics["copies"].partitions[0]
    assert sorted(partition.replicas) == [1, 2, 3]
    assert len(triple.bootstrap.split(",")) == 3


def test_a_broker_that_can_not_start_shows_its_log() -> None:
    """A wrong setting is an error that quotes what the broker said, and leaves nothing."""
    kafka = KafkaCluster(config={"log.segment.bytes": 1})
    with pytest.raises(ServerError, match=r"exit code 1[\s\S]*log\.segment\.bytes"):
        kafka.start()
    with pytest.raises(ServerError, match="does not run"):
        kafka.kill()


def test_verbs_need_a_cluster_that_runs() -> None:
    """A cluster that was not started says what to do, and a wrong node which ones there are."""
    kafka = KafkaCluster()
    with pytest.raises(ServerError, match=r"not started; call start\(\)"):
        _ = kafka.bootstrap
    with pytest.raises(ServerError, match="does not run"):
        kafka.kill(1)
    with pytest.raises(ValueError, match=r"brokers is 2; it must be 1 or 3"):
        KafkaCluster(brokers=2)


def test_a_cluster_of_somebody_else_can_be_used_but_not_ended(single: KafkaCluster) -> None:
    """With only an address, topics can be made, written and read, and no verb harms the nodes."""
    with ExternalCluster(single.bootstrap) as external:
        topic = external.create_topic("external")
        external.produce(topic, RECORDS[:1])
        assert [one.value for one in external.consume(topic)] == [b"first"]
        with pytest.raises(ServerError, match="not started from here, so no test may kill node 1"):
            external.kill(1)
    assert single.answering() == [single.bootstrap]


def test_a_taken_port_is_told(single: KafkaCluster) -> None:
    """A port that the user chose and somebody has is an error that shows why, not another port."""
    kafka = KafkaCluster(port=single.nodes[0].port)
    with pytest.raises(ServerError, match="Address already in use"):
        kafka.start()


def test_a_topic_of_a_thousand_partitions_is_served_when_it_is_returned(
    single: KafkaCluster,
) -> None:
    """Each of 1,000 partitions takes a record at once."""
    topic = single.create_topic("wide", partitions=1000)
    written = single.produce(topic, [Record(b"v", partition=number) for number in range(1000)])
    assert [one.offset for one in written] == [0] * 1000
