"""
Micro-batches that are read on the driver: the same records, byte for byte, as read by tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition as Position

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: With options on the number of tasks, tasks read even small batches.
TASKS = {"minPartitions": "1"}


@dataclass
class Batches:
    """
    A query that keeps the rows of each batch, and the number of its tasks.
    """

    spark: SparkSession
    options: dict[str, str]
    checkpoint: str
    schema: str | None = None
    rows: dict[int, list[Row]] = field(default_factory=dict)
    tasks: dict[int, int] = field(default_factory=dict)
    query: StreamingQuery | None = None
    before: Callable[[], None] = lambda: None

    def run(self) -> list[Row]:
        """
        Read up to the latest offsets; return all rows read so far, in the order of the log.
        """
        reader = self.spark.readStream.format("pykafka").options(**self.options)
        frame = (reader.schema(self.schema) if self.schema else reader).load()
        writer = frame.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", self.checkpoint)
        self.query = writer.trigger(availableNow=True).start()
        assert self.query.awaitTermination(60), "the query did not end"
        return sorted((row for rows in self.rows.values() for row in rows), key=str)

    def _keep(self, frame: DataFrame, batch: int) -> None:
        self.before()
        self.tasks[batch] = frame.rdd.getNumPartitions()
        self.rows[batch] = frame.collect()

    @property
    def reported_rows(self) -> list[int]:
        """
        The numbers of rows that Spark reports for the batches of the last run.
        """
        assert self.query is not None
        return [p["numInputRows"] for p in self.query.recentProgress]


@pytest.fixture
def batches(
    spark: SparkSession, kafka_cluster: KafkaCluster, checkpoint: str
) -> Iterator[Callable[..., Batches]]:
    """
    Return a function that creates a query with its own checkpoint.
    """
    created: list[Batches] = []

    def make(schema: str | None = None, **options: Any) -> Batches:
        base = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "startingOffsets": "earliest"}
        created.append(Batches(spark, {**base, **options}, f"{checkpoint}-{len(created)}", schema))
        return created[-1]

    yield make
    for batch in created:
        if batch.query is not None:
            batch.query.stop()


def forget_blocks(spark: SparkSession) -> int:
    """
    Remove the blocks in which Spark keeps prefetched records; return their number.
    """
    jvm: Any = spark._jvm
    storage = jvm.org.apache.spark.storage
    # The block manager is read from its field. To call a method, py4j would inspect all methods,
    # and in Spark 4.3 one refers to a library that Spark does not ship.
    environment = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv")
    field = environment.getDeclaredField("blockManager")
    field.setAccessible(True)
    manager = field.get(spark.sparkContext._jsc.sc().env())
    numbers = [(stream, block) for stream in range(400) for block in range(1, 4)]
    blocks = [storage.PythonStreamBlockId(*pair) for pair in numbers]
    stored_blocks = [block for block in blocks if manager.getStatus(block).isDefined()]
    for block in stored_blocks:
        manager.removeBlock(block, True)  # noqa: FBT003 - Java has no keywords
    return len(stored_blocks)


def sparse_records() -> list[Record]:
    """
    Return records of three partitions, some without key, value or headers.
    """
    return [
        Record(
            value=None if i % 4 == 0 else b"\xff\x00 value %d" % i,
            key=None if i % 3 == 0 else b"\xfe key %d" % i,
            partition=i % 3,
            timestamp=1_700_000_000_000 + i,
            headers=(("a", b"\x00"), ("a", None), ("", b"")) if i % 2 else (),
        )
        for i in range(60)
    ]


@pytest.mark.smoke
@pytest.mark.parametrize("engine", ["auto", "librdkafka"])
@pytest.mark.parametrize(
    "schema",
    [None, "value BINARY", "offset BIGINT, key STRING, value STRING", "headers"],
    ids=["all", "value", "strings", "headers"],
)
def test_driver_and_tasks_read_the_same_rows(
    batches: Callable[..., Batches],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    schema: str | None,
    engine: str,
) -> None:
    """
    The driver reads the rows that tasks read: nulls, headers, non-text bytes, and subsets of
    columns.
    """
    name = topic(partitions=3)
    kafka_cluster.produce(name, sparse_records())
    options = {"subscribe": name, "engine": engine, "includeHeaders": str(schema == "headers")}
    columns = None if schema == "headers" else schema
    driver, tasks = batches(columns, **options), batches(columns, **options, **TASKS)

    assert driver.run() == tasks.run()

    assert (driver.tasks[0], tasks.tasks[0]) == (1, 3)
    assert sum(driver.reported_rows) == sum(tasks.reported_rows) == 60


@pytest.mark.parametrize(
    "schema",
    [
        "value BINARY COMMENT 'what was sent'",
        pytest.param("key STRING COLLATE UTF8_LCASE", marks=pytest.mark.soak),
    ],
)
def test_schemas_without_driver_read(
    batches: Callable[..., Batches],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    schema: str,
) -> None:
    """
    Batches of a schema with a comment or a collation, which Arrow loses, are read by tasks.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, [Record(b"v", key=b"k", partition=i % 2) for i in range(4)])
    query = batches(schema, subscribe=name)

    assert len(query.run()) == 4
    assert query.tasks == {0: 2}


