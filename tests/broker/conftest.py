"""
Reading the same records through both connectors, and filling topics in ways they must agree on.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.support.streams import Stream

from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

#: The engines that a reader can be told to use, each of which must read alike.
ENGINES = ("wire", "librdkafka")


class Load(Protocol):
    """
    Makes a DataFrame of one connector; options are given as keywords, bootstrap servers set.
    """

    def __call__(self, connector: str = "pykafka", /, **options: Any) -> DataFrame: ...


@pytest.fixture
def load(spark: SparkSession, kafka_cluster: KafkaCluster) -> Load:
    """
    Return the way to load a batch DataFrame from the shared broker.
    """

    def loading(connector: str = "pykafka", /, **options: Any) -> DataFrame:
        reader = spark.read.format(connector).options(**options)
        return reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap).load()

    return loading


@pytest.fixture
def rows(load: Load) -> Callable[..., list[Row]]:
    """
    Return the way to read rows in the order of topic, partition and offset.
    """

    def reading(connector: str = "pykafka", /, **options: Any) -> list[Row]:
        return in_order(load(connector, **options))

    return reading


@pytest.fixture
def agreed(load: Load) -> Callable[..., list[Row]]:
    """
    Return the way to read rows through the JVM connector and both engines of ours, all equal.
    """

    def reading(**options: Any) -> list[Row]:
        theirs = load("kafka", **options)
        expected = in_order(theirs)
        for engine in ENGINES:
            ours = load("pykafka", **options, engine=engine)
            assert ours.schema == theirs.schema
            assert in_order(ours) == expected, engine
        return expected

    return reading


def in_order(frame: DataFrame) -> list[Row]:
    """
    Return the rows in the order of topic, partition and offset.
    """
    return frame.orderBy("topic", "partition", "offset").collect()


@pytest.fixture(scope="session")
def settled(kafka_cluster: KafkaCluster) -> Callable[[str], None]:
    """
    Return the way to wait until no transaction is open any more in partition 0 of a topic.

    A producer's commit returns before the markers are in the log, and until then its records are
    not there for readers of committed ones.
    """
    admin = kafka_cluster.admin()

    def end(topic: str, isolation: IsolationLevel) -> int:
        position = TopicPartition(topic, 0)
        asked = admin.list_offsets({position: OffsetSpec.latest()}, isolation_level=isolation)
        return int(asked[position].result(30).offset)

    def open_transactions(topic: str) -> str | None:
        stable = end(topic, IsolationLevel.READ_COMMITTED)
        high = end(topic, IsolationLevel.READ_UNCOMMITTED)
        return None if stable == high else f"{topic} is stable up to {stable} of {high}"

    return lambda topic: wait_until(lambda: open_transactions(topic), 30)


@pytest.fixture
def transaction(kafka_cluster: KafkaCluster, topic: Callable[..., str]) -> Callable[[], Any]:
    """
    Return a context that gives a transactional producer, with a transaction begun.

    The body ends the transaction as it likes; one still open at the end is aborted.
    """

    @contextmanager
    def begun() -> Iterator[Producer]:
        producer = Producer(
            {
                "bootstrap.servers": kafka_cluster.bootstrap,
                "transactional.id": topic.__name__ + str(id(object())),
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        yield producer
        producer.abort_transaction(30)

    return begun


@pytest.fixture
def stream(
    spark: SparkSession, kafka_cluster: KafkaCluster, checkpoint: str
) -> Iterator[Callable[..., Stream]]:
    """
    Return the way to make a stream with a checkpoint of its own; all are stopped at the end.
    """
    made: list[Stream] = []

    def make(connector: str = "pykafka", /, **options: Any) -> Stream:
        given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "startingOffsets": "earliest"}
        folder = f"{checkpoint}-{len(made)}"
        made.append(Stream(spark, {**given, **options}, folder, connector))
        return made[-1]

    yield make
    for each in made:
        each.stop()
