"""
How a stream uses leader epochs: it detects logs that were truncated and grew again (KIP-320).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.engines.log_truncation import LOG_TRUNCATED, epochs_at
from pyspark_pykafka.errors import BrokerUnavailableError, DataLossError, OffsetsError
from pyspark_pykafka.offsets import (
    LEADER_EPOCHS,
    LogEnds,
    OffsetRange,
    Offsets,
    StreamOffset,
    TopicPartition,
)
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.source.checkpoint import _to_jvm_format
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.source.planner import SplitPolicy, split

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Process:
    """
    The planning process of one run of a query.
    """

    cluster: Cluster
    options: dict[str, str] = field(default_factory=dict)
    stream: MicroBatchStream = field(init=False)

    def __post_init__(self) -> None:
        source_options = {
            "kafka.bootstrap.servers": "b:1",
            "subscribe": "t",
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "0",
            **self.options,
        }
        self.stream = MicroBatchStream(
            parse_stream_source(source_options), self.cluster, lambda _: {}
        )

    def latest_offset(self, start: Any) -> Any:
        """
        Return the end of the next batch, as it is read back from the checkpoint.
        """
        return json.loads(json.dumps(self.stream.latest_offset(start)))

    def first(self) -> Any:
        """
        Return the end of a new query's first batch.
        """
        return self.latest_offset(self.stream.initial_offset())


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with a topic of two partitions with 200 and 50 records, in leader epoch 3.
    """
    new_cluster = Cluster()
    new_cluster.create_topic("t", 200, 50)
    new_cluster.elect(T0, 3, 0, 200)
    new_cluster.elect(T1, 3, 0, 50)
    return new_cluster


def allowing_loss(cluster: Cluster) -> Process:
    """
    Return a process of a query with failOnDataLoss=false.
    """
    return Process(cluster, {"failOnDataLoss": "false"})


def test_end_offsets_have_leader_epochs(cluster: Cluster) -> None:
    """
    An end has the leader epoch of each partition, under a reserved key beside the offsets.
    """
    end = Process(cluster).first()

    assert end["t"] == {"0": 200, "1": 50}
    assert end[LEADER_EPOCHS] == {"t": {"0": 3, "1": 3}}


def test_truncated_log_is_data_loss(cluster: Cluster) -> None:
    """
    A log truncated and grown again is data loss, though its offsets are the same or higher.
    """
    process = Process(cluster)
    end = process.first()

    for grown in (200, 260):
        cluster.elect(T0, 5, 100, grown)
        with pytest.raises(DataLossError, match="the log of t-0 was truncated: it was seen up to "):
            process.latest_offset(end)

    with pytest.raises(
        DataLossError, match="offset 200 in leader epoch 3.* offset 100 now"
    ) as caught:
        Process(cluster).latest_offset(end)
    assert caught.value.condition == LOG_TRUNCATED
    assert "Set failOnDataLoss to false" in str(caught.value)


