"""
Streaming reads that the test suites of Spark's own Kafka connector check, with both connectors.

If Spark's JVM connector can run, each test runs it on the same topics as pykafka, and expects the
same results of both, or names the difference.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from tests.conftest import JVM_CONNECTOR_SPARK
from tests.support.streams import (
    Stream,
    add_partitions,
    delete_topic,
    recreate_topic,
    texts,
    values,
)

from pyspark_pykafka.spark.compat import PASSES_START_OFFSET
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 5
T0 = 1_700_000_000_000
STARTS = ("latest", "earliest", "offsets", "times", "time")

#: Before 4.2 an availableNow run is one batch, so nothing can happen between two batches.
one_batch_before_4_2 = pytest.mark.skipif(
    not PASSES_START_OFFSET,
    reason="Spark before 4.2 runs availableNow as one batch for Python sources",
)


@dataclass
class Pair:
    """
    The same query with both connectors, or with pykafka alone if the other cannot run.
    """

    streams: list[Stream] = field(default_factory=list)

    def run(self, **trigger: Any) -> None:
        """
        Start all queries.
        """
        for stream in self.streams:
            stream.start(**trigger)

    def await_values(self, expected: list[str]) -> None:
        """
        Wait until each query has read exactly these values.
        """
        for stream in self.streams:
            stream.await_values(expected)

    def drain(self) -> list[str]:
        """
        Run each query up to the latest offsets, and return the values that all have read.
        """
        for stream in self.streams:
            stream.drain()
        return self.agreed()

    def await_idle(self) -> None:
        """
        Wait until each query has read all records.
        """
        for stream in self.streams:
            assert stream.query is not None
            stream.query.processAllAvailable()

    def agreed(self) -> list[str]:
        """
        Return the values that the queries have read; they must be the same.
        """
        first, *others = (stream.values for stream in self.streams)
        for other in others:
            assert other == first
        return first

    def stop(self) -> None:
        """
        Stop all queries.
        """
        for stream in self.streams:
            stream.stop()


@pytest.fixture
def pair(stream: Callable[..., Stream]) -> Callable[..., Pair]:
    """
    Return a function that makes a query with both connectors.
    """

    def make(**options: Any) -> Pair:
        streams = [stream(**options)]
        if pyspark.__version__ == JVM_CONNECTOR_SPARK:
            streams.append(stream("kafka", **options))
        return Pair(streams)

    return make


def numbered(partition: int, *numbers: int) -> list[Record]:
    """
    Return records for one partition, with timestamps that grow with the numbers.
    """
    return [Record(str(n).encode(), partition=partition, timestamp=T0 + 1000 * n) for n in numbers]


def strings(*numbers: int) -> list[str]:
    """
    Return the values of these records, sorted as text.
    """
    return sorted(map(str, numbers))


def strategy_of(kind: str, topic: str) -> dict[str, str]:
    """
    Return the options that select a topic in one of the three ways.
    """
    return {
        "assign": {"assign": json.dumps({topic: list(range(PARTITIONS))})},
        "subscribe": {"subscribe": topic},
        "subscribePattern": {"subscribePattern": f"^{topic[:-1]}.$"},
    }[kind]


def start_of(kind: str, topic: str) -> tuple[dict[str, str], set[int]]:
    """
    Return the options of a start, and the existing numbers that it selects.

    Partition p holds the numbers 10*p to 10*p + 4 at the offsets 0 to 4.
    """
    offsets = {0: -2, 1: -1, 2: 0, 3: 1, 4: 2}
    times = {p: T0 + 1000 * (10 * p + p) for p in range(PARTITIONS)}
    everything = {10 * p + n for p in range(PARTITIONS) for n in range(5)}
    return {
        "latest": ({"startingOffsets": "latest"}, set[int]()),
        "earliest": ({"startingOffsets": "earliest"}, everything),
        "offsets": (
            {"startingOffsets": json.dumps({topic: offsets})},
            {0, 1, 2, 3, 4, 20, 21, 22, 23, 24, 31, 32, 33, 34, 42, 43, 44},
        ),
        "times": (
            {"startingOffsetsByTimestamp": json.dumps({topic: times})},
            {n for n in everything if n % 10 >= n // 10},
        ),
        "time": ({"startingTimestamp": str(T0)}, everything),
    }[kind]


@pytest.mark.parametrize(
    ("strategy", "starts"),
    [
        pytest.param("subscribe", STARTS[2:], id="subscribe-offsets-times"),
        pytest.param("subscribePattern", STARTS[:2], id="subscribePattern-latest-earliest"),
        *(
            pytest.param(strategy, starts, id=f"{strategy}-{name}", marks=pytest.mark.soak)
            for strategy, starts, name in (
                ("assign", STARTS[:2], "latest-earliest"),
                ("assign", STARTS[2:], "offsets-times"),
                ("subscribe", STARTS[:2], "latest-earliest"),
                ("subscribePattern", STARTS[2:], "offsets-times"),
            )
        ),
    ],
)
def test_starts_added_partitions_and_restarts(
    pair: Callable[..., Pair],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    strategy: str,
    starts: tuple[str, ...],
) -> None:
    """
    Queries start at their starting offsets, read added partitions, and continue after a
    restart with the records written meanwhile; nothing is lost or duplicated.
    """
    name = topic(PARTITIONS)
    for p in range(PARTITIONS):
        kafka_cluster.produce(name, numbered(p, *range(10 * p, 10 * p + 5)))
    queries, selected = [], []
    for number, starting in enumerate(starts):
        options, numbers = start_of(starting, name)
        fails = {"failOnDataLoss": "true" if number % 2 else "false"}
        queries.append(pair(**strategy_of(strategy, name), **options, **fails))
        selected.append(numbers)
    for query in queries:
        query.run()
    for query in queries:
        # The first batch is planned before more records are written.
        query.await_idle()
    kafka_cluster.produce(name, numbered(0, 100, 101) + numbered(4, 140))
    added = {100, 101, 140}
    if strategy != "assign":
        add_partitions(kafka_cluster, name, 2 * PARTITIONS)
        kafka_cluster.produce(name, numbered(7, 170, 171))
        added |= {170, 171}
    for query, numbers in zip(queries, selected, strict=True):
        query.await_values(strings(*numbers, *added))
        query.stop()
    kafka_cluster.produce(name, numbered(1, 211, 212))
    for query in queries:
        query.run()
    for query, numbers in zip(queries, selected, strict=True):
        query.await_values(strings(*numbers, *added, 211, 212))


@pytest.mark.parametrize(
    ("strategy", "is_global"),
    [
        pytest.param("subscribe", True, id="subscribe-global"),
        pytest.param("subscribePattern", False, id="subscribePattern-per partition"),
        pytest.param("subscribe", False, id="subscribe-per partition", marks=pytest.mark.soak),
        pytest.param(
            "subscribePattern", True, id="subscribePattern-global", marks=pytest.mark.soak
        ),
    ],
)
def test_times_without_a_match(
    pair: Callable[..., Pair],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    strategy: str,
    *,
    is_global: bool,
) -> None:
    """
    A partition without a record at or after the starting time fails the query; with the
    strategy latest it is read from its end.
    """
    name = topic(PARTITIONS)
    kafka_cluster.produce(name, numbered(0, 1, 2) + numbered(1, 50))
    late = T0 + 10_000
    times = json.dumps({name: dict.fromkeys(range(PARTITIONS), late)})
    start = {"startingTimestamp": late} if is_global else {"startingOffsetsByTimestamp": times}
    options = {**strategy_of(strategy, name), **start}
    for stream in pair(**options).streams:
        with pytest.raises(Exception, match="No offset matched from request"):
            stream.drain()

    queries = pair(**options, startingOffsetsByTimestampStrategy="latest")
    queries.run()
    queries.await_values(["50"])
    kafka_cluster.produce(name, numbered(0, 23) + numbered(3, 24))
    queries.await_values(strings(50, 23, 24))


def test_available_now_in_several_batches(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    15 records with five per trigger are read in three batches, and the run ends.
    """
    name = topic(PARTITIONS)
    for p in range(PARTITIONS):
        kafka_cluster.produce(name, numbered(p, *range(10 * p, 10 * p + 3)))
    queries = pair(subscribe=name, maxOffsetsPerTrigger=5)

    assert len(queries.drain()) == 15
    assert [stream.sizes for stream in queries.streams] == [[5, 5, 5]] * len(queries.streams)


