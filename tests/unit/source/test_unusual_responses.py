"""
Answers of brokers that are odd for a moment, or always: none of them costs a record.
"""

from __future__ import annotations

import struct
import time
from typing import Any
from uuid import UUID

import pytest
from tests.support import fetching, memory_cluster
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.consumer.list_offsets import read_offsets
from pyspark_pykafka.engines.wire.consumer.metadata import WireMetadata
from pyspark_pykafka.engines.wire.consumer.record_size import bytes_per_offset, measured
from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.network.metadata_freshness import FreshnessCheck, LastSeenEpochs
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
ODD_FROM = 200
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def settings(stubs: StubCluster, kafka: dict[str, str] | None = None, **changes: Any) -> Any:
    given = {"bootstrap.servers": stubs.all_brokers, "log_level": "0", **(kafka or {})}
    usual = {"engine": "wire", "schema": fetching.VALUES, "kafka": KafkaSettings.of(given)}
    return fetching.settings(stubs.bootstrap, **{**usual, **changes})


def read(stubs: StubCluster, wanted: OffsetRange, **changes: Any) -> list[int]:
    batches = fetch(wanted, settings(stubs, **changes))
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


class Elected(Behaviour):
    """
    A new leader, which does not know for some seconds how far its followers are (KIP-207).
    """

    seconds = 1.5
    began = 0.0

    def _lags(self) -> bool:
        return bool(self.began) and time.monotonic() - self.began < self.seconds

    def list_offsets(
        self, node: int, topic: str, partition: int, timestamp: int
    ) -> tuple[int, int]:
        if timestamp == LATEST and self._lags():
            return 78, -1
        return super().offsets(node, topic, partition, timestamp)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if offset >= ODD_FROM:
            self.began = self.began or time.monotonic()
        if offset >= ODD_FROM and self._lags():
            return FetchAnswer(0, ODD_FROM)
        return super().fetch(node, topic, partition, offset)


def test_a_new_leader_that_does_not_know_its_end() -> None:
    """
    The high watermark of a leader that has just been elected is no end of the log: as long as it
    does not tell the end when asked for it, nothing behind is lost.
    """
    with StubCluster(Elected(high_watermark=END)) as stubs:
        found = read(stubs, OffsetRange(P0, 0, END), fail_on_data_loss=False, end_retries=0)

    assert found == list(range(END))


class Restarting(Behaviour):
    """
    A leader that is none for a while, and then, for a moment, does not know its topic.
    """

    began = 0.0
    none_seconds = 1.2
    unknown_seconds = 1.4

    def _odd(self) -> int:
        if not self.began:
            return 0
        passed = time.monotonic() - self.began
        return 6 if passed < self.none_seconds else 3 if passed < self.unknown_seconds + 1.2 else 0

    def topic_error(self, node: int, topic: str) -> int:  # noqa: ARG002
        return 3 if self._odd() == 3 else 0

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if offset >= ODD_FROM:
            self.began = self.began or time.monotonic()
        error = self._odd()
        return FetchAnswer(error, -1) if error else super().fetch(node, topic, partition, offset)


def test_a_topic_that_is_unknown_at_last_only() -> None:
    """
    A topic is gone when it was unknown for all of pollTimeoutMs, not when it is so at its end.
    """
    with StubCluster(Restarting(high_watermark=END)) as stubs:
        found = read(stubs, OffsetRange(P0, 0, END), fail_on_data_loss=False, poll_timeout_ms=2_000)

    assert found == list(range(END))


OLD, NEW = UUID(int=1), UUID(int=2)


def metadata(topic_id: UUID, epoch: int) -> MetadataResponse:
    return MetadataResponse(
        0, [], [TopicMetadata(0, "t", topic_id, [PartitionMetadata(0, 0, epoch)])]
    )


@pytest.mark.parametrize("stale_first", [True, False])
def test_a_topic_made_again_beside_a_stale_broker(stale_first: bool) -> None:
    """
    That one broker still tells the old topic, in an old epoch, does not keep the new one away.
    """
    seen = LastSeenEpochs()
    seen.record("c", metadata(OLD, 5).topics[0])
    review = FreshnessCheck("c", ("t",), seen)
    stale, fresh = metadata(OLD, 4), metadata(NEW, 0)
    for at, answer in enumerate([stale, fresh, fresh] if stale_first else [fresh, fresh, stale]):
        assert not review.is_settled
        review.add(Address(f"b{at}", 1), answer)

    assert review.is_settled
    assert review.result().topics[0].topic_id == NEW


class OneDoor(Behaviour):
    """
    Two brokers that are both advertised at the first one's address.
    """

    def port(self, node: int) -> int:  # noqa: ARG002
        return self.ports[0]


