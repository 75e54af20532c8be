"""
Many ranges are read with one request to each leader, within limits of bytes.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster, record_batch

from pyspark_pykafka.engines.selection import fetch_many, sample_byte_densities
from pyspark_pykafka.engines.wire.consumer import ranges_reader
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from pyspark_pykafka.errors import (
    AuthorizationError,
    DataLossError,
    RecordError,
    TimeoutExceededError,
)
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

FETCH, METADATA = 1, 3
NOT_LEADER, AUTHORIZATION = 6, 29
MIB = 1024 * 1024


class Limited(Behaviour):
    """
    Brokers that fill a response partition by partition, as Kafka does (KIP-74): the first batch is
    sent whole, later ones only if they fit both limits.
    """

    largest_response = 0
    largest_count = 0

    def _on_1(self, node: int, request: Any) -> Any:
        response = super()._on_1(node, request)
        left, is_first, count = request.max_bytes, True, 0
        for topic, asked in zip(response.responses, request.topics, strict=True):
            for answer, limits in zip(topic.partitions, asked.partitions, strict=True):
                records = bytes(answer.records or b"")
                allowed = min(left, limits.partition_max_bytes)
                if len(records) > allowed:
                    size = 12 + int.from_bytes(records[8:12], "big")
                    records = records[: max(allowed, size)] if size <= allowed or is_first else b""
                answer.records = records
                is_first = is_first and not records
                left = max(left - len(records), 0)
                count += 1
        self.largest_response = max(self.largest_response, request.max_bytes - left)
        self.largest_count = max(self.largest_count, count)
        return response


def ranges(count: int, end: int) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", number), 0, end) for number in range(count)]


def settings(stubs: StubCluster, **changes: Any) -> Any:
    kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "log_level": "0"})
    changes = {"kafka": kafka, "schema": fetching.VALUES, **changes}
    return fetching.settings(stubs.bootstrap, "wire", **changes)


def read(
    stubs: StubCluster, requested: list[OffsetRange], max_records: int | None = None, **changes: Any
) -> dict[int, list[int]]:
    """
    Return the offsets that were read, by partition.
    """
    offsets: dict[int, list[int]] = defaultdict(list)
    collect(fetch_many(requested, settings(stubs, **changes), max_records), offsets)
    return offsets


def test_first_records_of_many_partitions_cost_a_request_per_leader() -> None:
    """
    The first record of each of 2,000 partitions on 100 brokers takes 100 Fetch requests. Since
    these brokers take topic names, each is asked for the topic's id afterwards, in one round.
    """
    behaviour = Limited(brokers=100, topics={"t": 2000}, high_watermark=5)
    with StubCluster(behaviour) as stubs:
        offsets = read(stubs, ranges(2000, 5), max_records=1)
        requests = stubs.stats()["requests"]

    assert offsets == {number: [0] for number in range(2000)}
    assert requests[FETCH] == 100
    assert requests[METADATA] < 105


def test_record_sizes_of_many_partitions_cost_a_request_per_leader() -> None:
    """
    The record sizes of 2,000 partitions on 100 brokers take 100 Fetch requests.
    """
    behaviour = Limited(brokers=100, topics={"t": 2000}, high_watermark=5)
    with StubCluster(behaviour) as stubs:
        positions = {r.tp: 0 for r in ranges(2000, 5)}
        densities, errors = sample_byte_densities(positions, settings(stubs))
        requests = stubs.stats()["requests"]

    assert densities.keys() == positions.keys()
    assert not errors
    assert requests[FETCH] == 100


class Surplus(Limited):
    """
    A leader whose responses have an error of a partition that was not requested.
    """

    def _on_1(self, node: int, request: Any) -> Any:
        response = super()._on_1(node, request)
        surplus = copy(response.responses[0].partitions[0])
        surplus.partition_index, surplus.error_code = 99, NOT_LEADER
        if len(response.responses[0].partitions) > 1:
            response.responses[0].partitions.append(surplus)
        return response


def test_partition_that_was_not_requested_is_ignored() -> None:
    """
    The error of a partition that was not requested does not end the samples of the others.
    """
    with StubCluster(Surplus(topics={"t": 4}, high_watermark=5)) as stubs:
        positions = {r.tp: 0 for r in ranges(4, 5)}
        densities, errors = sample_byte_densities(positions, settings(stubs))

    assert densities.keys() == positions.keys()
    assert not errors


def test_a_response_has_bounded_bytes_and_partitions() -> None:
    """
    However many partitions one leader has, a request names at most 500 of them, and its response
    takes at most 1 MiB. No partition starves, and there are hardly more requests than the bytes
    need.
    """
    batch = record_batch(0, [b"x" * 20_000])
    logs = {("t", number): [batch] for number in range(600)}
    with StubCluster(Limited(topics={"t": 600}, logs=logs)) as stubs:
        offsets = read(stubs, ranges(600, 1))
        requests = stubs.stats()["requests"]
        largest, count = stubs.get("largest_response"), stubs.get("largest_count")

    assert offsets == {number: [0] for number in range(600)}
    assert largest <= MIB
    assert count <= 500
    assert requests[FETCH] < 20


def test_large_batches_are_read() -> None:
    """
    Record batches that exceed the limit of a partition, or of a response, are read, too.
    """
    sizes = [200_000, 40_000, 2_000_000, 100, 300_000, 1_500_000]
    logs = {("t", number): [record_batch(0, [b"x" * size])] for number, size in enumerate(sizes)}
    with StubCluster(Limited(topics={"t": 6}, logs=logs)) as stubs:
        offsets = read(stubs, ranges(6, 1))

    assert offsets == {number: [0] for number in range(6)}


@pytest.mark.parametrize("max_records", [None, 7, 250])
def test_each_range_is_read_in_order(max_records: int | None) -> None:
    """
    Each range has its first records, or all of them, in offset order, over several responses; two
    ranges of one partition are both read.
    """
    tps = [TopicPartition("t", number) for number in range(4)]
    requested = [OffsetRange(tp, 100 * n, 900) for n, tp in enumerate(tps)]
    with StubCluster(Limited(brokers=2, topics={"t": 4})) as stubs:
        offsets = read(stubs, [*requested, OffsetRange(tps[0], 950, 955)], max_records)

    first = [*[*range(900)][:max_records], *range(950, 955)]
    assert sorted(offsets.pop(0)) == first
    assert offsets == {n: [*range(100 * n, 900)][:max_records] for n in range(1, 4)}


class Moving(Limited):
    """
    Leaders that reject the first requests: the metadata is old.
    """

    rejections = 3

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if partition % 2 and self.rejections:
            self.rejections -= 1
            return FetchAnswer(NOT_LEADER, -1)
        return super().fetch(node, topic, partition, offset)


def test_rejected_partitions_are_requested_again() -> None:
    """
    After a leader has moved, one partition is read individually and the others together again.
    """
    with StubCluster(Moving(brokers=2, topics={"t": 40}, high_watermark=5)) as stubs:
        offsets = read(stubs, ranges(40, 5))
        requests = stubs.stats()["requests"]

    assert offsets == {number: [*range(5)] for number in range(40)}
    assert requests[FETCH] < 12


class Unusable(Limited):
    """
    One partition is unusable.
    """

    error = 0
    log_start = 0

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if partition == 3:
            return FetchAnswer(self.error, -1)
        return super().fetch(node, topic, partition, offset)

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        if partition == 3 and timestamp == -2:
            return 0, self.log_start
        return super().offsets(node, topic, partition, timestamp)


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"error": AUTHORIZATION}, AuthorizationError),
        ({"error": 1, "log_start": 4}, DataLossError),
        ({"error": NOT_LEADER}, TimeoutExceededError),
    ],
)
def test_a_partition_that_cannot_be_read_is_an_error(
    attributes: dict[str, int], error: type[Exception]
) -> None:
    """
    A partition that stays unusable raises the error of a read of that partition alone.
    """
    behaviour = Unusable(brokers=2, topics={"t": 8}, high_watermark=5, **attributes)
    with StubCluster(behaviour) as stubs, pytest.raises(error, match="t-3|topic t"):
        read(stubs, ranges(8, 5), poll_timeout_ms=1_000)


class Silent(Limited):
    """
    Broker 1 does not answer.
    """

    def delay(self, node: int, api_key: int) -> float:
        return 60.0 if node == 1 and api_key == FETCH else 0.0


def test_a_silent_broker_leaves_its_partitions_without_a_sample() -> None:
    """
    The partitions of other brokers have a sample; after three timeouts no other partition of the
    silent broker is tried.
    """
    with StubCluster(Silent(brokers=2, topics={"t": 20}, high_watermark=5)) as stubs:
        positions = {r.tp: 0 for r in ranges(20, 5)}
        densities, errors = sample_byte_densities(positions, settings(stubs, poll_timeout_ms=300))
        requests = stubs.stats()["requests"]

    assert {tp.partition % 2 for tp in densities} == {0}
    assert {tp.partition % 2 for tp in errors} == {1}
    assert len(densities) == len(errors) == 10
    assert requests[FETCH] < 30


@pytest.mark.parametrize(("kafka", "requests"), [({}, 1), ({"fetch.max.bytes": "100000"}, 8)])
def test_the_size_of_a_response_for_many_partitions(kafka: dict[str, str], requests: int) -> None:
    """
    A response for many partitions has up to 1 MiB, also if a read of one range takes less memory,
    but no more than ``kafka.fetch.max.bytes``.
    """
    logs = {("t", number): [record_batch(0, [b"x" * 16_000])] for number in range(40)}
    with StubCluster(Limited(topics={"t": 40}, logs=logs)) as stubs:
        servers = {"bootstrap.servers": stubs.bootstrap, "log_level": "0"}
        limited = settings(
            stubs, kafka=KafkaSettings.of({**servers, **kafka}), memory_bytes=1 << 20
        )
        found = {r.tp for r, _ in fetch_many(ranges(40, 1), limited, 1)}
        largest, sent = stubs.get("largest_response"), stubs.stats()["requests"][FETCH]

    assert len(found) == 40
    assert largest <= int(kafka.get("fetch.max.bytes", MIB))
    # The last partition of a limited response may be one that does not fit.
    assert sent <= requests


class CountingDecoder(ArrowDecoder):
    """
    Counts the Arrow batches of all ranges.
    """

    taken: ClassVar[int] = 0

    def _take(self) -> pa.RecordBatch:
        CountingDecoder.taken += 1
        return super()._take()


def test_a_response_is_decoded_as_its_batches_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No more than one Arrow batch is decoded ahead of the caller, however much a response of small
    compressed record batches expands.
    """
    monkeypatch.setattr(ranges_reader, "ArrowDecoder", CountingDecoder)
    batches = [compressed_batch(10 * number, [b"x" * 16_000] * 10) for number in range(100)]
    logs = {("t", number): batches for number in range(3)}
    received, ahead = 0, 0
    with StubCluster(Limited(topics={"t": 3}, logs=logs)) as stubs:
        small = settings(stubs, memory_bytes=1024 * 1024)
        # The last partition is read individually.
        for offset_range, _ in fetch_many(ranges(3, 1000), small, 1000):
            received += 1
            ahead = max(ahead, CountingDecoder.taken - received)
            assert offset_range.tp.partition < 3
        requests = stubs.stats()["requests"]

    assert requests[FETCH] < 10
    assert received == CountingDecoder.taken > 300
    assert ahead <= 1


