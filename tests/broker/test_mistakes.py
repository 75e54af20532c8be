"""
Mistakes of new users are reported early, and named, in every way to use the format.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import udf
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.doctor.redaction import RECOMMENDED
from pyspark_pykafka.spark.compat import SPARK_VERSION
from pyspark_pykafka.spark.error_report import HIDE_TRACEBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

TOPIC_AUTHORIZATION_FAILED = 29
BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
READ = {**BROKERS, "subscribe": "t"}
MISSPELT = {**READ, "startingOffset": "earliest"}
TEXT = "'startingoffset' is not an option; did you mean 'startingOffsets'?"

#: Spark's own lines around an error: the exception's class, and the SQLSTATE.
SPARK_LINES = 2
#: Where Spark describes the query whose error it reports, and the most lines that it takes.
DESCRIPTION, DESCRIPTION_LINES = "=== Streaming Query ===", 16
JAVA_STACK = re.compile(r"^\s+at |^Driver stacktrace:|^\s*$")

CREATE_VIEW = "CREATE TEMPORARY VIEW misspelt {columns} USING pykafka OPTIONS ({options})"
CREATE_TABLE = "CREATE TABLE misspelt (value BINARY) USING pykafka"


def sql_options(options: dict[str, str]) -> str:
    """
    Return options as the list of a SQL statement.
    """
    return ", ".join(f"`{name}` '{value}'" for name, value in options.items())


def report_of(error: Exception) -> list[str]:
    """
    Return the lines of an error's text without those in which Spark describes the streaming query.
    """
    report, _, description = str(error).strip().partition(DESCRIPTION)
    assert len(description.splitlines()) <= DESCRIPTION_LINES
    return report.splitlines()


@pytest.fixture
def no_names(spark: SparkSession) -> Iterator[None]:
    """
    Drop the view and the table of a test.
    """
    yield
    spark.catalog.dropTempView("misspelt")
    spark.sql("DROP TABLE IF EXISTS misspelt")


@pytest.mark.smoke
@pytest.mark.parametrize("use", ["batch", "stream", "view"])
@pytest.mark.usefixtures("no_names")
def test_a_misspelt_option_is_found_at_load(spark: SparkSession, use: str) -> None:
    """
    A misspelt option is reported before a query runs: by load() of a batch or a stream, and when a
    view is created. The report is one line of ours.
    """

    def create_view() -> None:
        spark.sql(CREATE_VIEW.format(columns="", options=sql_options(MISSPELT)))

    load: dict[str, Callable[[], object]] = {
        "batch": spark.read.format("pykafka").options(**MISSPELT).load,
        "stream": spark.readStream.format("pykafka").options(**MISSPELT).load,
        "view": create_view,
    }

    with pytest.raises(Exception, match="did you mean 'startingOffsets'") as raised:
        load[use]()
    report = report_of(raised.value)
    assert len([line for line in report if TEXT in line]) == 1
    assert len(report) <= 1 + SPARK_LINES


@pytest.mark.parametrize(
    "use",
    ["batch", "stream", *(pytest.param(use, marks=pytest.mark.soak) for use in ("view", "table"))],
)
@pytest.mark.usefixtures("no_names")
def test_with_columns_a_misspelt_option_is_found_when_a_query_runs(
    spark: SparkSession, checkpoint: str, use: str
) -> None:
    """
    With the user's columns, a misspelt option is reported when the query runs, and just as briefly.

    Since Spark has the schema then, it passes the options to no Python process before it plans the
    query: neither at load() nor when a view or a table is created.
    """

    def stream() -> None:
        rows = spark.readStream.format("pykafka").schema("value BINARY").options(**MISSPELT).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.start().awaitTermination(120)

    def prepare() -> Callable[[], object]:
        if use == "stream":
            return stream
        if use == "batch":
            reader = spark.read.format("pykafka").schema("value BINARY")
            return reader.options(**MISSPELT).load().collect
        if use == "view":
            options = sql_options(MISSPELT)
            spark.sql(CREATE_VIEW.format(columns="(value BINARY)", options=options))
            return spark.table("misspelt").collect
        spark.sql(CREATE_TABLE)
        return spark.read.options(**MISSPELT).table("misspelt").collect

    run = prepare()
    with pytest.raises(Exception, match="did you mean 'startingOffsets'") as raised:
        run()
    report = report_of(raised.value)
    assert len([line for line in report if TEXT in line]) == 1
    assert len(report) <= 1 + SPARK_LINES


def test_a_write_needs_no_options_of_a_read(spark: SparkSession) -> None:
    """
    The check of a read's options is not applied to a write; its own mistakes are reported.
    """
    frame = spark.range(1).selectExpr("'a' AS value")

    with pytest.raises(Exception, match="'topics' is not an option; did you mean 'topic'"):
        frame.write.format("pykafka").options(**BROKERS, topics="t").mode("append").save()


def test_a_mistake_of_a_stream_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """
    A mistake that only a stream's reader can find ends the query with the mistake's own error.

    The same option is valid in a batch, so that load() cannot report it.
    """
    options = {**READ, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "1"}
    frame = spark.readStream.format("pykafka").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    query = writer.start()
    with pytest.raises(Exception, match="minOffsetsPerTrigger is '9'; it must be") as raised:
        query.awaitTermination(60)
    assert "UnboundLocalError" not in str(raised.value)
    assert len(report_of(raised.value)) <= 1 + SPARK_LINES


def test_expected_errors_are_one_line(spark: SparkSession) -> None:
    """
    A batch's mistakes have no traceback, wherever they are found: at load or while planning.
    """

    def load() -> object:
        return spark.read.format("pykafka").options(**MISSPELT).load()

    def collect() -> object:
        options = {**READ, "startingOffsets": "latest"}
        return spark.read.format("pykafka").options(**options).load().collect()

    def save() -> None:
        rows = spark.range(1).selectExpr("'a' AS value")
        rows.write.format("pykafka").options(**BROKERS, topics="t").mode("append").save()

    for act in (load, collect, save):
        with pytest.raises(Exception, match=r"OptionsError: \[INVALID_OPTIONS\]") as raised:
            act()
        assert "Traceback" not in str(raised.value)
        assert len(report_of(raised.value)) <= 1 + SPARK_LINES


class Refusing(Behaviour):
    """
    Lets the driver plan, and rejects the requests with which tasks read and write.
    """

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:  # noqa: ARG002
        return FetchAnswer(TOPIC_AUTHORIZATION_FAILED, -1)

    def _on_0(self, node: int, request: Any) -> Any:
        response = super()._on_0(node, request)
        response.responses[0].partition_responses[0].error_code = TOPIC_AUTHORIZATION_FAILED
        return response


@pytest.mark.smoke
@pytest.mark.parametrize("use", ["batch", "stream", "write", "stream write"])
def test_an_error_in_a_task_has_no_traceback(
    spark: SparkSession, checkpoint: str, use: str
) -> None:
    """
    An expected error on an executor is one line in Spark's report, in a batch, a stream and a
    write. Only for streams before Spark 4.2, Spark adds the stack trace of its Java process.
    """
    with (
        StubCluster(Refusing(high_watermark=10_000)) as cluster,
        pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED") as raised,
    ):
        run_refused(spark, cluster, use, checkpoint)

    report = report_of(raised.value)
    (line,) = (line for line in report if "grant the permission" in line)
    assert "AuthorizationError: [" in line
    assert "Traceback" not in str(raised.value)
    if "stream" in use and SPARK_VERSION < (4, 2):
        report = [line for line in report if not JAVA_STACK.match(line)]
    assert len(report) <= 1 + SPARK_LINES


def run_refused(spark: SparkSession, cluster: StubCluster, use: str, checkpoint: str) -> None:
    """
    Run a query whose tasks the brokers reject.
    """
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    read = {**options, "subscribe": "t", "startingOffsets": "earliest"}
    texts = spark.range(1).selectExpr("'a' AS value")
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    if use == "batch":
        spark.read.format("pykafka").options(**read).load().collect()
    elif use == "write":
        texts.write.format("pykafka").options(**options, topic="t").mode("append").save()
    else:
        writer = (
            spark.readStream.format("pykafka").options(**read).load().writeStream.format("noop")
            if use == "stream"
            else rate.selectExpr("'a' AS value")
            .writeStream.format("pykafka")
            .options(**options, topic="t")
        )
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination(120)


def division_fails(spark: SparkSession) -> str:
    """
    Return the report of an error in a user's function that runs in many tasks.
    """
    rows = spark.range(0, 8, 1, numPartitions=8)
    with pytest.raises(Exception, match="ZeroDivisionError") as raised:
        rows.select(udf(lambda _: 1 // 0, "int")("id")).collect()
    return str(raised.value)


@pytest.mark.parametrize(
    "use", ["batch", *(pytest.param(use, marks=pytest.mark.soak) for use in ("load", "write"))]
)
def test_errors_of_users_keep_their_traceback(
    spark: SparkSession, checkpoint: str, use: str
) -> None:
    """
    The connector's short reports do not affect the code around them: errors of users keep their
    traceback, in the processes that Spark reuses for later tasks, too.
    """
    if use == "load":
        with pytest.raises(Exception, match="did you mean"):
            spark.read.format("pykafka").options(**MISSPELT).load()
    else:
        with (
            StubCluster(Refusing(high_watermark=10_000)) as cluster,
            pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"),
        ):
            run_refused(spark, cluster, use, checkpoint)

    variable = udf(lambda _: os.environ.get(HIDE_TRACEBACK))
    rows = spark.range(0, 8, 1, numPartitions=8).select(variable("id")).distinct().collect()
    assert [row[0] for row in rows] == [None]
    report = division_fails(spark)
    assert "Traceback" in report
    assert "in <lambda>" in report


def test_a_write_from_another_thread_needs_register(spark: SparkSession) -> None:
    """
    Spark finds no data source for a write in a thread that has not called register, and says
    DATA_SOURCE_NOT_FOUND, as the page on operations does.
    """

    def save() -> None:
        rows = spark.range(1).selectExpr("'a' AS value").write.format("pykafka")
        rows.options(**BROKERS, topic="t").mode("append").save()

    with ThreadPoolExecutor(1) as threads, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        threads.submit(save).result()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE {name} USING pykafka OPTIONS (`kafka.bootstrap.servers` 'b:1', topic 't')",
        "CREATE TABLE {name} USING pykafka TBLPROPERTIES ('kafka.bootstrap.servers' = 'b:1')",
        "CREATE TABLE {name} USING pykafka",
        "CREATE TABLE {name} USING pykafka OPTIONS (topic 't') AS SELECT 'a' AS value",
    ],
)
def test_a_table_is_refused_when_it_is_created(spark: SparkSession, text: str) -> None:
    """
    CREATE TABLE is an error, since Spark would not pass the options on; it names the alternative.
    """
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW name USING pykafka"):
        spark.sql(text.format(name="refused"))

    assert not spark.catalog.tableExists("refused")


def test_a_table_with_columns_is_refused_when_it_is_used(spark: SparkSession) -> None:
    """
    A table with columns, which Spark creates without calling the data source, is an error when it
    is used.
    """
    spark.sql("CREATE TABLE made (value BINARY) USING pykafka OPTIONS (subscribe 't')")
    try:
        for text in ("SELECT * FROM made", "INSERT INTO made VALUES (X'00')"):
            with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW name USING pykafka"):
                spark.sql(text).collect()
    finally:
        spark.sql("DROP TABLE made")


def test_a_temporary_view_keeps_its_options(spark: SparkSession) -> None:
    """
    A view of SQL reads with the options that it was created with.
    """
    with StubCluster(Behaviour(high_watermark=7)) as cluster:
        spark.sql(
            "CREATE TEMPORARY VIEW flights USING pykafka OPTIONS "
            f"(`kafka.bootstrap.servers` '{cluster.bootstrap}', subscribe 't')"
        )
        try:
            rows = spark.sql("SELECT CAST(value AS STRING) FROM flights ORDER BY offset").collect()
        finally:
            spark.catalog.dropTempView("flights")

    assert [row[0] for row in rows] == [f"v{number}" for number in range(7)]


@pytest.mark.smoke
@pytest.mark.usefixtures("no_names")
def test_spark_masks_logins(spark: SparkSession, checkpoint: str) -> None:
    """
    With the setting that `pykafka doctor` recommends, Spark shows no login, neither in the plan of
    a statement nor in the error of a stream whose write fails. The connector's part of that error
    is one line.
    """
    logins = {
        "kafka.sasl.username": "canary-1",
        "kafka.sasl.password": "canary-2",
        "kafka.sasl.jaas.config": 'PlainLoginModule required username="canary-3" password="c";',
        "kafka.ssl.key.pem": "canary-4",
        "schema.registry.basic.auth.user.info": "user:canary-5",
        "zookeeperDigest": "user:canary-6",
    }
    options = {**BROKERS, "topics": "t", **logins}
    # Spark copies the session's settings when a streaming query starts.
    spark.conf.set("spark.sql.redaction.options.regex", RECOMMENDED)
    try:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = rows.selectExpr("CAST(value AS STRING) AS value").writeStream.format("pykafka")
        writer = writer.options(**options, checkpointLocation=checkpoint)
        with pytest.raises(Exception, match="'topics' is not an option") as raised:
            writer.start().awaitTermination(120)
        spark.sql(CREATE_TABLE)
        plan = spark.sql(
            f"EXPLAIN EXTENDED SELECT * FROM misspelt WITH ({sql_options(options)})"  # noqa: S608
        ).collect()
    finally:
        spark.conf.unset("spark.sql.redaction.options.regex")

    assert "canary" not in str(raised.value)
    assert "canary" not in str(plan)
    assert "kafka.bootstrap.servers=127.0.0.1:1" in str(plan)
    lines = [line for line in report_of(raised.value) if "'topics' is not an option" in line]
    assert len(lines) == 1
