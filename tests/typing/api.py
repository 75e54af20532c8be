"""
The public API as users' code calls it; checked by mypy and never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka import (
    AuditListener,
    Auditor,
    DeadLetterTopic,
    DefaultSource,
    MetricsListener,
    PoisonPolicy,
    ProgressListener,
    RestartPolicy,
    isolate_poison,
    mount,
    register,
    supervise,
)
from pyspark_pykafka.errors import DataLossError, ExactlyOnceError, PykafkaError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_pykafka.audit.report import AuditReport, Verdict
    from pyspark_pykafka.failures.bisection import FailedRecord
    from pyspark_pykafka.failures.restarts import QueryFailure

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


class Renamed(DefaultSource):
    """
    The format under another name.
    """

    @classmethod
    def name(cls) -> str:
        return "my-kafka"


def register_format(spark: SparkSession) -> str:
    register(spark)
    spark.dataSource.register(Renamed)
    return DefaultSource.name()


def mount_topics(spark: SparkSession) -> tuple[str, ...]:
    mount(spark, OPTIONS)
    mount(spark, OPTIONS, database="kafka")
    return mount(spark, OPTIONS, pattern="flights", prefix="kafka_", schema="value string")


def run_supervised(start: Callable[[], StreamingQuery]) -> None:
    def on_failure(failure: QueryFailure) -> None:
        failures: list[tuple[int, Exception, bool, float | None]] = []
        failures.append((failure.number, failure.error, failure.fatal, failure.pause_seconds))

    supervise(start)
    supervise(start, RestartPolicy(initial_delay=5.0, attempts=None), on_failure)
    supervise(start, policy=RestartPolicy(multiplier=1.0, max_delay=60.0), on_failure=on_failure)


def set_poison_aside() -> Callable[[DataFrame, int], None]:
    def process(frame: DataFrame, batch_id: int) -> None:
        frame.write.parquet(f"batch-{batch_id}")

    def dead_letter(records: Sequence[FailedRecord], batch_id: int) -> None:
        failed: list[tuple[str, int, int, Exception, int]] = [
            (record.tp.topic, record.tp.partition, record.offset, record.error, record.attempts)
            for record in records
        ]
        assert len(failed) <= batch_id

    isolate_poison(process, dead_letter)
    topic = DeadLetterTopic("t.dead", OPTIONS, kafka={"kafka.bootstrap.servers": "other:9092"})
    policy = PoisonPolicy(max_records=10, max_share=0.5, is_outage=lambda error: bool(error.args))
    return isolate_poison(process, dead_letter=topic, policy=policy)


def audit_query(frame: DataFrame) -> tuple[DataFrame, StreamingQueryListener]:
    verdicts: list[Verdict] = []

    def on_report(report: AuditReport) -> None:
        reports: list[tuple[str, int, bool]] = []
        reports.append((report.name, report.batch_id, report.is_complete))
        verdicts.extend(finding.verdict for finding in report.findings)

    auditor = Auditor("t", [TopicPartition("t", 0)], options=OPTIONS, enabled=True)
    filtered = auditor.filter(auditor.source(frame), "value is not null")
    listener = AuditListener(auditor, on_report, timeout=60.0, on_timeout=print)
    return auditor.sink(filtered, once="pos = 0"), listener


def record_end_of_query(spark: SparkSession) -> None:
    listener: StreamingQueryListener = ProgressListener(OPTIONS)
    spark.streams.addListener(listener)


def export_metrics(spark: SparkSession, registry: CollectorRegistry, meter: Meter) -> int | None:
    spark.streams.addListener(MetricsListener())
    metrics = MetricsListener(
        port=0,
        host="0.0.0.0",  # noqa: S104
        registry=registry,
        meter=meter,
        log_seconds=None,
        options=OPTIONS,
        refresh_seconds=5.0,
        max_partitions=10,
    )
    isolate_poison(print, metrics.count_dead_letters(DeadLetterTopic("t.dead", OPTIONS)))
    AuditListener(Auditor("t"), on_report=metrics.record_audit)
    lags: list[int | None] = [query.lag for query in metrics.snapshot().queries]
    metrics.close()
    return metrics.port if lags else None


def start_broker() -> list[Record]:
    with KafkaCluster(brokers=3, version="4.3.1", config={"log.retention.ms": 1000}) as kafka:
        kafka.create_topic("t", partitions=2)
        kafka.produce("t", [Record(b"v", key=b"k", headers=(("h", None),))])
        kafka.kill(1)
        kafka.restart(1)
        return kafka.consume("t")


def may_succeed_later(error: PykafkaError) -> bool:
    if isinstance(error, (DataLossError, ExactlyOnceError)):
        return not error.condition.startswith("KAFKA_DATA_LOSS")
    return error.retriable
