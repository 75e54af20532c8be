"""
Leader epochs show that the log of a range was truncated and grew again (KIP-320).
"""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.engines.log_truncation import LOG_TRUNCATED
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import fetch, metadata_backend
from pyspark_pykafka.engines.wire.consumer.topics import format_topic_id
from pyspark_pykafka.errors import DataLossError, TimeoutExceededError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    LEADER_EPOCHS,
    TOPIC_IDS,
    OffsetRange,
    TopicPartition,
)
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.source.factory import metadata_client
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

if TYPE_CHECKING:
    from collections.abc import Callable

T0 = TopicPartition("t", 0)
METADATA, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 3, 2, 23
FENCED, UNKNOWN_EPOCH = 74, 75


class Led(Behaviour):
    """
    A partition of 1,000 records in leader epoch ``epoch``; ``kept`` of them are from earlier
    epochs.

    ``elections`` are pairs of offsets: a Fetch at or after the first elects the next leader, whose
    epoch starts at the second.
    """

    def __init__(self, **attributes: Any) -> None:
        self.epoch = 3
        self.kept = 1000
        self.elections: list[tuple[int, int]] = []
        self.epoch_starts: dict[int, int] = {}
        self.id = uuid4()
        self.requested_epoch = -1
        self.requested_ends: list[tuple[int, int]] = []
        super().__init__(**attributes)

    def topic_id(self, _topic: str) -> UUID:
        return self.id

    def leader_epoch(self, _topic: str, _partition: int) -> int:
        return self.epoch

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if self.elections and self.elections[0][0] <= offset:
            self.epoch += 2
            self.epoch_starts[self.epoch] = self.elections.pop(0)[1]
        if self.requested_epoch not in {-1, self.epoch}:
            return FetchAnswer(FENCED if self.requested_epoch < self.epoch else UNKNOWN_EPOCH, -1)
        return super().fetch(node, topic, partition, offset)

    def epoch_end(self, _node: int, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        self.requested_ends.append((epoch, self.epoch))
        if epoch == self.epoch:
            return epoch, self.end(topic, partition)
        starts = {5: self.kept, **self.epoch_starts}
        return epoch, min((start for later, start in starts.items() if later > epoch), default=-1)

    def _on_1(self, node: int, request: Any) -> Any:
        self.requested_epoch = request.topics[0].partitions[0].current_leader_epoch
        return super()._on_1(node, request)


class BehindAtFirst(Led):
    """
    Knows the epoch of the last leader from the fourth metadata request on.
    """

    def leader_epoch(self, topic: str, partition: int) -> int:
        behind = self.requests[METADATA] < 4
        return self.epoch - 1 if behind else super().leader_epoch(topic, partition)


def read(stubs: StubCluster, requested: OffsetRange, **changes: Any) -> list[int]:
    """
    Return the offsets that a task reads.
    """
    fetch_settings = fetching.settings(stubs.bootstrap, "wire", schema=fetching.VALUES, **changes)
    carried: OffsetRange = pickle.loads(pickle.dumps(requested))  # noqa: S301 - our own bytes
    return [
        offset for batch in fetch(carried, fetch_settings) for offset in batch["offset"].to_pylist()
    ]


def planned(epoch: int, start: int = 0, end: int = 1000) -> OffsetRange:
    """
    Return a range whose start and end were seen in a leader epoch.
    """
    return OffsetRange(T0, start, end, start_epoch=epoch, end_epoch=epoch)


def epoch_requests(stubs: StubCluster) -> int:
    """
    Return the number of requests for the end of an epoch.
    """
    return int(stubs.stats()["requests"].get(OFFSET_FOR_LEADER_EPOCH, 0))


def test_unchanged_leader_gets_no_request() -> None:
    """
    While the leader stays, the check costs no request.
    """
    with StubCluster(Led()) as stubs:
        assert read(stubs, planned(3)) == list(range(1000))
        assert epoch_requests(stubs) == 0


def test_new_leader_with_the_same_log_is_read() -> None:
    """
    A new leader with the same log gets one request, and is read.
    """
    with StubCluster(Led(epoch=5)) as stubs:
        assert read(stubs, planned(3)) == list(range(1000))
        assert epoch_requests(stubs) == 1


def test_log_truncated_since_planning_is_data_loss() -> None:
    """
    The error has its own condition, and no record of the new log is read.
    """
    with StubCluster(Led(epoch=5, kept=600)) as stubs:
        with pytest.raises(
            DataLossError, match="seen up to offset 1000 in leader epoch 3"
        ) as raised:
            read(stubs, planned(3, 200))
        assert raised.value.condition == LOG_TRUNCATED
        assert "t-0[200, 1000)" in str(raised.value)
        assert "The 400 offsets" in str(raised.value)
        assert stubs.stats()["requests"].get(1, 0) == 0


def test_allowed_truncation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """
    With failOnDataLoss=false the new records are read, and the truncation is logged once.
    """
    with (
        caplog.at_level(logging.WARNING, "pyspark_pykafka"),
        StubCluster(Led(epoch=5, kept=600)) as stubs,
    ):
        assert read(stubs, planned(3, 200), fail_on_data_loss=False) == list(range(200, 1000))
        assert epoch_requests(stubs) == 1
    assert caplog.text.count("which ends at offset 600 now") == 1


@pytest.mark.parametrize("fail", [True, False])
def test_log_truncated_during_a_read_is_data_loss(fail: bool) -> None:
    """
    The next leader is checked before any record of its log is read.
    """
    with StubCluster(Led(elections=[(500, 300)])) as stubs:
        if fail:
            with pytest.raises(DataLossError, match="ends at offset 300 now"):
                read(stubs, planned(3))
        else:
            assert read(stubs, planned(3), fail_on_data_loss=False) == list(range(1000))
        assert stubs.get("requested_ends") == [(3, 5)]


def test_each_truncation_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """
    Each truncation is reported once, whatever the number of later leaders.
    """
    with (
        caplog.at_level(logging.WARNING, "pyspark_pykafka"),
        StubCluster(Led(elections=[(300, 200), (500, 1000), (700, 600)])) as stubs,
    ):
        assert read(stubs, planned(3), fail_on_data_loss=False) == list(range(1000))
        assert stubs.get("requested_ends") == [(3, 5), (5, 7), (5, 9)]

    assert caplog.text.count("was truncated") == 2
    assert caplog.text.count("ends at offset 200 now") == 1
    assert caplog.text.count("ends at offset 600 now") == 1


def test_election_without_truncation_loses_nothing() -> None:
    """
    After an election that keeps the whole log, as in a broker restart, each record is read once.
    """
    with StubCluster(Led(elections=[(500, 1000)])) as stubs:
        assert read(stubs, planned(3)) == list(range(1000))
        assert stubs.get("requested_ends") == [(3, 5)]


@pytest.mark.parametrize(("start", "end"), [(EARLIEST, LATEST), (0, LATEST), (0, 1000)])
def test_batch_query_detects_truncation_during_the_read(start: int, end: int) -> None:
    """
    A batch query's ranges have no epoch; the first leader whose log reaches the end of the range
    sets it.
    """
    with StubCluster(Led(elections=[(500, 300)])) as stubs:
        with pytest.raises(DataLossError, match="in leader epoch 3.* 300 now"):
            read(stubs, OffsetRange(T0, start, end))
        assert stubs.get("requested_ends") == [(3, 5)]


def test_offsets_of_the_user_are_not_checked() -> None:
    """
    The epoch in which the user saw these offsets is unknown.
    """
    with StubCluster(Led(epoch=5, kept=600)) as stubs:
        assert read(stubs, OffsetRange(T0, 0, 1000)) == list(range(1000))
        assert epoch_requests(stubs) == 0


def test_epoch_unknown_to_the_leader_is_no_loss() -> None:
    """
    An unknown epoch proves no loss: a log in the old message format has no epochs.
    """

    class Forgetful(Led):
        def epoch_end(self, *_: object) -> tuple[int, int]:
            return -1, -1

    with StubCluster(Forgetful(epoch=5)) as stubs:
        assert read(stubs, planned(3)) == list(range(1000))
        assert epoch_requests(stubs) == 1


@pytest.mark.parametrize(
    "versions",
    [{OFFSET_FOR_LEADER_EPOCH: (2, 2)}, {METADATA: (4, 6), LIST_OFFSETS: (2, 3)}],
    ids=["no-request", "no-epochs"],
)
def test_old_brokers_are_not_checked(versions: dict[int, tuple[int, int]]) -> None:
    """
    Before Kafka 2.3 clients may not send the request, and before 2.1 metadata has no epochs.
    """
    supported = {**Behaviour().versions, **versions}
    with StubCluster(Led(epoch=5, kept=600, versions=supported)) as stubs:
        assert read(stubs, planned(3)) == list(range(1000))
        assert epoch_requests(stubs) == 0


def test_metadata_older_than_the_range_is_requested_again() -> None:
    """
    A range planned in a later epoch shows that the broker's metadata is stale.
    """
    with StubCluster(BehindAtFirst()) as stubs:
        assert read(stubs, planned(3)) == list(range(1000))
        assert stubs.stats()["requests"][METADATA] >= 4


def test_permanently_stale_broker_is_a_retriable_error() -> None:
    """
    A broker whose metadata stays stale is an error, and no record of its log is read.
    """
    with StubCluster(Led(epoch=2)) as stubs:
        with pytest.raises(TimeoutExceededError, match=r"t-0: a broker that is behind.*epoch 2"):
            read(stubs, planned(3), poll_timeout_ms=2000)
        assert stubs.stats()["requests"].get(1, 0) == 0


def test_older_epoch_without_topic_ids_is_accepted() -> None:
    """
    On brokers before 2.8 an older epoch may be that of a recreated topic, which is read.
    """
    supported = {**Behaviour().versions, METADATA: (4, 9)}
    with StubCluster(Led(epoch=2, versions=supported)) as stubs:
        assert read(stubs, planned(3)) == list(range(1000))
        assert epoch_requests(stubs) == 0


@pytest.fixture
def make_client() -> Callable[[StubCluster], MetadataClient]:
    """
    Return a function that makes a MetadataClient without retries.
    """

    def make(stubs: StubCluster) -> MetadataClient:
        kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap})
        return MetadataClient(metadata_backend(kafka, "read_committed", "wire"), RetryPolicy(1, 0))

    return make


