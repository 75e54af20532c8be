"""
Batch and streaming writes on a real broker, judged by a plain client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Save = Callable[..., None]


@pytest.fixture
def save(kafka_cluster: KafkaCluster) -> Save:
    """
    Return a function that writes a DataFrame with pykafka, by default in append mode.
    """

    def saving(frame: DataFrame, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("pykafka").mode(mode).options(**options)
        writer.option("kafka.bootstrap.servers", kafka_cluster.bootstrap).save()

    return saving


@pytest.mark.smoke
def test_topic_option_and_column(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, save: Save
) -> None:
    """
    The column routes each row; the option, if set, overrides it for all rows.
    """
    first, second, third = topic(), topic(), topic()
    frame = spark.createDataFrame([(first, "a"), (second, "b")], "topic string, value string")

    save(frame)
    save(frame, topic=third)

    assert [r.value for r in kafka_cluster.consume(first)] == [b"a"]
    assert [r.value for r in kafka_cluster.consume(second)] == [b"b"]
    assert sorted(r.value or b"" for r in kafka_cluster.consume(third)) == [b"a", b"b"]


@pytest.mark.smoke
def test_every_column_is_written(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, save: Save
) -> None:
    """
    Key, value, headers, partition and timestamp are written as given; other columns are ignored.
    """
    name = topic(partitions=4)
    frame = spark.sql(
        """
        SELECT X'00FF' AS key, 'v' AS value, 3 AS partition, 'ignored' AS other,
               timestamp_millis(1700000000123) AS timestamp,
               array(named_struct('key', 'a', 'value', X'01'),
                     named_struct('key', 'a', 'value', CAST(NULL AS BINARY))) AS headers
        """
    )

    save(frame, topic=name)

    (record,) = kafka_cluster.consume(name)
    assert record == Record(
        b"v", b"\x00\xff", 3, 1_700_000_000_123, (("a", b"\x01"), ("a", None)), 0
    )


def test_null_and_empty(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, save: Save
) -> None:
    """
    Null and empty keys and values stay distinct, so tombstones can be written.
    """
    name = topic()
    contents = [None, b"", b"x"]
    frame = spark.createDataFrame(
        [(k, v) for k in contents for v in contents], "key binary, value binary"
    )

    save(frame.coalesce(1), topic=name)

    assert [(r.key, r.value) for r in kafka_cluster.consume(name)] == [
        (k, v) for k in contents for v in contents
    ]


@pytest.mark.parametrize(
    ("query", "options", "says"),
    [
        ("SELECT 'x' AS key", {"topic": "t"}, "column 'value' is missing"),
        ("SELECT 'x' AS value", {}, "no topic is given"),
        ("SELECT 1 AS value", {"topic": "t"}, "unsupported type of column 'value'.*INT"),
        ("SELECT 'x' AS value, 1 AS key", {"topic": "t"}, "unsupported type of column 'key'"),
        ("SELECT 'x' AS value, 1 AS topic", {}, "unsupported type of column 'topic'"),
        (
            "SELECT 'x' AS value, 'p' AS partition",
            {"topic": "t"},
            "unsupported type of column 'partition'",
        ),
        (
            "SELECT 'x' AS value, map('a', 1) AS headers",
            {"topic": "t"},
            "unsupported type of column 'headers'.*MAP",
        ),
        ("SELECT 'x' AS value", {"topic": "t", "kafka.key.serializer": "x"}, "key.serializer"),
        ("SELECT 'x' AS value", {"topic": "t", "kafka.value.serializer": "x"}, "value.serializer"),
        ("SELECT 'x' AS value", {"topik": "t"}, "did you mean 'topic'"),
    ],
)
def test_wrong_schemas_and_options(
    spark: SparkSession, save: Save, query: str, options: dict[str, str], says: str
) -> None:
    """
    Missing columns, columns of wrong types and wrong options are errors that name them.
    """
    with pytest.raises(Exception, match=f"(?s){says}"):
        save(spark.sql(query), **options)


def test_overwrite_is_refused(spark: SparkSession, save: Save) -> None:
    """
    A topic cannot be overwritten, and the error says what to use.
    """
    with pytest.raises(Exception, match="save mode is 'overwrite'; it must be 'append'"):
        save(spark.sql("SELECT 'x' AS value"), mode="overwrite", topic="t")


@pytest.mark.parametrize("mode", ["ignore", "errorifexists"])
def test_other_save_modes_are_refused(spark: SparkSession, save: Save, mode: str) -> None:
    """
    Spark itself rejects the other modes for a source without tables.
    """
    with pytest.raises(Exception, match="(?i)append"):
        save(spark.sql("SELECT 'x' AS value"), mode=mode, topic="t")


@pytest.mark.parametrize(
    ("query", "options", "says"),
    [
        (
            "SELECT CAST(NULL AS STRING) AS topic, 'k' AS key, 'x' AS value",
            {},
            "null topic present in the data",
        ),
        (
            "SELECT 'x' AS value",
            {"topic": "nowhere", "kafka.max.block.ms": "1500"},
            "topic 'nowhere' was not found within 1500 ms",
        ),
        (
            "SELECT 'k' AS key, 'x' AS value, 7 AS partition",
            {},
            "partition 7 cannot be written: the topic has the partitions 0 to 1",
        ),
        (
            "SELECT 'k' AS key, repeat('x', 2000000) AS value",
            {},
            "key b'k' for topic .* cannot be written.*max.request.size",
        ),
        (
            "SELECT 'x' AS value, timestamp_millis(0) AS timestamp",
            {},
            "INVALID_TIMESTAMP",
        ),
        (
            """
            SELECT 'x' AS value,
                   array(named_struct('key', CAST(NULL AS STRING), 'value', X'00')) AS headers
            """,
            {},
            "header without a key",
        ),
    ],
)
def test_bad_rows_fail_at_once(
    spark: SparkSession,
    topic: Callable[..., str],
    save: Save,
    query: str,
    options: dict[str, str],
    says: str,
) -> None:
    """
    A row that cannot be written fails the job, and the error says why.
    """
    if "AS topic" not in query:
        options = {"topic": topic(partitions=2), **options}
    with pytest.raises(Exception, match=f"(?s){says}"):
        save(spark.sql(query), **options)


def test_large_records_when_allowed(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, save: Save
) -> None:
    """
    With max.request.size, the Java client's name of the limit, an 8 MB record can be written.
    """
    name = topic(**{"max.message.bytes": "9000000"})

    save(
        spark.sql("SELECT repeat('x', 8388608) AS value"),
        topic=name,
        **{"kafka.max.request.size": "9000000"},
    )

    assert [len(r.value or b"") for r in kafka_cluster.consume(name)] == [8_388_608]


def test_small_buffer_blocks_and_loses_nothing(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, save: Save
) -> None:
    """
    1,000 records of 15 kB go through a buffer that holds few of them.
    """
    name = topic(partitions=2)
    frame = spark.range(1000).selectExpr("cast(id as string) key", "repeat('x', 15000) value")

    save(frame, topic=name, **{"kafka.buffer.memory": "32768"})

    keys = {r.key for r in kafka_cluster.consume(name)}
    assert keys == {str(i).encode() for i in range(1000)}


@pytest.mark.smoke
def test_stream_writes_what_it_reads(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, checkpoint: str
) -> None:
    """
    Topic to topic: every record arrives once with all its columns, over two runs.
    """
    source, target = topic(partitions=2), topic(partitions=2)
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    frame = (
        spark.readStream.format("pykafka")
        .options(**options, subscribe=source, startingOffsets="earliest", includeHeaders="true")
        .load()
        .select("key", "value", "partition", "timestamp", "headers")
    )
    for run in range(2):
        kafka_cluster.produce(source, [record(i) for i in range(run * 40, run * 40 + 40)])
        writer = frame.writeStream.format("pykafka").options(**options, topic=target)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start().awaitTermination(60)

    assert sorted(kafka_cluster.consume(target), key=partition_and_offset) == sorted(
        kafka_cluster.consume(source), key=partition_and_offset
    )


def record(i: int) -> Record:
    """
    Return a record that differs from all others in every column.
    """
    text = f"{i:04}".encode()
    header = (("h", text),) if i % 2 else ()
    return Record(text, b"k" + text, i % 2, 1_700_000_000_000 + i, header)


def partition_and_offset(record: Record) -> tuple[int | None, int | None]:
    """
    Return the sort key of a record's position.
    """
    return record.partition, record.offset


@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.soak), "complete"])
def test_output_modes(
    spark: SparkSession,
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    checkpoint: str,
    mode: str,
) -> None:
    """
    Append and complete are accepted and add records, as in the JVM sink.
    """
    source, target = topic(), topic()
    kafka_cluster.produce(source, [Record(b"a"), Record(b"b"), Record(b"a")])
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    reader = spark.readStream.format("pykafka").options(**options, subscribe=source)
    frame = reader.option("startingOffsets", "earliest").load()
    result = frame.selectExpr("value", "'1' as key")
    if mode != "append":
        result = frame.groupBy("value").count().selectExpr("value", "cast(count as string) key")
    writer = result.writeStream.format("pykafka").options(**options, topic=target).outputMode(mode)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(60)

    records = sorted((r.value, r.key) for r in kafka_cluster.consume(target))
    expected = [(b"a", b"1"), (b"a", b"1"), (b"b", b"1")]
    assert records == (expected if mode == "append" else [(b"a", b"2"), (b"b", b"1")])


def test_update_mode_is_refused_by_spark(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster, checkpoint: str
) -> None:
    """
    Spark has no update mode for Python sinks and says so; docs/migrating.md says what to do.
    """
    options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap}
    frame = spark.readStream.format("pykafka").options(**options, subscribe=topic()).load()
    query = frame.writeStream.format("pykafka").outputMode("update")
    query = query.options(**options, topic=topic())

    with pytest.raises(Exception, match="does not support Update mode"):
        query.option("checkpointLocation", checkpoint).start().awaitTermination(60)
