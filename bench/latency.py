"""
Measures the latency from producing a record to its arrival in `foreachBatch`, at a steady rate.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.cases import JVM, PYKAFKA, Contender
from bench.figures import percentile
from bench.measurement import Measurement, Series
from bench.session import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_pykafka.testing import KafkaCluster

TOPIC, PARTITIONS, RATE = "bench-latency", 2, 1000
WARM_UP_SECONDS = 8.0
START_SECONDS = 120.0
LATE_SECONDS = 60.0
END_SECONDS = 30.0
PERCENTS = (50, 99)
#: A run that received a smaller share of the records produced during it is invalid.
MIN_SHARE = 0.9


class TooFewRecordsError(RuntimeError):
    """
    A run did not receive the records that were produced during it.
    """


@dataclass(slots=True)
class Arrivals:
    """
    The records that reached the sink: when each was produced, in epoch seconds, and its latency in
    seconds.
    """

    records: list[tuple[float, float]] = field(default_factory=list)
    newest: float = 0.0
    closing: bool = False
    closed: threading.Event = field(default_factory=threading.Event)

    def take(self, frame: DataFrame, _batch: int) -> None:
        """
        Collect the records of a micro-batch; passed to ``foreachBatch``.
        """
        if self.closing:
            self.closed.set()
            return
        rows = frame.select("value").collect()
        now = time.time()
        produced = [int(row.value) / 1e9 for row in rows]
        self.records += [(produced_at, now - produced_at) for produced_at in produced]
        self.newest = max([self.newest, *produced])

    def close(self) -> None:
        """
        Ignore the following micro-batches, and return after the first of them.

        A query that is stopped while a micro-batch is collected fails with a very long error.
        """
        self.closing = True
        self.closed.wait(LATE_SECONDS)

    def produced_between(self, start: float, end: float) -> list[float]:
        """
        Return the latencies of the records produced in ``[start, end)``, however late they arrived.
        """
        return [latency for produced_at, latency in self.records if start <= produced_at < end]


def measure_latency(
    spark: SparkSession, kafka: KafkaCluster, turns: int, seconds: float
) -> Iterator[Measurement]:
    """
    Alternate the two connectors; each run is a new query with a warm-up.
    """
    kafka.create_topic(TOPIC, PARTITIONS)
    latencies: dict[str, list[list[float]]] = {JVM.name: [], PYKAFKA.name: []}
    with _steady_producer(kafka.bootstrap):
        for turn in range(turns):
            pair = (JVM, PYKAFKA) if turn % 2 == 0 else (PYKAFKA, JVM)
            for contender in pair:
                latencies[contender.name].append(_turn(spark, kafka.bootstrap, contender, seconds))
    for percent in PERCENTS:
        series = {
            name: Series(tuple(percentile(turn, percent) for turn in all_turns))
            for name, all_turns in latencies.items()
        }
        facts = {"rate": RATE, "partitions": PARTITIONS, "seconds": seconds}
        yield Measurement(f"latency-p{percent}", "latency", series, facts=facts)


def _turn(spark: SparkSession, bootstrap: str, contender: Contender, seconds: float) -> list[float]:
    arrivals = Arrivals()
    with TemporaryDirectory() as folder:
        query = _start(spark, bootstrap, contender, arrivals, folder)
        try:
            _await_record_produced_after(query, arrivals, 0, START_SECONDS)
            start = time.time() + WARM_UP_SECONDS
            end = start + seconds
            _await_record_produced_after(
                query, arrivals, end, WARM_UP_SECONDS + seconds + LATE_SECONDS
            )
            arrivals.close()
        finally:
            query.stop()
    latencies = arrivals.produced_between(start, end)
    min_records = int(MIN_SHARE * RATE * seconds)
    if len(latencies) < min_records:
        msg = (
            f"{contender.name} received {len(latencies):,} records in {seconds:g} s, "
            f"not {min_records:,}"
        )
        raise TooFewRecordsError(msg)
    median, p99 = (percentile(latencies, percent) * 1000 for percent in PERCENTS)
    print(f"  latency of {contender.name}: {median:.0f} ms, p99 {p99:.0f} ms", file=sys.stderr)
    return latencies


def _start(
    spark: SparkSession, bootstrap: str, contender: Contender, arrivals: Arrivals, folder: str
) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, **contender.options}
    frame = spark.readStream.format(contender.format).options(**options).load()
    writer = frame.writeStream.foreachBatch(arrivals.take).option("checkpointLocation", folder)
    return writer.trigger(processingTime="0 seconds").start()


def _await_record_produced_after(
    query: StreamingQuery, arrivals: Arrivals, produced_after: float, timeout_seconds: float
) -> None:
    """
    Wait until a record has arrived that was produced after ``produced_after``, in epoch seconds.
    """
    deadline = time.monotonic() + timeout_seconds
    while arrivals.newest <= produced_after:
        # Waits a second, and raises the error of a failed query.
        query.awaitTermination(1)
        if time.monotonic() > deadline:
            msg = f"In {timeout_seconds:g} s no recent record arrived; does the query hang?"
            raise TooFewRecordsError(msg)


@contextmanager
def _steady_producer(bootstrap: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.steady", bootstrap, TOPIC, str(RATE)]
    producer = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)
    try:
        yield
        if producer.poll() is not None:
            msg = f"The steady producer ended early, with exit code {producer.returncode}."
            raise TooFewRecordsError(msg)
    finally:
        producer.communicate(timeout=END_SECONDS)
