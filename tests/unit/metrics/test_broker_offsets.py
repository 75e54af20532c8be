"""
The age of the first unread record, and the thread that reads it; the brokers are stand-ins.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.memory_cluster import Cluster
from tests.support.progress_events import progress

from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.metrics import broker_offsets, unread_records
from pyspark_pykafka.metrics.broker_offsets import BrokerOffsets, BrokerOffsetsThread
from pyspark_pykafka.metrics.progress_event import parse_batch
from pyspark_pykafka.metrics.query_metrics import QueryMetrics
from pyspark_pykafka.metrics.store_lag import LagReader
from pyspark_pykafka.metrics.unread_records import FirstRecord, UnreadRecords
from pyspark_pykafka.offsets import Assignment, OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.record import ProgressRecord
from pyspark_pykafka.timestamps import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

TP = TopicPartition("t", 0)
OPTIONS = parse_stream_source({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})

# A time in the year 55000: a producer has taken microseconds for milliseconds.
NO_DATE_MS = 1_673_000_000_000_000


@pytest.fixture(params=[NO_DATE_MS])
def unread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let each fetch return one record at offset 7 whose timestamp Python cannot represent.
    """
    values = {"offset": [7], "timestamp": [request.param]}

    def fetch_many(
        ranges: Collection[OffsetRange], settings: Any, max_records: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        assert max_records == 1
        columns = [pa.array(values[field.name], field.type) for field in settings.schema]
        for offset_range in ranges:
            yield offset_range, pa.record_batch(columns, schema=settings.schema)

    monkeypatch.setattr(unread_records, "fetch_many", fetch_many)


@pytest.mark.usefixtures("unread")
def test_unread_record_with_a_timestamp_that_is_no_date() -> None:
    """
    The first unread record may have any timestamp.
    """
    unread = OffsetRange(TP, 5, 9)

    assert UnreadRecords(OPTIONS).first([unread]) == {unread: FirstRecord(7, NO_DATE_MS / 1000)}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("unread", [NO_TIMESTAMP], indirect=True)
def test_unread_record_without_a_timestamp() -> None:
    """
    The age of an unread record without a timestamp is unknown.
    """
    unread = OffsetRange(TP, 5, 9)

    assert UnreadRecords(OPTIONS).first([unread]) == {unread: FirstRecord(7, None)}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("unread", "now", "age"),
    [
        (NO_DATE_MS, 0.0, 0.0),
        (NO_DATE_MS, 2e12, 2e12 - 1_673_000_000_000),
        (NO_TIMESTAMP, 2e12, None),
    ],
    indirect=["unread"],
)
def test_lag_with_a_timestamp_that_is_no_date(now: float, age: float | None) -> None:
    """
    The lag in seconds is 0 if the first unread record is from the future, and unknown if that
    record has no timestamp.
    """
    cluster = Cluster()
    cluster.create_topic("t", 9)

    reader = LagReader(cluster, UnreadRecords(OPTIONS), lambda: now)

    assert [(lag.lag, lag.seconds) for lag in reader.read({TP: ProgressRecord(5)})] == [(4, age)]


class DatedLog:
    """
    A log in which each record has its offset as timestamp, in seconds; ``read`` has the ranges that
    were read.
    """

    def __init__(self) -> None:
        self.read: list[OffsetRange] = []

    def first(self, unread: Collection[OffsetRange]) -> dict[OffsetRange, FirstRecord]:
        self.read += unread
        return {r: FirstRecord(r.start, float(r.start)) for r in unread}


def running(**queries: dict[str, Any]) -> QueryMetrics:
    """
    Return the metrics of queries that have read up to these offsets.
    """
    metrics = QueryMetrics(10)
    for query, end in queries.items():
        metrics.start(query, "run", query, 0.0)
        metrics.add(parse_batch(progress(end, query_id=query)), 0.0)
    return metrics


@pytest.fixture
def refreshed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cluster, QueryMetrics], DatedLog]:
    """
    Return a function that updates metrics once from a cluster with the topic t, at 1000 s.
    """

    def refresh(cluster: Cluster, metrics: QueryMetrics) -> DatedLog:
        log = DatedLog()
        monkeypatch.setattr(broker_offsets, "metadata_client", lambda _: cluster)
        monkeypatch.setattr(broker_offsets, "UnreadRecords", lambda _: log)
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
        BrokerOffsets(options, metrics, lambda: 1000.0).refresh()
        return log

    return refresh


def lags(metrics: QueryMetrics) -> dict[str, tuple[int | None, float | None]]:
    """
    Return the lags of the queries at 1000 s, in offsets and seconds.
    """
    return {query.id: (query.lag, query.lag_seconds) for query in metrics.snapshot(1000.0).queries}


