"""
Runs one read in either mode, and returns its time and the number of records at the sink.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (how Spark's users know it)

from bench.cases import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

    from bench.cases import Case, Contender

TIMEOUT_SECONDS = 600
SINK_NODE = "OverwriteByExpression"
SINK_METRIC = "number of output rows"


@dataclass(frozen=True, slots=True)
class Read:
    """
    The result of a read.

    ``trigger_seconds`` is the total time of a stream's micro-batches as reported by Spark, without
    the start and the end of the query, which do not depend on the number of records.
    """

    seconds: float
    records: int
    trigger_seconds: float | None = None


def options_for(contender: Contender, case: Case, bootstrap: str) -> dict[str, str]:
    """
    Return the options with which a contender reads a case's topic from start to end.
    """
    topic = case.topic
    if contender.has_other_records:
        counts = {"records": topic.records, "size": topic.size, "partitions": topic.partitions}
        options = {name: str(count) for name, count in counts.items()}
        return {**options, "kafka.bootstrap.servers": bootstrap, "topic": topic.name}
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name}
    return {**source, "startingOffsets": "earliest", **contender.options}


def read(spark: SparkSession, mode: str, source: str, options: Mapping[str, str]) -> Read:
    """
    Read everything into the sink `noop`; ``mode`` is `batch` or `stream`.
    """
    run = {"batch": read_batch, "stream": read_stream}[mode]
    return run(spark, source, options)


def read_batch(spark: SparkSession, source: str, options: Mapping[str, str]) -> Read:
    """
    Read the columns of records with a batch query.
    """
    return read_frame(
        spark, lambda: spark.read.format(source).options(**options).load().select(*COLUMNS)
    )


def read_frame(spark: SparkSession, load: Callable[[], DataFrame]) -> Read:
    """
    Read a frame into the sink `noop`; the time includes loading and planning.
    """
    last_execution = _last_execution(spark)
    start = time.perf_counter()
    frame = load()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - start
    return Read(seconds, _rows_written(spark, last_execution))


def read_stream(
    spark: SparkSession,
    source: str,
    options: Mapping[str, str],
    change: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    sink: str = "noop",
) -> Read:
    """
    Read with a streaming query with availableNow; the time is from its start to its end.

    ``sink`` is `noop`, or a file format; the files are removed at the end.
    """
    with TemporaryDirectory() as folder:
        rows = f"{folder}/rows"
        frame = change(spark.readStream.format(source).options(**options).load())
        writer = frame.select(*COLUMNS).writeStream.format(sink).option("path", rows)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        start = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        has_ended = query.awaitTermination(TIMEOUT_SECONDS)
        seconds = time.perf_counter() - start
        query.stop()
        if not has_ended:
            msg = f"The stream from {source} did not end within {TIMEOUT_SECONDS} s."
            raise TimeoutError(msg)
        batches = [progress for progress in query.recentProgress if progress["numInputRows"] > 0]
        if sink == "noop":
            records = sum(progress["sink"]["numOutputRows"] for progress in batches)
        else:
            # A file sink does not report the number of rows.
            records = spark.read.format(sink).load(rows).count()
    triggers = sum(progress["durationMs"]["triggerExecution"] for progress in batches) / 1000
    return Read(seconds, records, triggers)


def checksum(spark: SparkSession, source: str, options: Mapping[str, str]) -> tuple[int, int]:
    """
    Return the checksum of all rows of a source; see :func:`checksum_of`.
    """
    return checksum_of(spark.read.format(source).options(**options).load(), COLUMNS)


def checksum_of(frame: DataFrame, columns: Sequence[str]) -> tuple[int, int]:
    """
    Return the number of rows, and a hash of their columns that does not depend on the order.
    """
    row = frame.agg(F.count("*"), F.bit_xor(F.xxhash64(*columns))).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)


def _rows_written(spark: SparkSession, last_execution: int) -> int:
    """
    Return the rows that Spark counted at the sink, in the query after ``last_execution``.
    """
    store = _store(spark)
    for number in range(_last_execution(spark), last_execution, -1):
        nodes, values = store.planGraph(number).allNodes(), store.executionMetrics(number)
        for node in _each(nodes):
            if str(node.name()).startswith(SINK_NODE):
                return _value(node, values)
    msg = (
        f"Spark's executions after number {last_execution} have no {SINK_NODE}; was this a batch "
        "write?"
    )
    raise LookupError(msg)


def _value(node: JavaObject, values: JavaObject) -> int:
    for metric in _each(node.metrics()):
        value = values.get(metric.accumulatorId())
        if metric.name() == SINK_METRIC and value.isDefined():
            return int(value.get().replace(",", ""))
    return 0


def _each(sequence: JavaObject) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _last_execution(spark: SparkSession) -> int:
    # Metrics reach the store through a queue.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(TIMEOUT_SECONDS * 1000)  # noqa: SLF001
    executions = _store(spark).executionsList()
    return -1 if executions.isEmpty() else int(executions.last().executionId())


def _store(spark: SparkSession) -> JavaObject:
    return spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 (no Python name)
