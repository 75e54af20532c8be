"""
Measures how long a batch query on a topic with thousands of partitions takes to plan.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.cases import CEILING, JVM, PYKAFKA, Contender, shuffled_rounds
from bench.figures import check_records
from bench.measurement import Measurement, Series
from bench.server import delete_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from pyspark_pykafka.testing import KafkaCluster

# Kafka memory-maps two index files for each partition, of 10 MB each by default.
SMALL_INDEXES = {"segment.index.bytes": 65_536}
CONTENDERS = {contender.name: contender for contender in (JVM, PYKAFKA, CEILING)}


def measure_planning(
    spark: SparkSession, kafka: KafkaCluster, counts: Sequence[int], rounds: int
) -> Iterator[Measurement]:
    """
    Plan a query on topics with these numbers of partitions, with all contenders in every round.

    The ceiling plans the same number of tasks, in the time that Spark takes for any Python source.
    """
    for count in counts:
        topic = kafka.create_topic(f"bench-planning-{count}", count, SMALL_INDEXES)
        for contender in CONTENDERS.values():
            plan_seconds(spark, kafka.bootstrap, contender, topic, count)
        seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for order in shuffled_rounds(list(CONTENDERS), rounds, seed=topic):
            for name in order:
                took = plan_seconds(spark, kafka.bootstrap, CONTENDERS[name], topic, count)
                seconds[name].append(took)
        series = {name: Series(tuple(took)) for name, took in seconds.items()}
        yield Measurement(f"planning-{count}p", "planning", series, facts={"partitions": count})
        delete_topic(kafka, topic)


def plan_seconds(
    spark: SparkSession, bootstrap: str, contender: Contender, topic: str, count: int
) -> float:
    """
    Return the time from `spark.read` until Spark knows the number of tasks, which is checked.
    """
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **contender.options}
    if contender.is_ceiling:
        options = {"records": str(count), "size": "100", "partitions": str(count)}
    start = time.perf_counter()
    frame = spark.read.format(contender.format).options(**options).load()
    tasks = frame._jdf.queryExecution().toRdd().getNumPartitions()  # noqa: SLF001 (runs no job)
    seconds = time.perf_counter() - start
    check_records(f"{contender.name}'s plan of {topic}, one task for each record,", count, tasks)
    return seconds
