"""
Exactly-once batch writes: all rows visible once, or none.
"""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from pyspark_pykafka.cli import main
from pyspark_pykafka.engines.transaction_contract import TransactionSpec
from pyspark_pykafka.engines.wire.producer.producer import write_in_transaction
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.delivery import ExactlyOnceBatch, SinkTask
from pyspark_pykafka.testing import ExternalCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

COMMITTED = {"isolation.level": "read_committed"}
COUNT = 3_000


@pytest.fixture
def name(topic: TopicFactory) -> str:
    """
    Return the name of a new topic of two partitions.
    """
    return topic(2)


@pytest.fixture
def write(kafka_cluster: KafkaCluster, name: str) -> Callable[..., None]:
    """
    Return a function that writes a frame exactly once, with the topic's name as the prefix.
    """

    def writing(frame: DataFrame, **options: Any) -> None:
        writer = frame.write.format("pykafka").mode("append").options(topic=name)
        writer = writer.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
        writer = writer.option("deliveryGuarantee", "exactly-once")
        sink_options = {"transactionalIdPrefix": name, **options}
        writer.options(**{k: v for k, v in sink_options.items() if v is not None}).save()

    return writing


def numbers(spark: SparkSession, tasks: int = 4) -> DataFrame:
    """
    Return one row for each number, in this many tasks.
    """
    return spark.range(0, COUNT, 1, tasks).select(sf.col("id").cast("string").alias("value"))


def seen(cluster: KafkaCluster, topic: str) -> list[int]:
    """
    Return the numbers that a plain read_committed reader finds.
    """
    return sorted(int(r.value or b"") for r in cluster.consume(topic, COMMITTED))


def open_transactions(cluster: KafkaCluster, prefix: str) -> list[str]:
    """
    Return the open transactions that `pykafka transactions` lists.
    """
    printed = StringIO()
    arguments = ["transactions", "list", "--bootstrap-server", cluster.bootstrap, "--json"]
    with redirect_stdout(printed):
        assert main([*arguments, "--prefix", prefix]) == 0
    return [entry["transactional_id"] for entry in json.loads(printed.getvalue())]


