"""
Fills topics through Spark's JVM sink, and checks the number of records.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (how Spark's users know it)

from bench.figures import check_records
from bench.server import delete_topic, records_in
from bench.values import samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from bench.cases import TopicSpec
    from pyspark_pykafka.testing import KafkaCluster

KEY = "CAST(CONCAT('k-', LPAD(CAST(id % 999983 AS STRING), 6, '0')) AS BINARY)"
TOPIC = {"retention.ms": -1, "retention.bytes": -1}
#: Producer settings for throughput: batches of 128 KB.
PRODUCER = {
    "kafka.batch.size": str(128 * 1024),
    "kafka.buffer.memory": str(128 * 1024 * 1024),
    "kafka.linger.ms": "50",
}


@contextmanager
def loaded_topic(
    spark: SparkSession,
    kafka: KafkaCluster,
    spec: TopicSpec,
    values: Sequence[bytes] | None = None,
) -> Iterator[str]:
    """
    Yield the name of a topic with the specified records, and delete it at the end.

    ``values`` replaces the samples of the specified size.
    """
    start = time.perf_counter()
    kafka.create_topic(spec.name, spec.partitions, TOPIC)
    fill(spark, kafka.bootstrap, spec, values)
    check_records(f"The topic {spec.name}", spec.records, records_in(kafka, spec.name))
    seconds = time.perf_counter() - start
    print(f"{spec.name}: {spec.records:,} records loaded in {seconds:.1f} s", file=sys.stderr)
    try:
        yield spec.name
    finally:
        delete_topic(kafka, spec.name)


def fill(
    spark: SparkSession, bootstrap: str, spec: TopicSpec, values: Sequence[bytes] | None = None
) -> None:
    """
    Write the records, with keys of eight bytes, evenly to all partitions.
    """
    writer = records(spark, spec, values).write.format("kafka").options(**PRODUCER)
    writer = writer.option("kafka.compression.type", spec.codec)
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", spec.name).save()


def records(
    spark: SparkSession, spec: TopicSpec, values: Sequence[bytes] | None = None
) -> DataFrame:
    """
    Return the rows to be written.
    """
    numbered = list(enumerate(values or samples(spec.size)))
    frame = spark.createDataFrame(numbered, "number INT, value BINARY")
    ids = spark.range(0, spec.records, 1, 2)
    return ids.join(F.broadcast(frame), F.expr(f"id % {len(numbered)} = number")).select(
        F.expr(KEY).alias("key"),
        "value",
        F.expr(f"CAST(id % {spec.partitions} AS INT)").alias("partition"),
    )
