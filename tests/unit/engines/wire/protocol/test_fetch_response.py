"""
Fetch responses, decoded without a copy and compared with kafka-python's encoder.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol import consumer

from pyspark_pykafka.engines.wire.protocol.fetch_response import (
    MIN_FETCH_VERSION,
    FetchResponse,
    read_fetch_response,
)
from pyspark_pykafka.engines.wire.protocol.frames import Frame
from pyspark_pykafka.errors import KafkaClientError

TOPIC = consumer.FetchResponse.FetchableTopicResponse
PARTITION = TOPIC.PartitionData
NEWEST = 17

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
versions = st.integers(MIN_FETCH_VERSION, NEWEST)


def frame(version: int, partitions: list[Any], error: int = 0, throttle: int = 0) -> Frame:
    """
    Return a response encoded by kafka-python, in the frame of a connection.
    """
    topic = TOPIC(topic="orders", topic_id=uuid.UUID(int=7), partitions=partitions)
    response = consumer.FetchResponse(
        throttle_time_ms=throttle,
        error_code=error,
        session_id=0,
        responses=[topic] if partitions else [],
        version=version,
    )
    return Frame(consumer.FetchResponse, version, memoryview(bytes(response.encode())))


def partition(**values: object) -> Any:
    """
    Return the partition of a response; the defaults are those of an empty log.
    """
    defaults = {
        "partition_index": 5,
        "error_code": 0,
        "high_watermark": 0,
        "last_stable_offset": 0,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": None,
    }
    return PARTITION(**{**defaults, **values})


@given(
    version=versions,
    throttle=int32,
    error=int16,
    numbers=st.tuples(int64, int64, int64),
    replica=int32,
    aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    records=st.none() | st.binary(max_size=300),
)
def test_same_as_kafka_python(
    version: int,
    throttle: int,
    error: int,
    numbers: tuple[int, int, int],
    replica: int,
    aborted: list[tuple[int, int]] | None,
    records: bytes | None,
) -> None:
    """
    In every version of brokers from 2.4 on, all fields are decoded.
    """
    high, stable, start = numbers
    transactions = aborted and [
        PARTITION.AbortedTransaction(first_offset=first, producer_id=producer)
        for first, producer in aborted
    ]
    encoded_frame = frame(
        version,
        [
            partition(
                error_code=error,
                high_watermark=high,
                last_stable_offset=stable,
                log_start_offset=start,
                aborted_transactions=transactions,
                preferred_read_replica=replica,
                records=records,
            )
        ],
        throttle=throttle,
    )

    response = read_fetch_response(encoded_frame)

    assert response == FetchResponse(
        throttle_time_ms=throttle,
        error_code=error,
        high_watermark=high,
        last_stable_offset=stable,
        aborted_transactions=tuple(aborted or ()),
        preferred_read_replica=replica if version >= 11 else -1,
        records=memoryview(records or b""),
        partition_index=5,
    )


def test_records_are_a_view() -> None:
    """
    The records are a view of the frame, not a copy.
    """
    body = bytearray(frame(NEWEST, [partition(records=b"abc")]).body)
    response = read_fetch_response(Frame(consumer.FetchResponse, NEWEST, memoryview(body)))

    body[body.index(b"abc")] = ord("X")

    assert bytes(response.records) == b"Xbc"


@pytest.mark.parametrize("version", [8, 12, 17])
def test_a_throttled_response(version: int) -> None:
    """
    A throttled response has no topics and no error (KIP-219); without a throttle time it is
    malformed.
    """
    response = read_fetch_response(frame(version, [], throttle=1_500))
    assert (response.throttle_time_ms, response.error_code) == (1_500, 0)
    assert response.is_only_throttled
    assert not read_fetch_response(frame(version, [partition()], throttle=1_500)).is_only_throttled
    assert not read_fetch_response(frame(version, [], error=70)).is_only_throttled

    with pytest.raises(KafkaClientError, match="it has 0 topics"):
        read_fetch_response(frame(version, []))


@pytest.mark.parametrize("version", [7, 12, 17])
def test_error_of_the_whole_response(version: int) -> None:
    """
    The error of a response without partitions is decoded.
    """
    assert read_fetch_response(frame(version, [], error=70)).error_code == 70


@pytest.mark.parametrize("version", [MIN_FETCH_VERSION, 11, 12, NEWEST])
@pytest.mark.parametrize("partitions", [0, 2])
def test_other_than_one_partition(version: int, partitions: int) -> None:
    """
    A response without partitions, or with several, is refused.
    """
    with pytest.raises(KafkaClientError, match="no valid FetchResponse for one partition"):
        read_fetch_response(frame(version, [partition()] * partitions))


@given(versions, st.data())
def test_truncated_responses(version: int, data: st.DataObject) -> None:
    """
    A truncated response raises an error, unless only tagged fields are missing.
    """
    complete = frame(version, [partition(records=b"r" * 40, aborted_transactions=[])])
    size = data.draw(st.integers(0, len(complete.body) - 1))
    view = Frame(consumer.FetchResponse, version, complete.body[:size])

    try:
        response = read_fetch_response(view)
    except KafkaClientError:
        return
    assert bytes(response.records) == b"r" * 40
    assert len(complete.body) - size <= 3


@given(versions, st.binary(max_size=200))
def test_garbage(version: int, body: bytes) -> None:
    """
    Arbitrary bytes give a response or KafkaClientError.
    """
    with suppress(KafkaClientError):
        read_fetch_response(Frame(consumer.FetchResponse, version, memoryview(body)))
