"""
Batch reads on a real broker that need no comparison with the JVM connector.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from pyspark.sql.functions import spark_partition_id
from tests.support.streams import add_partitions, recreate_topic

from pyspark_pykafka import register
from pyspark_pykafka.spark.compat import SPARK_VERSION
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

#: Since version 4.1, Spark plans a batch once for each ``load()`` or view, and not for each query:
#: the JVM object of the data source caches the plan.
KEEPS_BATCH_PLAN = SPARK_VERSION >= (4, 1)


@pytest.mark.smoke
def test_columns_and_types(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    The columns are those of the JVM connector, by name, order and type.
    """
    name = topic()
    kafka_cluster.produce(
        name, [Record(b"v", None, 0, 1_700_000_000_123, (("a", b"1"), ("b", None)))]
    )

    frame = load(subscribe=name, includeHeaders="true")

    assert [f"{n} {t}" for n, t in frame.dtypes] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]
    (row,) = frame.selectExpr("*", "unix_millis(timestamp) AS millis").collect()
    assert row.asDict(recursive=True) | {"timestamp": None} == {
        "key": None,
        "value": b"v",
        "topic": name,
        "partition": 0,
        "offset": 0,
        "timestamp": None,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        "millis": 1_700_000_000_123,
    }


@pytest.mark.smoke
def test_user_schema(
    spark: SparkSession, topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A user's schema selects columns in its own order, and reads text instead of bytes.
    """
    name = topic()
    kafka_cluster.produce(name, [Record("Zoë".encode(), b"k"), Record(None), Record(b"\xff\x41")])
    reader = spark.read.format("pykafka").schema("value string, offset bigint")
    frame = reader.options(
        **{"kafka.bootstrap.servers": kafka_cluster.bootstrap, "subscribe": name}
    ).load()

    assert frame.columns == ["value", "offset"]
    assert frame.where("offset < 2").collect() == [("Zoë", 0), (None, 1)]
    assert frame.where("offset = 2").selectExpr("hex(value)").collect() == [("FF41",)]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("vlaue binary", "did you mean 'value'"),
        ("offset int", "'offset' has type INT; it must be int64"),
        (
            "headers array<struct<key:string,value:binary>>",
            "set includeHeaders to true",
        ),
    ],
)
def test_impossible_schema(
    spark: SparkSession, kafka_cluster: KafkaCluster, schema: str, message: str
) -> None:
    """
    The error names a column that records do not have, or that has another type.
    """
    reader = spark.read.format("pykafka").schema(schema).option("subscribe", "t")
    frame = reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap).load()

    with pytest.raises(Exception, match=message):
        frame.collect()


@pytest.mark.smoke
def test_late_binding(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    A DataFrame that runs again reads records that arrived since, also if minPartitions splits the
    topic's partitions.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"a")] * 6)
    frames = [load(subscribe=name), load(subscribe=name, minPartitions=3)]
    assert [frame.count() for frame in frames] == [6, 6]

    kafka_cluster.produce(name, [Record(b"b")] * 2)

    assert [frame.count() for frame in frames] == [8, 8]


@pytest.mark.parametrize("engine", ["wire", pytest.param("librdkafka", marks=pytest.mark.soak)])
def test_a_recreated_topic_is_not_read_by_an_old_plan(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    load: Callable[..., DataFrame],
    engine: str,
) -> None:
    """
    A DataFrame keeps the topics of its plan: a recreated topic is data loss, or has no rows with
    failOnDataLoss=false, until a new load().
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"old")] * 6)
    # A topic counts as recreated once it has had another id for pollTimeoutMs.
    options = {"subscribe": name, "engine": engine, "kafkaConsumer.pollTimeoutMs": 3000}
    failing, allowing = load(**options), load(**options, failOnDataLoss="false")
    split = load(**options, minPartitions=3)
    frames = [failing, allowing, split]
    assert [len(frame.collect()) for frame in frames] == [6, 6, 6]

    recreate_topic(kafka_cluster, name)
    for records in ([], [Record(b"new")] * 9):
        if records:
            kafka_cluster.produce(name, records)
        assert allowing.collect() == []
        for frame in (failing, split):
            with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS.*recreated"):
                frame.collect()

    assert [bytes(row.value) for row in load(**options).collect()] == [b"new"] * 9