def test_driver_sends_one_request_to_each_leader(
    make_client: Callable[[StubCluster], MetadataClient],
) -> None:
    """
    Each leader gets one request for all its partitions; the end offsets have their leader epochs.
    """
    tps = [TopicPartition("t", number) for number in range(30)]
    with StubCluster(Led(brokers=3, topics={"t": 30}, epoch=5, kept=600)) as stubs:
        driver = make_client(stubs)
        ends = driver.log_ends(tps)
        end_offsets = driver.offsets_for_leader_epochs(dict.fromkeys(tps, 3))
        assert epoch_requests(stubs) == 3

    assert ends.offsets == dict.fromkeys(tps, 1000)
    assert ends.epochs == dict.fromkeys(tps, 5)
    assert end_offsets == dict.fromkeys(tps, 600)


def test_driver_leaves_out_old_brokers(
    make_client: Callable[[StubCluster], MetadataClient],
) -> None:
    """
    Before 2.3 brokers lack the request for epochs, and before 2.1 end offsets have no epochs.
    """
    supported = {**Behaviour().versions, OFFSET_FOR_LEADER_EPOCH: (2, 2), LIST_OFFSETS: (2, 3)}
    with StubCluster(Led(epoch=5, versions=supported)) as stubs:
        driver = make_client(stubs)
        assert driver.offsets_for_leader_epochs({T0: 3}) == {}
        assert driver.log_ends([T0]) == ({T0: 1000}, {})
    assert driver.log_ends([]) == ({}, {})


def test_stream_requests_stale_offsets_again() -> None:
    """
    Offsets are requested again while the broker's leader epoch is older than the checkpoint's.
    """
    with StubCluster(BehindAtFirst()) as stubs:
        source_options = {
            "kafka.bootstrap.servers": stubs.bootstrap,
            "subscribe": "t",
            "fetchOffset.numRetries": "9",
            "fetchOffset.retryIntervalMs": "1",
        }
        options = parse_stream_source(source_options)
        stream = MicroBatchStream(options, metadata_client(options), lambda _: {})
        topic_id = format_topic_id(stubs.get("id"))
        start = {
            "t": {"0": 400},
            TOPIC_IDS: {"t": topic_id},
            LEADER_EPOCHS: {"t": {"0": 3}},
        }

        end = stream.latest_offset(start)

        assert end == {**start, "t": {"0": 1000}}
        assert stubs.stats()["requests"][METADATA] >= 4
        assert epoch_requests(stubs) == 0