def wait_for_first_task(bootstrap: str, name: str) -> None:
    """
    Wait until the rows of the first of two tasks are in the log, committed or not.
    """
    broker = ExternalCluster(bootstrap)
    rows = {str(number).encode() for number in range(COUNT // 2)}

    def lacking() -> str | None:
        rest = len(rows - {record.value for record in broker.consume(name)})
        return f"{rest} of the first task's rows are not written" if rest else None

    wait_until(lacking, 30)


def prepare_one(bootstrap: str, name: str) -> None:
    """
    Leave a transaction open under the id of the first task's first attempt.
    """
    row = pa.RecordBatch.from_pydict({"value": [b"-1"]})
    kafka = KafkaSettings.of({"bootstrap.servers": bootstrap})
    write_in_transaction([row], kafka, name, TransactionSpec(f"{name}-0-0", 60_000))


def test_every_row_is_visible_once(
    spark: SparkSession, kafka_cluster: KafkaCluster, name: str, write: Callable[..., None]
) -> None:
    """
    The rows of several tasks are visible afterwards, and no transaction is left open.
    """
    write(numbers(spark))

    assert seen(kafka_cluster, name) == list(range(COUNT))
    assert open_transactions(kafka_cluster, name) == []


def test_writes_without_prefix_succeed_one_after_the_other(
    spark: SparkSession, kafka_cluster: KafkaCluster, name: str, write: Callable[..., None]
) -> None:
    """
    Two writes without a prefix succeed one after the other, and one of them has no rows.
    """
    write(numbers(spark), transactionalIdPrefix=None)
    write(numbers(spark).limit(0), transactionalIdPrefix=None)

    assert seen(kafka_cluster, name) == list(range(COUNT))


def test_a_failed_write_leaves_nothing_visible(
    spark: SparkSession, kafka_cluster: KafkaCluster, name: str, write: Callable[..., None]
) -> None:
    """
    If a task fails, the rows of finished tasks are aborted and block no reader; without
    transactions they stay visible.
    """

    def fail_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 3:
            msg = "planted"
            raise RuntimeError(msg)

    frame = numbers(spark).mapInArrow(fail_late, "value string")
    with pytest.raises(Exception, match="planted"):
        write(frame)

    # Spark cancels the other tasks, and does not wait until they have ended.
    wait_until(lambda: ", ".join(open_transactions(kafka_cluster, name)) or None, 30)
    assert seen(kafka_cluster, name) == []

    with pytest.raises(Exception, match="planted"):
        write(frame, deliveryGuarantee="at-least-once")
    assert seen(kafka_cluster, name) != []


def test_a_concurrent_write_with_the_same_prefix_fails(
    spark: SparkSession, kafka_cluster: KafkaCluster, name: str, write: Callable[..., None]
) -> None:
    """
    The later write takes over the ids; the first one detects that before it commits anything.
    """
    bootstrap = kafka_cluster.bootstrap

    def take_over(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 1:
            wait_for_first_task(bootstrap, name)
            prepare_one(bootstrap, name)

    frame = numbers(spark, tasks=2).mapInArrow(take_over, "value string")
    with pytest.raises(Exception, match="another write uses the same transactionalIdPrefix"):
        write(frame)

    assert seen(kafka_cluster, name) == []


def test_an_attempt_of_a_retried_stage(kafka_cluster: KafkaCluster, name: str) -> None:
    """
    An attempt of a retried stage does not abort the committed attempt that had the same attempt
    number (SPARK-24552).
    """
    options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "topic": name,
        "deliveryGuarantee": "exactly-once",
    }
    delivery = ExactlyOnceBatch(parse_sink(options, streaming=False))
    row = pa.RecordBatch.from_pydict({"value": [b"1"]})
    first, second = (delivery.write([row], SinkTask(0, 0, "", -1, attempt)) for attempt in (7, 8))
    assert first.committable is not None
    assert second.committable is not None
    delivery.commit([first], 1, -1)

    assert seen(kafka_cluster, name) == [1]
    prefix = first.committable.prepared[0].removesuffix("-0-0")
    assert open_transactions(kafka_cluster, prefix) == []


def test_transactions_of_a_dead_driver_can_be_aborted(
    kafka_cluster: KafkaCluster, name: str
) -> None:
    """
    The command aborts open transactions only with --execute, and nothing of them is visible.
    """
    prepare_one(kafka_cluster.bootstrap, name)
    assert open_transactions(kafka_cluster, name) == [f"{name}-0-0"]
    arguments = ["transactions", "abort", "--bootstrap-server", kafka_cluster.bootstrap]

    assert main([*arguments, "--prefix", name]) == 0
    assert open_transactions(kafka_cluster, name) == [f"{name}-0-0"]

    assert main([*arguments, "--prefix", name, "--execute"]) == 0
    assert open_transactions(kafka_cluster, name) == []
    assert seen(kafka_cluster, name) == []


def test_a_micro_batch_in_foreach_batch_is_at_least_once(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    name: str,
    write: Callable[..., None],
    tmp_path: Path,
) -> None:
    """
    A query that fails after its write repeats the micro-batch, and the rows are duplicated.
    """
    source = topic()
    kafka_cluster.produce(source, [Record(b"%d" % number) for number in range(3)])
    frame = spark.readStream.format("pykafka").option("subscribe", source)
    frame = frame.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
    rows = frame.option("startingOffsets", "earliest").load().select("value")
    batches: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        write(batch)
        batches.append(number)
        if len(batches) == 1:
            msg = "behind the write"
            raise RuntimeError(msg)

    writer = rows.writeStream.foreachBatch(take).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="behind the write"):
        writer.start().awaitTermination(60)
    assert writer.start().awaitTermination(60)

    assert batches == [0, 0]
    assert seen(kafka_cluster, name) == [0, 0, 1, 1, 2, 2]
    assert open_transactions(kafka_cluster, name) == []