@pytest.mark.smoke
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": 3},
        {"startingOffsets": "-9"},
        {"latestPerKey": "true"},
        {"engine": "librdkafka"},
    ],
    ids=["plain", "split", "last offsets", "latest per key", "librdkafka"],
)
def test_added_partitions(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    load: Callable[..., DataFrame],
    options: dict[str, Any],
) -> None:
    """
    Each query on a DataFrame or view reads the partitions that the topic has at that time, although
    Spark 4.1 and later plan only the first query, and every version uses the plan of the first
    collect() for further ones.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"a", b"%d" % key) for key in range(6)])
    frame = load(subscribe=name, **options)
    frame.createOrReplaceTempView("grows")
    view = frame.sparkSession.sql("SELECT partition FROM grows WHERE value = 'b'")
    assert (frame.count(), view.count()) == (6, 0)
    assert len(frame.collect()) == 6

    add_partitions(kafka_cluster, name, 3)
    added = [(1, b"x"), (2, b"y"), (2, b"z")]
    kafka_cluster.produce(name, [Record(b"b", key, partition) for partition, key in added])

    assert (frame.count(), len(frame.collect())) == (9, 9)
    assert sorted(row.partition for row in view.collect()) == [1, 2, 2]
    assert frame.union(frame).count() == 18


@pytest.mark.skipif(not KEEPS_BATCH_PLAN, reason="Spark 4.0 resolves the options for each query")
def test_relative_positions_of_a_frame_that_is_used_again(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    load: Callable[..., DataFrame],
    spark: SparkSession,
) -> None:
    """
    A start or end relative to the present stays where the first query on a DataFrame found it. A
    new load() moves it, and so does a query that pushes a filter down.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"a")] * 6)
    options = {"subscribe": name, "startingOffsets": "-5"}
    last, earlier = load(**options), load(subscribe=name, endingOffsets="-2 offsets")
    assert (last.count(), earlier.count()) == (5, 4)

    kafka_cluster.produce(name, [Record(b"b")] * 3)

    assert (last.count(), earlier.count()) == (8, 4)
    assert load(**options).count() == 5
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert last.where("offset >= 0").count() == 5
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_topics_that_match_later(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    A DataFrame with subscribePattern reads topics created after its first query, even if no topic
    matched then.
    """
    prefix = topic()
    frame = load(subscribePattern=f"^{prefix}-")
    assert frame.count() == 0

    for name in (f"{prefix}-a", f"{prefix}-b"):
        kafka_cluster.create_topic(name)
        kafka_cluster.produce(name, [Record(b"x")] * 2)

    assert sorted(row.topic[-1] for row in frame.collect()) == ["a", "a", "b", "b"]


@pytest.mark.skipif(not KEEPS_BATCH_PLAN, reason="Spark 4.0 resolves the options for each query")
def test_added_partitions_of_a_read_with_fixed_limits(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    A read whose options name its partitions or its end stays the same when partitions are added.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"a")] * 6)
    first = json.dumps({name: {"0": 2}})
    frames = [
        load(subscribe=name, startingOffsets=first),
        load(subscribe=name, endingOffsets=first),
        load(assign=json.dumps({name: [0]})),
    ]
    assert [frame.count() for frame in frames] == [4, 2, 6]

    add_partitions(kafka_cluster, name, 2)
    kafka_cluster.produce(name, [Record(b"b", partition=1)])

    assert [frame.count() for frame in frames] == [4, 2, 6]


def test_a_topic_copied_into_itself(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    With an end in the future a batch ends where the logs end when it is planned: each record is
    copied once, although later tasks find copies that earlier ones have written.
    """
    name = topic(partitions=6)
    kafka_cluster.produce(name, [Record(b"%d" % i, partition=i % 6) for i in range(60)])
    frame = load(subscribe=name, endingOffsets="2100-01-01T00:00:00Z")

    # Most tasks write to a partition that a later task reads.
    rows = frame.selectExpr("value", "(partition + 1) % 6 AS partition")
    writer = rows.write.format("pykafka").mode("append")
    writer.option("kafka.bootstrap.servers", kafka_cluster.bootstrap).option("topic", name).save()

    assert load(subscribe=name).count() == 120


@pytest.mark.smoke
def test_nothing_to_read(
    load: Callable[..., DataFrame], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    An empty range and an empty topic return no rows and no error.
    """
    name = topic()
    assert load(subscribe=name).collect() == []
    kafka_cluster.produce(name, [Record(b"x")])
    start = json.dumps({name: {"0": 1}})

    assert load(subscribe=name, startingOffsets=start, endingOffsets=start).collect() == []


@pytest.mark.parametrize(
    "min_partitions",
    [None, *(pytest.param(minimum, marks=pytest.mark.soak) for minimum in (1, 13))],
)
def test_max_records_per_partition(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    load: Callable[..., DataFrame],
    min_partitions: int | None,
) -> None:
    """
    No task reads more than maxRecordsPerPartition, with or without minPartitions.
    """
    name = topic(partitions=3)
    kafka_cluster.produce(name, [Record(b"x", partition=i % 3) for i in range(30)])
    options = {} if min_partitions is None else {"minPartitions": min_partitions}

    frame = load(subscribe=name, maxRecordsPerPartition=4, **options)
    sizes = [r["count"] for r in frame.groupBy(spark_partition_id()).count().collect()]

    assert sum(sizes) == 30
    assert max(sizes) <= 4


def test_same_frame_twice_in_one_query(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    A union of a frame with itself has each row twice: two readers share no state.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, [Record(b"%d" % i, partition=i % 2) for i in range(20)])
    frame = load(subscribe=name)

    assert frame.union(frame).groupBy("value").count().select("count").distinct().collect() == [
        (2,)
    ]


def test_records_deleted_by_retention(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, rows: Callable[..., list[Row]]
) -> None:
    """
    Deleted offsets fail the read with an error that names partition and log start, or are skipped.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"%d" % i) for i in range(50)])
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap})
    for future in admin.delete_records([Position(name, 0, 30)]).values():
        future.result(30)
    options = {"subscribe": name, "startingOffsets": f'{{"{name}":{{"0":0}}}}'}

    offsets = rows(**options, failOnDataLoss="false")

    assert [row.offset for row in offsets] == list(range(30, 50))
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS.*-0.*offset 0 is out of range.*\[30, 50"):
        rows(**options)


def test_retention_after_a_split_plan(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    If retention deletes whole ranges of a split plan before their tasks run, they are skipped, or
    reported as data loss.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"%d" % i) for i in range(60)])
    frames = [
        load(subscribe=name, maxRecordsPerPartition=20, failOnDataLoss=fail)
        for fail in ("false", "true")
    ]
    assert [frame.count() for frame in frames] == [60, 60]
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap})
    for future in admin.delete_records([Position(name, 0, 45)]).values():
        future.result(30)

    assert frames[0].count() == 15
    # Spark 4.0 plans again, and then nothing is lost.
    if KEEPS_BATCH_PLAN:
        with pytest.raises(Exception, match="KAFKA_DATA_LOSS"):
            frames[1].count()


