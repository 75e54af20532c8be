"""
The progress that a stream records, batch after batch, on a cluster in memory.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.support.memory_cluster import Cluster
from tests.support.memory_store import MemoryStore, Server

from pyspark_pykafka.offsets import QUERY, Document, StreamOffset, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.recorder import StoreRecorder
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

if TYPE_CHECKING:
    from pyspark_pykafka.progress.contract import ProgressRecorder

T0 = TopicPartition("t", 0)
OPTIONS = {
    "kafka.bootstrap.servers": "b:1",
    "subscribe": "t",
    "startingOffsets": "earliest",
    "progressStore": "consumerGroup",
    "kafka.group.id": "g",
}


@dataclass
class RecordedProgress:
    """
    A progress recorder that keeps the calls that it gets: (call, offset of t-0, query's id, batch).
    """

    calls: list[tuple[str, int, str, int]] = field(default_factory=list)
    stores: set[str] = field(default_factory=set)

    def record_completed(self, done: StreamOffset) -> None:
        self._keep("completed", done)

    def record_replay(self, start: StreamOffset, end: StreamOffset) -> None:
        assert start.offsets[T0] < end.offsets[T0]
        self._keep("replaying", end)

    def finish(self) -> None:
        self.calls.append(("finish", 0, "", 0))

    def _keep(self, event: str, offset: StreamOffset) -> None:
        assert offset.query is not None
        self.stores.add(offset.query.store)
        self.calls.append((event, offset.offsets[T0], offset.query.id, offset.query.batch))


@dataclass
class Process:
    """
    The planning process of one run of a query.
    """

    cluster: Cluster
    options: dict[str, str] = field(default_factory=lambda: OPTIONS)
    recorded: RecordedProgress = field(default_factory=RecordedProgress)
    progress: ProgressRecorder | None = None
    stream: MicroBatchStream = field(init=False)

    def __post_init__(self) -> None:
        ids = map("query-{}".format, itertools.count())
        options = parse_stream_source(self.options)
        progress = self.progress or self.recorded
        self.stream = MicroBatchStream(
            options, self.cluster, lambda _: {}, progress, new_id=lambda: next(ids)
        )

    def latest_offset(self, start: Document) -> Document:
        """
        Return the end of the next batch, as it is read back from the checkpoint.
        """
        end: Document = json.loads(json.dumps(self.stream.latest_offset(start)))
        return end


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with a topic t, whose only partition has three records.
    """
    new_cluster = Cluster()
    new_cluster.create_topic("t", 3)
    return new_cluster


def test_batch_is_completed_when_the_next_one_is_planned(cluster: Cluster) -> None:
    """
    A batch is recorded as completed when the next one is planned; the first plan of a new query
    records nothing.
    """
    process = Process(cluster)
    first = process.latest_offset(process.stream.initial_offset())
    assert process.recorded.calls == []

    cluster.topics["t"] = [(0, 5)]
    second = process.latest_offset(first)
    assert process.recorded.calls == [("completed", 3, "query-0", 0)]

    process.latest_offset(second)
    assert process.recorded.calls[1:] == [("completed", 5, "query-0", 1)]


def test_restart_keeps_the_query_id(cluster: Cluster) -> None:
    """
    After a restart the query has the id of its checkpoint, and records its last batch again.
    """
    process = Process(cluster)
    first = process.latest_offset(process.stream.initial_offset())
    cluster.topics["t"] = [(0, 5)]

    restarted = Process(cluster)
    second = restarted.latest_offset(first)

    assert restarted.recorded.calls == [("completed", 3, "query-0", 0)]
    assert second[QUERY] == {"id": "query-0", "batch": 1, "store": "consumerGroup g"}


def test_checkpoint_without_a_store_has_no_query_id(cluster: Cluster) -> None:
    """
    Without a store no id is written; an id that the checkpoint has already is kept.
    """
    plain = Process(cluster, {**OPTIONS, "progressStore": "none"})
    identified = Process(cluster)

    end = plain.latest_offset(plain.stream.initial_offset())
    first = identified.latest_offset(identified.stream.initial_offset())
    cluster.topics["t"] = [(0, 5)]

    assert QUERY not in end
    assert plain.latest_offset(first)[QUERY] == {"id": "query-0", "batch": 1, "store": ""}


def test_checkpoint_of_the_jvm_connector_gets_an_id(cluster: Cluster) -> None:
    """
    The id is recorded at once, and is in the checkpoint from the first batch with records on.
    """
    process = Process(cluster)

    assert process.latest_offset({"t": {"0": 3}}) == {"t": {"0": 3}}
    cluster.topics["t"] = [(0, 5)]
    end = process.latest_offset({"t": {"0": 3}})

    assert process.recorded.calls == [("completed", 3, "query-0", -1)] * 2
    assert end[QUERY] == {"id": "query-0", "batch": 0, "store": "consumerGroup g"}


def test_replayed_batch_is_recorded(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """
    A plan before any latest_offset is a replay: it is recorded, and its ranges are logged.
    """
    process = Process(cluster)
    first = process.latest_offset(process.stream.initial_offset())
    restarted = Process(cluster)

    restarted.stream.plan(restarted.stream.initial_offset(), first)

    assert restarted.recorded.calls == [("replaying", 3, "query-0", 0)]
    assert "a micro-batch that did not finish is read again: t-0[0, 3)" in caplog.text


def test_first_plan_is_no_replay(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """
    A new batch is not a replay, nor is the empty one that older Spark versions plan after a
    restart.
    """
    process = Process(cluster)
    start = process.stream.initial_offset()
    first = process.latest_offset(start)
    process.stream.plan(start, first)

    Process(cluster).stream.plan(first, first)

    assert process.recorded.calls == []
    assert "read again" not in caplog.text


def test_end_of_an_available_now_run_is_recorded(cluster: Cluster) -> None:
    """
    A run finishes its progress recorder when it has a fixed end and has read up to it.
    """
    unbounded, bounded = Process(cluster), Process(cluster)
    bounded.stream.prepare_for_available_now()
    first = bounded.latest_offset(bounded.stream.initial_offset())
    assert ("finish", 0, "", 0) not in bounded.recorded.calls

    bounded.latest_offset(first)
    unbounded.latest_offset(first)

    assert bounded.recorded.calls == [("completed", 3, "query-0", 0), ("finish", 0, "", 0)]
    assert unbounded.recorded.calls == [("completed", 3, "query-0", 0)]


@pytest.mark.parametrize("log_end", [0, 1])
def test_store_follows_a_truncated_log(cluster: Cluster, log_end: int) -> None:
    """
    If data loss is allowed and a log is truncated, the recorded offset moves back with the query.
    """
    server = Server()
    options = {**OPTIONS, "failOnDataLoss": "false"}
    recorder = StoreRecorder(lambda: MemoryStore(server), "a")
    process = Process(cluster, options, progress=recorder)
    first = process.latest_offset(process.stream.initial_offset())
    process.stream.commit(first)
    recorder.finish()
    assert server.records[T0].offset == 3

    cluster.topics["t"] = [(0, log_end)]
    second = process.latest_offset(first)
    process.stream.plan(first, second)
    process.stream.commit(second)
    recorder.finish()

    assert server.records[T0].offset == log_end


def test_committed_batch_is_recorded(cluster: Cluster) -> None:
    """
    Spark's commit records a batch as completed before the next one is planned.
    """
    process = Process(cluster)
    first = process.latest_offset(process.stream.initial_offset())

    process.stream.commit(first)

    assert process.recorded.calls == [("completed", 3, "query-0", 0)]


def test_commit_has_the_identity_of_the_next_plan(cluster: Cluster) -> None:
    """
    A commit records the same query id as the next plan, even if the checkpoint has no id, or an id
    that belongs to another store.
    """
    process = Process(cluster)
    plain, other = {"t": {"0": 3}}, {"id": "query-7", "batch": 4, "store": "consumerGroup h"}

    for end in (plain, {**plain, QUERY: other}):
        process.stream.commit(end)
        process.stream.latest_offset(end)

    assert process.recorded.calls == [
        *[("completed", 3, "query-0", -1)] * 2,
        *[("completed", 3, "query-7", 4)] * 2,
    ]
    assert process.recorded.stores == {"consumerGroup g"}