def compressed_batch(first: int, values: list[bytes]) -> bytes:
    """
    Return a record batch that is compressed with gzip.
    """
    builder = DefaultRecordBatchBuilder(2, 1, 0, -1, -1, -1, 10_000_000)
    for number, value in enumerate(values):
        builder.append(number, 1000, None, value, [])
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, first)
    return bytes(batch)


def collect(
    fetched: Iterable[tuple[OffsetRange, pa.RecordBatch]], offsets: dict[int, list[int]]
) -> None:
    """
    Add the offsets that are read, by partition.
    """
    for offset_range, batch in fetched:
        offsets[offset_range.tp.partition] += batch.column("offset").to_pylist()


def test_the_records_before_a_damaged_batch_are_read() -> None:
    """
    If a response has a record batch that cannot be decoded, the records before it are returned once
    before the error of the batch is raised.
    """
    damaged = bytearray(compressed_batch(20, [b"c"] * 10))
    damaged[-10:] = b"\xff" * 10
    log = [record_batch(0, [b"a"] * 10), record_batch(10, [b"b"] * 10), bytes(damaged)]
    offsets: dict[int, list[int]] = defaultdict(list)
    with StubCluster(Limited(topics={"t": 2}, logs={("t", 0): log})) as stubs:
        requested = [OffsetRange(TopicPartition("t", 0), 0, 30), *ranges(2, 5)[1:]]
        fetched = fetch_many(requested, settings(stubs), 30)
        with pytest.raises(RecordError, match="offset 20"):
            collect(fetched, offsets)

    assert offsets[0] == list(range(20))
