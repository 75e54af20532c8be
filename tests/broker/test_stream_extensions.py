"""
Features of streams that the JVM connector lacks: committed starts, ending offsets, byte limits.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.streams import SECONDS, Stream, add_partitions, delete_topic, texts, values

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def numbered(partition: int, first: int, end: int) -> list[Record]:
    """
    Return records for one partition; record n is n seconds later than record 0.
    """
    return [
        Record(f"{n:04}".encode(), partition=partition, timestamp=1_700_000_000_000 + 1000 * n)
        for n in range(first, end)
    ]


@pytest.mark.side_by_side
def test_moves_from_the_jvm_connector_and_back(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, checkpoint: str
) -> None:
    """
    A stateful query moves from the JVM connector to `pykafka` with its checkpoint, and back after
    the checkpoint was converted; each record counts exactly once.
    """
    name = topic(3)
    counts: dict[str, int] = {}

    def take(frame: DataFrame, _batch: int) -> None:
        counts.update({row.value: row["count"] for row in frame.collect()})

    def run(connector: str) -> None:
        frame = spark.readStream.format(connector).option("subscribe", name)
        frame = frame.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
        frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "40")
        grouped = frame.load().selectExpr("CAST(value AS STRING) value").groupBy("value").count()
        writer = grouped.writeStream.outputMode("update").foreachBatch(take)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start().awaitTermination(SECONDS)

    for step, connector in enumerate(["kafka", "pykafka", "pykafka", "kafka", "pykafka"], 1):
        kafka_cluster.produce(name, values(0, 50))
        if connector == "kafka" and step > 1:
            command = ["-m", "pyspark_pykafka.cli", "plain-checkpoint", checkpoint, "--execute"]
            subprocess.run([sys.executable, *command], check=True, timeout=SECONDS)
        run(connector)
        assert counts == dict.fromkeys(texts(0, 50), step), connector


@pytest.fixture
def commit(kafka_cluster: KafkaCluster) -> Callable[[str, str, dict[int, int]], None]:
    """
    Return a function that commits offsets of a topic for a consumer group, as any client does.
    """

    def commit_offsets(group: str, topic: str, offsets: dict[int, int]) -> None:
        consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap, "group.id": group})
        positions = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
        consumer.close()

    return commit_offsets


def test_start_at_committed_offsets(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    commit: Callable[[str, str, dict[int, int]], None],
) -> None:
    """
    A new query starts at a consumer group's committed offsets; a partition without one fails it, or
    starts at the fallback; a restart uses the checkpoint.
    """
    name = topic(2)
    kafka_cluster.produce(name, numbered(0, 0, 5) + numbered(1, 5, 10))
    commit(f"{name}-group", name, {0: 3})
    options = {
        "subscribe": name,
        "startingOffsets": "committed",
        "kafka.group.id": f"{name}-group",
    }
    with pytest.raises(Exception, match=f"no offset for {name}-1; set startingOffsetsFallback"):
        stream(**options).drain()

    query = stream(**options, startingOffsetsFallback="earliest")
    assert query.drain() == texts(3, 10)
    commit(f"{name}-group", name, {0: 0, 1: 0})
    kafka_cluster.produce(name, numbered(0, 10, 12))
    assert query.drain() == texts(3, 12)


def test_batch_from_committed_offsets(
    spark: SparkSession,
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    commit: Callable[[str, str, dict[int, int]], None],
) -> None:
    """
    A batch query starts at a consumer group's committed offsets.
    """
    name = topic(2)
    kafka_cluster.produce(name, numbered(0, 0, 5) + numbered(1, 5, 10))
    commit(f"{name}-group", name, {0: 4, 1: 5})
    frame = spark.read.format("pykafka").option("subscribe", name)
    frame = frame.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
    frame = frame.option("kafka.group.id", f"{name}-group").option("startingOffsets", "committed")

    assert [bytes(row.value) for row in frame.load().collect()] == [b"0004"]


def test_start_by_topic_and_by_fallback(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Earliest and latest start whole topics; partitions without an offset start at the fallback.
    """
    old, new = topic(2), topic(2)
    for name, first in ((old, 0), (new, 100)):
        kafka_cluster.produce(name, numbered(0, first, first + 5))
        kafka_cluster.produce(name, numbered(1, first + 5, first + 10))
    by_topic = json.dumps({old: "earliest", new: "latest"})
    topics = stream(subscribe=f"{old},{new}", startingOffsets=by_topic)
    partitions = stream(
        subscribe=f"{old},{new}",
        startingOffsets=json.dumps({old: {"1": 3}, new: {"0": 4}}),
        startingOffsetsFallback="latest",
    )
    for query in (topics, partitions):
        query.start().processAllAvailable()
    kafka_cluster.produce(new, numbered(1, 110, 112))

    topics.await_values(texts(0, 10) + texts(110, 112))
    partitions.await_values(texts(8, 10) + texts(104, 105) + texts(110, 112))


