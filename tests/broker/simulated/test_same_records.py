"""
Writes and reads give the same results on the simulated cluster and on a real broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.simulation.kafka.codes import Code
from tests.support.kafka_requests import EARLIEST, LATEST, batch
from tests.support.producing import write
from tests.support.record_batches import CODECS, LZ4
from tests.support.served_kafka import RawKafka, values, wire_values

from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from pyspark_pykafka.testing.client import KafkaAccess

SECONDS = 30.0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_back(cluster: KafkaAccess, topic: str, codec: str) -> None:
    """
    Both clients read the records that librdkafka has written, with any compression.
    """
    written = [b"%d" % number * 20 for number in range(200)]
    config = {"compression.type": codec, "enable.idempotence": True}
    cluster.produce(topic, [Record(value) for value in written], config)
    assert values(cluster, topic) == written
    assert wire_values(cluster, topic) == written


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_wire_engine_writes(cluster: KafkaAccess, topic: str, codec: str) -> None:
    """
    Librdkafka reads the records that the wire engine has written.
    """
    rows = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(100)]})
    assert write(cluster.bootstrap, [rows], topic, compression_type=codec) == 100
    assert values(cluster, topic) == rows["value"].to_pylist()


# Kafka cannot read the LZ4 frames of `record_batches`; those of the clients are tested above.
@pytest.mark.parametrize("codec", sorted({*CODECS} - {LZ4}))
def test_a_batch_is_returned_byte_by_byte(raw: RawKafka, codec: int) -> None:
    """
    A stored batch differs from the produced one only in its base offset and leader epoch.
    """
    raw.produce(b"before")
    sent = batch(b"a", b"b", codec=codec, now=raw.now())
    assert raw.produce(data=sent).base_offset == 1
    fetched = bytes(raw.fetch(1).records)
    assert fetched[:8] == (1).to_bytes(8, "big")
    assert fetched[8:12] + fetched[16:] == sent[8:12] + sent[16:]


def test_batches_are_refused_alike(raw: RawKafka) -> None:
    """
    A wrong checksum, two batches at once, a future timestamp and a missing topic each have their
    own error.
    """
    damaged = bytearray(batch(b"a", now=raw.now()))
    damaged[-1] ^= 1
    assert raw.produce(data=bytes(damaged)).error_code == Code.CORRUPT_MESSAGE
    two = batch(b"a", now=raw.now()) + batch(b"b", now=raw.now())
    assert raw.produce(data=two).error_code == Code.INVALID_RECORD
    future = batch(b"a", now=raw.now() + 2 * 3600)
    assert raw.produce(data=future).error_code == Code.INVALID_TIMESTAMP
    raw.topic = "missing"
    assert raw.produce(b"a").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_sequences_are_checked_alike(raw: RawKafka) -> None:
    """
    Duplicates get the first offset; gaps and old epochs are refused.
    """
    producer_id = raw.init(None).producer_id
    results = [
        raw.produce(b"a", b"b", producer_id=producer_id),
        raw.produce(b"c", producer_id=producer_id, sequence=2),
        raw.produce(b"a", b"b", producer_id=producer_id),
        raw.produce(b"e", producer_id=producer_id, sequence=4),
        raw.produce(b"d", producer_id=producer_id, epoch=1, sequence=3),
        raw.produce(b"d", producer_id=producer_id, epoch=1),
        raw.produce(b"e", producer_id=producer_id, sequence=3),
    ]
    assert [(result.error_code, result.base_offset) for result in results] == [
        (Code.NONE, 0),
        (Code.NONE, 2),
        (Code.NONE, 0),
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (Code.NONE, 3),
        (Code.INVALID_PRODUCER_EPOCH, -1),
    ]


def test_old_duplicates_are_refused_alike(raw: RawKafka) -> None:
    """
    Brokers remember the last five batches of a producer.
    """
    producer_id = raw.init(None).producer_id
    for sequence in range(6):
        raw.produce(b"a", producer_id=producer_id, sequence=sequence)
    results = [raw.produce(b"a", producer_id=producer_id, sequence=n) for n in (0, 1)]
    assert [(result.error_code, result.base_offset) for result in results] == [
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (Code.NONE, 1),
    ]


def test_reads_are_limited_alike(raw: RawKafka) -> None:
    """
    The first batch is returned whole, and a later one truncated; wrong offsets, epochs and topics
    are errors.
    """
    raw.produce(b"a" * 100)
    raw.produce(b"b" * 100)
    batch_size = len(raw.fetch(1).records)
    assert len(raw.fetch(0, max_bytes=10).records) == batch_size
    assert len(raw.fetch(0, max_bytes=batch_size + 7).records) == batch_size + 7
    assert len(raw.fetch(0).records) == 2 * batch_size
    assert raw.fetch(2).error_code == Code.NONE
    beyond = raw.fetch(3)
    assert (beyond.error_code, beyond.high_watermark) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert raw.fetch(0, epoch=7).error_code == Code.UNKNOWN_LEADER_EPOCH
    wrong = "00000000-0000-0000-0000-000000000001"
    assert raw.fetch(0, version=13, topic_id=wrong).error_code == Code.UNKNOWN_TOPIC_ID
    raw.topic = "missing"
    assert raw.fetch(0).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_records_are_out_of_range_alike(
    raw: RawKafka, cluster: KafkaAccess, topic: str
) -> None:
    """
    DeleteRecords moves the start of the log, even into a batch.
    """
    raw.produce(b"a", b"b", b"c")
    admin = cluster.admin()
    futures = admin.delete_records([TopicPartition(topic, 0, 1)])
    assert next(iter(futures.values())).result(SECONDS).low_watermark == 1
    assert raw.fetch(0).error_code == Code.OFFSET_OUT_OF_RANGE
    assert raw.fetch(1).log_start_offset == 1
    assert raw.list_offset(EARLIEST).offset == 1
    assert wire_values(cluster, topic) == [b"b", b"c"]


def test_offsets_are_listed_alike(raw: RawKafka, cluster: KafkaAccess, topic: str) -> None:
    """
    ListOffsets finds the ends, times and the highest timestamp.
    """
    now = int(raw.now())
    for seconds in (10, 30, 20):
        raw.produce(data=batch(b"a", now=now - seconds))
    timestamps = [LATEST, EARLIEST, -3, (now - 25) * 1000, now * 1000 + 1]
    responses = [raw.list_offset(time) for time in timestamps]
    assert [
        (response.error_code, response.offset, response.leader_epoch) for response in responses
    ] == [
        (Code.NONE, 3, 0),
        (Code.NONE, 0, 0),
        (Code.NONE, 0, 0),
        (Code.NONE, 0, 0),
        (Code.NONE, -1, -1),
    ]
    assert [response.timestamp for response in responses] == [-1, -1, *[(now - 10) * 1000] * 2, -1]
    assert raw.list_offset(epoch=3).error_code == Code.UNKNOWN_LEADER_EPOCH
    position = TopicPartition(topic, 0)
    # The client must outlive its futures.
    admin = cluster.admin()
    futures = admin.list_offsets({position: OffsetSpec.latest()})
    assert futures[position].result(SECONDS).offset == 3


def test_epochs_end_alike(raw: RawKafka) -> None:
    """
    OffsetForLeaderEpoch returns the end of the current epoch, and no end of a later one.
    """
    raw.produce(b"a", b"b")
    ends = [raw.epoch_end(epoch) for epoch in (0, 1)]
    assert [(end.error_code, end.leader_epoch, end.end_offset) for end in ends] == [
        (Code.NONE, 0, 2),
        (Code.NONE, -1, -1),
    ]