@one_batch_before_4_2
@pytest.mark.parametrize(
    ("partitions", "records", "complaint"),
    [
        (3, 20, "(?s)LOST_TOPIC_PARTITIONS_IN_END_OFFSET|Some of partitions.*lost"),
        (5, 1, "available offset which is less than|END_OFFSET_HAS_GREATER_OFFSET"),
    ],
    ids=["fewer-partitions", "fewer-records"],
)
def test_available_now_with_a_lost_end(
    pair: Callable[..., Pair],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    partitions: int,
    records: int,
    complaint: str,
) -> None:
    """
    A topic recreated between two batches of a run, with fewer partitions or records,
    fails the run with an error that names them.
    """
    for stream in pair(maxOffsetsPerTrigger=5).streams:
        name = topic(PARTITIONS)
        stream.options["subscribe"] = name
        for p in range(PARTITIONS):
            kafka_cluster.produce(name, numbered(p, *range(3)))
        _recreate_after_first_batch(stream, kafka_cluster, name, partitions, records)

        with pytest.raises(Exception, match=complaint):
            stream.drain()


def _recreate_after_first_batch(
    stream: Stream, kafka: KafkaCluster, name: str, partitions: int, records: int
) -> None:
    gather = stream._gather

    def recreating(frame: Any, batch: int) -> None:
        gather(frame, batch)
        if batch == 0:
            recreate_topic(kafka, name, partitions)
            for p in range(partitions):
                kafka.produce(name, numbered(p, *range(records)))

    stream._gather = recreating  # type: ignore[method-assign]


