"""
Fixtures that read records with both connectors, and that fill topics.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.support.streams import Stream

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

#: The engines, which must read the same rows.
ENGINES = ("wire", "librdkafka")


class Load(Protocol):
    """
    Makes a DataFrame of a connector; options are keyword arguments, the bootstrap servers are set.
    """

    def __call__(self, connector: str = "pykafka", /, **options: Any) -> DataFrame: ...


@pytest.fixture
def load(spark: SparkSession, kafka_cluster: KafkaCluster) -> Load:
    """
    Return a function that loads a batch DataFrame from the shared broker.
    """

    def load_frame(connector: str = "pykafka", /, **options: Any) -> DataFrame:
        reader = spark.read.format(connector).options(**options)
        return reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap).load()

    return load_frame


@pytest.fixture
def rows(load: Load) -> Callable[..., list[Row]]:
    """
    Return a function that reads rows ordered by topic, partition and offset.
    """

    def read_rows(connector: str = "pykafka", /, **options: Any) -> list[Row]:
        return in_order(load(connector, **options))

    return read_rows


# The engines return the same records below Spark, too: test_engines.py and test_engines_agree.py.
@pytest.fixture(params=["wire", pytest.param("librdkafka", marks=pytest.mark.soak)])
def agreed(load: Load, request: pytest.FixtureRequest) -> Callable[..., list[Row]]:
    """
    Return a function that reads rows with the JVM connector and an engine, and compares them.
    """

    def read_both(**options: Any) -> list[Row]:
        theirs = load("kafka", **options)
        ours = load("pykafka", **options, engine=request.param)
        assert ours.schema == theirs.schema
        expected = in_order(theirs)
        assert in_order(ours) == expected
        return expected

    return read_both


def in_order(frame: DataFrame) -> list[Row]:
    """
    Return the rows ordered by topic, partition and offset.
    """
    return frame.orderBy("topic", "partition", "offset").collect()


@pytest.fixture(scope="session")
def settled(kafka_cluster: KafkaCluster) -> Callable[[str], None]:
    """
    Return a function that waits until partition 0 of a topic has no open transaction.

    A commit returns before its markers are in the log, and until then read_committed readers do not
    see its records.
    """
    admin = kafka_cluster.admin()

    def end(topic: str, isolation: IsolationLevel) -> int:
        tp = TopicPartition(topic, 0)
        futures = admin.list_offsets({tp: OffsetSpec.latest()}, isolation_level=isolation)
        return int(futures[tp].result(30).offset)

    def open_transactions(topic: str) -> str | None:
        stable = end(topic, IsolationLevel.READ_COMMITTED)
        high_watermark = end(topic, IsolationLevel.READ_UNCOMMITTED)
        return (
            None
            if stable == high_watermark
            else f"{topic}: stable up to {stable} of {high_watermark}"
        )

    return lambda topic: wait_until(lambda: open_transactions(topic), 30)


@pytest.fixture
def transaction(kafka_cluster: KafkaCluster) -> Callable[[], Any]:
    """
    Return a context manager that yields a producer with an open transaction.

    The body may commit or abort it; if it is still open at the end, it is aborted.
    """

    @contextmanager
    def open_transaction() -> Iterator[Producer]:
        producer = Producer(
            {
                "bootstrap.servers": kafka_cluster.bootstrap,
                "transactional.id": f"test-{uuid4().hex}",
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        yield producer
        producer.abort_transaction(30)

    return open_transaction


@pytest.fixture
def stream(
    spark: SparkSession, kafka_cluster: KafkaCluster, checkpoint: str
) -> Iterator[Callable[..., Stream]]:
    """
    Return a function that creates a stream with a new checkpoint; all are stopped at the end.
    """
    streams: list[Stream] = []

    def make(connector: str = "pykafka", /, **options: Any) -> Stream:
        defaults = {
            "kafka.bootstrap.servers": kafka_cluster.bootstrap,
            "startingOffsets": "earliest",
        }
        folder = f"{checkpoint}-{len(streams)}"
        streams.append(Stream(spark, {**defaults, **options}, folder, connector))
        return streams[-1]

    yield make
    for query in streams:
        query.stop()
