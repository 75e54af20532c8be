"""
Unusual responses of brokers, temporary or permanent: none of them loses a record.
"""

from __future__ import annotations

import struct
import time
from typing import Any
from uuid import UUID

import pytest
from tests.support import fetching, memory_cluster
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.engines.selection import bytes_per_offset, fetch
from pyspark_pykafka.engines.wire.consumer.density_samples import measure_batches
from pyspark_pykafka.engines.wire.consumer.leader_requests import read_offsets
from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata
from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.network.last_seen_epochs import LastSeenEpochs
from pyspark_pykafka.engines.wire.network.metadata_freshness import FreshnessCheck
from pyspark_pykafka.engines.wire.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from pyspark_pykafka.engines.wire.protocol.metadata import (
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.offsets import LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

END = 1000
UNUSUAL_FROM = 200
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def settings(stubs: StubCluster, kafka: dict[str, str] | None = None, **changes: Any) -> Any:
    options = {"bootstrap.servers": stubs.all_brokers, "log_level": "0", **(kafka or {})}
    defaults = {"engine": "wire", "schema": fetching.VALUES, "kafka": KafkaSettings.of(options)}
    return fetching.settings(stubs.bootstrap, **{**defaults, **changes})


def read(stubs: StubCluster, offset_range: OffsetRange, **changes: Any) -> list[int]:
    batches = fetch(offset_range, settings(stubs, **changes))
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


class NewLeader(Behaviour):
    """
    A new leader that does not know its high watermark for some requests (KIP-207).
    """

    unavailable_responses = 3
    is_new = False
    unavailable = 0

    def _lags(self) -> bool:
        return self.is_new and self.unavailable < self.unavailable_responses

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        if timestamp == LATEST and self._lags():
            self.unavailable += 1
            return 78, -1
        return super().offsets(node, topic, partition, timestamp)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if offset >= UNUSUAL_FROM:
            self.is_new = True
            if self._lags():
                return FetchAnswer(0, UNUSUAL_FROM)
        return super().fetch(node, topic, partition, offset)


def test_high_watermark_of_a_new_leader_is_not_the_end() -> None:
    """
    A new leader's high watermark is not the end of the log: while it returns no end offset, no
    record after the watermark is lost.
    """
    with StubCluster(NewLeader(high_watermark=END)) as stubs:
        rows = read(stubs, OffsetRange(P0, 0, END), fail_on_data_loss=False, end_retries=0)
        unavailable = stubs.get("unavailable")

    assert rows == list(range(END))
    assert unavailable


class Restarting(Behaviour):
    """
    A broker that is not the leader for a while, and then does not know its topic for a moment.
    """

    started_at = 0.0
    not_leader_seconds = 1.2
    unknown_seconds = 1.4

    def _error(self) -> int:
        if not self.started_at:
            return 0
        passed = time.monotonic() - self.started_at
        return (
            6
            if passed < self.not_leader_seconds
            else 3
            if passed < self.unknown_seconds + 1.2
            else 0
        )

    def topic_error(self, node: int, topic: str) -> int:  # noqa: ARG002
        return 3 if self._error() == 3 else 0

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if offset >= UNUSUAL_FROM:
            self.started_at = self.started_at or time.monotonic()
        error = self._error()
        return FetchAnswer(error, -1) if error else super().fetch(node, topic, partition, offset)


def test_topic_unknown_at_the_end_of_the_timeout() -> None:
    """
    A topic counts as lost only if it was unknown for all of pollTimeoutMs, not just at the end.
    """
    with StubCluster(Restarting(high_watermark=END)) as stubs:
        rows = read(stubs, OffsetRange(P0, 0, END), fail_on_data_loss=False, poll_timeout_ms=2_000)

    assert rows == list(range(END))


OLD, NEW = UUID(int=1), UUID(int=2)


def metadata(topic_id: UUID, epoch: int) -> MetadataResponse:
    return MetadataResponse(
        0, [], [TopicMetadata(0, "t", topic_id, [PartitionMetadata(0, 0, epoch)])]
    )


@pytest.mark.parametrize("stale_first", [True, False])
def test_recreated_topic_beside_a_stale_broker(stale_first: bool) -> None:
    """
    A broker that still returns the old topic, in an old epoch, does not hide the recreated one.
    """
    epochs = LastSeenEpochs()
    epochs.record("c", metadata(OLD, 5).topics[0])
    review = FreshnessCheck("c", ("t",), epochs)
    stale, fresh = metadata(OLD, 4), metadata(NEW, 0)
    for number, response in enumerate(
        [stale, fresh, fresh] if stale_first else [fresh, fresh, stale]
    ):
        assert not review.is_settled
        review.add(Address(f"b{number}", 1), response)

    assert review.is_settled
    assert review.result().topics[0].topic_id == NEW


class SharedAddress(Behaviour):
    """
    Two brokers that both advertise the first one's address.
    """

    def port(self, node: int) -> int:  # noqa: ARG002
        return self.ports[0]


def test_brokers_advertised_at_one_address() -> None:
    """
    If two brokers advertise one address, the error says so, or all partitions have an offset.
    """
    with StubCluster(SharedAddress(brokers=2, topics={"t": 2})) as stubs:
        kafka = {"bootstrap.servers": stubs.bootstrap, "default.api.timeout.ms": "2000"}
        backend = WireMetadata(KafkaSettings.of(kafka), "read_uncommitted")
        backend.describe_topics(["t"])
        try:
            offsets = backend.list_offsets({P0: LATEST, P1: LATEST})
        except PykafkaError as error:
            assert "advertised.listeners" in str(error)  # noqa: PT017 (either will do)
        else:
            assert offsets == {P0: 1000, P1: 1000}


class PreferredReadReplica(Behaviour):
    """
    A leader that refers clients of a rack to its follower (KIP-392).
    """

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if node == 0:
            return FetchAnswer(0, END, b"", 1)
        return super().fetch(node, topic, partition, offset)


def test_record_sizes_from_the_preferred_read_replica() -> None:
    """
    Record sizes are sampled from the follower that the topic is read from.
    """
    with StubCluster(PreferredReadReplica(brokers=2)) as stubs:
        densities = bytes_per_offset({P0: 0}, settings(stubs, {"client.rack": "a"}))

    assert 8 < densities[P0] < 20


def test_record_sizes_of_old_formats() -> None:
    """
    A message in an old format spans one offset: where a record batch has its last offset delta, the
    message has data.
    """
    message = struct.pack(">qi", 7, 50) + b"\x00\x00\x00\x00\x01\x00" + b"\x7f" * 44

    assert measure_batches(memoryview(message), 7) == (62, 1)


class WithoutTopicIds(Behaviour):
    """
    Brokers, or a proxy before them, that send no topic ids.
    """

    def topic_id(self, topic: str) -> UUID:  # noqa: ARG002
        return UUID(int=0)


def test_brokers_without_topic_ids() -> None:
    """
    A range planned with a topic id is read from brokers that send none.
    """
    planned = OffsetRange(P0, 0, 300, "AAAAAAAAAAAAAAAAAAAAAQ")
    with StubCluster(WithoutTopicIds()) as stubs:
        rows = read(stubs, planned, fail_on_data_loss=False, poll_timeout_ms=1_000)

    assert rows == list(range(300))


@pytest.mark.parametrize("address", [Address("127.0.0.1", 70_000), Address("a\0b", 9092)])
def test_invalid_addresses(address: Address) -> None:
    """
    A connection to an address that no broker can have fails long before the deadline.
    """
    config = wire_config(KafkaSettings.of({"bootstrap.servers": "b:1"}))
    deadline = Deadline.after(600)
    with pytest.raises((BrokerUnavailableError, TimeoutExceededError), match=str(address.port)):
        Connection.open(address, config, deadline)
    assert not deadline.expired


def test_deleted_partition_has_no_start() -> None:
    """
    A partition that is deleted before its start is resolved gets no start offset: LATEST in a
    checkpoint would be resolved to another offset each time.
    """
    cluster = memory_cluster.Cluster()
    cluster.create_topic("t", 10)

    cluster.topics["t"] = [(0, 10), (0, 10)]
    cluster.stale = [{P0: 10}]
    source_options = {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "t",
        "startingOffsets": "latest",
    }
    query = MicroBatchStream(parse_stream_source(source_options), cluster, lambda _: {})

    assert query.initial_offset()["t"] == {"0": 10}


class Starting(Behaviour):
    """
    A broker that has just started: it knows no broker and no topic yet.
    """

    started_at = 0.0

    def _on_3(self, node: int, request: Any) -> Any:
        self.started_at = self.started_at or time.monotonic()
        response = super()._on_3(node, request)
        if time.monotonic() - self.started_at < 4:
            response.brokers, response.topics = [], []
        return response


def test_a_broker_that_knows_no_brokers_yet() -> None:
    """
    Metadata of a broker that knows no brokers yet does not show that a topic is missing: the driver
    requests the metadata again.
    """
    with StubCluster(Starting()) as stubs:
        kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap})
        topics = WireMetadata(kafka, "read_uncommitted").describe_topics(["t"])

    assert list(topics) == ["t"]


