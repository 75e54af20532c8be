"""
A stream's offsets and plans, batch after batch, on a cluster in memory.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.errors import DataLossError, OffsetsError
from pyspark_pykafka.offsets import Document, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream


@dataclass
class Query:
    """
    A query and its checkpoint: calls the stream as Spark does.
    """

    cluster: Cluster
    options: dict[str, str]
    position: Document | None = None
    stream: MicroBatchStream = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **changed: str) -> None:
        """
        Start a new process, with changed options.
        """
        self.options |= changed
        options = parse_stream_source(self.options)
        self.stream = MicroBatchStream(options, self.cluster, lambda at: dict.fromkeys(at, 1e6))

    def step(self, *, limited: bool = True) -> list[tuple[str, int, int]]:
        """
        Run one micro-batch if there is one; return (partition, start, end) of each range.
        """
        start = self.stream.initial_offset() if self.position is None else self.position
        end = _stored(self.stream.latest_offset(_stored(start), limited=limited))
        plan = self.stream.plan(_stored(start), end)
        self.position = end
        return [(str(r.tp), r.start, r.end) for r in plan.ranges]


def _stored(document: Document) -> Document:
    """
    Return the document as it is read back from the checkpoint.
    """
    stored: Document = json.loads(json.dumps(document))
    return stored


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with the topic t of two partitions.
    """
    made = Cluster()
    made.create_topic("t", 3, 5)
    return made


def query(cluster: Cluster, **options: Any) -> Query:
    """
    Return a query of the topic t from earliest, unless the options change that.
    """
    base = {"kafka.bootstrap.servers": "b:1", "startingOffsets": "earliest"}
    strategy = {} if {"subscribePattern", "assign"} & options.keys() else {"subscribe": "t"}
    return Query(cluster, {**base, **strategy, "fetchOffset.retryIntervalMs": "0", **options})


def test_batches_follow_each_other(cluster: Cluster) -> None:
    """
    Each batch starts at the end of the last one; without new records nothing is read.
    """
    one = query(cluster)

    assert one.step() == [("t-0", 0, 3), ("t-1", 0, 5)]
    assert one.step() == []
    cluster.topics["t"][1] = (0, 7)
    one.restart()
    assert one.step() == [("t-1", 5, 7)]


def test_no_new_records_is_the_same_document(cluster: Cluster) -> None:
    """
    Spark compares documents to detect new data, so without new data the given document is returned,
    also one of the JVM connector without topic ids.
    """
    one = query(cluster)
    jvm_offset = {"t": {"0": 3, "1": 5}}

    assert one.stream.latest_offset(jvm_offset) is jvm_offset
    cluster.topics["t"][0] = (0, 4)
    assert one.stream.latest_offset(jvm_offset) == {
        "t": {"0": 4, "1": 5},
        "@topicIds": {"t": cluster.ids["t"]},
    }


def test_first_batch_keeps_its_start(cluster: Cluster) -> None:
    """
    A query from latest whose first batch failed keeps the start that it had first.
    """
    one = query(cluster, startingOffsets="latest")
    start = one.stream.initial_offset()
    cluster.topics["t"][0] = (0, 4)
    end = _stored(one.stream.latest_offset(start))
    cluster.topics["t"][0] = (0, 9)
    one.restart()

    later = one.stream.initial_offset()
    plan = one.stream.plan(later, end)

    assert later != start
    assert [(r.start, r.end) for r in plan.ranges] == [(3, 4)]


