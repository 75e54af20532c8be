"""
Failing batches leak no files, threads, processes or memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from tests.support.footprint import Footprint, check_growth, footprint
from tests.support.streams import SECONDS, values

from pyspark_pykafka.failures.dead_letters import DeadLetterTopic
from pyspark_pykafka.failures.foreach_batch import isolate_poison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

#: More rounds than the usual variation, so that a leak of one item per batch is detected.
FEW, MANY = 6, 100
WARM_UP = 2
#: More rounds than the usual variation of files and threads in the driver's Python.
ENOUGH = 4

NUMBERS = "numbers_of_the_tests"

HOW_MANY = pytest.mark.parametrize("rounds", [FEW, MANY])


def numbers() -> type[DataSource]:
    """
    Return a minimal Python source: any leak of its queries is a leak of Spark itself.
    """

    # Local classes are pickled by value: Spark's workers cannot import the tests.
    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
            return {"next": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
            offset = start["next"]
            return iter([(offset,)]), {"next": offset + 1}

        def readBetweenOffsets(  # noqa: N802 (Spark's name)
            self, start: dict[str, int], end: dict[str, int]
        ) -> Iterator[tuple[int]]:
            return ((number,) for number in range(start["next"], end["next"]))

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return NUMBERS

        def schema(self) -> str:
            return "value INT"

        def simpleStreamReader(self, schema: object) -> Reader:  # noqa: ARG002, N802 (Spark's)
            return Reader()

    return Numbers


Fail = Callable[..., None]


@pytest.fixture
def failing(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    checkpoint: str,
) -> Fail:
    """
    Return a function that starts a query whose batch fails, ``rounds`` times.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 20))
    address = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    options = {**address, "subscribe": name, "startingOffsets": "earliest"}
    spark.dataSource.register(numbers())

    def fail(rounds: int, source: str = "pykafka", harm: Callable[[], None] = lambda: None) -> None:
        def fail_batch(frame: DataFrame, _: int) -> None:
            frame.collect()
            harm()
            msg = "planted failure"
            raise RuntimeError(msg)

        reader = spark.readStream.format(source)
        frame = (reader.options(**options) if source == "pykafka" else reader).load()
        writer = frame.writeStream.foreachBatch(fail_batch)
        writer = writer.option("checkpointLocation", f"{checkpoint}-{source}")
        for _ in range(rounds):
            with pytest.raises(StreamingQueryException, match="planted failure"):
                writer.start().awaitTermination(SECONDS)

    return fail


@pytest.fixture
def own_growth(spark: SparkSession, failing: Fail) -> Callable[[int], Footprint]:
    """
    Return a function that measures what Spark itself leaks over ``rounds`` failing queries.

    Spark 4.2 leaks a connection and a thread in the driver's Python for each start of a query with
    foreachBatch, and a thread in the JVM for each process of a Python source.
    """

    def grown(rounds: int) -> Footprint:
        failing(WARM_UP, NUMBERS)
        before = footprint(spark)
        failing(rounds, NUMBERS)
        return footprint(spark).grown_since(before)

    return grown


@pytest.mark.soak
@HOW_MANY
def test_failing_and_restarted_queries(
    spark: SparkSession, failing: Fail, own_growth: Callable[[int], Footprint], rounds: int
) -> None:
    """
    Queries that fail and restart leak no more resources than those of a minimal source.
    """
    growth = own_growth(rounds)
    failing(WARM_UP)
    before = footprint(spark)

    failing(rounds)

    check_growth(spark, before.with_room(growth))


@pytest.mark.soak
@HOW_MANY
def test_poison_batches(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    checkpoint: str,
    rounds: int,
) -> None:
    """
    A query leaks nothing if each of its batches fails, is bisected, and completes without one
    record.
    """
    name, dead_letters = topic(1), topic(1)
    address = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    source_options = {**address, "subscribe": name, "startingOffsets": "earliest"}
    failed = 0

    def sink(frame: DataFrame, batch: int) -> None:
        nonlocal failed
        if frame.filter("cast(value as string) like '%3'").count():
            failed += 1
            msg = f"batch {batch} cannot be written"
            raise ValueError(msg)

    def run(batches: int) -> None:
        for _ in range(batches):
            kafka_cluster.produce(name, values(0, 4))
            query.processAllAvailable()

    frame = spark.readStream.format("pykafka").options(**source_options).load()
    write = isolate_poison(sink, DeadLetterTopic(dead_letters, source_options))
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query = writer.start()
    try:
        run(WARM_UP)
        before = footprint(spark)
        run(rounds)
        check_growth(spark, before)
    finally:
        query.stop()

    assert failed >= WARM_UP + rounds
    assert len(kafka_cluster.consume(dead_letters)) == WARM_UP + rounds


@pytest.mark.soak
def test_planted_leaks_are_caught(
    spark: SparkSession, failing: Fail, own_growth: Callable[[int], Footprint]
) -> None:
    """
    A file and a thread leaked by each failing batch are detected.
    """
    growth = own_growth(ENOUGH)
    failing(WARM_UP)
    before, over = footprint(spark).with_room(growth), threading.Event()
    files: list[int] = []

    def harm() -> None:
        files.append(os.open(os.devnull, os.O_RDONLY))
        threading.Thread(target=over.wait, daemon=True).start()

    try:
        failing(ENOUGH, harm=harm)
        with pytest.raises(AssertionError, match=r"files: \d+, limit .*; threads: \d+, limit"):
            check_growth(spark, before, seconds=1.0)
    finally:
        over.set()
        for number in files:
            os.close(number)
    check_growth(spark, before)
