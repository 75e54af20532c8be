"""
Record batches to be produced: sequence numbers, splitting, and the Produce request.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest as KafkaPythonRequest
from tests.unit.engines.wire.records.test_arrow_encoder import (
    NOW,
    arrow,
    bytes_of,
    encoded,
    encoder_of,
    read,
)

from pyspark_pykafka.engines.wire.protocol.produce import produce_request
from pyspark_pykafka.engines.wire.records.compression import CODECS
from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch, next_sequence
from pyspark_pykafka.offsets import TopicPartition

P1 = TopicPartition("t", 1)


def batch_of(count: int, codec: str = "none") -> ProducerBatch:
    """
    Return a batch of records whose timestamps are not in order.
    """
    rows = [
        {
            "key": b"k%d" % number,
            "value": b"v" * number if number % 3 else None,
            "partition": 1,
            "timestamp": (10 - number) % 7 * 1_000_000 + 1_000,
            "headers": [{"key": "h", "value": b"%d" % number}],
        }
        for number in range(count)
    ]
    ((batch,),) = encoded([arrow(rows)], encoder_of("t"), codec).values()
    return batch


@given(st.integers(2, 50), st.sampled_from(sorted(CODECS)))
def test_split_keeps_all_records(count: int, codec: str) -> None:
    """
    Splitting a batch keeps its records, their order, timestamps and sequence numbers.
    """
    unsplit = batch_of(count, codec)
    unsplit.sequence = 2**31 - 2

    first, second = unsplit.split(-1, 1 << 20)

    assert first.count + second.count == count
    assert (first.sequence, second.sequence) == (2**31 - 2, next_sequence(2**31 - 2, first.count))
    assert (first.created, first.codec) == (NOW, CODECS[codec])
    rows = [{**row, "offset": 0} for row in read(P1, [unsplit])]
    assert [{**row, "offset": 0} for row in read(P1, [first, second])] == rows
    assert max(first.max_timestamp, second.max_timestamp) == unsplit.max_timestamp


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_record_key_is_found_by_index(codec: str) -> None:
    """
    A rejected record's key is found by its index in the batch, with any codec.
    """
    assert batch_of(5, codec).record_key(3, 1 << 20) == b"k3"


def test_sequence_numbers_wrap_around() -> None:
    """
    The sequence number after the largest one is 0, as in Java's DefaultRecordBatch.
    """
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 3, 5) == 2
    assert next_sequence(0, 5) == 5


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("transactional_id", [None, "writer"])
def test_produce_request_equals_that_of_kafka_python(
    version: int, transactional_id: str | None
) -> None:
    """
    A Produce request equals kafka-python's byte for byte, in every version.
    """
    batches = {tp: batch_of(2) for tp in (P1, TopicPartition("t", 2), TopicPartition("ü", 0))}
    encoded_batches = {tp: [bytes_of(batch)] for tp, batch in batches.items()}
    request = produce_request(version, encoded_batches, 1_500, transactional_id)

    expected = KafkaPythonRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1_500,
        topic_data=[
            _topic("t", {1: batches[P1], 2: batches[TopicPartition("t", 2)]}),
            _topic("ü", {0: batches[TopicPartition("ü", 0)]}),
        ],
        version=version,
    )
    expected.with_header(77, "a client")

    assert request.encode(77, "a client") == bytes(expected.encode(header=True, framed=True))
    assert all(
        any(piece is batch[0] for piece in request.payload) for batch in encoded_batches.values()
    )


def _topic(name: str, batches: dict[int, ProducerBatch]) -> Any:
    kind = KafkaPythonRequest.TopicProduceData
    parts = [
        kind.PartitionProduceData(index=partition, records=bytes_of(batch))
        for partition, batch in batches.items()
    ]
    return kind(name=name, partition_data=parts)
