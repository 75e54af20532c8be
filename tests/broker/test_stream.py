"""
Streaming reads on a real broker: triggers, restarts from the checkpoint, added partitions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Stream, add_partitions, texts, values

from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

#: A small batch is read by the driver, or by tasks if the options set how it is split.
TASKS = {"minPartitions": "1"}
driver_and_tasks = pytest.mark.parametrize("reading", [{}, TASKS], ids=["driver", "tasks"])
#: Whoever reads, the offsets of a batch are the same: the smoke tests show both in `make test`.
driver_or_tasks = pytest.mark.parametrize(
    "reading",
    [pytest.param({}, id="driver"), pytest.param(TASKS, id="tasks", marks=pytest.mark.soak)],
)


@pytest.mark.smoke
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}])
def test_triggers_that_end(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    trigger: dict[str, bool],
) -> None:
    """
    Once and AvailableNow read up to the latest offsets and end; the next run reads new records.
    """
    name = topic(partitions=3)
    kafka_cluster.produce(name, values(0, 50))
    query = stream(subscribe=name)

    assert query.start(**trigger).awaitTermination(60)
    assert query.values == texts(0, 50)
    kafka_cluster.produce(name, values(50, 60))
    assert query.start(**trigger).awaitTermination(60)
    assert query.values == texts(0, 60)


@driver_or_tasks
@pytest.mark.smoke
def test_idle_query_stops_promptly(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    reading: dict[str, str],
) -> None:
    """
    A running query reads records as they arrive, and stops promptly when it is idle.
    """
    name = topic(partitions=2)
    query = stream(subscribe=name, **reading)
    running = query.start(processingTime="100 milliseconds")

    for step in range(3):
        kafka_cluster.produce(name, values(step * 10, step * 10 + 10))
        running.processAllAvailable()
        assert query.values == texts(0, step * 10 + 10)
    running.stop()
    assert not running.isActive


@driver_and_tasks
@pytest.mark.smoke
def test_restart_continues_from_the_checkpoint(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    reading: dict[str, str],
) -> None:
    """
    Records written while the query was stopped are read exactly once.
    """
    name = topic(partitions=3)
    query = stream(subscribe=name, **reading)
    for step in range(4):
        kafka_cluster.produce(name, values(step * 25, step * 25 + 25))
        assert query.drain() == texts(0, step * 25 + 25)


@driver_or_tasks
def test_failed_batch_is_replayed_exactly(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    reading: dict[str, str],
) -> None:
    """
    A failed batch is replayed with its own range, although the topic has grown since.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, values(0, 20))
    query = stream(subscribe=name, **reading)
    query.drain()
    kafka_cluster.produce(name, values(20, 30))
    query.fail = True
    with pytest.raises(Exception, match="planted failure"):
        query.drain()
    query.fail = False
    kafka_cluster.produce(name, values(30, 40))

    assert query.drain() == texts(0, 40)
    assert [v for *_, v in sorted(query.batches[1], key=lambda r: r[2])] == texts(20, 30)


@driver_and_tasks
@pytest.mark.smoke
def test_failed_first_batch_keeps_its_start(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    reading: dict[str, str],
) -> None:
    """
    A query that starts at latest keeps its start when its first batch has failed.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 10))
    query = stream(subscribe=name, startingOffsets="latest", **reading)
    query.fail = True
    running = query.start(processingTime="100 milliseconds")
    with pytest.raises(Exception, match="planted failure"):
        running.awaitTermination(60)
    query.fail = False
    kafka_cluster.produce(name, values(10, 15))

    assert query.drain() == texts(10, 15)


def test_failed_first_batch_restarts_after_partitions_were_added(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A failed first batch is read again from its start, although the partitions that the options name
    are no longer all of the topic's.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 10))
    query = stream(subscribe=name, startingOffsets=json.dumps({name: {"0": 4}}))
    query.fail = True
    running = query.start(processingTime="100 milliseconds")
    with pytest.raises(Exception, match="planted failure"):
        running.awaitTermination(60)
    query.fail = False
    add_partitions(kafka_cluster, name, 2)
    kafka_cluster.produce(name, [Record(b"0010", partition=1)])

    assert query.drain() == texts(4, 11)


@driver_or_tasks
def test_lost_commit_log_entry_replays_the_batch(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    reading: dict[str, str],
) -> None:
    """
    If the driver dies after the sink's write and before the entry in the commit log, the same batch
    is replayed.
    """
    name = topic(partitions=2)
    query = stream(subscribe=name, **reading)
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

    assert query.drain() == texts(0, 25)
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
    Added partitions are read from offset 0, even with startingOffsets=latest.
    """
    name = topic(partitions=2)
    query = stream(subscribe=name, startingOffsets="latest")
    active = query.start(processingTime="100 milliseconds")
    active.processAllAvailable()
    if not running:
        active.stop()
    add_partitions(kafka_cluster, name, 5)
    kafka_cluster.produce(name, [Record(f"{i:04}".encode(), partition=i % 5) for i in range(50)])
    if not running:
        active = query.start(processingTime="100 milliseconds")
    active.processAllAvailable()

    assert query.values == texts(0, 50)


# test_stream_matrix.py starts at offsets and at times, too, as Spark's own connector does.
@pytest.mark.soak
def test_specific_offsets(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Offsets by partition, with -1 and -2 for latest and earliest, start a new query.
    """
    name = topic(partitions=3)
    kafka_cluster.produce(
        name, [Record(f"{p}{i}".encode(), partition=p) for p in range(3) for i in range(5)]
    )
    start = json.dumps({name: {"0": -2, "1": -1, "2": 3}})
    query = stream(subscribe=name, startingOffsets=start)

    assert query.drain() == ["00", "01", "02", "03", "04", "23", "24"]


@pytest.mark.soak
def test_timestamps(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A timestamp starts a new query; a time after all records fails it.
    """
    name = topic()
    t0 = 1_700_000_000_000
    kafka_cluster.produce(
        name, [Record(f"{i:04}".encode(), timestamp=t0 + i * 1000) for i in range(10)]
    )
    assert stream(subscribe=name, startingTimestamp=t0 + 6500).drain() == texts(7, 10)
    query = stream(subscribe=name, startingTimestamp=t0 + 999_999)
    with pytest.raises(Exception, match="No offset matched from request"):
        query.drain()


def test_aborted_records_at_the_end_do_not_stall(
    stream: Callable[..., Stream],
    topic: Callable[..., str],
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
) -> None:
    """
    A range that ends in aborted records and markers is read to its end.
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


def test_idle_stream_runs_no_empty_batches(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Without new offsets no batch runs.
    """
    name = topic(partitions=2)
    kafka_cluster.produce(name, values(0, 5))
    query = stream(subscribe=name)

    for _ in range(3):
        query.drain()

    assert list(query.batches) == [0]


def test_checkpoint_has_the_jvm_format_and_reserved_keys(
    stream: Callable[..., Stream], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Logged offsets have the JVM connector's format with reserved keys; those of the first batch also
    hold its start.
    """
    name = topic()
    query = stream(subscribe=name)
    for step in range(2):
        kafka_cluster.produce(name, values(step * 3, step * 3 + 3))
        query.drain()

    first, second = query.logged_offsets()
    ids, epochs = first["@topicIds"], first["@leaderEpochs"]
    assert list(ids) == list(epochs) == [name]
    initial = {name: {"0": 0}, "@topicIds": ids}
    reserved = {"@topicIds": ids, "@leaderEpochs": epochs}
    assert first == {name: {"0": 3}, **reserved, "@initial": initial}
    assert second == {name: {"0": 6}, **reserved}
