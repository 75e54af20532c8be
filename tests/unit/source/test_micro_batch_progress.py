"""
What a stream tells about its progress, batch after batch, against a cluster in memory.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field

import pytest
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.offsets import QUERY, Document, StreamOffset, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

T0 = TopicPartition("t", 0)
OPTIONS = {
    "kafka.bootstrap.servers": "b:1",
    "subscribe": "t",
    "startingOffsets": "earliest",
    "progressStore": "consumerGroup",
    "kafka.group.id": "g",
}


@dataclass
class Told:
    """
    Keeps what it is told: (what, offset of t-0, query's id, batch).
    """

    said: list[tuple[str, int, str, int]] = field(default_factory=list)
    stores: set[str] = field(default_factory=set)

    def record_completed(self, done: StreamOffset) -> None:
        self._keep("completed", done)

    def record_replay(self, start: StreamOffset, end: StreamOffset) -> None:
        assert start.offsets[T0] < end.offsets[T0]
        self._keep("replaying", end)

    def finish(self) -> None:
        self.said.append(("finish", 0, "", 0))

    def _keep(self, what: str, at: StreamOffset) -> None:
        assert at.query is not None
        self.stores.add(at.query.store)
        self.said.append((what, at.offsets[T0], at.query.id, at.query.batch))


@dataclass
class Process:
    """
    The planning process of one run of a query.
    """

    cluster: Cluster
    options: dict[str, str] = field(default_factory=lambda: OPTIONS)
    told: Told = field(default_factory=Told)
    batches: MicroBatchStream = field(init=False)

    def __post_init__(self) -> None:
        ids = map("query-{}".format, itertools.count())
        options = parse_stream_source(self.options)
        self.batches = MicroBatchStream(
            options, self.cluster, lambda _: {}, self.told, new_id=lambda: next(ids)
        )

    def latest_offset(self, start: Document) -> Document:
        """
        Return the next end, as it comes back from a checkpoint.
        """
        end: Document = json.loads(json.dumps(self.batches.latest_offset(start)))
        return end


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with the topic t of one partition, three records in it.
    """
    made = Cluster()
    made.make("t", 3)
    return made


def test_a_batch_is_complete_when_the_next_one_is_asked_for(cluster: Cluster) -> None:
    """
    Not before, and a new query has nothing that is.
    """
    one = Process(cluster)
    first = one.latest_offset(one.batches.initial_offset())
    assert one.told.said == []

    cluster.topics["t"] = [(0, 5)]
    second = one.latest_offset(first)
    assert one.told.said == [("completed", 3, "query-0", 0)]

    one.latest_offset(second)
    assert one.told.said[1:] == [("completed", 5, "query-0", 1)]


def test_a_restart_keeps_the_querys_id(cluster: Cluster) -> None:
    """
    It comes from the checkpoint, and its last batch is told of once more.
    """
    one = Process(cluster)
    first = one.latest_offset(one.batches.initial_offset())
    cluster.topics["t"] = [(0, 5)]

    again = Process(cluster)
    second = again.latest_offset(first)

    assert again.told.said == [("completed", 3, "query-0", 0)]
    assert second[QUERY] == {"id": "query-0", "batch": 1, "store": "consumerGroup g"}


def test_without_a_store_the_checkpoint_says_nothing(cluster: Cluster) -> None:
    """
    And a query that had one keeps its id for when it has one again.
    """
    plain = Process(cluster, {**OPTIONS, "progressStore": "none"})
    marked = Process(cluster)

    end = plain.latest_offset(plain.batches.initial_offset())
    first = marked.latest_offset(marked.batches.initial_offset())
    cluster.topics["t"] = [(0, 5)]

    assert QUERY not in end
    assert plain.latest_offset(first)[QUERY] == {"id": "query-0", "batch": 1, "store": ""}


def test_a_checkpoint_of_the_jvm_connector_gets_an_id(cluster: Cluster) -> None:
    """
    Told at once, kept with the first batch that reads something.
    """
    one = Process(cluster)

    assert one.latest_offset({"t": {"0": 3}}) == {"t": {"0": 3}}
    cluster.topics["t"] = [(0, 5)]
    end = one.latest_offset({"t": {"0": 3}})

    assert one.told.said == [("completed", 3, "query-0", -1)] * 2
    assert end[QUERY] == {"id": "query-0", "batch": 0, "store": "consumerGroup g"}


def test_a_batch_that_failed_is_told_of(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """
    A plan before any question is one that an earlier process made; its ranges are logged.
    """
    one = Process(cluster)
    first = one.latest_offset(one.batches.initial_offset())
    again = Process(cluster)

    again.batches.plan(again.batches.initial_offset(), first)

    assert again.told.said == [("replaying", 3, "query-0", 0)]
    assert "a micro-batch that did not finish is read again: t-0[0, 3)" in caplog.text


def test_a_first_plan_is_no_replay(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """
    Nor is one without anything to read, which older versions of Spark ask for after a restart.
    """
    one = Process(cluster)
    start = one.batches.initial_offset()
    first = one.latest_offset(start)
    one.batches.plan(start, first)

    Process(cluster).batches.plan(first, first)

    assert one.told.said == []
    assert "read again" not in caplog.text


def test_the_end_of_an_available_now_run_is_told(cluster: Cluster) -> None:
    """
    Only when nothing is left, and only where the end is fixed.
    """
    endless, ending = Process(cluster), Process(cluster)
    ending.batches.prepare_for_available_now()
    first = ending.latest_offset(ending.batches.initial_offset())
    assert ("finish", 0, "", 0) not in ending.told.said

    ending.latest_offset(first)
    endless.latest_offset(first)

    assert ending.told.said == [("completed", 3, "query-0", 0), ("finish", 0, "", 0)]
    assert endless.told.said == [("completed", 3, "query-0", 0)]


def test_a_committed_batch_is_told_of(cluster: Cluster) -> None:
    """
    Spark's commit says that a batch is complete, whether or not a question has said so before.
    """
    one = Process(cluster)
    first = one.latest_offset(one.batches.initial_offset())

    one.batches.commit(first)

    assert one.told.said == [("completed", 3, "query-0", 0)]


def test_a_commit_carries_the_mark_that_the_next_question_does(cluster: Cluster) -> None:
    """
    So does one of a checkpoint that has none yet, and one written for another store.
    """
    one = Process(cluster)
    plain, other = {"t": {"0": 3}}, {"id": "query-7", "batch": 4, "store": "consumerGroup h"}

    for end in (plain, {**plain, QUERY: other}):
        one.batches.commit(end)
        one.batches.latest_offset(end)

    assert one.told.said == [
        *[("completed", 3, "query-0", -1)] * 2,
        *[("completed", 3, "query-7", 4)] * 2,
    ]
    assert one.told.stores == {"consumerGroup g"}
