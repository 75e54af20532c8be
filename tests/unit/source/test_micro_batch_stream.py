"""
A stream's offsets and plans, batch after batch, on a cluster in memory.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.memory_cluster import Cluster
from tests.support.stepped_query import SteppedQuery, checkpointed

from pyspark_pykafka.errors import DataLossError, OffsetsError
from pyspark_pykafka.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Query(SteppedQuery):
    """
    A query whose ranges are shown as (partition, start, end).
    """

    def step(self, *, limited: bool = True) -> list[tuple[str, int, int]]:
        """
        Run one micro-batch if there is one; return (partition, start, end) of each range.
        """
        return [(str(r.tp), r.start, r.end) for r in self.next_ranges(limited=limited)]


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with the topic t of two partitions.
    """
    new_cluster = Cluster()
    new_cluster.create_topic("t", 3, 5)
    return new_cluster


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
    process = query(cluster)

    assert process.step() == [("t-0", 0, 3), ("t-1", 0, 5)]
    assert process.step() == []
    cluster.topics["t"][1] = (0, 7)
    process.restart()
    assert process.step() == [("t-1", 5, 7)]


def test_without_new_records_the_offset_stays_the_same(cluster: Cluster) -> None:
    """
    Spark compares documents to detect new data, so without new data the given document is returned,
    even one of the JVM connector without topic ids.
    """
    process = query(cluster)
    jvm_offset = {"t": {"0": 3, "1": 5}}

    assert process.stream.latest_offset(jvm_offset) is jvm_offset
    cluster.topics["t"][0] = (0, 4)
    assert process.stream.latest_offset(jvm_offset) == {
        "t": {"0": 4, "1": 5},
        "@topicIds": {"t": cluster.ids["t"]},
    }


@pytest.mark.parametrize("word", ["-2 offsets", '{"t":"-2 offsets"}'])
def test_last_offsets_are_counted_once(cluster: Cluster, word: str) -> None:
    """
    A query that starts at the last offsets keeps its first start, even in another process.
    """
    process = query(cluster, startingOffsets=word)
    end = checkpointed(process.stream.latest_offset(start := process.stream.initial_offset()))
    cluster.topics["t"][0] = (0, 9)
    process.restart()
    position = process.stream.initial_offset()

    assert start == {"t": {"0": 1, "1": 3}, "@topicIds": {"t": cluster.ids["t"]}}
    assert position != start
    assert [str(r) for r in process.stream.plan(position, end).ranges] == ["t-0[1, 3)", "t-1[3, 5)"]


def test_first_batch_keeps_its_start(cluster: Cluster) -> None:
    """
    A query from latest whose first batch failed keeps its original start.
    """
    process = query(cluster, startingOffsets="latest")
    start = process.stream.initial_offset()
    cluster.topics["t"][0] = (0, 4)
    end = checkpointed(process.stream.latest_offset(start))
    cluster.topics["t"][0] = (0, 9)
    process.restart()

    later = process.stream.initial_offset()
    plan = process.stream.plan(later, end)

    assert later != start
    assert [(r.start, r.end) for r in plan.ranges] == [(3, 4)]


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_unfinished_first_batch_whose_start_no_longer_resolves(
    cluster: Cluster, option: str
) -> None:
    """
    A first batch that failed keeps its start, even if the options no longer match the partitions; a
    new query with such options fails before it plans anything.
    """
    process = query(cluster, **{option: '{"t": {"0": 1, "1": 1}}'})
    end = checkpointed(process.stream.latest_offset(process.stream.initial_offset()))
    cluster.topics["t"].append((0, 2))
    process.restart()
    start = checkpointed(process.stream.initial_offset())

    plan = process.stream.plan(start, end)
    assert [str(r) for r in plan.ranges] == ["t-0[1, 3)", "t-1[1, 5)"]
    process.position = end
    assert process.step() == [("t-2", 0, 2)]

    process.restart()
    start = checkpointed(process.stream.initial_offset())
    with pytest.raises(OffsetsError, match=r"DOES_NOT_MATCH_ASSIGNED.*missing: t-2"):
        process.stream.latest_offset(start)
    with pytest.raises(OffsetsError, match=r"DOES_NOT_MATCH_ASSIGNED.*missing: t-2"):
        process.stream.plan(start, {key: end[key] for key in end if key != "@initial"})


