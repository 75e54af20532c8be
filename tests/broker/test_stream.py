"""
Streaming reads on a real broker: triggers, restarts from the checkpoint, and topics that grow.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from pyspark_pykafka.compat import TELLS_START
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


#: A tiny batch is read on the driver, but by tasks for a user who says how it is split over them.
both_ways = pytest.mark.parametrize("way", [{}, {"minPartitions": "1"}], ids=["driver", "tasks"])


@dataclass
class Stream:
    """
    A query that gathers (partition, offset, value) per batch; stopped and restarted at will.
    """

    spark: SparkSession
    options: dict[str, str]
    checkpoint: str
    batches: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    query: StreamingQuery | None = None
    fail: bool = False

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("pykafka").options(**self.options).load()
        writer = frame.writeStream.foreachBatch(self._gather)
        writer = writer.option("checkpointLocation", self.checkpoint)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def drain(self) -> list[str]:
        """
        Run to the end of what is there now, and return all values seen so far, sorted.
        """
        query = self.start(availableNow=True)
        assert query.awaitTermination(60), "the query did not end"
        return self.values

    def recover(self) -> list[str]:
        """
        Drain after a failure: on Spark 4.0 and 4.1 the first run replays the batch and ends.
        """
        self.drain()
        return self.drain()

    def _gather(self, frame: DataFrame, batch: int) -> None:
        rows = frame.selectExpr("partition", "offset", "cast(value as string) value").collect()
        if self.fail:
            msg = "planted failure"
            raise RuntimeError(msg)
        self.batches[batch] = [tuple(row) for row in rows]

    @property
    def values(self) -> list[str]:
        return sorted(v for rows in self.batches.values() for *_, v in rows)


@pytest.fixture
def stream(
    spark: SparkSession, kafka_cluster: KafkaCluster, checkpoint: str
) -> Iterator[Callable[..., Stream]]:
    """
    Return the way to make a stream; what still runs at the end is stopped.
    """
    made: list[Stream] = []

    def make(**options: Any) -> Stream:
        given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap, "startingOffsets": "earliest"}
        made.append(Stream(spark, {**given, **options}, checkpoint))
        return made[-1]

    yield make
    for each in made:
        if each.query is not None:
            each.query.stop()


def values(first: int, end: int) -> list[Record]:
    """
    Return records whose values are the numbers of a range.
    """
    return [Record(f"{i:04}".encode(), str(i).encode()) for i in range(first, end)]


def texts(first: int, end: int) -> list[str]:
    """
    Return what a stream has seen of the records of ``values``.
    """
    return [f"{i:04}" for i in range(first, end)]


@pytest.mark.smoke
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}])
def test_triggers_that_end(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    trigger: dict[str, bool],
) -> None:
    """
    Once and AvailableNow read what is there and end; the next run reads only what came since.
    """
    name = topic(partitions=3)
    kafka_cluster.produce(name, values(0, 50))
    query = stream(subscribe=name)

    assert query.start(**trigger).awaitTermination(60)
    assert query.values == texts(0, 50)
    kafka_cluster.produce(name, values(50, 60))
    assert query.start(**trigger).awaitTermination(60)
    assert query.values == texts(0, 60)


@both_ways
@pytest.mark.smoke
def test_processing_time_follows_the_topic(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    way: dict[str, str],
) -> None:
    """
    A running query picks up records as they come, and stops promptly when it is idle (S01).
    """
    name = topic(partitions=2)
    query = stream(subscribe=name, **way)
    running = query.start(processingTime="100 milliseconds")

    for step in range(3):
        kafka_cluster.produce(name, values(step * 10, step * 10 + 10))
        running.processAllAvailable()
        assert query.values == texts(0, step * 10 + 10)
    running.stop()
    assert not running.isActive


@both_ways
@pytest.mark.smoke
def test_restart_goes_on_where_it_stood(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    way: dict[str, str],
) -> None:
    """
    Records written while the query was down are read once, nothing is repeated (S02-S05).
    """
    name = topic(partitions=3)
    query = stream(subscribe=name, **way)
    for step in range(4):
        kafka_cluster.produce(name, values(step * 25, step * 25 + 25))
        assert query.drain() == texts(0, step * 25 + 25)


@both_ways
def test_failed_batch_is_read_again_exactly(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    way: dict[str, str],
) -> None:
    """
    The batch that failed is replayed with its own range, though the topic has grown since.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, values(0, 20))
    query = stream(subscribe=name, **way)
    query.drain()
    kafka_cluster.produce(name, values(20, 30))
    query.fail = True
    with pytest.raises(Exception, match="planted failure"):
        query.drain()
    query.fail = False
    kafka_cluster.produce(name, values(30, 40))

    assert query.recover() == texts(0, 40)
    assert [v for *_, v in sorted(query.batches[1], key=lambda r: r[2])] == texts(20, 30)


