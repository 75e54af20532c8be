"""
Measures the cost of auditing a stream: the same read without an audit, and with each kind of
audit.

Spark's own count of the records is the lower bound of that cost.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from bench.cases import PYKAFKA, Case, TopicSpec, records_of, shuffled_rounds, size_text
from bench.figures import check_records
from bench.load import loaded_topic
from bench.measurement import Measurement, Series
from bench.processes import Cpu
from bench.reads import TIMEOUT_SECONDS, options_for, read_stream
from bench.session import collect_garbage, jvm_pid
from pyspark_pykafka import AuditListener, Auditor
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent

    from pyspark_pykafka.audit.report import AuditReport
    from pyspark_pykafka.testing import KafkaCluster

PLAIN, COUNTED, OBSERVED, BY_OFFSETS = "plain", "counted", "observed", "by-offsets"
NAMES = [PLAIN, COUNTED, OBSERVED, BY_OFFSETS]
#: The size of a value in bytes, and the sink, of each measurement.
AUDITED = ((100, "noop"), (1024, "noop"), (100, "parquet"))
PARTITIONS = 2


def measure_audit(
    spark: SparkSession, kafka: KafkaCluster, size: int, sink: str, rounds: int
) -> Measurement:
    """
    Read a topic with availableNow in each of the four variants, in shuffled rounds.
    """
    topic = TopicSpec(size, "none", PARTITIONS, records_of(size, quick=False))
    options = options_for(PYKAFKA, Case("stream", topic), kafka.bootstrap)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    cpu_seconds: defaultdict[str, list[float]] = defaultdict(list)

    with loaded_topic(spark, kafka, topic):
        for name in NAMES:
            _read(spark, name, options, topic.records, sink)
        for order in shuffled_rounds(NAMES, rounds, seed="audit"):
            for name in order:
                collect_garbage(spark)
                own_start = time.process_time()
                with Cpu(jvm_pid(spark)) as cpu:
                    seconds[name].append(_read(spark, name, options, topic.records, sink))
                cpu_seconds[name].append(cpu.seconds + time.process_time() - own_start)
    series = {name: Series(tuple(seconds[name]), tuple(cpu_seconds[name])) for name in NAMES}
    into = "" if sink == "noop" else f"-{sink}"
    return Measurement(f"audit-{size_text(size)}{into}", "audit", series, topic.records, base=PLAIN)


class _Timed(AuditListener):
    """
    Measures how long the driver takes to audit.
    """

    seconds = 0.0

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        start = time.perf_counter()
        super().onQueryProgress(event)
        self.seconds += time.perf_counter() - start


def _read(
    spark: SparkSession, name: str, options: Mapping[str, str], records: int, sink: str
) -> float:
    """
    Return the seconds of the micro-batches plus those of their audit, although the two overlap.

    The start and the end of the query are left out: a long-running stream pays for them only once.
    """
    options_by_offsets = options if name == BY_OFFSETS else None
    auditor = Auditor("bench", options=options_by_offsets, enabled=name in {OBSERVED, BY_OFFSETS})
    reports: list[AuditReport] = []

    def audited(frame: DataFrame) -> DataFrame:
        if name == COUNTED:
            return frame.observe(COUNTED, sf.count(sf.lit(1)))
        return auditor.sink(auditor.source(frame))

    def missing() -> str | None:
        records_out = sum(report.whole_batch.left for report in reports)
        is_done = records_out == records
        return None if is_done else f"{name}'s audit saw {records_out} records of {records}"

    listener = _Timed(auditor, reports.append)
    spark.streams.addListener(listener)
    stream = read_stream(spark, PYKAFKA.format, options, audited, sink)
    if auditor.enabled:
        wait_until(missing, TIMEOUT_SECONDS)
        assert all(report.is_complete for report in reports), reports
    spark.streams.removeListener(listener)
    check_records(f"{name} in the audit", records, stream.records)
    assert stream.trigger_seconds is not None
    return stream.trigger_seconds + (listener.seconds if auditor.enabled else 0)