def test_unfinished_first_batch_of_the_jvm_connector(cluster: Cluster) -> None:
    """
    The start of a first batch that the JVM connector has planned is unknown: the query does not
    skip the batch, but fails.
    """
    process = query(cluster, startingOffsets="latest")
    start = process.stream.initial_offset()

    with pytest.raises(OffsetsError, match=r"FIRST_BATCH_NOT_FINISHED.*JVM connector first"):
        process.stream.plan(start, {"t": {"0": 3, "1": 4}})


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
    process = query(cluster)
    process.step()
    cluster.create_topic("t", *ends)
    if not running:
        process.restart()
    with pytest.raises(DataLossError, match="t was deleted and recreated"):
        process.step()

    process.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        assert process.step() == [("t-0", 0, ends[0]), ("t-1", 0, ends[1])]
    assert "recreated" in caplog.text
    assert process.step() == []
    latest = process.stream.report_latest_offset()
    assert latest is not None
    assert latest["@losses"] == {"KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED": 1}


def test_losses_are_counted_once_for_each_batch(cluster: Cluster) -> None:
    """
    Progress counts deleted partitions and recreated topics by condition: each loss once, however
    often Spark plans the batch.
    """
    cluster.create_topic("t2", 4)
    process = query(cluster, subscribePattern="t", failOnDataLoss="false")
    process.step()
    for topic in ("t", "t2"):
        start = process.position
        assert start is not None
        del cluster.topics[topic]
        process.step()
        assert process.position is not None
        process.stream.plan(start, process.position)
        cluster.create_topic(topic, 7)
        process.step()

    assert process.stream.report_latest_offset() == {
        "t": {"0": 7},
        "t2": {"0": 7},
        "@losses": {"KAFKA_DATA_LOSS.PARTITIONS_DELETED": 2},
    }


def test_deleted_topic_is_data_loss(cluster: Cluster) -> None:
    """
    A deleted topic that the pattern still matches is reported as data loss.
    """
    cluster.create_topic("t2", 4)
    process = query(cluster, subscribePattern="t")
    process.step()
    del cluster.topics["t2"]

    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*t2-0"):
        process.step()
    process.restart(failOnDataLoss="false")
    assert process.step() == []


def test_deleted_partitions_with_a_consumer_group(cluster: Cluster) -> None:
    """
    With kafka.group.id the condition is the JVM connector's for that case.
    """
    cluster.create_topic("t2", 4)
    process = query(cluster, subscribePattern="t", **{"kafka.group.id": "g"})
    process.step()
    del cluster.topics["t2"]

    with pytest.raises(DataLossError, match="PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"):
        process.step()