@pytest.mark.parametrize("sentinel", [-1, -2])
def test_offset_of_minus_one_is_retriable(sentinel: int) -> None:
    """
    A leader's response of -1 without an error, for EARLIEST or LATEST, is retriable.
    """
    response = ListOffsetsResponse(0, [("t", [ListOffsetsPartitionResponse(0, 0, -1)])])
    requested = {"t": [ListOffsetsPartition(0, 1, sentinel)]}

    with pytest.raises(BrokerUnavailableError, match="t-0"):
        read_offsets(response, requested)


def test_a_time_without_a_record_has_no_offset() -> None:
    """
    For a timestamp, -1 means that all records are earlier.
    """
    response = ListOffsetsResponse(0, [("t", [ListOffsetsPartitionResponse(0, 0, -1)])])

    assert read_offsets(response, {"t": [ListOffsetsPartition(0, 1, 1_000)]}).offsets == {P0: -1}


class RedirectLoop(Behaviour):
    """
    Two brokers that refer clients of a rack to each other.
    """

    rack = ""

    def _on_1(self, node: int, request: Any) -> Any:
        self.rack = request.rack_id
        return super()._on_1(node, request)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if self.rack:
            return FetchAnswer(0, END, b"", 1 - node)
        return super().fetch(node, topic, partition, offset)


def test_replicas_that_refer_to_each_other() -> None:
    """
    If preferred read replicas refer a client to each other, the client reads from the leader.
    """
    with StubCluster(RedirectLoop(brokers=2, high_watermark=END)) as stubs:
        rack = {"client.rack": "a"}
        rows = read(stubs, OffsetRange(P0, 0, END), kafka=rack, poll_timeout_ms=3_000)

    assert rows == list(range(END))