@pytest.mark.parametrize("ends", [(2, 2), (3, 5), (9, 9)], ids=["fewer", "equal", "more"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_recreated_topic_is_data_loss(
    cluster: Cluster,
    ends: tuple[int, int],
    *,
    running: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    A topic deleted and recreated is data loss, however many records the new topic has; with
    failOnDataLoss=false the new topic is read from its start.
    """
    one = query(cluster)
    one.step()
    cluster.create_topic("t", *ends)
    if not running:
        one.restart()
    with pytest.raises(DataLossError, match="t was deleted and recreated"):
        one.step()

    one.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        assert one.step() == [("t-0", 0, ends[0]), ("t-1", 0, ends[1])]
    assert "recreated" in caplog.text
    assert one.step() == []


def test_deleted_topic_is_data_loss(cluster: Cluster) -> None:
    """
    A deleted topic that the pattern still matches is reported as data loss.
    """
    cluster.create_topic("t2", 4)
    one = query(cluster, subscribePattern="t")
    one.step()
    del cluster.topics["t2"]

    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*t2-0"):
        one.step()
    one.restart(failOnDataLoss="false")
    assert one.step() == []


def test_deleted_partitions_with_a_consumer_group(cluster: Cluster) -> None:
    """
    With kafka.group.id the condition is the JVM connector's for that case.
    """
    cluster.create_topic("t2", 4)
    one = query(cluster, subscribePattern="t", **{"kafka.group.id": "g"})
    one.step()
    del cluster.topics["t2"]

    with pytest.raises(DataLossError, match="PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"):
        one.step()


def test_lost_records_are_counted(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """
    Unread offsets deleted by retention are counted by partition, in the log and in progress.
    """
    one = query(cluster, failOnDataLoss="false")
    one.step()
    assert one.stream.report_latest_offset() == {"t": {"0": 3, "1": 5}}
    cluster.topics["t"] = [(0, 9), (8, 20)]
    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        one.step()
    cluster.topics["t"] = [(12, 12), (25, 30)]
    one.step()

    assert (
        "t-1: 3 offsets from 5 on were deleted by retention before they were read, 3 since"
        in caplog.text
    )
    assert one.stream.report_latest_offset() == {
        "t": {"0": 12, "1": 30},
        "@lost": {"t": {"0": 3, "1": 8}},
    }


@pytest.mark.parametrize(
    "change",
    [
        {"subscribe": "t"},
        {"subscribePattern": "t"},
        {"assign": '{"t":[0,1]}'},
    ],
)
def test_unsubscribed_topic_is_no_data_loss(
    cluster: Cluster, change: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """
    A topic that the options no longer subscribe to is logged, but is no data loss.
    """
    cluster.create_topic("u", 4)
    one = query(cluster, subscribe="t,u")
    one.step()
    one.options.pop("subscribe")
    one.restart(**change)

    with caplog.at_level(logging.INFO, "pyspark_pykafka"):
        assert one.step() == []
    assert "no longer subscribe to u-0" in caplog.text
    assert one.position is not None
    assert "u" not in one.position


def test_added_partitions(cluster: Cluster) -> None:
    """
    Added partitions are read from their start, or with newPartitionOffsets=latest from their end.
    """
    early, late = query(cluster), query(cluster, newPartitionOffsets="latest")
    early.step()
    late.step()
    cluster.topics["t"] += [(0, 6)]

    assert early.step() == [("t-2", 0, 6)]
    assert late.step() == []
    cluster.topics["t"][2] = (0, 8)
    assert early.step() == [("t-2", 6, 8)]
    assert late.step() == [("t-2", 6, 8)]


def test_limits_hold_for_added_partitions(cluster: Cluster) -> None:
    """
    The backlog of an added partition counts from its start.
    """
    one = query(cluster, maxOffsetsPerTrigger="8")
    one.step()
    cluster.topics["t"] += [(0, 4000)]

    assert one.step() == [("t-2", 0, 8)]


def test_limited_batches_add_up(cluster: Cluster) -> None:
    """
    Limited batches follow each other without a gap; Spark can lift the limit.
    """
    one = query(cluster, maxOffsetsPerTrigger="4")

    assert one.step() == [("t-0", 0, 1), ("t-1", 0, 2)]
    assert one.step() == [("t-0", 1, 2), ("t-1", 2, 4)]
    assert one.step(limited=False) == [("t-0", 2, 3), ("t-1", 4, 5)]


def test_byte_limit(cluster: Cluster) -> None:
    """
    MaxBytesPerTrigger limits offsets by their estimated bytes.
    """
    one = query(cluster, maxBytesPerTrigger="4m")

    assert one.step() == [("t-0", 0, 1), ("t-1", 0, 2)]


def test_waiting_batch_keeps_the_document(cluster: Cluster) -> None:
    """
    A batch that waits for more records returns the start document.
    """
    one = query(cluster, minOffsetsPerTrigger="5")
    one.step()
    cluster.topics["t"][0] = (0, 6)
    position = one.position

    assert one.step() == []
    assert one.position == position
    cluster.topics["t"][0] = (0, 8)
    assert one.step() == [("t-0", 3, 8)]


def test_waiting_batch_hides_no_data_loss(cluster: Cluster) -> None:
    """
    While a batch waits, a recreated topic does not count as the old one; the next batch reports
    the data loss.
    """
    one = query(cluster, minOffsetsPerTrigger="5")
    one.step()
    position = one.position
    cluster.create_topic("t", 1, 2)

    assert one.step() == []
    assert one.position == position
    cluster.topics["t"] = [(0, 9), (0, 9)]
    with pytest.raises(DataLossError, match="recreated"):
        one.step()


def test_available_now(cluster: Cluster) -> None:
    """
    An availableNow run reads up to the end that was fixed when it began, in batches.
    """
    one = query(cluster, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="6")
    one.stream.prepare_for_available_now()
    # A partition added before Spark calls initialOffset is left to the next run.
    cluster.topics["t"] = [(0, 50), (0, 50), (0, 50)]

    assert one.step() == [("t-0", 0, 2), ("t-1", 0, 3)]
    assert one.step() == [("t-0", 2, 3), ("t-1", 3, 5)]
    assert one.step() == []


def test_available_now_from_latest(cluster: Cluster) -> None:
    """
    Records that arrive between fixing the end and the start of a run are left to the next run.
    """
    one = query(cluster, startingOffsets="latest")
    one.stream.prepare_for_available_now()
    cluster.topics["t"] = [(0, 9), (0, 9)]

    assert one.step() == []
    one.restart()
    assert one.step() == [("t-0", 3, 9), ("t-1", 5, 9)]


@pytest.mark.parametrize(
    ("partitions", "condition"),
    [
        ([(0, 9)], "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"),
        (
            [(0, 9), (0, 1)],
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAIL",
        ),
    ],
)
def test_available_now_with_a_lost_end(
    cluster: Cluster, partitions: list[tuple[int, int]], condition: str
) -> None:
    """
    An availableNow run fails if its fixed end no longer exists (M03, M04).
    """
    one = query(cluster, maxOffsetsPerTrigger="3", failOnDataLoss="false")
    one.stream.prepare_for_available_now()
    one.step()
    cluster.topics["t"] = partitions

    with pytest.raises(OffsetsError, match=condition):
        one.step()


@pytest.mark.parametrize(
    ("ending", "first", "rest"),
    [
        ({"endingOffsets": '{"t":{"0":2,"1":-1}}'}, [("t-0", 0, 2), ("t-1", 0, 5)], ["t-1"]),
        ({"endingOffsets": '{"t":"latest"}'}, [("t-0", 0, 3), ("t-1", 0, 5)], ["t-0", "t-1"]),
        ({"endingTimestamp": "4"}, [("t-0", 0, 3), ("t-1", 0, 4)], ["t-0"]),
        (
            {"endingOffsetsByTimestamp": '{"t":{"0":2,"1":100}}'},
            [("t-0", 0, 2), ("t-1", 0, 5)],
            ["t-1"],
        ),
    ],
    ids=["offsets", "latest", "time", "times"],
)
def test_stream_with_ending_offsets(
    cluster: Cluster,
    ending: dict[str, str],
    first: list[tuple[str, int, int]],
    rest: list[str],
) -> None:
    """
    A stream is read up to its ending offsets, however the topic grows.
    """
    one = query(cluster, **ending)

    assert one.step() == first
    cluster.topics["t"] = [(0, 20), (0, 20)]
    assert [tp for tp, *_ in one.step()] == rest
    assert one.step() == []


def test_ending_offsets_before_the_position(cluster: Cluster) -> None:
    """
    An ending offset before the query's position stops the query there; it is no data loss.
    """
    one = query(cluster)
    one.step()
    one.restart(endingOffsets='{"t":{"0":1,"1":6}}')
    cluster.topics["t"] = [(0, 20), (0, 20)]

    assert one.step() == [("t-1", 5, 6)]


def test_older_latest_offsets_are_retried(cluster: Cluster) -> None:
    """
    Latest offsets older than known ones come from a lagging replica, and are retried (KAFKA-7703).
    """
    one = query(cluster)
    one.step()
    cluster.topics["t"][0] = (0, 4)
    cluster.stale = [{TopicPartition("t", 0): 1, TopicPartition("t", 1): 5}]

    assert one.step() == [("t-0", 3, 4)]


def test_newer_documents_are_refused(cluster: Cluster) -> None:
    """
    Offsets written by a later version are refused (M16).
    """
    one = query(cluster)

    with pytest.raises(OffsetsError, match="@epochs.*newer version wrote them"):
        one.stream.latest_offset({"t": {"0": 3}, "@epochs": {"t": 1}})
    with pytest.raises(OffsetsError, match="@topicIds is 5"):
        one.stream.latest_offset({"t": {"0": 3}, "@topicIds": 5})


def test_repr_has_topics_and_offsets_but_no_secrets(cluster: Cluster) -> None:
    """
    The repr of a stream names its topics and latest offsets, and no password.
    """
    one = query(cluster, **{"kafka.ssl.key.password": "canary"})
    one.step()

    shown = repr(one.stream)

    assert "Subscribe(topics=('t',))" in shown
    assert "latest offsets: {'t': {'0': 3, '1': 5}}" in shown
    assert "canary" not in shown