def test_unanswered_epoch_check_is_repeated(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A partition missing in the response is checked again with the next batch.
    """
    process = Process(cluster)
    end = process.first()
    cluster.elect(T0, 5, 100, 200)
    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "offsets_for_leader_epochs", lambda *_: {})
        assert process.latest_offset(end) == end

    with pytest.raises(DataLossError, match="the log of t-0 was truncated"):
        process.latest_offset(end)


def test_allowed_truncation_is_counted_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    With failOnDataLoss=false the lost offsets are logged and counted once, and the query continues.
    """
    process = allowing_loss(cluster)
    end = process.first()
    cluster.elect(T0, 5, 120, 200)

    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        assert process.latest_offset(end) == end
        assert process.latest_offset(end) == end
        cluster.topics["t"][0] = (0, 260)
        later = process.latest_offset(end)
        assert process.latest_offset(later) == later

    assert caplog.text.count(f"[{LOG_TRUNCATED}]") == 1
    assert "The 80 offsets" in caplog.text
    assert process.stream.report_latest_offset() == {
        "t": {"0": 260, "1": 50},
        "@lost": {"t": {"0": 80}},
    }
    assert later[LEADER_EPOCHS] == {"t": {"0": 5, "1": 3}}
    assert [(r.start, r.end) for r in process.stream.plan(end, later).ranges] == [(200, 260)]


def test_leader_change_without_truncation_is_no_data_loss(cluster: Cluster) -> None:
    """
    A new leader epoch with the same log costs one request, and makes no batch.
    """
    process = Process(cluster)
    end = process.first()
    cluster.elect(T0, 4, 200, 200)

    assert [process.latest_offset(end), process.latest_offset(end), process.latest_offset(end)] == [
        end
    ] * 3
    assert cluster.epoch_requests == [{T0: 3}]

    cluster.elect(T0, 6, 210, 230)
    later = process.latest_offset(end)
    assert cluster.epoch_requests[1:] == [{T0: 4}]
    assert later[LEADER_EPOCHS] == {"t": {"0": 6, "1": 3}}
    process.latest_offset(later)
    assert len(cluster.epoch_requests) == 2


def test_unchanged_epoch_needs_no_request(cluster: Cluster) -> None:
    """
    While the leader epoch stays the same, no request is sent: a log is not truncated within an
    epoch.
    """
    process = Process(cluster)
    end = process.first()
    for grown in (200, 260, 300):
        cluster.topics["t"][0] = (0, grown)
        end = process.latest_offset(end)

    assert cluster.epoch_requests == []


@pytest.mark.parametrize("epoch", [0, 3, 9])
def test_recreated_topic_is_detected_by_its_id(cluster: Cluster, epoch: int) -> None:
    """
    A recreated topic is detected whether its leader epochs are lower, equal or higher.
    """
    process = Process(cluster)
    end = process.first()
    cluster.create_topic("t", 300, 300)
    cluster.epochs = {T0: {epoch: 0}, T1: {epoch: 0}}

    later = process.latest_offset(end)

    with pytest.raises(DataLossError, match="deleted and recreated"):
        process.stream.plan(end, later)
    assert cluster.epoch_requests == []
    assert later[LEADER_EPOCHS]["t"]["0"] == epoch


def test_ranges_of_a_recreated_topic_have_no_start_epoch(cluster: Cluster) -> None:
    """
    The start of a recreated topic was seen in no leader epoch.
    """
    process = allowing_loss(cluster)
    end = process.first()
    cluster.create_topic("t", 300, 300)
    cluster.epochs = {T0: {7: 0}}

    planned = process.stream.plan(end, process.latest_offset(end)).ranges

    assert [(r.start_epoch, r.end_epoch) for r in planned] == [(-1, 7), (-1, -1)]


def test_older_epoch_is_stale_metadata(cluster: Cluster) -> None:
    """
    Epochs of a topic only grow: a broker that returns an older one has stale metadata.
    """
    process = Process(cluster)
    end = process.first()
    cluster.epochs[T0] = {2: 0}
    cluster.topics["t"][0] = (0, 150)

    with pytest.raises(
        BrokerUnavailableError, match="t-0.* stale metadata.* was 3, and is 2 there"
    ):
        process.latest_offset(end)
    cluster.epochs[T0] = {3: 0}
    cluster.topics["t"][0] = (0, 201)
    assert process.latest_offset(end)["t"]["0"] == 201


@pytest.mark.parametrize("ids", [{}, {"t": "another"}])
def test_older_epoch_without_the_same_topic_id_is_accepted(
    cluster: Cluster, ids: dict[str, str]
) -> None:
    """
    Brokers before 2.8 have no topic ids, and epochs of a recreated topic start again.
    """
    start = {"t": {"0": 100, "1": 50}, LEADER_EPOCHS: {"t": {"0": 9}}}
    if ids:
        start["@topicIds"] = ids
    cluster.ids["t"] = "t"

    assert Process(cluster).latest_offset(start)["t"] == {"0": 200, "1": 50}


def test_brokers_without_leader_epochs(cluster: Cluster) -> None:
    """
    If brokers return no epochs, checkpoints get none, and checkpoints that already have epochs are
    accepted.
    """
    end = Process(cluster).first()
    cluster.epochs = {}
    cluster.topics["t"][0] = (0, 250)

    later = Process(cluster).latest_offset(end)

    assert LEADER_EPOCHS not in later
    assert later["t"] == {"0": 250, "1": 50}
    assert LEADER_EPOCHS not in Process(cluster).first()


def test_unknown_epoch_is_no_data_loss(cluster: Cluster) -> None:
    """
    An epoch that the leader does not know, as with a log in the old message format, is not data
    loss.
    """
    end = Process(cluster).first()
    cluster.epochs[T0] = {5: 0}
    cluster._epoch_end = lambda tp, epoch: -1  # type: ignore[method-assign] # noqa: ARG005

    assert Process(cluster).latest_offset(end) == end
    assert cluster.epoch_requests == [{T0: 3}]


def test_checkpoint_without_epochs_is_accepted(cluster: Cluster) -> None:
    """
    Checkpoints of older versions and of the JVM connector have no epochs to check.
    """
    start = {"t": {"0": 100, "1": 50}}
    cluster.elect(T0, 8, 20, 300)
    process = Process(cluster)

    end = process.latest_offset(start)

    assert cluster.epoch_requests == []
    assert end[LEADER_EPOCHS] == {"t": {"0": 8, "1": 3}}
    (planned,) = process.stream.plan(start, end).ranges
    assert (planned.start_epoch, planned.end_epoch) == (-1, 8)


def test_plan_checks_truncation_itself(cluster: Cluster) -> None:
    """
    A plan checks for truncation itself: in a replay, and with Spark before 4.2, latest_offset may
    not have had the start.
    """
    end = Process(cluster).first()
    cluster.elect(T0, 5, 100, 260)
    later = allowing_loss(cluster).latest_offset(end)

    with pytest.raises(DataLossError, match="offset 100 now"):
        Process(cluster).stream.plan(end, later)


def test_end_beyond_the_log_keeps_its_epoch() -> None:
    """
    An end held at the query's position beyond the log's end keeps the epoch in which it was seen.
    """
    start = StreamOffset({T0: 200, T1: 50}, epochs={T0: 3, T1: 3})
    latest = StreamOffset({T0: 120, T1: 90}, epochs={T0: 5, T1: 4})

    assert epochs_at({T0: 200, T1: 70}, start, latest) == {T0: 3, T1: 4}


def test_log_that_ends_before_the_position_is_data_loss(cluster: Cluster) -> None:
    """
    A log shorter than the query's position is data loss by its offsets, as in the JVM connector.
    """
    process = Process(cluster)
    end = process.first()
    cluster.elect(T0, 5, 100, 150)

    with pytest.raises(DataLossError, match=r"changed from 200 to 150.*unclean") as caught:
        process.latest_offset(end)
    assert caught.value.condition == "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"


def test_available_now_checks_the_start_of_its_run(cluster: Cluster) -> None:
    """
    An availableNow run checks truncation although its end is fixed before its start is known.
    """
    end = Process(cluster).first()
    cluster.elect(T0, 5, 100, 260)
    restarted = Process(cluster)
    restarted.stream.prepare_for_available_now()

    assert LEADER_EPOCHS not in restarted.stream.initial_offset()
    with pytest.raises(DataLossError, match="offset 100 now"):
        restarted.latest_offset(end)


def test_available_now_refuses_stale_metadata(cluster: Cluster) -> None:
    """
    An availableNow run whose end is of an older epoch than its start gets another end; if all
    brokers return an older epoch, it fails.
    """
    end = Process(cluster).first()
    restarted = Process(cluster)
    cluster.epochs[T0] = {2: 0}
    cluster.topics["t"][0] = (0, 250)
    restarted.stream.prepare_for_available_now()
    with pytest.raises(BrokerUnavailableError, match="t-0.* stale metadata"):
        restarted.latest_offset(end)

    cluster.epochs[T0] = {3: 0}
    cluster.topics["t"][0] = (0, 201)
    assert restarted.latest_offset(end)["t"]["0"] == 201


def test_pieces_of_a_split_range_have_epochs() -> None:
    """
    The first piece has the start's epoch; all others start within the log of the end's epoch.
    """
    original = OffsetRange(T0, 0, 10, "id", 3, 5)

    pieces = split([original], SplitPolicy(min_partitions=3))

    assert [(p.start_epoch, p.end_epoch, p.topic_id) for p in pieces] == [
        (3, 5, "id"),
        (5, 5, "id"),
        (5, 5, "id"),
    ]


@pytest.mark.parametrize("malformed", [5, [1], {"t": 3}, {"t": {"0": "x"}}])
def test_malformed_epochs_are_refused(cluster: Cluster, malformed: object) -> None:
    """
    The error for malformed epochs names their key.
    """
    with pytest.raises(OffsetsError, match=f"the checkpoint's {LEADER_EPOCHS} is"):
        Process(cluster).latest_offset({"t": {"0": 3}, LEADER_EPOCHS: malformed})


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 20)),
        st.integers(0, 2**31 - 1),
        max_size=9,
    )
)
def test_epochs_survive_the_checkpoint(epochs: Offsets) -> None:
    """
    Epochs are read back from the JSON, including those of a first batch's start.
    """
    start = StreamOffset(dict.fromkeys(epochs, 7), {"t": "id"}, epochs=epochs)
    original = replace(start, initial=start)

    assert StreamOffset.from_json(json.loads(json.dumps(original.to_json()))) == original


