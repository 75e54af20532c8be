"""
Mistakes of new users are reported early, and named, in every way to use the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import udf
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TOPIC_AUTHORIZATION_FAILED = 29
BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
READ = {**BROKERS, "subscribe": "t"}
MISSPELT = {**READ, "startingOffset": "earliest"}
TEXT = "'startingoffset' is not an option; did you mean 'startingOffsets'?"


def test_a_misspelt_option_is_found_at_load(spark: SparkSession) -> None:
    """
    A misspelt option is reported by load(), before a query runs, in a batch and in a stream.
    """
    for reader in (spark.read, spark.readStream):
        with pytest.raises(Exception, match="did you mean 'startingOffsets'") as raised:
            reader.format("pykafka").options(**MISSPELT).load()
        assert TEXT in str(raised.value)


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
        assert len(str(raised.value).strip().splitlines()) <= 3


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


@pytest.mark.parametrize("use", ["batch", "stream", "write"])
def test_an_error_in_a_task_has_no_traceback(
    spark: SparkSession, checkpoint: str, use: str
) -> None:
    """
    An expected error on an executor is one line in Spark's report, in a batch, a stream and a
    write; the Java lines around it are Spark's.
    """
    with StubCluster(Refusing(high_watermark=10_000)) as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap}
        read = {**options, "subscribe": "t", "startingOffsets": "earliest"}

        def batch() -> object:
            return spark.read.format("pykafka").options(**read).load().collect()

        def stream() -> None:
            rows = spark.readStream.format("pykafka").options(**read).load()
            writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination(120)

        def write() -> None:
            rows = spark.range(1).selectExpr("'a' AS value").write.format("pykafka")
            rows.options(**options, topic="t").mode("append").save()

        with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED") as raised:
            {"batch": batch, "stream": stream, "write": write}[use]()

    (line,) = {line for line in str(raised.value).splitlines() if "grant the permission" in line}
    assert "AuthorizationError: [" in line
    assert "Traceback" not in str(raised.value)


def test_errors_of_users_keep_their_traceback(spark: SparkSession) -> None:
    """
    The connector's short reports do not affect the code around them.
    """
    with pytest.raises(Exception, match="did you mean"):
        spark.read.format("pykafka").options(**MISSPELT).load()
    frame = spark.range(1).select(udf(lambda _: 1 // 0, "int")("id"))
    with pytest.raises(Exception, match="ZeroDivisionError") as raised:
        frame.collect()
    assert "Traceback" in str(raised.value)
    assert "in <lambda>" in str(raised.value)


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
