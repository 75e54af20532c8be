"""
The audit of real queries: it finds each planted fault, and reports no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf
from tests.support.streams import SECONDS, values

from pyspark_pykafka.audit.observer import AuditListener, Auditor, find_offset
from pyspark_pykafka.audit.report import AuditReport, Verdict
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

Change = Callable[["DataFrame", Auditor], "DataFrame"]


def options_of(kafka: KafkaCluster, topic: str, **options: str) -> dict[str, str]:
    """
    Return the options of a stream of a topic from its start.
    """
    address = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
    return {**address, "startingOffsets": "earliest", **options}


def source(spark: SparkSession, kafka: KafkaCluster, topic: str) -> DataFrame:
    """
    Return a stream of a topic from its start.
    """
    return spark.readStream.format("pykafka").options(**options_of(kafka, topic)).load()


#: Runs of `make test` with entered records that are observed only: test_audit_by_offsets.py has the
#: same faults with records that are computed from offsets.
observed = pytest.mark.parametrize(
    "audited",
    [
        pytest.param(True, id="by-offsets", marks=pytest.mark.soak),
        pytest.param(False, id="observed"),
    ],
    indirect=True,
)


@pytest.fixture(params=[True, False], ids=["by-offsets", "observed"])
def audited(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    checkpoint: str,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., tuple[str, list[AuditReport]]]]:
    """
    Return a function that runs 40 records of two partitions through an audited change.
    """
    added: list[AuditListener] = []

    def run(change: Change, *, by_partition: bool = False) -> tuple[str, list[AuditReport]]:
        name, copy = topic(2), topic(2)
        kafka_cluster.produce(name, values(0, 40))
        tps = [TopicPartition(name, number) for number in range(2)] if by_partition else []
        source_options = options_of(kafka_cluster, name) if request.param else None
        auditor = Auditor(f"audit of {name}", tps, options=source_options)
        reports: list[AuditReport] = []
        added.append(AuditListener(auditor, reports.append))
        spark.streams.addListener(added[-1])
        options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
        frame = source(spark, kafka_cluster, name)
        output = auditor.sink(change(auditor.source(frame), auditor))
        query = (
            output.select("value")
            .writeStream.format("pykafka")
            .options(**options, topic=copy, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SECONDS), "the query did not end"
        wait_until(lambda: None if reports else "no report", SECONDS)
        return name, reports

    yield run
    for listener in added:
        spark.streams.removeListener(listener)


def fifth() -> Column:
    """
    Return the condition that selects record number 5.
    """
    return sf.col("value").cast("string") == "0005"


def duplicate_the_fifth(frame: DataFrame, _: Auditor) -> DataFrame:
    """
    Plant a fault: duplicate one record.
    """
    one, two = sf.array(sf.lit(1)), sf.array(sf.lit(1), sf.lit(2))
    return frame.withColumn("n", sf.explode(sf.when(fifth(), two).otherwise(one)))


@pytest.mark.smoke
def test_correct_query_is_complete(
    audited: Callable[..., tuple[str, list[AuditReport]]],
) -> None:
    """
    A query that changes values and shuffles rows is complete.
    """
    _, reports = audited(
        lambda frame, _: frame.withColumn(
            "value", sf.upper(sf.col("value").cast("string"))
        ).repartition(3)
    )

    assert [
        (report.is_complete, report.batch_id, report.whole_batch.entered) for report in reports
    ] == [(True, 0, 40)]


@observed
@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda frame, _: frame.filter(~fifth()), Verdict.MISSING),
        pytest.param(duplicate_the_fifth, Verdict.DUPLICATED, marks=pytest.mark.soak),
        (
            lambda frame, _: frame.withColumn(
                "offset", sf.when(fifth(), sf.lit(7_000)).otherwise(sf.col("offset"))
            ),
            Verdict.REPLACED,
        ),
    ],
    ids=["missing", "duplicated", "replaced"],
)
def test_planted_faults_are_caught(
    audited: Callable[..., tuple[str, list[AuditReport]]],
    caplog: pytest.LogCaptureFixture,
    change: Change,
    verdict: Verdict,
) -> None:
    """
    A missing, a duplicated and a replaced record are reported and logged.
    """
    _, reports = audited(change)

    assert [report.whole_batch.verdict for report in reports] == [verdict]
    assert f"micro-batch 0: the batch: {verdict.value}" in caplog.text


@observed
def test_missing_record_is_found(
    spark: SparkSession, audited: Callable[..., tuple[str, list[AuditReport]]]
) -> None:
    """
    A missing record is found by its partition, and in it by its offset.
    """
    name, (report,) = audited(lambda frame, _: frame.filter(~fifth()), by_partition=True)

    (finding,) = [
        finding for finding in report.by_partition if finding.verdict is not Verdict.COMPLETE
    ]
    tps = {str(tp): tp for tp in (TopicPartition(name, number) for number in range(2))}
    offset = find_offset(spark, finding.difference, tps[finding.scope], 0, 40)

    assert finding.verdict is Verdict.MISSING
    assert offset is not None
    assert find_offset(spark, finding.difference, tps[finding.scope], 0, offset) is None
    assert len(report.by_partition) == 2


@observed
def test_records_dropped_or_multiplied_on_purpose(
    audited: Callable[..., tuple[str, list[AuditReport]]],
) -> None:
    """
    Rows that the auditor's filter drops are not missing; rows exploded from a record count once.
    """
    small = sf.col("value").cast("string") < "0020"

    def change(frame: DataFrame, auditor: Auditor) -> DataFrame:
        filtered = auditor.filter(auditor.filter(frame, small), "partition >= 0")
        many = filtered.select("*", sf.posexplode(sf.array(sf.lit("a"), sf.lit("b"))))
        return auditor.filter(many.filter(sf.col("pos") == 0), ~fifth())

    _, (report,) = audited(change, by_partition=True)

    assert report.is_complete
    assert report.whole_batch.entered == 40


def test_once_selects_one_row_of_a_record(
    spark: SparkSession, kafka_cluster: KafkaCluster, topic: TopicFactory, checkpoint: str
) -> None:
    """
    With ``once`` the fan-out is complete; without it every record counts as duplicated.
    """
    name = topic(1)
    kafka_cluster.produce(name, values(0, 10))
    verdicts = []
    for number, once in enumerate((sf.col("pos") == 0, None)):
        auditor = Auditor(f"fan-out {number} {name}")
        reports: list[AuditReport] = []
        listener = AuditListener(auditor, reports.append)
        spark.streams.addListener(listener)
        frame = source(spark, kafka_cluster, name)
        many = auditor.source(frame).select("*", sf.posexplode(sf.array(sf.lit("a"), sf.lit("b"))))
        query = (
            auditor.sink(many, once)
            .writeStream.format("noop")
            .option("checkpointLocation", f"{checkpoint}-{number}")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SECONDS)
        wait_until(lambda: None if reports else "no report", SECONDS)  # noqa: B023
        spark.streams.removeListener(listener)
        verdicts.append(reports[0].whole_batch.verdict)

    assert verdicts == [Verdict.COMPLETE, Verdict.DUPLICATED]


def test_timeout_of_a_batch_that_never_completes(
    spark: SparkSession, kafka_cluster: KafkaCluster, topic: TopicFactory, checkpoint: str
) -> None:
    """
    on_timeout gets the query's id once, after the timeout.
    """
    name = topic(1)
    kafka_cluster.produce(name, values(0, 3))
    query_ids: list[str] = []
    auditor, released = Auditor(f"late {name}"), threading.Event()
    listener = AuditListener(auditor, timeout=1.0, on_timeout=query_ids.append)
    spark.streams.addListener(listener)
    frame = source(spark, kafka_cluster, name)

    def stuck(part: DataFrame, _: int) -> None:
        part.count()
        released.wait(SECONDS)

    query = (
        auditor.sink(auditor.source(frame))
        .writeStream.foreachBatch(stuck)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    wait_until(lambda: None if query_ids else "not called", SECONDS)
    released.set()
    query.stop()
    spark.streams.removeListener(listener)

    assert query_ids == [str(query.id)]


def test_disabled_auditor_changes_nothing(spark: SparkSession) -> None:
    """
    A disabled auditor returns the frames unchanged.
    """
    auditor = Auditor("off", enabled=False)
    frame = spark.range(3)

    assert auditor.source(frame) is frame
    assert auditor.sink(frame) is frame
    assert auditor.filter(frame, sf.col("id") > 0).count() == 2


def test_missing_id_columns_are_an_error(spark: SparkSession) -> None:
    """
    Missing id columns raise OptionsError, both in source() and in sink().
    """
    auditor = Auditor("wrong")
    frame = spark.range(3)

    with pytest.raises(OptionsError, match="columns topic, partition, offset, which the frame"):
        auditor.source(frame)
    with pytest.raises(OptionsError, match="columns offset, which the frame lacks; keep the"):
        auditor.sink(spark.range(3).selectExpr("'t' topic", "0 partition"))
