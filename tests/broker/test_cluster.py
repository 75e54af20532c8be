"""
A KafkaCluster starts, survives kills, pauses and restarts, and cleans up.
"""

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


@pytest.mark.soak
@pytest.mark.parametrize("version", ["3.9.2", "4.0.2", KAFKA_VERSION])
def test_records_round_trip_on_every_supported_version(version: str) -> None:
    """
    On each broker version, records are read as written, in order, with partition and offset.
    """
    with KafkaCluster(version=version) as kafka:
        kafka.create_topic("records", partitions=2)
        written = kafka.produce("records", RECORDS)
        read = kafka.consume("records")
    assert read == sorted(written, key=lambda record: (record.partition, record.offset))
    assert [record.value for record in read] == [b"first", b"", None]


def test_read_committed_hides_aborted_records(single: KafkaCluster) -> None:
    """
    Aborted records are read by default, and not with read_committed.
    """
    from confluent_kafka import Producer

    topic = single.create_topic("aborted")
    settings = {"bootstrap.servers": single.bootstrap, "transactional.id": "aborting"}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush(30)
    producer.abort_transaction(30)
    assert [record.value for record in single.consume(topic)] == [b"never"]
    assert single.consume(topic, config={"isolation.level": "read_committed"}) == []


def test_record_of_8_mb_is_accepted(single: KafkaCluster) -> None:
    """
    A record of 8 MB is accepted with default settings.
    """
    topic = single.create_topic("large")
    single.produce(topic, [Record(bytes(8 * 1024 * 1024))])
    assert [len(record.value or b"") for record in single.consume(topic)] == [8 * 1024 * 1024]


def test_rejected_record_raises(single: KafkaCluster) -> None:
    """
    A record that the broker rejects raises DeliveryError.
    """
    topic = single.create_topic("small", config={"max.message.bytes": 1000})
    with pytest.raises(DeliveryError, match=r"not written to small.*: .*MSG_SIZE_TOO_LARGE"):
        single.produce(topic, [Record(bytes(5000))])


def test_topics_are_not_created_automatically(single: KafkaCluster) -> None:
    """
    Writing to an unknown topic fails and does not create it.
    """
    with pytest.raises(DeliveryError, match="not written to misspelt"):
        single.produce("misspelt", [Record(b"lost")], config={"message.timeout.ms": 2000})
    assert "misspelt" not in single.admin().list_topics(timeout=10).topics


@pytest.mark.parametrize("end", ["kill", pytest.param("stop", marks=pytest.mark.soak)])
def test_restarted_broker_keeps_address_and_data(single: KafkaCluster, end: str) -> None:
    """
    After a kill or a shutdown, a restart keeps the address and the records.
    """
    topic = single.create_topic(f"kept-after-{end}")
    single.produce(topic, RECORDS[:1])
    before = single.bootstrap
    if end == "kill":
        single.kill(1)
    else:
        single.stop(1)
    assert single.running_addresses() == []
    single.restart(1)
    assert single.bootstrap == before
    assert [record.value for record in single.consume(topic)] == [b"first"]


def test_resumed_broker_accepts_records_again(single: KafkaCluster) -> None:
    """
    A paused broker accepts no records; once it is resumed, it accepts them again.
    """
    topic = single.create_topic("paused")
    single.pause()
    with pytest.raises(DeliveryError, match="not written"):
        single.produce(topic, RECORDS[:1], seconds=1.0)
    single.resume()
    single.produce(topic, [Record(b"second")])
    assert Record(b"second").value in [record.value for record in single.consume(topic)]


# Tests in tests/faults start three brokers, and kill and restart them during reads and writes.
@pytest.mark.soak
def test_three_brokers_survive_the_loss_of_any_one(triple: KafkaCluster) -> None:
    """
    Killing two of three brokers, one after another, loses no acknowledged record.
    """
    topic = triple.create_topic("replicated", partitions=3)
    for node in (1, 3):
        triple.kill(node)
        triple.produce(topic, [Record(str(node).encode(), partition=number) for number in range(3)])
        triple.restart(node)
    assert (
        sorted(record.value or b"" for record in triple.consume(topic)) == [b"1"] * 3 + [b"3"] * 3
    )


@pytest.mark.soak
def test_brokers_that_are_down_restart_one_by_one(triple: KafkaCluster) -> None:
    """
    A broker restarts while another one is down, and records with one replica are not lost.
    """
    topic = triple.create_topic("single-copies", partitions=3, replication_factor=1)
    triple.produce(topic, [Record(b"%d" % number, partition=number) for number in range(3)])
    for node in (1, 3):
        triple.kill(node)
    for node in (1, 3):
        triple.restart(node)
    assert sorted(record.value or b"" for record in triple.consume(topic)) == [b"0", b"1", b"2"]


# A test in test_commit_faults.py also creates a topic with three replicas.
@pytest.mark.soak
def test_three_brokers_keep_three_replicas(triple: KafkaCluster) -> None:
    """
    A new topic has a replica on each of three brokers.
    """
    triple.create_topic("copies")
    partition = triple.admin().list_topics(timeout=10).topics["copies"].partitions[0]
    assert sorted(partition.replicas) == [1, 2, 3]
    assert len(triple.bootstrap.split(",")) == 3


def test_failed_start_quotes_the_broker_log() -> None:
    """
    An invalid setting raises an error that quotes the broker's log, and no broker is left running.
    """
    kafka = KafkaCluster(config={"log.segment.bytes": 1})
    with pytest.raises(ServerError, match=r"exit code 1[\s\S]*log\.segment\.bytes"):
        kafka.start()
    with pytest.raises(ServerError, match="is not running"):
        kafka.kill()


def test_methods_need_a_running_cluster() -> None:
    """
    Methods of a cluster that is not running raise an error that says what to call.
    """
    kafka = KafkaCluster()
    with pytest.raises(ServerError, match=r"not started; call start\(\)"):
        _ = kafka.bootstrap
    with pytest.raises(ServerError, match="is not running"):
        kafka.kill(1)
    with pytest.raises(ValueError, match=r"brokers is 2; it must be 1 or 3"):
        KafkaCluster(brokers=2)


def test_external_cluster_cannot_be_stopped(single: KafkaCluster) -> None:
    """
    An external cluster can be written and read, but its nodes cannot be killed.
    """
    with ExternalCluster(single.bootstrap) as external:
        topic = external.create_topic("external")
        external.produce(topic, RECORDS[:1])
        assert [record.value for record in external.consume(topic)] == [b"first"]
        with pytest.raises(ServerError, match="is external, so tests cannot kill its node 1"):
            external.kill(1)
    assert single.running_addresses() == [single.bootstrap]


def test_taken_port_raises(single: KafkaCluster) -> None:
    """
    If a requested port is in use, an error is raised, and no other port is chosen.
    """
    kafka = KafkaCluster(port=single.nodes[0].port)
    with pytest.raises(ServerError, match="is in use; choose another one"):
        kafka.start()


@pytest.mark.parametrize("partitions", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_topic_of_many_partitions_is_ready_when_returned(
    single: KafkaCluster, partitions: int
) -> None:
    """
    Each of many partitions accepts a record immediately.
    """
    topic = single.create_topic(f"wide-{partitions}", partitions=partitions)
    written = single.produce(topic, [Record(b"v", partition=n) for n in range(partitions)])
    assert [record.offset for record in written] == [0] * partitions
