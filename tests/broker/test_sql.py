"""
SQL: views and tables of the format, and each statement of the page on SQL.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka import mount, register
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.plugin import unique_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster

RECORDS = [
    Record(key=key, value=value)
    for key, value in ((b"AA", b"one"), (b"AA", b"two"), (b"UA", b"three"))
]
PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
BLOCK = re.compile(r"```(sql|python)\n(.*?)```", re.DOTALL)


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[Callable[[str], DataFrame]]:
    """
    Return ``spark.sql``; the tables and views that it creates are dropped afterwards.
    """
    before = {table.name for table in spark.catalog.listTables()}
    yield spark.sql
    for table in spark.catalog.listTables():
        if table.name not in before:
            kind = "VIEW" if table.isTemporary else "TABLE"
            spark.sql(f"DROP {kind} `{table.name}`")
    spark.catalog.dropGlobalTempView("shared")
    spark.sql("DROP DATABASE IF EXISTS kafka CASCADE")


def values(cluster: KafkaCluster, name: str) -> list[bytes | None]:
    return sorted((record.value for record in cluster.consume(name)), key=lambda v: v or b"")


@pytest.mark.smoke
def test_the_page_on_sql(
    spark: SparkSession, sql: Callable[[str], DataFrame], kafka_cluster: KafkaCluster
) -> None:
    """
    Each statement of docs/sql.md runs unchanged, except for the broker's address.
    """
    for name in ("flights", "copies"):
        kafka_cluster.create_topic(name)
    kafka_cluster.produce("flights", RECORDS)
    results = []
    for language, text in BLOCK.findall(PAGE.read_text()):
        code = text.replace("localhost:9092", kafka_cluster.bootstrap)
        if language == "python":
            exec(code, {"spark": spark})  # noqa: S102 (our own page)
        else:
            results.append(sql(code).collect())

    assert sorted(tuple(row) for row in results[1]) == [("AA", 2), ("UA", 1)]
    assert values(kafka_cluster, "copies") == [b"ONE", b"THREE", b"TWO", b"v"]
    assert [row.value for row in sql("SELECT value FROM log").collect()].count("v") == 1
    sql("INSERT INTO log VALUES ('k', 'w')")
    assert values(kafka_cluster, "copies")[-1] == b"w"
    with pytest.raises(Exception, match="the save mode is 'overwrite'; it must be 'append'"):
        sql("INSERT OVERWRITE log VALUES ('k', 'x')")


def test_a_mounted_topic_is_queried_by_its_name(
    spark: SparkSession,
    sql: Callable[[str], DataFrame],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
) -> None:
    """
    Each topic that matches has a view, internal topics have none, and a view sees new records.
    """
    first, second = topic(), topic()
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}

    views = mount(spark, options, pattern=f"^({first}|{second})$", prefix="k-")
    assert views == tuple(sorted((f"k-{first}", f"k-{second}")))
    assert sql(f"TABLE `k-{second}`").count() == 0
    kafka_cluster.produce(second, [Record(value=b"new")])
    assert sql(f"TABLE `k-{second}`").count() == 1
    # The broker has the topics of all tests; a view without columns costs a Python process.
    everything = mount(spark, options, schema="value BINARY")
    assert {first, second} <= set(everything)
    assert not [name for name in everything if name.startswith("__")]
    with pytest.raises(OptionsError, match="assign is set; mount.. selects topics by"):
        mount(spark, {**options, "assign": "{}"})
    with pytest.raises(OptionsError, match="pushDownFilters is set; .* remove the option"):
        mount(spark, {**options, "pushdownFilters": "true"})


def test_topics_whose_views_would_have_one_name_are_refused(
    spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    """
    Kafka's names are case-sensitive, and Spark's names only if this is set: topics whose names
    differ only in case are named in one error, and no view is created. With case-sensitive names
    each topic has its view.
    """
    first, second = (unique_name("Mounted") for _ in range(2))
    clashing = [name for topic_name in (first, second) for name in (topic_name, topic_name.lower())]
    for name in clashing:
        kafka_cluster.create_topic(name)
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    pattern = f"^(?i:{first}|{second})$"
    before = {view.name for view in spark.catalog.listTables()}

    with pytest.raises(OptionsError, match="differ only in case") as caught:
        mount(spark, options, pattern=pattern)
    assert all(name in str(caught.value) for name in clashing)
    assert len(caught.value.mistakes) == 2
    assert {view.name for view in spark.catalog.listTables()} == before

    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        views = mount(spark, options, pattern=pattern)
        kafka_cluster.produce(first, [Record(value=b"new")])
        assert sorted(views) == sorted(clashing)
        assert [spark.table(f"`{name}`").count() for name in (first, first.lower())] == [1, 0]
        for name in views:
            spark.catalog.dropTempView(name)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.smoke
def test_a_topic_mounted_in_a_database(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Each topic that matches has a view in the database. A query in another session reads the records
    that exist when it starts, and resolves relative positions then, too.
    """
    first, second = topic(), topic()
    kafka_cluster.produce(first, [Record(value=b"a"), Record(value=b"it's")])
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "startingOffsets": "-1 offsets",
        # Quotes and backslashes are kept.
        "groupIdPrefix": r"it's \\ here",
    }
    names = {name: f"k_{re.sub('[^A-Za-z0-9_]', '_', name)}" for name in (first, second)}
    spark.sql("CREATE DATABASE topics")
    try:
        views = mount(
            spark,
            options,
            database="topics",
            pattern=f"^({first}|{second})$",
            prefix="k_",
            schema="value STRING",
        )
        assert views == tuple(names[name] for name in sorted(names))
        other = spark.newSession()
        query = f"SELECT value FROM topics.{names[first]}"  # noqa: S608
        assert [row.value for row in other.sql(query).collect()] == ["it's"]
        kafka_cluster.produce(first, [Record(value=b"new")])
        assert [row.value for row in other.sql(query).collect()] == ["new"]
        assert other.table(f"topics.{names[second]}").count() == 0
        with pytest.raises(OptionsError, match="kafka.sasl.password: the catalog stores"):
            mount(spark, {**options, "kafka.sasl.password": "p"}, database="topics")
    finally:
        spark.sql("DROP DATABASE topics CASCADE")


