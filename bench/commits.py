"""
Measures the cost of a sink per micro-batch, with a stream of small micro-batches between topics.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import count
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.cases import EXACTLY_ONCE, JVM, PYKAFKA, WIRE, TopicSpec, shuffled_rounds
from bench.figures import check_records, spread
from bench.load import TOPIC, loaded_topic
from bench.measurement import Measurement, Series
from bench.session import collect_garbage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_pykafka.testing import KafkaCluster

SINKS = (JVM, WIRE, EXACTLY_ONCE)
BATCHES, RECORDS = 20, 40
#: Micro-batches left out: the first ones start workers and load code.
WARM_UP = 5
SECONDS = 300
_numbers = count()


def measure_commits(spark: SparkSession, kafka: KafkaCluster, rounds: int) -> Measurement:
    """
    Return the median time of a micro-batch for each sink; the source is the same.
    """
    spec = TopicSpec(100, "none", 2, BATCHES * RECORDS)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    sinks_by_name = {sink.name: sink for sink in SINKS}
    with loaded_topic(spark, kafka, spec):
        for order in shuffled_rounds(list(sinks_by_name), rounds, seed="commits"):
            for name in order:
                collect_garbage(spark)
                target = kafka.create_topic(f"commits-{next(_numbers)}", 2, TOPIC)
                sink = sinks_by_name[name]
                options = {**sink.options, "topic": target}
                seconds[name].append(_batch_seconds(spark, kafka, spec, sink.format, options))
    series = {name: Series(tuple(seconds[name])) for name in sinks_by_name}
    return Measurement("micro-batch", "commits", series, base=WIRE.name, also=(JVM.name,))


def _batch_seconds(
    spark: SparkSession, kafka: KafkaCluster, spec: TopicSpec, sink: str, options: dict[str, str]
) -> float:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    source = {**servers, "subscribe": spec.name, "startingOffsets": "earliest"}
    # One task for each partition, as in large batches.
    source |= {"maxOffsetsPerTrigger": str(RECORDS), "minPartitions": "2"}
    rows = spark.readStream.format(PYKAFKA.format).options(**source).load().select("key", "value")
    with TemporaryDirectory() as folder:
        writer = rows.writeStream.format(sink).options(**servers, **options)
        writer = writer.option("checkpointLocation", folder).trigger(availableNow=True)
        start = time.monotonic()
        query = writer.start()
        if not query.awaitTermination(SECONDS):
            msg = f"{BATCHES} micro-batches into {sink} took more than {SECONDS} s"
            raise TimeoutError(msg)
        query.stop()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"] > 0]
    records = sum(progress["numInputRows"] for progress in batches)
    check_records(f"{sink} within {time.monotonic() - start:.0f} s", spec.records, records)
    durations = [
        progress["durationMs"]["triggerExecution"] / 1000 for progress in batches[WARM_UP:]
    ]
    return spread(durations).median