def test_new_partitions_from_their_end(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    newPartitionOffsets=latest skips records that a partition had before it was discovered.
    """
    name = topic(1)
    query = stream(subscribe=name, newPartitionOffsets="latest")
    kafka_cluster.produce(name, numbered(0, 0, 3))
    assert query.drain() == texts(0, 3)
    add_partitions(kafka_cluster, name, 2)
    kafka_cluster.produce(name, numbered(1, 10, 15))
    assert query.drain() == texts(0, 3)
    kafka_cluster.produce(name, numbered(1, 15, 18) + numbered(0, 3, 5))

    assert query.drain() == texts(0, 5) + texts(15, 18)


# Ends at a time are those of test_end_of_stream.py, which has any log.
@pytest.mark.parametrize(
    "end_options",
    [
        pytest.param(
            lambda name: {"endingOffsets": json.dumps({name: {"0": 4, "1": -1}})}, id="offsets"
        ),
        pytest.param(
            lambda _: {"endingTimestamp": 1_700_000_004_000}, id="time", marks=pytest.mark.soak
        ),
        pytest.param(
            lambda name: {
                "endingOffsetsByTimestamp": json.dumps({name: {"0": 1700000004000, "1": 0}})
            },
            id="times",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_ending_offsets(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    end_options: Callable[[str], dict[str, Any]],
) -> None:
    """
    A stream reads up to its ending offsets, even over several runs.
    """
    name = topic(2)
    kafka_cluster.produce(name, numbered(0, 0, 3))
    query = stream(subscribe=name, **end_options(name))
    assert query.drain() == texts(0, 3)
    kafka_cluster.produce(name, numbered(0, 3, 20))

    assert query.drain() == texts(0, 4)
    assert query.drain() == texts(0, 4)


def test_limit_per_partition(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A limit per partition spreads a large partition over batches, and reads small ones at once.
    """
    name = topic(2)
    kafka_cluster.produce(name, numbered(0, 0, 95) + numbered(1, 100, 110))
    query = stream(subscribe=name, maxOffsetsPerPartitionPerTrigger=40)

    assert query.drain() == texts(0, 95) + texts(100, 110)
    assert query.sizes == [50, 40, 15]


# test_byte_density.py has record batches of any sizes.
@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.soak), "zstd"])
def test_byte_limit(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    codec: str,
) -> None:
    """
    The option maxBytesPerTrigger limits batches by the records' bytes in the log, compressed or
    not.
    """
    name = topic(2)
    producer = Producer(
        {"bootstrap.servers": kafka_cluster.bootstrap, "compression.type": codec, "linger.ms": 50}
    )
    rng = random.Random(codec)
    for n in range(6000):
        # Half of each value is noise, which no codec can compress.
        value = rng.randbytes(500) + b"0" * 500
        producer.produce(name, value, partition=n % 2)
    assert producer.flush(30) == 0
    query = stream(subscribe=name, maxBytesPerTrigger="1m")
    query.drain()

    size = 6000 * (1000 if codec == "none" else 500)
    assert sum(query.sizes) == 6000
    first = query.sizes[0] / 6000 * size
    assert first == pytest.approx(1 << 20, rel=0.1)


def test_reordered_sources_of_a_union(
    spark: SparkSession,
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    checkpoint: str,
) -> None:
    """
    If the sources of a union change places, the query fails on its old checkpoint, and continues
    once their order is restored.
    """
    first, second = topic(), topic()
    kafka_cluster.produce(first, values(0, 3))
    kafka_cluster.produce(second, values(10, 13))
    collected: list[str] = []

    def read(name: str) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": kafka_cluster.bootstrap,
            "subscribe": name,
            "startingOffsets": "earliest",
        }
        return spark.readStream.format("pykafka").options(**options).load()

    def gather(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr("cast(value as string) value").collect()
        collected.extend(row.value for row in rows)

    def run(frame: DataFrame) -> None:
        writer = frame.writeStream.foreachBatch(gather).option("checkpointLocation", checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(60), "it did not end"

    run(read(first).union(read(second)))
    kafka_cluster.produce(first, values(3, 5))
    with pytest.raises(Exception, match=r"CHECKPOINT_OF_OTHER_TOPICS.*share no partition"):
        run(read(second).union(read(first)))
    run(read(first).union(read(second)))

    assert sorted(collected) == texts(0, 5) + texts(10, 13)


def test_unsubscribed_topic_is_no_data_loss(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A topic removed from the options is not data loss; a deleted topic is.
    """
    subscribed, removed = topic(), topic()
    kafka_cluster.produce(subscribed, values(0, 3))
    kafka_cluster.produce(removed, values(10, 13))
    query = stream(subscribe=f"{subscribed},{removed}")
    assert query.drain() == texts(0, 3) + texts(10, 13)
    query.options["subscribe"] = subscribed
    kafka_cluster.produce(subscribed, values(3, 5))
    assert query.drain() == texts(0, 5) + texts(10, 13)

    query.options |= {"subscribePattern": f"^({subscribed}|{removed})$"}
    del query.options["subscribe"]
    query.drain()
    delete_topic(kafka_cluster, removed)
    with pytest.raises(Exception, match="PARTITIONS_DELETED"):
        query.drain()