def test_tables_take_the_options_of_a_query(
    spark: SparkSession,
    sql: Callable[[str], DataFrame],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
) -> None:
    """
    A table is written with options by writeTo and saveAsTable, and read with options; reading it
    without them is an error.
    """
    name = topic()
    source_options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name}
    write = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "topic": name}
    row = spark.createDataFrame([("k", "a")], "key string, value string")

    sql("CREATE TABLE written (key STRING, value STRING) USING pykafka")
    row.writeTo("written").options(**write).append()
    row.write.format("pykafka").options(**write).mode("append").saveAsTable("saved")

    assert values(kafka_cluster, name) == [b"a", b"a"]
    assert spark.read.options(**source_options).table("written").count() == 2
    with pytest.raises(Exception, match="there are no options"):
        spark.table("saved").collect()


def test_a_global_view_is_for_all_sessions(
    spark: SparkSession,
    sql: Callable[[str], DataFrame],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
) -> None:
    """
    A global temporary view can be read in another session of the application.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(value=b"a")])
    sql(
        f"CREATE GLOBAL TEMPORARY VIEW shared USING pykafka OPTIONS "
        f"(`kafka.bootstrap.servers` '{kafka_cluster.bootstrap}', subscribe '{name}')"
    )

    assert spark.newSession().sql("SELECT * FROM global_temp.shared").count() == 1


def test_writes_from_another_thread(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, checkpoint: str
) -> None:
    """
    A thread that did not create the session can write rows and a stream, and it gets errors.
    """
    names = {"batch": topic(), "stream": topic(), "mistake": topic()}
    brokers = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    numbers = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def batch(name: str) -> None:
        numbers.write.format("pykafka").options(**brokers, topic=name).mode("append").save()

    def stream(name: str) -> None:
        rows = rate.selectExpr("CAST(value AS STRING) AS value").writeStream.format("pykafka")
        rows = rows.options(**brokers, topic=name, checkpointLocation=checkpoint)
        query = rows.trigger(availableNow=True).start()
        query.awaitTermination(120)
        query.stop()

    def mistake(name: str) -> None:
        numbers.write.format("pykafka").options(**brokers, topik=name).mode("append").save()

    def run(write: Callable[[str], None]) -> str:
        register(spark)
        try:
            write(names[write.__name__])
        except Exception as error:  # noqa: BLE001 (judged below)
            return str(error)
        return ""

    with ThreadPoolExecutor(3) as threads:
        errors = list(threads.map(run, (batch, stream, mistake)))

    assert errors[:2] == ["", ""]
    assert "did you mean 'topic'" in errors[2]
    assert values(kafka_cluster, names["batch"]) == [b"0"]
    assert values(kafka_cluster, names["stream"])[:1] == [b"0"]