@both_ways
@pytest.mark.smoke
def test_first_batch_that_failed_starts_where_it_did(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    way: dict[str, str],
) -> None:
    """
    A query from latest whose first batch failed does not move its start to the latest of later.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 10))
    query = stream(subscribe=name, startingOffsets="latest", **way)
    query.fail = True
    running = query.start(processingTime="100 milliseconds")
    with pytest.raises(Exception, match="planted failure"):
        running.awaitTermination(60)
    query.fail = False
    kafka_cluster.produce(name, values(10, 15))

    assert query.recover() == texts(10, 15)


@both_ways
def test_lost_commit_log_entry_replays_the_batch(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    way: dict[str, str],
) -> None:
    """
    A driver that died after the sink and before the commit log reads the same batch again.
    """
    name = topic(partitions=2)
    query = stream(subscribe=name, **way)
    for step in range(2):
        kafka_cluster.produce(name, values(step * 10, step * 10 + 10))
        query.drain()
    before = dict(query.batches)
    commits = Path(query.checkpoint) / "commits"
    newest = max(int(p.name) for p in commits.iterdir() if p.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink()
    query.batches.pop(newest)
    kafka_cluster.produce(name, values(20, 25))

    assert query.recover() == texts(0, 25)
    assert sorted(query.batches[newest]) == sorted(before[newest])


@pytest.mark.smoke
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_added_partitions_are_read_from_their_start(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    *,
    running: bool,
) -> None:
    """
    Partitions that a topic gains are read from offset 0, with startingOffsets latest too (S12).
    """
    name = topic(partitions=2)
    query = stream(subscribe=name, startingOffsets="latest")
    active = query.start(processingTime="100 milliseconds")
    active.processAllAvailable()
    if not running:
        active.stop()
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap})
    admin.create_partitions([NewPartitions(name, 5)])[name].result(30)
    kafka_cluster.produce(name, [Record(f"{i:04}".encode(), partition=i % 5) for i in range(50)])
    if not running:
        active = query.start(processingTime="100 milliseconds")
    active.processAllAvailable()

    assert query.values == texts(0, 50)


def test_specific_offsets(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Offsets per partition, words' numbers included, choose the start of a new query (S06).
    """
    name = topic(partitions=3)
    kafka_cluster.produce(
        name, [Record(f"{p}{i}".encode(), partition=p) for p in range(3) for i in range(5)]
    )
    start = json.dumps({name: {"0": -2, "1": -1, "2": 3}})
    query = stream(subscribe=name, startingOffsets=start)

    assert query.drain() == ["00", "01", "02", "03", "04", "23", "24"]


def test_timestamps(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A time chooses the start of a new query; without a match it fails or starts at the end (S32).
    """
    name = topic()
    t0 = 1_700_000_000_000
    kafka_cluster.produce(
        name, [Record(f"{i:04}".encode(), timestamp=t0 + i * 1000) for i in range(10)]
    )
    assert stream(subscribe=name, startingTimestamp=t0 + 6500).drain() == texts(7, 10)
    query = stream(subscribe=name, startingTimestamp=t0 + 999_999)
    shutil.rmtree(query.checkpoint)
    with pytest.raises(Exception, match="No offset matched from request"):
        query.drain()


def test_aborted_records_at_the_end_do_not_stall(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
) -> None:
    """
    A range that ends in aborted records and markers is finished, and seen as read (M23).
    """
    name = topic()
    query = stream(subscribe=name, **{"kafka.isolation.level": "read_committed"})
    with transaction() as producer:
        producer.produce(name, value="0000")
        producer.commit_transaction(30)
        settled(name)
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(name, value="aborted")
        producer.flush(30)
        producer.abort_transaction(30)
        settled(name)
        assert query.drain() == ["0000"]
        producer.begin_transaction()
        producer.produce(name, value="0001")
        producer.commit_transaction(30)
        settled(name)
        producer.begin_transaction()
    assert query.drain() == ["0000", "0001"]


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_stream_has_no_end_option(
    stream: Callable[..., Stream], topic: Callable[..., str], option: str
) -> None:
    """
    An end for a stream is refused by name, never ignored (S36).
    """
    with pytest.raises(Exception, match=option):
        stream(subscribe=topic(), **{option: "latest"}).drain()


def test_idle_stream_runs_no_empty_batches(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Offsets that did not move are no new data.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, values(0, 5))
    query = stream(subscribe=name)

    for _ in range(3):
        query.drain()

    assert list(query.batches) == [0]


def test_checkpoint_of_the_first_batch_is_plain_otherwise(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Offsets in the checkpoint are those of the JVM connector; the first ones also keep the start.
    """
    name = topic()
    query = stream(subscribe=name)
    for step in range(2):
        kafka_cluster.produce(name, values(step * 3, step * 3 + 3))
        query.drain()

    logged = [
        json.loads((Path(query.checkpoint) / "offsets" / batch).read_text().splitlines()[2])
        for batch in ("0", "1")
    ]
    # Without being told the start, a query from earliest looks like one that is restarted.
    start = {"@initial": {name: {"0": 0}}} if TELLS_START else {}
    assert logged == [{name: {"0": 3}, **start}, {name: {"0": 6}}]
