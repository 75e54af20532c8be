"""
Brokers that die under running queries: no record is lost, and nothing hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.metadata_backends import metadata_backend_of

from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def own_cluster() -> Iterator[KafkaCluster]:
    """
    A broker for one test, which may kill it.
    """
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """
    Three brokers that tests may kill; each test leaves all of them running.
    """
    with KafkaCluster(3) as cluster:
        yield cluster


def test_stream_survives_a_killed_broker(
    spark: SparkSession, own_cluster: KafkaCluster, checkpoint: str
) -> None:
    """
    A topic-to-topic stream continues by itself after kill -9 of its broker and its restart.
    """
    for name in ("source", "target"):
        own_cluster.create_topic(name, partitions=2)

    def feed(step: int) -> None:
        records = [Record(f"{step}-{i}".encode(), str(i).encode()) for i in range(100)]
        own_cluster.produce("source", records)

    options = {"kafka.bootstrap.servers": own_cluster.bootstrap}
    reader = spark.readStream.format("pykafka").options(**options, subscribe="source")
    frame = reader.option("startingOffsets", "earliest").load().select("key", "value")
    writer = frame.writeStream.format("pykafka").options(**options, topic="target")
    writer = writer.option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        feed(0)
        # A query that is still starting waits less for brokers that have never responded.
        query.processAllAvailable()
        own_cluster.kill()
        own_cluster.restart()
        feed(1)
        query.processAllAvailable()
    finally:
        query.stop()

    values = [r.value for r in own_cluster.consume("target")]
    expected = {f"{step}-{i}".encode() for step in range(2) for i in range(100)}
    assert set(values) == expected
    # At least once: only a retried micro-batch may repeat records.
    assert len(values) >= len(expected)


def test_a_write_to_a_dead_broker_times_out(spark: SparkSession) -> None:
    """
    A write to an address where no broker runs any more fails, and the error names the timeout that
    expired.
    """
    address = f"127.0.0.1:{free_ports(1)[0]}"
    frame = spark.sql("SELECT 'x' AS value")
    writer = frame.write.format("pykafka").mode("append").option("topic", "target")

    with pytest.raises(Exception, match=r"not done within 2000 ms \(kafka.max.block.ms\)"):
        writer.options(**{"kafka.bootstrap.servers": address, "kafka.max.block.ms": "2000"}).save()


@pytest.fixture(params=["wire", "librdkafka"])
def engine(request: pytest.FixtureRequest) -> str:
    """
    Return the name of each engine in turn.
    """
    return str(request.param)


@pytest.mark.parametrize(
    "engine", [pytest.param("wire", marks=pytest.mark.soak), "librdkafka"], indirect=True
)
def test_metadata_does_not_wait_for_a_lost_broker(three: KafkaCluster, engine: str) -> None:
    """
    After one of three brokers is killed, each of nine clients finds all partitions.

    A librdkafka client sends such requests only to the broker that it considers the controller. At
    random, one client in three has picked the killed broker.
    """
    topic = three.create_topic(f"found-{engine}", partitions=3)
    settings = KafkaSettings.of(
        {"bootstrap.servers": three.bootstrap, "default.api.timeout.ms": "10000"}
    )
    backends = [metadata_backend_of(settings, "read_uncommitted", engine) for _ in range(9)]
    clients = [MetadataClient(backend, RetryPolicy(1, 0)) for backend in backends]
    for client in clients:
        assert len(client.partitions_for([topic])) == 3
    three.kill(1)

    try:
        for client in clients:
            assert len(client.partitions_for([topic])) == 3
    finally:
        three.restart(1)


@pytest.mark.parametrize(
    "engine", ["wire", pytest.param("librdkafka", marks=pytest.mark.soak)], indirect=True
)
def test_offsets_come_from_the_new_leaders(three: KafkaCluster, engine: str) -> None:
    """
    After a broker is frozen or killed, every end offset comes from the new leaders.

    A single librdkafka client might never get the offsets of the partitions that have new leaders.
    """
    topic = three.create_topic(f"led-{engine}", partitions=6)
    three.produce(topic, [Record(b"x", partition=partition) for partition in range(6)])
    settings = KafkaSettings.of({"bootstrap.servers": three.bootstrap})
    client = MetadataClient(
        metadata_backend_of(settings, "read_uncommitted", engine), RetryPolicy(1, 0)
    )
    tps = client.partitions_for([topic])
    expected = dict.fromkeys(tps, 1)
    assert client.end_offsets(tps) == expected

    three.pause(2)
    try:
        assert client.end_offsets(tps) == expected
    finally:
        three.resume(2)
    three.kill(3)
    try:
        assert client.end_offsets(tps) == expected
    finally:
        three.restart(3)