def test_small_and_large_batches_of_one_query(
    batches: Callable[..., Batches], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    In one query large batches are read by tasks, and small ones on the driver.
    """
    name = topic(partitions=2)
    query = batches("partition INT, offset BIGINT", subscribe=name)
    sizes = [10, 6_000, 10]
    for size in sizes:
        kafka_cluster.produce(name, [Record(b"x", partition=i % 2) for i in range(size)])
        query.run()

    assert list(query.tasks.values()) == [1, 2, 1]
    assert [len(rows) for rows in query.rows.values()] == sizes
    all_rows = {tuple(row) for rows in query.rows.values() for row in rows}
    assert all_rows == {(p, o) for p in range(2) for o in range(3_010)}


def test_few_large_records_go_to_one_task(
    batches: Callable[..., Batches], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A batch of few offsets and many bytes is not prefetched, but has only one task, since a replay
    of it may be prefetched.
    """
    name = topic(partitions=2)
    sent = [Record(bytes([i]) * 300_000, partition=i % 2) for i in range(20)]
    kafka_cluster.produce(name, sent)
    query = batches("value BINARY", subscribe=name)

    assert sorted(bytes(row.value) for row in query.run()) == [r.value for r in sent]
    assert query.tasks == {0: 1}


# test_stream_matrix.py deletes records under a query whose driver reads them, too.
@pytest.mark.soak
@pytest.mark.parametrize("allows_loss", [True, False])
def test_records_deleted_before_they_are_read(
    batches: Callable[..., Batches],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    *,
    allows_loss: bool,
) -> None:
    """
    Lost records fail the query or are skipped, depending on failOnDataLoss, as in a read by tasks.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, [Record(b"x", partition=i % 2) for i in range(10)])
    query = batches(
        "partition INT, offset BIGINT", subscribe=name, failOnDataLoss=str(not allows_loss)
    )
    query.run()
    kafka_cluster.produce(name, [Record(b"x", partition=i % 2) for i in range(20)])
    admin = kafka_cluster.admin()
    for future in admin.delete_records([Position(name, 0, 8)]).values():
        future.result(30)

    if not allows_loss:
        with pytest.raises(Exception, match=rf"KAFKA_DATA_LOSS.*{name}-0.*offset 5 is out of ran"):
            query.run()
        return
    expected = {(0, o) for o in range(8, 15)} | {(1, o) for o in range(5, 15)}
    query.run()
    assert {tuple(row) for row in query.rows[1]} == expected


# test_stream_matrix.py has batches without a record, too: test_transactions_count_as_offsets.
@pytest.mark.soak
def test_batch_of_markers_only(
    batches: Callable[..., Batches],
    topic: Callable[..., str],
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
) -> None:
    """
    Offsets without a record make an empty batch, and the query continues after it.
    """
    name = topic()
    query = batches("value STRING", subscribe=name, **{"kafka.isolation.level": "read_committed"})
    with transaction() as producer:
        producer.produce(name, value="first")
        producer.commit_transaction(30)
        settled(name)
        query.run()
        producer.begin_transaction()
        producer.produce(name, value="aborted")
        producer.flush(30)
        producer.abort_transaction(30)
        settled(name)
        query.run()
        producer.begin_transaction()
        producer.produce(name, value="second")
        producer.commit_transaction(30)
        settled(name)
        producer.begin_transaction()

    assert [row.value for row in query.run()] == ["first", "second"]


# test_stream_matrix.py splits such batches, too: test_min_partitions.
@pytest.mark.soak
@pytest.mark.parametrize("options", [{"minPartitions": "4"}, {"maxRecordsPerPartition": "3"}])
def test_split_options_are_kept(
    batches: Callable[..., Batches],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    options: dict[str, str],
) -> None:
    """
    With options that split partitions, even small batches are split over tasks.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, [Record(b"x", partition=i % 2) for i in range(12)])
    query = batches(subscribe=name, **options)

    assert len(query.run()) == 12
    assert query.tasks == {0: 4}


def test_lost_blocks_are_read_by_the_task(
    batches: Callable[..., Batches],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    spark: SparkSession,
) -> None:
    """
    If the block of prefetched records is lost, the task reads the same ranges itself.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, [Record(b"%d" % i, partition=i % 2) for i in range(10)])
    query = batches("value STRING", subscribe=name)
    forgotten_counts: list[int] = []
    query.before = lambda: forgotten_counts.append(forget_blocks(spark))

    assert [row.value for row in query.run()] == [str(i) for i in range(10)]
    assert (forgotten_counts, query.tasks) == ([1], {0: 1})