def test_brokers_advertised_at_one_address() -> None:
    """
    No partition is left out of an answer because its leader has another broker's address.
    """
    with StubCluster(OneDoor(brokers=2, topics={"t": 2})) as stubs:
        kafka = {"bootstrap.servers": stubs.bootstrap, "default.api.timeout.ms": "2000"}
        backend = WireMetadata(KafkaSettings.of(kafka), "read_uncommitted")
        backend.describe_topics(["t"])
        try:
            found = backend.list_offsets({P0: LATEST, P1: LATEST})
        except PykafkaError as error:
            assert "advertised.listeners" in str(error)  # noqa: PT017 (either will do)
        else:
            assert found == {P0: 1000, P1: 1000}


class Near(Behaviour):
    """
    A leader that sends readers of a rack to its follower.
    """

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if node == 0:
            return FetchAnswer(0, END, b"", 1)
        return super().fetch(node, topic, partition, offset)


def test_sizes_are_told_by_the_near_replica() -> None:
    """
    A limit in bytes knows the records of a topic that is read from a follower.
    """
    with StubCluster(Near(brokers=2)) as stubs:
        found = bytes_per_offset({P0: 0}, settings(stubs, {"client.rack": "a"}))

    assert 8 < found[P0] < 20


def test_sizes_of_old_formats() -> None:
    """
    A message of before record batches takes one offset; what stands where a batch has its last
    offset is a part of the record.
    """
    message = struct.pack(">qi", 7, 50) + b"\x00\x00\x00\x00\x01\x00" + b"\x7f" * 44

    assert measured(memoryview(message), 7) == (62, 1)


class WithoutIds(Behaviour):
    """
    Brokers, or a proxy before them, that tell no topic ids.
    """

    def topic_id(self, topic: str) -> UUID:  # noqa: ARG002
        return UUID(int=0)


def test_brokers_that_tell_no_topic_id() -> None:
    """
    A range planned with a topic's id is read where the id is not told: that is no other topic.
    """
    wanted = OffsetRange(P0, 0, 300, "AAAAAAAAAAAAAAAAAAAAAQ")
    with StubCluster(WithoutIds()) as stubs:
        found = read(stubs, wanted, fail_on_data_loss=False, poll_timeout_ms=1_000)

    assert found == list(range(300))


@pytest.mark.parametrize("address", [Address("127.0.0.1", 70_000), Address("a\0b", 9092)])
def test_addresses_that_cannot_be(address: Address) -> None:
    """
    An address that no broker can have is one that cannot be reached, and is told at once.
    """
    config = wire_config(KafkaSettings.of({"bootstrap.servers": "b:1"}))
    began = time.monotonic()
    with pytest.raises((BrokerUnavailableError, TimeoutExceededError), match=str(address.port)):
        Connection.open(address, config, Deadline.after(5))
    assert time.monotonic() - began < 3


def test_a_word_of_a_partition_that_vanished() -> None:
    """
    A partition that is gone when its end is asked for starts nowhere: a word in a checkpoint would
    stand for another offset each time.
    """
    cluster = memory_cluster.Cluster()
    cluster.make("t", 10)

    cluster.topics["t"] = [(0, 10), (0, 10)]
    cluster.stale = [{P0: 10}]
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingOffsets": "latest"}
    query = MicroBatchStream(parse_stream_source(given), cluster, lambda _: {})

    assert query.initial_offset()["t"] == {"0": 10}


@pytest.mark.parametrize("word", [-1, -2])
def test_ends_of_a_log_that_are_none(word: int) -> None:
    """
    A leader that tells -1 for an end of its log, and no error, is asked again.
    """
    answer = ListOffsetsResponse(0, [("t", [ListOffsetsPartitionResponse(0, 0, -1)])])
    wanted = {"t": [ListOffsetsPartition(0, 1, word)]}

    with pytest.raises(BrokerUnavailableError, match="t-0"):
        read_offsets(answer, wanted)


def test_a_time_without_a_record_has_no_offset() -> None:
    """
    For a time -1 says that no record is as young.
    """
    answer = ListOffsetsResponse(0, [("t", [ListOffsetsPartitionResponse(0, 0, -1)])])

    assert read_offsets(answer, {"t": [ListOffsetsPartition(0, 1, 1_000)]}).offsets == {P0: -1}


class Loop(Behaviour):
    """
    Two brokers that name each other to whoever has a rack.
    """

    rack = ""

    def _on_1(self, node: int, request: Any) -> Any:
        self.rack = request.rack_id
        return super()._on_1(node, request)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if self.rack:
            return FetchAnswer(0, END, b"", 1 - node)
        return super().fetch(node, topic, partition, offset)


def test_replicas_that_name_each_other() -> None:
    """
    Where being sent on leads nowhere, the leader is read from.
    """
    with StubCluster(Loop(brokers=2, high_watermark=END)) as stubs:
        near = {"client.rack": "a"}
        found = read(stubs, OffsetRange(P0, 0, END), kafka=near, poll_timeout_ms=3_000)

    assert found == list(range(END))
