"""
The Produce request, which sends record batches without a copy, and its response.
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

# The first version with each field (Kafka's ProduceRequest.json and ProduceResponse.json).
_LOG_START = 5
_RECORD_ERRORS = 8
_FLEXIBLE = 9

_ALL_IN_SYNC = -1
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


class RejectedRecord(NamedTuple):
    """
    A record that made the broker reject its whole batch (KIP-467), by its index in the batch.
    """

    batch_index: int
    message: str | None


class PartitionProduceResponse(NamedTuple):
    """
    The result for one batch; ``base_offset`` is -1 if the broker does not know it.
    """

    error_code: int
    base_offset: int
    record_errors: list[RejectedRecord]
    error_message: str | None


class ProduceResponse(NamedTuple):
    """
    The result for each batch, by partition.
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
    Return a Produce request with one batch for each partition and ``acks=all``.
    """
    encoding = PRODUCE.encoding(version)
    topics: dict[str, list[TopicPartition]] = {}
    for tp in batches:
        topics.setdefault(tp.topic, []).append(tp)
    front = (
        encoding.string(transactional_id),
        _ACKS_AND_TIMEOUT.pack(_ALL_IN_SYNC, timeout_ms),
        encoding.count(len(topics)),
    )
    pieces: list[Buffer] = []
    for topic, tps in topics.items():
        pieces.append(encoding.string(topic) + encoding.count(len(tps)))
        for tp in tps:
            batch = batches[tp]
            front_of_batch = INT32.pack(tp.partition) + encoding.size(total_bytes(batch))
            pieces += [front_of_batch, *batch, encoding.tags]
        pieces.append(encoding.tags)
    pieces.append(encoding.tags)
    return Request(PRODUCE, version, b"".join(front), pieces)


def read_produce_response(body: memoryview, version: int) -> ProduceResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, _FLEXIBLE)
    partitions = {}
    for _ in range(reader.count()):
        topic = reader.string() or ""
        for _ in range(reader.count()):
            tp = TopicPartition(topic, reader.int32())
            partitions[tp] = _partition(reader, version)
        reader.skip_tags()
    throttle = reader.int32()
    reader.skip_tags()
    return ProduceResponse(throttle, partitions)


def _partition(reader: Reader, version: int) -> PartitionProduceResponse:
    error, offset = reader.int16(), reader.int64()
    # log_append_time_ms, log_start_offset.
    reader.skip(2 * INT64.size if version >= _LOG_START else INT64.size)
    rejected, message = [], None
    if version >= _RECORD_ERRORS:
        for _ in range(reader.count()):
            rejected.append(RejectedRecord(reader.int32(), reader.string()))
            reader.skip_tags()
        message = reader.string()
    reader.skip_tags()
    return PartitionProduceResponse(error, offset, rejected, message)


#: Used from the first version with record batches to the last with topic names instead of ids.
PRODUCE = ApiSpec("Produce", 0, (3, 12), _FLEXIBLE, read_produce_response)
