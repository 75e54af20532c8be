"""
The audit that tells from offsets what entered: where a log has gaps it reads, and never guesses.
"""

from __future__ import annotations

import json
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
    from pyspark.sql.streaming import StreamingQuery

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import NewTopicName

Change = Callable[["DataFrame"], "DataFrame"]


def kept(frame: DataFrame) -> DataFrame:
    """
    Change nothing.
    """
    return frame


def without_an_offset(frame: DataFrame) -> DataFrame:
    """
    Plant a fault: the record at offset 1 is lost.
    """
    return frame.filter("offset != 1")


def with_a_double(frame: DataFrame) -> DataFrame:
    """
    Plant a fault: the record at offset 1 is there twice.
    """
    return frame.selectExpr("*", "explode(sequence(1, if(offset = 1, 2, 1)))")


def exchanged(frame: DataFrame) -> DataFrame:
    """
    Plant a fault: the record at offset 1 is lost and that at offset 2 is there twice.
    """
    return frame.withColumn("offset", sf.when(sf.col("offset") == 1, 2).otherwise(sf.col("offset")))


@pytest.fixture
def audit(
    spark: SparkSession, kafka_cluster: KafkaCluster, checkpoint: str
) -> Iterator[Callable[..., tuple[StreamingQuery, list[AuditReport]]]]:
    """
    Return the way to start a query under audit; its reports come into a list.
    """
    added: list[AuditListener] = []
    queries: list[StreamingQuery] = []

    def start(
        name: str, change: Change = kept, *, now: bool = True, **options: str
    ) -> tuple[StreamingQuery, list[AuditReport]]:
        read = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name, **options}
        auditor = Auditor(f"audit {len(added)} of {name}", options=read)
        reports: list[AuditReport] = []
        added.append(AuditListener(auditor, reports.append))
        spark.streams.addListener(added[-1])
        frame = auditor.source(spark.readStream.format("pykafka").options(**read).load())
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
    topic: NewTopicName,
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


@pytest.mark.parametrize("name", ["a", "flights", "flüge", "x" * 31, "x" * 32, "x" * 33 + "y" * 37])
def test_ids_are_those_of_spark(spark: SparkSession, name: str) -> None:
    """
    Summed over ranges of two partitions, with the topic's name and without.
    """
    rows = spark.range(2**33, 2**33 + 4_000).selectExpr(
        "cast(id % 2 as int) partition", "id offset", "xxhash64(int(id % 2), id) plain"
    )
    rows = rows.withColumn("named", sf.xxhash64(sf.lit(name), "partition", "offset"))
    sums = rows.selectExpr(
        f"sum(shiftright(named, {SHIFT}))", f"sum(shiftright(plain, {SHIFT}))"
    ).first()
    assert sums is not None

    for column, named in enumerate([True, False]):
        tallies = [
            checksum_of_range(TopicPartition(name, at % 2), at, at + 1, include_topic=named)
            for at in range(2**33, 2**33 + 4_000)
        ]
        assert sum(each.sum for each in tallies) == sums[column]


@pytest.mark.parametrize(
    ("isolation", "entered"), [("read_committed", 9), ("read_uncommitted", 12)]
)
def test_gaps_in_a_log_are_no_loss(
    audit: Callable[..., Any],
    gaps: str,
    caplog: pytest.LogCaptureFixture,
    isolation: str,
    entered: int,
) -> None:
    """
    Markers of transactions and aborted records leave offsets without a record.
    """
    _, reports = audit(gaps, startingOffsets="earliest", **{"kafka.isolation.level": isolation})

    assert [(one.is_complete, one.whole_batch.entered) for one in reports] == [(True, entered)]
    assert "the log has offsets without a record" in caplog.text
    assert "is not judged" not in caplog.text


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (without_an_offset, Verdict.MISSING),
        (with_a_double, Verdict.DUPLICATED),
        (exchanged, Verdict.REPLACED),
    ],
)
def test_faults_are_caught_in_a_log_with_gaps(
    audit: Callable[..., Any], gaps: str, change: Change, verdict: Verdict
) -> None:
    """
    None of them can hide behind the offsets that hold no record.
    """
    committed = {"kafka.isolation.level": "read_committed"}
    _, (found,) = audit(gaps, change, startingOffsets="earliest", **committed)

    assert found.whole_batch.verdict is verdict


