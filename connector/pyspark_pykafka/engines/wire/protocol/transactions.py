"""
Beginning a transaction, adding partitions to it and ending it: the requests, and the answers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
    from pyspark_pykafka.offsets import TopicPartition

# What came with which version (Kafka's InitProducerIdRequest.json and so on).
_FLEXIBLE_INIT = 2
_RESUMES = 3
_FLEXIBLE_ADD = 3
_FLEXIBLE_END = 3

_IDENTITY = struct.Struct(">qh")
_NO_IDENTITY = _IDENTITY.pack(-1, -1)
_INT32_BYTES = INT32.size


class InitProducerIdResponse(NamedTuple):
    """
    The identity that a producer was given.
    """

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


class AddPartitionsToTxnResponse(NamedTuple):
    """
    What the coordinator says of each partition of a transaction, in its order.
    """

    throttle_time_ms: int
    error_codes: list[int]


class EndTxnResponse(NamedTuple):
    """
    Whether the end of a transaction is decided.
    """

    throttle_time_ms: int
    error_code: int


# --- Requests -------------------------------------------------------------------------------------


def init_producer_id_request(
    version: int, transactional_id: str | None, timeout_ms: int
) -> Request[InitProducerIdResponse]:
    """
    Ask for an identity; what is open under the transactional id, if there is one, is aborted.
    """
    encoding = INIT_PRODUCER_ID.encoding(version)
    pieces = (
        encoding.string(transactional_id),
        INT32.pack(timeout_ms),
        _NO_IDENTITY if version >= _RESUMES else b"",
        encoding.tags,
    )
    return Request(INIT_PRODUCER_ID, version, b"".join(pieces))


def add_partitions_to_txn_request(
    version: int, transactional_id: str, identity: ProducerIdAndEpoch, tps: Iterable[TopicPartition]
) -> Request[AddPartitionsToTxnResponse]:
    """
    Tell the coordinator of a transaction where it will have records.
    """
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)
    encoding = ADD_PARTITIONS_TO_TXN.encoding(version)
    pieces = [
        encoding.string(transactional_id),
        _IDENTITY.pack(*identity),
        encoding.count(len(topics)),
    ]
    for topic, partitions in topics.items():
        pieces += [encoding.string(topic), encoding.count(len(partitions))]
        pieces += [*map(INT32.pack, partitions), encoding.tags]
    return Request(ADD_PARTITIONS_TO_TXN, version, b"".join((*pieces, encoding.tags)))


def end_txn_request(
    version: int, name: str, identity: ProducerIdAndEpoch, *, commit: bool
) -> Request[EndTxnResponse]:
    """
    Commit a transaction, or abort it.
    """
    encoding = END_TXN.encoding(version)
    pieces = (
        encoding.string(name),
        _IDENTITY.pack(*identity),
        b"\x01" if commit else b"\x00",
        encoding.tags,
    )
    return Request(END_TXN, version, b"".join(pieces))


# --- Answers --------------------------------------------------------------------------------------


def read_init_producer_id_response(body: memoryview, version: int) -> InitProducerIdResponse:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, _FLEXIBLE_INIT)
    answer = InitProducerIdResponse(reader.int32(), reader.int16(), reader.int64(), reader.int16())
    reader.skip_tags()
    return answer


def read_add_partitions_to_txn_response(
    body: memoryview, version: int
) -> AddPartitionsToTxnResponse:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, _FLEXIBLE_ADD)
    throttle, codes = reader.int32(), []
    for _ in range(reader.count()):
        reader.skip_text()
        for _ in range(reader.count()):
            reader.skip(_INT32_BYTES)
            codes.append(reader.int16())
            reader.skip_tags()
        reader.skip_tags()
    reader.skip_tags()
    return AddPartitionsToTxnResponse(throttle, codes)


def read_end_txn_response(body: memoryview, version: int) -> EndTxnResponse:
    """
    Return what an answer says.
    """
    reader = Reader(body, version, _FLEXIBLE_END)
    answer = EndTxnResponse(reader.int32(), reader.int16())
    reader.skip_tags()
    return answer


INIT_PRODUCER_ID = ApiSpec.of(
    "InitProducerId", 22, (0, 4), _FLEXIBLE_INIT, read_init_producer_id_response
)
#: From 4 on it is for brokers among themselves.
ADD_PARTITIONS_TO_TXN = ApiSpec.of(
    "AddPartitionsToTxn", 24, (0, 3), _FLEXIBLE_ADD, read_add_partitions_to_txn_response
)
#: From 5 on it changes the epoch (KIP-890), which the one who began would not learn.
END_TXN = ApiSpec.of("EndTxn", 26, (0, 4), _FLEXIBLE_END, read_end_txn_response)