def test_topics_of_other_clusters_are_left_out(
    refreshed: Callable[[Cluster, QueryMetrics], DatedLog],
) -> None:
    """
    If queries read topics of one name from several clusters, a cluster's end offsets count only for
    queries whose topic has the id of the cluster's topic, or an unknown id.
    """
    cluster = Cluster()
    cluster.create_topic("t", 100)
    cluster.ids["t"] = "here"
    ends = {name: {"t": {"0": 7}, "@topicIds": {"t": name}} for name in ("here", "elsewhere")}
    metrics = running(**ends, unknown={"t": {"0": 9}})

    refreshed(cluster, metrics)

    assert lags(metrics) == {
        "here": (93, 993.0),
        "elsewhere": (None, None),
        "unknown": (91, 991.0),
    }


def test_each_query_has_the_age_of_its_own_first_record(
    refreshed: Callable[[Cluster, QueryMetrics], DatedLog],
) -> None:
    """
    Two queries that read one partition at different positions have different lags in seconds.
    """
    cluster = Cluster()
    cluster.create_topic("t", 100)
    metrics = running(slow={"t": {"0": 10}}, fast={"t": {"0": 90}})

    log = refreshed(cluster, metrics)

    assert sorted(offset_range.start for offset_range in log.read) == [10, 90]
    assert lags(metrics) == {"slow": (90, 990.0), "fast": (10, 910.0)}


class UnreachableCluster(Cluster):
    """
    A cluster that does not answer.
    """

    def existing(self, topics: Iterable[str]) -> Assignment:
        msg = f"no broker answers for {sorted(topics)}"
        raise BrokerUnavailableError(msg)


def test_end_offsets_are_old_while_the_brokers_do_not_answer(
    refreshed: Callable[[Cluster, QueryMetrics], DatedLog],
) -> None:
    """
    A query that had read everything has an unknown lag once the end offsets cannot be read.
    """
    cluster = Cluster()
    cluster.create_topic("t", 10)
    metrics = running(q={"t": {"0": 10}})
    refreshed(cluster, metrics)
    assert lags(metrics) == {"q": (0, 0.0)}

    with pytest.raises(BrokerUnavailableError):
        refreshed(UnreachableCluster(), metrics)

    assert lags(metrics) == {"q": (None, None)}


class FailingOnce:
    """
    Broker offsets whose first refresh fails with an error that is not one of the connector's.
    """

    def __init__(self) -> None:
        self.refreshes = 0
        self.refreshed = threading.Event()

    def refresh(self) -> None:
        self.refreshes += 1
        if self.refreshes == 1:
            raise OverflowError("date value out of range")
        self.refreshed.set()


def test_thread_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """
    Any error is logged, and the next refresh takes place.
    """
    offsets: Any = FailingOnce()
    with caplog.at_level(logging.INFO, "pyspark_pykafka"):
        thread = BrokerOffsetsThread(offsets, 0.01)
        assert offsets.refreshed.wait(10)
        thread.close()

    assert "cannot be read at the moment: date value out of range" in caplog.text


class Brokers:
    """
    Brokers that know some partitions by their end offsets.
    """

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        self.ends = ends

    def existing(self, topics: Iterable[str]) -> Assignment:
        return Assignment((*self.partitions_for(topics),), {})

    def partitions_for(self, topics: Iterable[str]) -> list[TopicPartition]:
        names = set(topics)
        return [tp for tp in self.ends if tp.topic in names]

    def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in tps}


def test_growth_of_the_dead_letter_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The end offsets of the options' `deadLetterTopic` are read again at each refresh.
    """
    brokers = Brokers({TP: 9, TopicPartition("dead", 0): 3, TopicPartition("dead", 1): 0})
    monkeypatch.setattr(broker_offsets, "metadata_client", lambda _: brokers)
    metrics = QueryMetrics(max_partitions=100)
    letters = {"valueFormat": "json", "onBadRecord": "deadletter", "deadLetterTopic": "dead"}
    offsets = BrokerOffsets(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **letters}, metrics
    )

    offsets.refresh()
    assert metrics.snapshot(0.0).dead_letter_ends == {("dead", "0"): 3, ("dead", "1"): 0}
    brokers.ends[TopicPartition("dead", 1)] = 1
    offsets.refresh()
    assert metrics.snapshot(0.0).dead_letter_ends == {("dead", "0"): 3, ("dead", "1"): 1}


def test_a_dead_letter_topic_with_many_partitions() -> None:
    """
    The end offsets of more than `max_partitions` partitions of a dead-letter topic are summed, as
    those of sources are.
    """
    metrics = QueryMetrics(max_partitions=2)
    metrics.observe_dead_letter_ends({TopicPartition("dead", n): n for n in range(3)})

    assert metrics.snapshot(0.0).dead_letter_ends == {("dead", ""): 3}