def test_batches_of_a_query_that_is_started_again(
    audit: Callable[..., Any],
    topic: NewTopicName,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    From the first record that is still there; without a gap nothing is read again.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 30))
    delete_before(kafka_cluster, name, 4)

    _, first = audit(name, startingOffsets="earliest")
    kafka_cluster.produce(name, values(30, 40))
    _, second = audit(name, startingOffsets="earliest")

    assert all(one.is_complete for one in [*first, *second])
    assert sum(one.whole_batch.entered for one in first) == 26
    assert sum(one.whole_batch.entered for one in second) == 10
    assert "offsets without a record" not in caplog.text


def test_a_query_that_starts_at_the_end(
    audit: Callable[..., Any], topic: NewTopicName, kafka_cluster: KafkaCluster
) -> None:
    """
    Only what came since has entered.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 10))
    query, reports = audit(name, now=False, startingOffsets="latest")
    wait_until(lambda: None if query.lastProgress else "no progress", SECONDS)
    kafka_cluster.produce(name, values(10, 17))

    def seen() -> int:
        return sum(one.whole_batch.left for one in reports)

    wait_until(lambda: None if seen() == 7 else f"seen {seen()}", SECONDS)

    assert all(one.is_complete for one in reports)


def test_a_query_that_reads_a_topic_twice_is_not_judged(
    spark: SparkSession,
    audit: Callable[..., Any],
    topic: NewTopicName,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Which of two sources is meant cannot be told; the log says so, and nothing is called wrong.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 3))
    read = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name}
    again = spark.readStream.format("pykafka").options(**read, startingOffsets="earliest").load()

    _, reports = audit(name, again.union, now=False, startingOffsets="earliest")
    wait_until(
        lambda: None if "may be the one with the auditor's options" in caplog.text else "not told",
        SECONDS,
    )

    assert reports == []


def test_what_the_log_lost_before_the_audit(
    topic: NewTopicName, kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Records that aged out in the meantime make a difference unclear, but no batch that was complete.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 10))
    delete_before(kafka_cluster, name, 4)
    read = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name}
    source_tally, tp = SourceTally(read, ()), TopicPartition(name, 0)
    batch = SourceProgress("", json.dumps({name: {"0": 0}}), json.dumps({name: {"0": 10}}), 10)

    def verdict(*spans: tuple[int, int]) -> Verdict:
        left = sum(
            (checksum_of_range(tp, *span, include_topic=False) for span in spans), Checksum()
        )
        return source_tally.report("a", 0, [batch], [{WHOLE_BATCH: left}]).whole_batch.verdict

    assert verdict((0, 10)) is verdict((4, 10)) is Verdict.COMPLETE
    assert verdict((0, 9)) is verdict((4, 10), (4, 5)) is Verdict.UNKNOWN
    assert verdict((4, 9)) is Verdict.MISSING
    assert verdict((0, 10), (4, 5)) is Verdict.DUPLICATED
    assert "could not be read again" not in caplog.text


def test_brokers_that_cannot_be_asked_again(
    topic: NewTopicName, kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Make a difference unclear, and the log says why.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 3))
    gone = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1000"}
    source_tally = SourceTally({**gone, "subscribe": name}, ())
    batch = SourceProgress("", json.dumps({name: {"0": 0}}), json.dumps({name: {"0": 3}}), 3)

    found = source_tally.report("a", 0, [batch], [{WHOLE_BATCH: Checksum(2, 5)}])

    assert found.whole_batch.verdict is Verdict.UNKNOWN
    assert "audit a: the offsets could not be read again" in caplog.text


def test_partitions_that_the_options_do_not_ask_for() -> None:
    """
    Cannot be audited.
    """
    read = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}

    with pytest.raises(OptionsError, match="partitions to audit that the options .* for: u-0"):
        Auditor("wrong", [TopicPartition("u", 0)], options=read)


def delete_before(kafka: KafkaCluster, topic: str, offset: int) -> None:
    """
    Delete the records of partition 0 before an offset, as retention does.
    """
    admin = kafka.admin()
    for future in admin.delete_records([Position(topic, 0, offset)]).values():
        future.result(SECONDS)
