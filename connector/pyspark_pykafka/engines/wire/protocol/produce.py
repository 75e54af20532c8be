"""
Kafka's Produce request, into which record batches go as they are, without a copy; and its answer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, INT64, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request, total_bytes
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Buffer

# What came with which version (Kafka's ProduceRequest.json and ProduceResponse.json).
_LOG_START = 5
_RECORD_ERRORS = 8
_FLEXIBLE = 9

_ALL = -1
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


class RejectedRecord(NamedTuple):
    """
    A record for which its whole batch was refused, by its place there.
    """

    batch_index: int
    message: str | None


class PartitionProduceResponse(NamedTuple):
    """
    What a broker says of one batch; ``base_offset`` is -1 where it does not know.
    """

    error_code: int
    base_offset: int
    record_errors: list[RejectedRecord]
    error_message: str | None


class ProduceResponse(NamedTuple):
    """
    What a broker says of each batch, by its partition.
    """

    throttle_time_ms: int
    partitions: dict[TopicPartition, PartitionProduceResponse]


def produce_request(
    version: int,
    batches: Mapping[TopicPartition, Sequence[Buffer]],
    timeout_ms: int,
    transactional_id: str | None = None,
) -> Request[ProduceResponse]:
    """
    Send one batch for each partition, to be acknowledged by all replicas in sync.
    """
    encoding = PRODUCE.encoding(version)
    topics: dict[str, list[TopicPartition]] = {}
    for tp in batches:
        topics.setdefault(tp.topic, []).append(tp)
    front = (
        encoding.string(transactional_id),
        _ACKS_AND_TIMEOUT.pack(_ALL, timeout_ms),
        encoding.count(len(topics)),
    )
    pieces: list[Buffer] = []
    for topic, tps in topics.items():
        pieces.append(encoding.string(topic) + encoding.count(len(tps)))
        for tp in tps:
            batch = batches[tp]
            before = INT32.pack(tp.partition) + encoding.size(total_bytes(batch))
            pieces += [before, *batch, encoding.tags]
        pieces.append(encoding.tags)
    pieces.append(encoding.tags)
    return Request(PRODUCE, version, b"".join(front), pieces)


def read_produce_response(body: memoryview, version: int) -> ProduceResponse:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, _FLEXIBLE)
    partitions = {}
    for _ in range(reader.count()):
        topic = reader.text() or ""
        for _ in range(reader.count()):
            tp = TopicPartition(topic, reader.int32())
            partitions[tp] = _partition(reader, version)
        reader.skip_tags()
    throttle = reader.int32()
    reader.skip_tags()
    return ProduceResponse(throttle, partitions)


def _partition(reader: Reader, version: int) -> PartitionProduceResponse:
    error, offset = reader.int16(), reader.int64()
    # The time of the log, and where it starts.
    reader.skip(2 * INT64.size if version >= _LOG_START else INT64.size)
    refused, message = [], None
    if version >= _RECORD_ERRORS:
        for _ in range(reader.count()):
            refused.append(RejectedRecord(reader.int32(), reader.text()))
            reader.skip_tags()
        message = reader.text()
    reader.skip_tags()
    return PartitionProduceResponse(error, offset, refused, message)


#: From the first with record batches to the last that names topics by name.
PRODUCE = ApiSpec.of("Produce", 0, (3, 12), _FLEXIBLE, read_produce_response)