def test_checkpoint_in_jvm_format_has_no_epochs(cluster: Cluster) -> None:
    """
    The epochs are removed for the JVM connector, which reads every key as a topic.
    """
    end = {"t": {"0": 3}, LEADER_EPOCHS: {"t": {"0": 1}}}

    assert json.loads(_to_jvm_format(f"v1\n{{}}\n{json.dumps(end)}").split("\n")[2]) == {
        "t": {"0": 3}
    }
    assert LogEnds({}, {}) == cluster.log_ends([])


class Log:
    """
    A log of numbered records, so that a replaced record differs from the lost one.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.create_topic("t", 0)
        self.cluster.elect(T0, 0, 0, 0)
        self.records: list[int] = []
        self._written = 0

    @property
    def first(self) -> int:
        return self.cluster.topics["t"][0][0]

    def append(self, count: int) -> None:
        self.records += range(self._written, self._written + count)
        self._written += count
        self.cluster.topics["t"][0] = (self.first, len(self.records))

    def elect(self, lost: int, count: int) -> None:
        """
        Elect a leader without the last ``lost`` records, and append ``count`` records.
        """
        end = max(len(self.records) - lost, self.first)
        del self.records[end:]
        self.cluster.elect(T0, max(self.cluster.epochs[T0]) + 1, end, end)
        self.append(count)

    def age(self, count: int) -> None:
        self.cluster.delete_before(T0, min(self.first + count, len(self.records)))

    def replaced(self, earlier: list[int]) -> int:
        """
        Return the number of seen records from the first replaced one on.
        """
        pairs = zip(earlier[self.first :], self.records[self.first :], strict=False)
        same = self.first + next(
            (index for index, (a, b) in enumerate(pairs) if a != b), len(earlier)
        )
        return max(len(earlier) - same, 0)


steps = st.lists(
    st.tuples(st.just("append"), st.tuples(st.integers(0, 9)))
    | st.tuples(st.just("elect"), st.tuples(st.integers(0, 12) | st.just(0), st.integers(0, 15)))
    | st.tuples(st.just("age"), st.tuples(st.integers(0, 8)))
    | st.tuples(st.just("trigger"), st.just(())),
    max_size=30,
)


@settings(max_examples=300)
@example([("elect", (3, 3)), ("trigger", ()), ("elect", (0, 0)), ("trigger", ())])
@example([("elect", (3, 9)), ("elect", (7, 9)), ("trigger", ()), ("elect", (1, 0))])
@given(steps)
def test_lost_offsets_are_the_replaced_records(
    history: list[tuple[str, tuple[int, ...]]],
) -> None:
    """
    After any sequence of clean and unclean elections and retention, the counted offsets are those
    of the replaced and deleted records.
    """
    log = Log()
    log.append(5)
    process = allowing_loss(log.cluster)
    position, lost_count = process.first(), 0
    read_records = list(log.records)
    for name, arguments in [*history, ("trigger", ())]:
        if name != "trigger":
            getattr(log, name)(*arguments)
            continue
        end, read_end = len(log.records), len(read_records)
        lost_count += log.replaced(read_records) if read_end <= end else 0
        lost_count += max(min(log.first, end) - read_end, 0)
        position = process.latest_offset(position)
        read_records = log.records[: position["t"]["0"]]
        latest = process.stream.report_latest_offset() or {}
        assert latest.get("@lost", {"t": {"0": 0}}) == {"t": {"0": lost_count}}
