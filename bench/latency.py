"""
Measures the time from a record's production to its arrival in `foreachBatch`, at a steady rate.
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
#: A turn that saw less of what was produced in its time says nothing about latency.
LEAST_SHARE = 0.9


class TooFewRecordsError(RuntimeError):
    """
    A turn did not see the records that were produced while it ran.
    """


@dataclass(slots=True)
class Arrivals:
    """
    What came to the sink: when each record was produced, and how many seconds it took.
    """

    seen: list[tuple[float, float]] = field(default_factory=list)
    newest: float = 0.0
    closing: bool = False
    closed: threading.Event = field(default_factory=threading.Event)

    def take(self, frame: DataFrame, _batch: int) -> None:
        """
        Collect a micro-batch's records; the function for ``foreachBatch``.
        """
        if self.closing:
            self.closed.set()
            return
        rows = frame.select("value").collect()
        now = time.time()
        produced = [int(row.value) / 1e9 for row in rows]
        self.seen += [(at, now - at) for at in produced]
        self.newest = max([self.newest, *produced])

    def close(self) -> None:
        """
        Let the next micro-batches pass, and return once one did.

        A query that is stopped while a micro-batch is collected dies of the long error text.
        """
        self.closing = True
        self.closed.wait(LATE_SECONDS)

    def produced_between(self, start: float, end: float) -> list[float]:
        """
        Return the latencies of what was produced in that time, however late it came.
        """
        return [latency for at, latency in self.seen if start <= at < end]


def measure_latency(
    spark: SparkSession, kafka: KafkaCluster, turns: int, seconds: float
) -> Iterator[Measurement]:
    """
    Let the two connectors take turns; each turn is a query of its own, warmed up.
    """
    kafka.create_topic(TOPIC, PARTITIONS)
    found: dict[str, list[list[float]]] = {JVM.name: [], PYKAFKA.name: []}
    with _steady_producer(kafka.bootstrap):
        for turn in range(turns):
            pair = (JVM, PYKAFKA) if turn % 2 == 0 else (PYKAFKA, JVM)
            for one in pair:
                found[one.name].append(_turn(spark, kafka.bootstrap, one, seconds))
    for percent in PERCENTS:
        series = {
            name: Series(tuple(percentile(turn, percent) for turn in all_turns))
            for name, all_turns in found.items()
        }
        facts = {"rate": RATE, "partitions": PARTITIONS, "seconds": seconds}
        yield Measurement(f"latency-p{percent}", "latency", series, facts=facts)


def _turn(spark: SparkSession, bootstrap: str, contender: Contender, seconds: float) -> list[float]:
    arrivals = Arrivals()
    with TemporaryDirectory() as folder:
        query = _start(spark, bootstrap, contender, arrivals, folder)
        try:
            _await_produced_at(query, arrivals, 0, START_SECONDS)
            start = time.time() + WARM_UP_SECONDS
            end = start + seconds
            _await_produced_at(query, arrivals, end, WARM_UP_SECONDS + seconds + LATE_SECONDS)
            arrivals.close()
        finally:
            query.stop()
    latencies = arrivals.produced_between(start, end)
    least = int(LEAST_SHARE * RATE * seconds)
    if len(latencies) < least:
        msg = f"{contender.name} saw {len(latencies):,} records, not {least:,}, in {seconds:g} s"
        raise TooFewRecordsError(msg)
    middle, worst = (percentile(latencies, one) * 1000 for one in PERCENTS)
    print(f"  latency of {contender.name}: {middle:.0f} ms, p99 {worst:.0f} ms", file=sys.stderr)
    return latencies


def _start(
    spark: SparkSession, bootstrap: str, contender: Contender, arrivals: Arrivals, folder: str
) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, **contender.options}
    frame = spark.readStream.format(contender.format).options(**options).load()
    writer = frame.writeStream.foreachBatch(arrivals.take).option("checkpointLocation", folder)
    return writer.trigger(processingTime="0 seconds").start()


def _await_produced_at(
    query: StreamingQuery, arrivals: Arrivals, produced: float, seconds: float
) -> None:
    """
    Wait until a record has arrived that was produced at or after a time.
    """
    deadline = time.monotonic() + seconds
    while arrivals.newest <= produced:
        # It waits a second, and raises what went wrong in the query.
        query.awaitTermination(1)
        if time.monotonic() > deadline:
            msg = f"In {seconds:g} s no record arrived that is new enough; does the query hang?"
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