def test_restart_right_after_the_start(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    A query that starts at latest keeps its start if it is stopped before its first record.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 5))
    queries = pair(subscribe=name, startingOffsets="latest")
    queries.run()
    queries.await_idle()
    queries.stop()
    kafka_cluster.produce(name, values(5, 8))

    queries.run()
    queries.await_values(texts(5, 8))


def test_limit_of_the_largest_java_long(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    The largest possible limit reads everything, without an overflow.
    """
    name = topic(3)
    kafka_cluster.produce(name, values(0, 30))

    assert pair(subscribe=name, maxOffsetsPerTrigger=2**63 - 1).drain() == texts(0, 30)


def _uneven(kafka: KafkaCluster, name: str) -> None:
    kafka.produce(name, numbered(0, *range(100, 201)))
    kafka.produce(name, numbered(1, *range(10, 21)))
    kafka.produce(name, numbered(2, 1))


def test_limit_is_divided_in_proportion(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    101, 11 and 1 records under a limit of 10 are divided in proportion, at least one each. From
    Spark 4.2 on, the trigger Once ignores the limit.
    """
    name = topic(3)
    _uneven(kafka_cluster, name)
    queries = pair(subscribe=name, maxOffsetsPerTrigger=10)

    queries.drain()
    firsts = [
        [sorted(v for *_, v in stream.batches[b]) for b in (0, 1)] for stream in queries.streams
    ]
    assert firsts[0] == [
        strings(1, 10, *range(100, 108)),
        strings(11, *range(108, 117)),
    ]
    assert all(first == firsts[0] for first in firsts)
    assert len({tuple(stream.sizes) for stream in queries.streams}) == 1

    kafka_cluster.produce(name, numbered(0, *range(300, 350)))
    before = len(queries.streams[0].batches)
    queries.run(once=True)
    for stream in queries.streams:
        assert stream.query is not None
        assert stream.query.awaitTermination(60)
        assert stream.sizes[before:] == [50 if PASSES_START_OFFSET else 10]


def test_limit_holds_in_a_running_query(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    No batch of a running query exceeds the limit by more than one record per partition.
    """
    name = topic(3)
    _uneven(kafka_cluster, name)
    queries = pair(subscribe=name, maxOffsetsPerTrigger=10)
    queries.run()

    queries.await_values(strings(1, *range(10, 21), *range(100, 201)))
    for stream in queries.streams:
        assert max(stream.sizes) <= 12
        assert len([size for size in stream.sizes if size]) >= 11


def test_min_offsets_or_max_delay(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    The first batch runs at once; later ones with 15 records, or after the delay.
    """
    name = topic(3)
    kafka_cluster.produce(name, values(0, 3))
    queries = pair(subscribe=name, minOffsetsPerTrigger=15, maxTriggerDelay="8s")
    queries.run()
    queries.await_values(texts(0, 3))
    kafka_cluster.produce(name, values(3, 17))
    # A single record reaches the minimum: several would become visible one partition at a time.
    kafka_cluster.produce(name, values(17, 18))
    queries.await_values(texts(0, 18))
    # Two records are too few; the delay ends the wait.
    kafka_cluster.produce(name, values(18, 20))
    queries.await_values(texts(0, 20))
    for stream in queries.streams:
        assert [size for size in stream.sizes if size] == [3, 15, 2]


def test_min_and_max_offsets(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    With a minimum and a maximum, no batch exceeds the maximum.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 50))
    limits = {"minOffsetsPerTrigger": 15, "maxOffsetsPerTrigger": 20, "maxTriggerDelay": "3s"}
    queries = pair(subscribe=name, **limits)
    queries.run()

    queries.await_values(texts(0, 50))
    for stream in queries.streams:
        assert [size for size in stream.sizes if size] == [20, 20, 10]


def test_progress_counts_the_records(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Spark's progress counts exactly the records read.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 3))
    queries = pair(subscribe=name)
    queries.run(availableNow=True)

    for stream in queries.streams:
        assert stream.query is not None
        assert stream.query.awaitTermination(60)
        assert sum(p["numInputRows"] for p in stream.query.recentProgress) == 3


@pytest.mark.skipif(not PASSES_START_OFFSET, reason="Spark calls reportLatestOffset from 4.2 on")
def test_progress_shows_the_latest_offsets(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    The progress has the latest offset of each partition, from which the lag follows.
    """
    name = topic(2)
    kafka_cluster.produce(name, numbered(0, *range(7)) + numbered(1, 1))
    queries = pair(subscribe=name, maxOffsetsPerTrigger=4)
    queries.drain()

    for stream in queries.streams:
        assert stream.query is not None
        latest = [p["sources"][0]["latestOffset"] for p in stream.query.recentProgress]
        latest = [json.loads(text) if isinstance(text, str) else text for text in latest]
        assert latest[0] == {name: {"0": 7, "1": 1}}


def _transactions(
    transaction: Callable[[], Any], settled: Callable[[str], None], name: str
) -> None:
    """
    Write transactions into a partition; each value is the record's offset.
    """
    with transaction() as producer:
        offset = 0
        for count, commits in ((5, True), (5, False), (5, True), (1, True), (1, True), (2, True)):
            for _ in range(count):
                producer.produce(name, value=str(offset))
                offset += 1
            producer.flush(30)
            end = producer.commit_transaction if commits else producer.abort_transaction
            end(30)
            settled(name)
            offset += 1
            producer.begin_transaction()


@pytest.mark.parametrize(
    "isolation", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.soak)]
)
def test_transactions_count_as_offsets(
    pair: Callable[..., Pair],
    topic: Callable[..., str],
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
    isolation: str,
) -> None:
    """
    Three offsets per trigger count markers and aborted records, so batches can be empty,
    or start with, end with or contain an offset without a visible record.
    """
    name = topic()
    _transactions(transaction, settled, name)
    queries = pair(subscribe=name, maxOffsetsPerTrigger=3, **{"kafka.isolation.level": isolation})
    queries.drain()

    aborted = isolation == "read_uncommitted"
    for stream in queries.streams:
        batches = [
            tuple(sorted(o for _, o, _ in rows)) for _, rows in sorted(stream.batches.items())
        ]
        assert batches == [
            (0, 1, 2),
            (3, 4),
            (6, 7, 8) if aborted else (),
            (9, 10) if aborted else (),
            (12, 13, 14),
            (15, 16),
            (18, 20),
            (22, 23),
            (),
        ]


def test_nulls_in_a_transaction(
    pair: Callable[..., Pair],
    topic: Callable[..., str],
    transaction: Callable[[], Any],
    settled: Callable[[str], None],
) -> None:
    """
    Records without a key, without a value and without both are read.
    """
    name = topic()
    with transaction() as producer:
        for key, value in ((None, None), (b"k", None), (None, b"v")):
            producer.produce(name, key=key, value=value)
        producer.commit_transaction(30)
        settled(name)
        producer.begin_transaction()
    queries = pair(subscribe=name, **{"kafka.isolation.level": "read_committed"})
    for stream in queries.streams:
        rows: list[tuple[Any, Any]] = []

        def gather(frame: Any, _batch: int, into: list[tuple[Any, Any]] = rows) -> None:
            into += [(row.key, row.value) for row in frame.orderBy("offset").collect()]

        stream._gather = gather  # type: ignore[assignment, method-assign] # a default binds the list
        stream.start(availableNow=True).awaitTermination(60)
        assert rows == [(None, None), (b"k", None), (None, b"v")]


@pytest.mark.parametrize(
    ("min_partitions", "tasks"),
    [
        (6, 6),
        *(pytest.param(minimum, 3, marks=pytest.mark.soak) for minimum in (None, 1)),
    ],
)
def test_min_partitions(
    pair: Callable[..., Pair],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    min_partitions: int | None,
    tasks: int,
) -> None:
    """
    The option minPartitions splits partitions over more tasks; no record is lost or duplicated.
    """
    name = topic(3)
    for p in range(3):
        kafka_cluster.produce(name, numbered(p, *range(10 * p, 10 * p + 10)))
    # A batch of this size gets one task, unless the options set how to split it.
    split_options = (
        {"maxRecordsPerPartition": 10}
        if min_partitions is None
        else {"minPartitions": min_partitions}
    )
    for stream in pair(subscribe=name, **split_options).streams:
        task_counts: list[int] = []
        gather = stream._gather

        def counting(
            frame: Any, batch: int, into: list[int] = task_counts, original: Any = gather
        ) -> None:
            into.append(frame.rdd.getNumPartitions())
            original(frame, batch)

        stream._gather = counting  # type: ignore[method-assign]
        assert stream.drain() == strings(*range(30))
        assert task_counts == [tasks]


def test_deleted_topic_of_a_pattern(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    With failOnDataLoss=false, a query of a pattern continues when a topic is deleted and
    another one is created.
    """
    base = topic()
    first, second = f"{base}-a", f"{base}-b"
    kafka_cluster.create_topic(first)
    kafka_cluster.produce(first, values(0, 5))
    queries = pair(subscribePattern=f"{base}-.*", failOnDataLoss="false")
    queries.run()
    queries.await_values(texts(0, 5))
    delete_topic(kafka_cluster, first)
    kafka_cluster.create_topic(second)
    kafka_cluster.produce(second, values(5, 9))

    queries.await_values(texts(0, 9))


@pytest.mark.parametrize(
    ("running", "count"),
    [
        pytest.param(True, 2, id="running-equal"),
        pytest.param(False, 3, id="stopped-more"),
        pytest.param(True, 1, id="running-fewer", marks=pytest.mark.soak),
        pytest.param(True, 3, id="running-more", marks=pytest.mark.soak),
        pytest.param(False, 1, id="stopped-fewer", marks=pytest.mark.soak),
        pytest.param(False, 2, id="stopped-equal", marks=pytest.mark.soak),
    ],
)
def test_recreated_topic_is_data_loss(
    pair: Callable[..., Pair],
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    count: int,
    *,
    running: bool,
) -> None:
    """
    A topic deleted and recreated fails the query, however many records the new one has. The JVM
    connector fails only if the new topic has fewer. With failOnDataLoss=false all records of the
    new topic are read.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 2))
    queries = pair(subscribe=name)
    ours = queries.streams[0]
    # A topic that stays unknown for this long is lost.
    ours.options["kafkaConsumer.pollTimeoutMs"] = "5000"
    for stream in queries.streams if count < 2 else [ours]:
        stream.start().processAllAvailable()
        assert stream.values == texts(0, 2)
        if not running:
            stream.stop()
    recreate_topic(kafka_cluster, name)
    kafka_cluster.produce(name, values(10, 10 + count))

    # A running query may plan while there is no topic, or read a range planned before.
    between = "|partitions no longer exist|no longer exists|recreated" if running else ""
    recreated = f"was deleted and recreated{between}"
    complaint = {"pykafka": recreated, "kafka": "was changed from 2 to 1"}
    for stream in queries.streams if count < 2 else [ours]:
        if not running:
            stream.start()
        with pytest.raises(Exception, match=complaint[stream.connector]):
            stream.query.awaitTermination(60)  # type: ignore[union-attr]
    assert ours.values == texts(0, 2)
    ours.options["failOnDataLoss"] = "false"
    ours.start()
    ours.await_values(texts(0, 2) + texts(10, 10 + count))


def test_topic_recreated_inside_a_batch(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    With failOnDataLoss=false, a topic recreated while its batch is read neither fails nor
    hangs the query, and the batch reads no record of the new topic.
    """
    for stream in pair(failOnDataLoss="false", minPartitions=1).streams:
        name = topic()
        stream.options["subscribe"] = name
        kafka_cluster.produce(name, values(0, 20))
        gather = stream._gather

        def recreating(
            frame: Any, batch: int, original: Any = gather, topic_name: str = name
        ) -> None:
            if batch == 0:
                recreate_topic(kafka_cluster, topic_name)
                kafka_cluster.produce(topic_name, values(100, 130))
            original(frame, batch)

        stream._gather = recreating  # type: ignore[method-assign]
        if stream.connector == "pykafka":
            # A topic that stays unknown for this long is lost.
            stream.options["kafkaConsumer.pollTimeoutMs"] = "5000"
        stream.start()
        if stream.connector == "pykafka":
            stream.await_values(texts(100, 130))
            assert stream.sizes[0] == 0
        else:
            assert stream.query is not None
            stream.query.processAllAvailable()


def test_records_deleted_by_retention(
    pair: Callable[..., Pair], topic: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    Records deleted while the query is stopped are skipped with failOnDataLoss=false, and the
    others are read once; otherwise the query fails.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 10))
    allowing, refusing = pair(subscribe=name, failOnDataLoss="false"), pair(subscribe=name)
    assert allowing.drain() == refusing.drain() == texts(0, 10)
    kafka_cluster.produce(name, values(10, 50))
    admin = kafka_cluster.admin()
    admin.delete_records([TopicPartition(name, 0, 25)])[TopicPartition(name, 0)].result(30)

    assert allowing.drain() == texts(0, 10) + texts(25, 50)
    if PASSES_START_OFFSET:
        query = allowing.streams[0].query
        assert query is not None
        assert '"@lost": {"' + name + '": {"0": 15}}' in query.recentProgress[0].json
    for stream in refusing.streams:
        with pytest.raises(Exception, match="KAFKA_DATA_LOSS|aged out"):
            stream.drain()


def test_watermark_and_window(
    spark: SparkSession,
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    checkpoint: str,
) -> None:
    """
    Watermarks and windows work on the column timestamp.
    """
    name = topic()
    kafka_cluster.produce(name, numbered(0, *range(5)) + numbered(0, 100_000))
    frame = spark.readStream.format("pykafka").option("subscribe", name)
    frame = frame.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
    counts = (
        frame.option("startingOffsets", "earliest")
        .load()
        .withWatermark("timestamp", "10 seconds")
        .groupBy(F.window("timestamp", "10 seconds"))
        .count()
    )
    window_counts: list[int] = []
    query = (
        counts.writeStream.foreachBatch(
            lambda f, _: window_counts.extend(r["count"] for r in f.collect())
        )
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        # The batch that moves the watermark closes no window; the next batch, without data, does.
        wait_until(
            lambda: (
                None if window_counts == [5] else f"windows of {window_counts} records, not [5]"
            ),
            60,
        )
    finally:
        query.stop()


def test_union_and_self_join(
    spark: SparkSession,
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    checkpoint: str,
) -> None:
    """
    Two sources in one query are independent, as are two of the same topic that are joined.
    """
    names = [topic(2), topic(2)]
    for number, name in enumerate(names):
        kafka_cluster.produce(name, values(10 * number, 10 * number + 10))

    def load(name: str) -> DataFrame:
        frame = spark.readStream.format("pykafka").option("subscribe", name)
        frame = frame.option("kafka.bootstrap.servers", kafka_cluster.bootstrap)
        return (
            frame.option("startingOffsets", "earliest").load().selectExpr("CAST(value AS STRING)")
        )

    def run(frame: DataFrame, folder: str) -> list[str]:
        values: list[str] = []
        query = (
            frame.writeStream.foreachBatch(lambda f, _: values.extend(r.value for r in f.collect()))
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return sorted(values)

    assert run(load(names[0]).union(load(names[1])), f"{checkpoint}-union") == texts(0, 20)
    joined = load(names[0]).join(load(names[0]), "value")
    assert run(joined, f"{checkpoint}-join") == texts(0, 10)