def test_lost_records_are_counted(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """
    Unread offsets deleted by retention are counted by partition, in a warning and in the query's
    progress.
    """
    process = query(cluster, failOnDataLoss="false")
    process.step()
    assert process.stream.report_latest_offset() == {"t": {"0": 3, "1": 5}}
    cluster.topics["t"] = [(0, 9), (8, 20)]
    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        process.step()
    cluster.topics["t"] = [(12, 12), (25, 30)]
    process.step()

    assert (
        "t-1: 3 offsets from 5 on were deleted by retention before they were read, 3 since"
        in caplog.text
    )
    assert process.stream.report_latest_offset() == {
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
    A topic that the options no longer subscribe to is logged, but is not data loss.
    """
    cluster.create_topic("u", 4)
    process = query(cluster, subscribe="t,u")
    process.step()
    process.options.pop("subscribe")
    process.restart(**change)

    with caplog.at_level(logging.INFO, "pyspark_pykafka"):
        assert process.step() == []
    assert "no longer subscribe to u-0" in caplog.text
    assert process.position is not None
    assert "u" not in process.position


OTHER_SELECTIONS = [{"subscribe": "u"}, {"subscribePattern": "u"}, {"assign": '{"u":[0]}'}]


def changed(process: Query, **selection: str) -> MicroBatchStream:
    """
    Restart a query with other topics, and return its stream.
    """
    process.options.pop("subscribe")
    process.restart(**selection)
    return process.stream


@pytest.mark.parametrize("change", OTHER_SELECTIONS)
def test_checkpoint_of_other_topics(cluster: Cluster, change: dict[str, str]) -> None:
    """
    A query whose checkpoint shares no partition with its options fails before it plans anything,
    for example after the sources of a union were reordered. Otherwise it would read one topic
    again, and skip another.
    """
    cluster.create_topic("u", 4)
    process = query(cluster)
    process.step()
    position = process.position
    assert position is not None
    stream = changed(process, **change)

    with pytest.raises(OffsetsError, match=r"CHECKPOINT_OF_OTHER_TOPICS.* t-0, t-1.*reordered"):
        stream.latest_offset(position)
    # Spark 4.0 and 4.1 begin with an empty batch, and only then request the latest offsets.
    with pytest.raises(OffsetsError, match="CHECKPOINT_OF_OTHER_TOPICS"):
        stream.plan(position, position)


@pytest.mark.parametrize("change", OTHER_SELECTIONS)
@pytest.mark.parametrize("finished", [0, 1], ids=["first batch", "later batch"])
def test_unfinished_batch_of_other_topics(
    cluster: Cluster, change: dict[str, str], finished: int
) -> None:
    """
    A batch that did not finish is not read again by a source of other topics.
    """
    cluster.create_topic("u", 4)
    process = query(cluster)
    for _ in range(finished):
        process.step()
        cluster.topics["t"][0] = (0, 9)
    start = process.position or process.stream.initial_offset()
    end = checkpointed(process.stream.latest_offset(start))
    stream = changed(process, **change)
    start = process.position or stream.initial_offset()

    with pytest.raises(OffsetsError, match="CHECKPOINT_OF_OTHER_TOPICS"):
        stream.plan(checkpointed(start), end)


@pytest.mark.parametrize("change", OTHER_SELECTIONS)
def test_checkpoint_of_other_topics_with_allowed_loss(
    cluster: Cluster, change: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """
    With failOnDataLoss=false the query changes its topics, and says so in one warning.
    """
    cluster.create_topic("u", 4)
    process = query(cluster, failOnDataLoss="false")
    process.step()
    changed(process, **change)

    assert process.step() == [("u-0", 0, 4)]
    assert process.step() == []
    assert caplog.text.count("share no partition") == 1
    process.restart(failOnDataLoss="true")
    assert process.step() == []


@pytest.mark.parametrize("options", [{"subscribe": "t"}, {"subscribePattern": "t"}])
def test_topics_that_no_longer_exist_are_not_other_topics(
    cluster: Cluster, options: dict[str, str]
) -> None:
    """
    If all topics of a checkpoint were deleted, that is data loss, not CHECKPOINT_OF_OTHER_TOPICS. A
    query that had no partition yet may get its first ones.
    """
    process = query(cluster, **options)
    process.step()
    del cluster.topics["t"]
    cluster.create_topic("tu", 4)
    process.restart()

    with pytest.raises(DataLossError, match="PARTITIONS_DELETED"):
        process.step()
    empty = query(cluster, subscribePattern="x")
    assert empty.step() == []
    cluster.create_topic("x", 1)
    assert empty.step() == [("x-0", 0, 1)]


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
    A limit applies to an added partition, too: its backlog counts from its start.
    """
    process = query(cluster, maxOffsetsPerTrigger="8")
    process.step()
    cluster.topics["t"] += [(0, 4000)]

    assert process.step() == [("t-2", 0, 8)]


def test_limited_batches_add_up(cluster: Cluster) -> None:
    """
    Limited batches follow each other without a gap; Spark can lift the limit.
    """
    process = query(cluster, maxOffsetsPerTrigger="4")

    assert process.step() == [("t-0", 0, 1), ("t-1", 0, 2)]
    assert process.step() == [("t-0", 1, 2), ("t-1", 2, 4)]
    assert process.step(limited=False) == [("t-0", 2, 3), ("t-1", 4, 5)]


def test_byte_limit(cluster: Cluster) -> None:
    """
    The option maxBytesPerTrigger limits offsets by their estimated bytes.
    """
    process = query(cluster, maxBytesPerTrigger="4m")

    assert process.step() == [("t-0", 0, 1), ("t-1", 0, 2)]


def test_waiting_batch_keeps_the_document(cluster: Cluster) -> None:
    """
    A batch that waits for more records returns the start document.
    """
    process = query(cluster, minOffsetsPerTrigger="5")
    process.step()
    cluster.topics["t"][0] = (0, 6)
    position = process.position

    assert process.step() == []
    assert process.position == position
    cluster.topics["t"][0] = (0, 8)
    assert process.step() == [("t-0", 3, 8)]


def test_waiting_batch_hides_no_data_loss(cluster: Cluster) -> None:
    """
    While a batch waits, a recreated topic does not count as the old one; the next batch reports
    the data loss.
    """
    process = query(cluster, minOffsetsPerTrigger="5")
    process.step()
    position = process.position
    cluster.create_topic("t", 1, 2)

    assert process.step() == []
    assert process.position == position
    cluster.topics["t"] = [(0, 9), (0, 9)]
    with pytest.raises(DataLossError, match="recreated"):
        process.step()


def test_available_now(cluster: Cluster) -> None:
    """
    An availableNow run reads up to the end that was fixed when it began, in batches.
    """
    process = query(cluster, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="6")
    process.stream.prepare_for_available_now()
    # A partition added before Spark calls initialOffset is left to the next run.
    cluster.topics["t"] = [(0, 50), (0, 50), (0, 50)]

    assert process.step() == [("t-0", 0, 2), ("t-1", 0, 3)]
    assert process.step() == [("t-0", 2, 3), ("t-1", 3, 5)]
    assert process.step() == []


def test_available_now_from_latest(cluster: Cluster) -> None:
    """
    Records that arrive after a run's end is fixed, but before its start is, are left to the next.
    """
    process = query(cluster, startingOffsets="latest")
    process.stream.prepare_for_available_now()
    cluster.topics["t"] = [(0, 9), (0, 9)]

    assert process.step() == []
    process.restart()
    assert process.step() == [("t-0", 3, 9), ("t-1", 5, 9)]


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
    An availableNow run fails if its fixed end no longer exists.
    """
    process = query(cluster, maxOffsetsPerTrigger="3", failOnDataLoss="false")
    process.stream.prepare_for_available_now()
    process.step()
    cluster.topics["t"] = partitions

    with pytest.raises(OffsetsError, match=condition):
        process.step()


@pytest.mark.parametrize("allows_loss", [True, False])
@pytest.mark.parametrize("stale", [{T0: 1, T1: 5}, {T0: 3}], ids=["lower", "missing"])
def test_available_now_with_a_stale_end(
    cluster: Cluster, stale: Offsets, *, allows_loss: bool
) -> None:
    """
    An end of a run that is older than the checkpoint comes from a stale broker: the latest offsets
    are requested again, and nothing is lost or read twice.
    """
    process = query(cluster, failOnDataLoss=str(not allows_loss))
    process.step()
    cluster.topics["t"] = [(0, 4), (0, 6)]
    cluster.stale = [stale]
    process.restart()
    process.stream.prepare_for_available_now()

    assert process.step() == [("t-0", 3, 4), ("t-1", 5, 6)]
    cluster.topics["t"] = [(0, 50), (0, 50)]
    assert process.step() == []


def test_available_now_with_a_lost_log(cluster: Cluster) -> None:
    """
    If a log still ends before the checkpoint when its end is requested again, that is data loss.
    With failOnDataLoss=false the run keeps the end that was fixed when it began.
    """
    process = query(cluster, maxOffsetsPerTrigger="1")
    process.step(limited=False)
    cluster.topics["t"] = [(0, 2), (0, 7)]
    process.restart()
    process.stream.prepare_for_available_now()
    with pytest.raises(DataLossError, match="t-0 was changed from 3 to 2"):
        process.step()

    process.restart(failOnDataLoss="false")
    process.stream.prepare_for_available_now()
    assert process.step() == [("t-1", 5, 6)]
    cluster.topics["t"] = [(0, 50), (0, 50)]
    assert process.step() == [("t-1", 6, 7)]
    assert process.step() == []


@pytest.mark.parametrize("partitions", [[(0, 9)], [(0, 9), (0, 1)]], ids=["deleted", "shorter"])
def test_available_now_is_restarted_with_a_lost_end(
    cluster: Cluster, partitions: list[tuple[int, int]]
) -> None:
    """
    With failOnDataLoss=false a batch of an earlier run is planned again, even if its end is lost.
    """
    process = query(cluster, failOnDataLoss="false")
    start = process.stream.initial_offset()
    end = checkpointed(process.stream.latest_offset(start))
    cluster.topics["t"] = partitions
    process.restart()
    process.stream.prepare_for_available_now()

    ranges = process.stream.plan(process.stream.initial_offset(), end).ranges

    assert [(str(r.tp), r.start, r.end) for r in ranges] == [("t-0", 0, 3), ("t-1", 0, 5)]
    process.position = end
    assert process.step() == [("t-0", 3, 9)]
    assert process.step() == []


@pytest.mark.parametrize(
    ("end_options", "first", "rest"),
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
    end_options: dict[str, str],
    first: list[tuple[str, int, int]],
    rest: list[str],
) -> None:
    """
    A stream is read up to its ending offsets, however the topic grows.
    """
    process = query(cluster, **end_options)

    assert process.step() == first
    cluster.topics["t"] = [(0, 20), (0, 20)]
    assert [tp for tp, *_ in process.step()] == rest
    assert process.step() == []


def test_ending_offsets_before_the_position(cluster: Cluster) -> None:
    """
    An ending offset before the query's position stops the query there; it is not data loss.
    """
    process = query(cluster)
    process.step()
    process.restart(endingOffsets='{"t":{"0":1,"1":6}}')
    cluster.topics["t"] = [(0, 20), (0, 20)]

    assert process.step() == [("t-1", 5, 6)]


end_in_the_future = pytest.mark.parametrize(
    "end_options",
    [
        {"endingTimestamp": "1000"},
        {"endingOffsetsByTimestamp": '{"t":{"0":1000,"1":1000}}'},
        {"endingOffsets": '{"t":{"0":1000,"1":1000}}'},
    ],
    ids=["time", "times", "offsets"],
)


@end_in_the_future
def test_ending_offsets_hide_no_recreated_topic(
    cluster: Cluster, end_options: dict[str, str]
) -> None:
    """
    A recreated topic is data loss for a stream with an end, too; all its records can be read.
    """
    process = query(cluster, **end_options)
    process.step()
    cluster.create_topic("t", 2, 2)
    with pytest.raises(DataLossError, match="t was deleted and recreated"):
        process.step()

    process.restart(failOnDataLoss="false")
    assert process.step() == [("t-0", 0, 2), ("t-1", 0, 2)]
    cluster.topics["t"] = [(0, 4), (0, 9)]
    assert process.step() == [("t-0", 2, 4), ("t-1", 2, 9)]


@end_in_the_future
def test_ending_offsets_hide_no_lost_records(cluster: Cluster, end_options: dict[str, str]) -> None:
    """
    A log that ends before the query's position is data loss for a stream with an end, too.
    """
    process = query(cluster, **end_options)
    process.step()
    cluster.topics["t"][1] = (0, 4)
    with pytest.raises(DataLossError, match="t-1 was changed from 5 to 4"):
        process.step()

    process.restart(failOnDataLoss="false")
    assert process.step() == []
    cluster.topics["t"][1] = (0, 6)
    assert process.step() == [("t-1", 4, 6)]


def test_older_latest_offsets_are_retried(cluster: Cluster) -> None:
    """
    Latest offsets older than known ones come from a lagging replica, and are retried (KAFKA-7703).
    """
    process = query(cluster)
    process.step()
    cluster.topics["t"][0] = (0, 4)
    cluster.stale = [{TopicPartition("t", 0): 1, TopicPartition("t", 1): 5}]

    assert process.step() == [("t-0", 3, 4)]


def test_newer_documents_are_refused(cluster: Cluster) -> None:
    """
    Offsets written by a later version are refused.
    """
    process = query(cluster)

    with pytest.raises(OffsetsError, match="@epochs.*newer version wrote them"):
        process.stream.latest_offset({"t": {"0": 3}, "@epochs": {"t": 1}})
    with pytest.raises(OffsetsError, match="@topicIds is 5"):
        process.stream.latest_offset({"t": {"0": 3}, "@topicIds": 5})


def test_repr_has_topics_and_offsets_but_no_secrets(cluster: Cluster) -> None:
    """
    The repr of a stream names its topics and latest offsets, and no password.
    """
    process = query(cluster, **{"kafka.ssl.key.password": "canary"})
    process.step()

    text = repr(process.stream)

    assert "Subscribe(topics=('t',))" in text
    assert "latest offsets: {'t': {'0': 3, '1': 5}}" in text
    assert "canary" not in text
