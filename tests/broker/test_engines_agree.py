"""
Both engines and the JVM connector read equal tables from random topics.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.support.fetching import settings

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.schema import SOURCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from pyspark_pykafka.testing import KafkaCluster

SEEDS = range(12)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATION = ("read_uncommitted", "read_committed")


def table(
    cluster: KafkaCluster, engine: str, offset_range: OffsetRange, schema: pa.Schema, isolation: str
) -> list[dict[str, Any]]:
    """
    Read a range with one engine, in batches of few bytes, and check the arrays as a whole.
    """
    fetch_settings = settings(
        cluster.bootstrap,
        engine,
        schema=schema,
        group_id="agree",
        isolation_level=isolation,
        poll_timeout_ms=30_000,
        end_retry_ms=200,
        memory_bytes=1 << 20,
    )
    columns = pa.Table.from_batches(fetch(offset_range, fetch_settings), schema)
    columns.validate(full=True)
    rows: list[dict[str, Any]] = columns.to_pylist()
    return rows


def content(chance: random.Random, longest: int) -> bytes | None:
    """
    Return null, or a random value of few or many bytes.
    """
    size = chance.choice([None, 0, 1, 60, 64, 8200, longest])
    return None if size is None else chance.randbytes(size // 8) * 8 + b"x" * (size % 8)


def write_something(chance: random.Random, cluster: KafkaCluster, topic: str) -> None:
    """
    Write a few records with one producer, in a committed or aborted transaction, or in none.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "compression.type": chance.choice(CODECS),
        "linger.ms": chance.choice([0, 50]),
        "message.max.bytes": 5_000_000,
    }
    transactional = chance.random() < 0.6
    if transactional:
        config["transactional.id"] = f"{topic}-{chance.random()}"
    producer = Producer(config)
    if transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for _ in range(chance.choice([1, 3, 40])):
        producer.produce(
            topic,
            content(chance, 200_000),
            content(chance, 300),
            partition=0,
            timestamp=chance.choice([1, 1_700_000_000_000, 999_999_999_999]),
            headers=[
                (chance.choice(["a", "ä", ""]), content(chance, 200))
                for _ in range(chance.choice([0, 0, 1, 5]))
            ],
        )
    assert producer.flush(60) == 0
    if transactional:
        chance.choice([producer.commit_transaction, producer.abort_transaction])(30)


@pytest.fixture(scope="module")
def filled(kafka_cluster: KafkaCluster, settled: Callable[[str], None]) -> list[str]:
    """
    Return topics of one partition with random records.
    """
    topics = []
    for seed in SEEDS:
        chance = random.Random(seed)
        settings = {
            "compression.type": chance.choice(["producer", *CODECS[1:]]),
            "message.timestamp.type": chance.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        }
        name = f"agree-{seed}-{random.SystemRandom().randrange(10**9)}"
        topics.append(kafka_cluster.create_topic(name, 1, settings))
        for _ in range(chance.randrange(1, 8)):
            write_something(chance, kafka_cluster, name)
        settled(name)
    return topics


@pytest.mark.parametrize("seed", SEEDS)
def test_engines_agree(filled: list[str], kafka_cluster: KafkaCluster, seed: int) -> None:
    """
    Both engines read equal tables from whole and partial ranges, with all or some columns, under
    both isolation levels.
    """
    chance = random.Random(1000 + seed)
    tp = TopicPartition(filled[seed], 0)
    everything = pa.schema(list(SOURCE_TYPES.items()))
    for isolation in ISOLATION:
        full_range = OffsetRange(tp, EARLIEST, LATEST)
        tables = [
            table(kafka_cluster, e, full_range, everything, isolation)
            for e in ("wire", "librdkafka")
        ]
        assert tables[0] == tables[1]
        end = max((r["offset"] for r in tables[0]), default=0) + 1
        names = chance.sample(list(SOURCE_TYPES), chance.randrange(1, 8))
        schema = pa.schema([(n, SOURCE_TYPES[n]) for n in names])
        for _ in range(4):
            start = chance.randrange(end)
            part = OffsetRange(tp, start, chance.randrange(start, end + 1))
            ours, theirs = (
                table(kafka_cluster, engine, part, schema, isolation)
                for engine in ("wire", "librdkafka")
            )
            assert ours == theirs
            expected = [r for r in tables[0] if part.start <= r["offset"] < part.end]
            assert ours == [{n: r[n] for n in names} for r in expected]


@pytest.mark.side_by_side
@pytest.mark.parametrize(
    "isolation", [pytest.param("read_uncommitted", marks=pytest.mark.soak), "read_committed"]
)
def test_jvm_connector_agrees(
    filled: list[str], load: Callable[..., DataFrame], isolation: str
) -> None:
    """
    Spark's own connector reads the same rows from the same topics.
    """
    options = {
        "subscribe": ",".join(filled),
        "includeHeaders": "true",
        "kafka.isolation.level": isolation,
    }
    frames = [load("kafka", **options), load("pykafka", **options, engine="wire")]

    theirs, ours = (f.orderBy("topic", "partition", "offset").collect() for f in frames)

    assert len(theirs) > 100
    assert ours == theirs
