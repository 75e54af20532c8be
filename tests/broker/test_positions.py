"""
Starting and ending offsets such as "10 minutes ago", with real timestamps and a real checkpoint.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.support.streams import SECONDS, Stream

from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Row, SparkSession

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory


def at_minutes_ago(*minutes: int) -> list[Record]:
    """
    Return records whose values are their age in minutes.
    """
    return [
        Record(
            str(minutes_ago).encode(),
            partition=0,
            timestamp=int((time.time() - 60 * minutes_ago) * 1000),
        )
        for minutes_ago in minutes
    ]


@pytest.mark.smoke
def test_batch_between_relative_positions(
    rows: Callable[..., list[Row]], topic: TopicFactory, kafka_cluster: KafkaCluster
) -> None:
    """
    A relative time, a number of last offsets and a time with a zone each select their records as
    start or end of a batch query, also for single partitions.
    """
    name = topic(2)
    kafka_cluster.produce(name, at_minutes_ago(90, 50, 40, 5))

    def read(**options: str) -> list[str]:
        return [row.value.decode() for row in rows(subscribe=name, **options)]

    assert read(startingOffsets="-1 hour") == ["50", "40", "5"]
    assert read(startingOffsets="-1h", endingOffsets="-10 minutes") == ["50", "40"]
    assert read(startingOffsets="-2 offsets", endingOffsets="-1 offset") == ["40"]
    assert read(startingOffsets="-100", endingOffsets="2001-01-01T00:00Z") == []
    assert read(startingOffsets=f'{{"{name}":{{"0":"-45 min","1":-2}}}}') == ["40", "5"]


@pytest.mark.smoke
def test_a_stream_counts_its_last_offsets_once(
    spark: SparkSession, topic: TopicFactory, kafka_cluster: KafkaCluster, checkpoint: str
) -> None:
    """
    A restarted stream continues after its last batch, and does not count from the end again.
    """
    name = topic()
    kafka_cluster.produce(name, at_minutes_ago(30, 20, 10))
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": name,
        "startingOffsets": "-2 offsets",
    }
    stream = Stream(spark, options, checkpoint)

    def run() -> list[str]:
        stream.batches.clear()
        assert stream.start(availableNow=True).awaitTermination(SECONDS)
        return [value for batch in stream.batches.values() for _, _, value in batch]

    first = run()
    kafka_cluster.produce(name, at_minutes_ago(0, 0, 0))

    assert first == ["20", "10"]
    assert run() == ["0", "0", "0"]


def test_a_stream_starts_at_a_relative_time_once(
    spark: SparkSession, topic: TopicFactory, kafka_cluster: KafkaCluster, checkpoint: str
) -> None:
    """
    A stream starts at a time before now, given for each partition; after a restart it reads all
    records written later, even those with timestamps before the start time.
    """
    name = topic(2)
    kafka_cluster.produce(name, at_minutes_ago(90, 50, 5))
    kafka_cluster.produce(name, [replace(r, partition=1) for r in at_minutes_ago(90, 50, 20, 3)])
    stream = Stream(
        spark,
        {
            "kafka.bootstrap.servers": kafka_cluster.bootstrap,
            "subscribe": name,
            "startingOffsets": f'{{"{name}":{{"0":"-1h","1":"-30 minutes"}}}}',
        },
        checkpoint,
    )

    assert stream.drain() == sorted(["50", "5", "20", "3"])
    kafka_cluster.produce(name, at_minutes_ago(80, 0))
    assert stream.drain() == sorted(["50", "5", "20", "3", "80", "0"])


@pytest.mark.parametrize("engine", ["wire", pytest.param("librdkafka", marks=pytest.mark.soak)])
def test_a_position_beyond_the_last_stable_offset(
    spark: SparkSession,
    rows: Callable[..., list[Row]],
    topic: TopicFactory,
    kafka_cluster: KafkaCluster,
    checkpoint: str,
    engine: str,
) -> None:
    """
    A stream that changes to committed records waits at its position for the end of an open
    transaction, and a batch from there has no records; neither reports data loss.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"0"), Record(b"1")])
    producer = Producer(
        {"bootstrap.servers": kafka_cluster.bootstrap, "transactional.id": f"{name}-open"}
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(name, b"2")
    producer.flush(SECONDS)
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "subscribe": name,
        "startingOffsets": "earliest",
        "engine": engine,
    }
    stream = Stream(spark, options, checkpoint)
    assert stream.drain() == ["0", "1", "2"]

    options["kafka.isolation.level"] = "read_committed"
    assert stream.drain() == ["0", "1", "2"]
    beyond = {**options, "startingOffsets": f'{{"{name}":{{"0":3}}}}'}
    assert rows(**beyond) == []
    producer.commit_transaction(SECONDS)
    kafka_cluster.produce(name, [Record(b"3")])

    assert stream.drain() == ["0", "1", "2", "3"]
    assert [row.value for row in rows(**beyond)] == [b"3"]
