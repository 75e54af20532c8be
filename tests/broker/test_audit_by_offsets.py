"""
The audit with the source's options: it computes from offsets which records entered, and reads the
log only where it has gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition as Position
from pyspark.sql import functions as sf
from tests.support.streams import SECONDS, values

from pyspark_pykafka.audit.observer import AuditListener, Auditor
from pyspark_pykafka.audit.record_ids import SHIFT, checksum_of_range
from pyspark_pykafka.audit.report import WHOLE_BATCH, AuditReport, Checksum, Verdict
from pyspark_pykafka.audit.source_progress import SourceProgress
from pyspark_pykafka.audit.source_tally import SourceTally
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

Change = Callable[["DataFrame"], "DataFrame"]


def unchanged(frame: DataFrame) -> DataFrame:
    """
    Return the frame unchanged.
    """
    return frame


def without_an_offset(frame: DataFrame) -> DataFrame:
    """
    Plant a fault: the record at offset 1 is missing.
    """
    return frame.filter("offset != 1")


def with_a_duplicate(frame: DataFrame) -> DataFrame:
    """
    Plant a fault: the record at offset 1 is duplicated.
    """
    return frame.selectExpr("*", "explode(sequence(1, if(offset = 1, 2, 1)))")


def replaced(frame: DataFrame) -> DataFrame:
    """
    Plant a fault: the record at offset 1 is replaced by that at offset 2.
    """
    return frame.withColumn("offset", sf.when(sf.col("offset") == 1, 2).otherwise(sf.col("offset")))


@pytest.fixture
def audit(
    spark: SparkSession, kafka_cluster: KafkaCluster, checkpoint: str
) -> Iterator[Callable[..., tuple[StreamingQuery, list[AuditReport]]]]:
    """
    Return a function that starts an audited query, and collects its reports in a list.
    """
    added: list[AuditListener] = []
    queries: list[StreamingQuery] = []

    def start(
        name: str, change: Change = unchanged, *, now: bool = True, **options: str
    ) -> tuple[StreamingQuery, list[AuditReport]]:
        source_options = {
            "kafka.bootstrap.servers": kafka_cluster.bootstrap,
            "subscribe": name,
            **options,
        }
        auditor = Auditor(f"audit {len(added)} of {name}", options=source_options)
        reports: list[AuditReport] = []
        added.append(AuditListener(auditor, reports.append))
        spark.streams.addListener(added[-1])
        frame = auditor.source(spark.readStream.format("pykafka").options(**source_options).load())
        writer = auditor.sink(change(frame)).writeStream.format("noop")
        writer = writer.option("checkpointLocation", checkpoint)
        queries.append((writer.trigger(availableNow=True) if now else writer).start())
        if now:
            assert queries[-1].awaitTermination(SECONDS), "the query did not end"
            wait_until(lambda: None if reports else "no report", SECONDS)
        return queries[-1], reports

    yield start
    for query in queries:
        query.stop()
    for listener in added:
        spark.streams.removeListener(listener)


@pytest.fixture
def gaps(
    topic: TopicFactory,
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
) -> str:
    """
    Return a topic of one partition with 4 committed records, 3 aborted ones and 5 committed ones.
    """
    name = topic()
    with transaction() as producer:
        for count, end in (
            (4, producer.commit_transaction),
            (3, producer.abort_transaction),
            (5, producer.commit_transaction),
        ):
            for number in range(count):
                producer.produce(name, value=str(number))
            producer.flush(SECONDS)
            end(SECONDS)
            producer.begin_transaction()
    settled(name)
    return name


@pytest.mark.parametrize(
    "name",
    [
        "flüge",
        "x" * 32,
        "x" * 33 + "y" * 37,
        # test_record_ids.py compares many names with hashes that Spark computed.
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("a", "flights", "x" * 31)),
    ],
)
def test_ids_are_those_of_spark(spark: SparkSession, name: str) -> None:
    """
    The sums of ids over two partitions equal Spark's, with and without the topic's name.
    """
    rows = spark.range(2**33, 2**33 + 4_000).selectExpr(
        "cast(id % 2 as int) partition", "id offset", "xxhash64(int(id % 2), id) plain"
    )
    rows = rows.withColumn("named", sf.xxhash64(sf.lit(name), "partition", "offset"))
    sums = rows.selectExpr(
        f"sum(shiftright(named, {SHIFT}))", f"sum(shiftright(plain, {SHIFT}))"
    ).first()
    assert sums is not None

    for column, include_topic in enumerate([True, False]):
        checksums = [
            checksum_of_range(
                TopicPartition(name, number % 2), number, number + 1, include_topic=include_topic
            )
            for number in range(2**33, 2**33 + 4_000)
        ]
        assert sum(checksum.sum for checksum in checksums) == sums[column]


@pytest.mark.parametrize(
    ("isolation", "entered"),
    [("read_committed", 9), pytest.param("read_uncommitted", 12, marks=pytest.mark.soak)],
)
def test_gaps_in_the_log_are_not_missing_records(
    audit: Callable[..., Any],
    gaps: str,
    caplog: pytest.LogCaptureFixture,
    isolation: str,
    entered: int,
) -> None:
    """
    Offsets of transaction markers and aborted records do not count as missing records.
    """
    _, reports = audit(gaps, startingOffsets="earliest", **{"kafka.isolation.level": isolation})

    assert [(report.is_complete, report.whole_batch.entered) for report in reports] == [
        (True, entered)
    ]
    assert "the log has offsets without a record" in caplog.text
    assert "cannot be audited" not in caplog.text


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (without_an_offset, Verdict.MISSING),
        (with_a_duplicate, Verdict.DUPLICATED),
        (replaced, Verdict.REPLACED),
    ],
)
def test_faults_are_caught_in_a_log_with_gaps(
    audit: Callable[..., Any], gaps: str, change: Change, verdict: Verdict
) -> None:
    """
    Offsets without a record hide no missing, duplicated or replaced record.
    """
    committed = {"kafka.isolation.level": "read_committed"}
    _, (report,) = audit(gaps, change, startingOffsets="earliest", **committed)

    assert report.whole_batch.verdict is verdict


def test_batches_of_a_restarted_query(
    audit: Callable[..., Any],
    topic: TopicFactory,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    The audit of each run starts at the first of its records that is still in the log. If the
    offsets have no gaps, the audit does not read the log.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 30))
    delete_before(kafka_cluster, name, 4)

    _, first = audit(name, startingOffsets="earliest")
    kafka_cluster.produce(name, values(30, 40))
    _, second = audit(name, startingOffsets="earliest")

    assert all(report.is_complete for report in [*first, *second])
    assert sum(report.whole_batch.entered for report in first) == 26
    assert sum(report.whole_batch.entered for report in second) == 10
    assert "offsets without a record" not in caplog.text


def test_query_that_starts_at_latest(
    audit: Callable[..., Any], topic: TopicFactory, kafka_cluster: KafkaCluster
) -> None:
    """
    Only records that arrived after the start have entered.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 10))
    query, reports = audit(name, now=False, startingOffsets="latest")
    wait_until(lambda: None if query.lastProgress else "no progress", SECONDS)
    kafka_cluster.produce(name, values(10, 17))

    def records_left() -> int:
        return sum(report.whole_batch.left for report in reports)

    wait_until(lambda: None if records_left() == 7 else f"{records_left()} records left", SECONDS)

    assert all(report.is_complete for report in reports)