def test_end_beyond_the_log(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, rows: Callable[..., list[Row]]
) -> None:
    """
    An end beyond the log's end is retried, and then reported as data loss, in bounded time.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"x")] * 5)
    options = {"endingOffsets": f'{{"{name}":{{"0":9}}}}', "fetchOffset.retryIntervalMs": "100"}

    with pytest.raises(Exception, match="KAFKA_DATA_LOSS.*the log ends at offset 5"):
        rows(subscribe=name, **options)


@pytest.mark.soak
def test_a_thousand_partitions(
    topic: Callable[..., str], kafka_cluster: KafkaCluster, load: Callable[..., DataFrame]
) -> None:
    """
    A topic of 1,000 partitions is planned and read.
    """
    name = topic(partitions=1000)
    kafka_cluster.produce(name, [Record(b"x", partition=p) for p in range(0, 1000, 3)])

    frame = load(subscribe=name)

    assert frame.rdd.getNumPartitions() == 1000
    assert frame.count() == 334


def test_unreachable_brokers_fail_within_the_deadline(spark: SparkSession) -> None:
    """
    Without a broker at the address the read fails with an error instead of hanging.
    """
    reader = spark.read.format("pykafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    frame = reader.options(
        **{
            "subscribe": "t",
            "kafka.default.api.timeout.ms": "1000",
            "fetchOffset.numRetries": "1",
        }
    )

    with pytest.raises(Exception, match=r"(?i)reading the partitions of t"):
        frame.load().collect()


def test_secrets_stay_out_of_errors(spark: SparkSession, kafka_cluster: KafkaCluster) -> None:
    """
    The error for a wrong option does not print a password.
    """
    reader = spark.read.format("pykafka").options(
        **{
            "kafka.bootstrap.servers": kafka_cluster.bootstrap,
            "kafka.sasl.password": "canary-of-a-secret",
            "subscribe": "t",
            "startingOffset": "earliest",
        }
    )

    with pytest.raises(Exception, match="did you mean 'startingOffsets'") as caught:
        reader.load().collect()
    assert "canary" not in str(caught.value)


def test_register_for_sessions_that_ship_a_zip(
    spark: SparkSession,
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    rows: Callable[..., list[Any]],
) -> None:
    """
    register(), for sessions that ship the package as a ZIP file, also works if Spark has found the
    package already.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"x")])

    register(spark)

    assert len(rows(subscribe=name)) == 1