def test_query_that_reads_a_topic_twice_is_not_audited(
    spark: SparkSession,
    audit: Callable[..., Any],
    topic: TopicFactory,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    With two sources of the same options the audit logs that it cannot decide, and reports nothing.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 3))
    source_options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name}
    restarted = (
        spark.readStream.format("pykafka")
        .options(**source_options, startingOffsets="earliest")
        .load()
    )

    _, reports = audit(name, restarted.union, now=False, startingOffsets="earliest")
    wait_until(
        lambda: None if "may have the auditor's options" in caplog.text else "not logged",
        SECONDS,
    )

    assert reports == []


def test_records_deleted_before_the_audit(
    topic: TopicFactory, kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    After retention has deleted records, a mismatch is unknown; a complete batch stays complete.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 10))
    delete_before(kafka_cluster, name, 4)
    source_options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name}
    source_tally, tp = SourceTally(source_options, ()), TopicPartition(name, 0)
    batch = SourceProgress("", {name: {"0": 0}}, {name: {"0": 10}}, 10)

    def verdict(*spans: tuple[int, int]) -> Verdict:
        at_sink = sum(
            (checksum_of_range(tp, *span, include_topic=False) for span in spans), Checksum()
        )
        return source_tally.report("a", 0, [batch], [{WHOLE_BATCH: at_sink}]).whole_batch.verdict

    assert verdict((0, 10)) is verdict((4, 10)) is Verdict.COMPLETE
    assert verdict((0, 9)) is verdict((4, 10), (4, 5)) is Verdict.UNKNOWN
    assert verdict((4, 9)) is Verdict.MISSING
    assert verdict((0, 10), (4, 5)) is Verdict.DUPLICATED
    assert "could not be read again" not in caplog.text


def test_unreachable_brokers_make_a_mismatch_unknown(
    topic: TopicFactory, kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If the brokers cannot be reached, a mismatch is unknown, and the reason is logged.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 3))
    unreachable = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1000"}
    source_tally = SourceTally({**unreachable, "subscribe": name}, ())
    batch = SourceProgress("", {name: {"0": 0}}, {name: {"0": 3}}, 3)

    report = source_tally.report("a", 0, [batch], [{WHOLE_BATCH: Checksum(2, 5)}])

    assert report.whole_batch.verdict is Verdict.UNKNOWN
    assert "audit a: the offsets could not be read again" in caplog.text


def test_partitions_without_subscription_cannot_be_audited() -> None:
    """
    A partition that the options do not subscribe to raises OptionsError.
    """
    source_options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}

    with pytest.raises(OptionsError, match="do not subscribe to the partitions to audit: u-0"):
        Auditor("wrong", [TopicPartition("u", 0)], options=source_options)


def delete_before(kafka: KafkaCluster, topic: str, offset: int) -> None:
    """
    Delete the records of partition 0 before an offset, as retention does.
    """
    admin = kafka.admin()
    for future in admin.delete_records([Position(topic, 0, offset)]).values():
        future.result(SECONDS)
