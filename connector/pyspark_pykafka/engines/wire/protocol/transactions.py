"""
The requests InitProducerId, AddPartitionsToTxn and EndTxn, and their responses (KIP-98).
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

# The first flexible versions, and the first with the producer's identity (Kafka's
# InitProducerIdRequest.json and so on).
_FLEXIBLE_INIT = 2
_HAS_IDENTITY = 3
_FLEXIBLE_ADD = 3
_FLEXIBLE_END = 3

_IDENTITY = struct.Struct(">qh")
_NO_IDENTITY = _IDENTITY.pack(-1, -1)
_INT32_BYTES = INT32.size


class InitProducerIdResponse(NamedTuple):
    """
    The producer id and epoch that the broker has assigned to a producer.
    """

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


class AddPartitionsToTxnResponse(NamedTuple):
    """
    The topic and the error code of each partition, in the order of the response.
    """

    throttle_time_ms: int
    results: list[tuple[str, int]]

    @property
    def error_codes(self) -> list[int]:
        """
        The error codes of all partitions.
        """
        return [code for _, code in self.results]

    def topics_with(self, error_code: int) -> list[str]:
        """
        Return the topics with this error code, each once.
        """
        return list(dict.fromkeys(topic for topic, code in self.results if code == error_code))


class EndTxnResponse(NamedTuple):
    """
    The coordinator's response. Without an error code, the coordinator has decided the outcome of
    the transaction.
    """

    throttle_time_ms: int
    error_code: int


# --- Requests -------------------------------------------------------------------------------------


def init_producer_id_request(
    version: int, transactional_id: str | None, timeout_ms: int
) -> Request[InitProducerIdResponse]:
    """
    Return an InitProducerId request, which aborts an open transaction of the transactional id.
    """
    encoding = INIT_PRODUCER_ID.encoding(version)
    pieces = (
        encoding.string(transactional_id),
        INT32.pack(timeout_ms),
        _NO_IDENTITY if version >= _HAS_IDENTITY else b"",
        encoding.tags,
    )
    return Request(INIT_PRODUCER_ID, version, b"".join(pieces))


def add_partitions_to_txn_request(
    version: int, transactional_id: str, identity: ProducerIdAndEpoch, tps: Iterable[TopicPartition]
) -> Request[AddPartitionsToTxnResponse]:
    """
    Return an AddPartitionsToTxn request, which adds partitions to a transaction.
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
    version: int, transactional_id: str, identity: ProducerIdAndEpoch, *, commit: bool
) -> Request[EndTxnResponse]:
    """
    Return an EndTxn request, which commits or aborts a transaction.
    """
    encoding = END_TXN.encoding(version)
    pieces = (
        encoding.string(transactional_id),
        _IDENTITY.pack(*identity),
        b"\x01" if commit else b"\x00",
        encoding.tags,
    )
    return Request(END_TXN, version, b"".join(pieces))


# --- Responses ------------------------------------------------------------------------------------


def read_init_producer_id_response(body: memoryview, version: int) -> InitProducerIdResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, _FLEXIBLE_INIT)
    response = InitProducerIdResponse(
        reader.int32(), reader.int16(), reader.int64(), reader.int16()
    )
    reader.skip_tags()
    return response


def read_add_partitions_to_txn_response(
    body: memoryview, version: int
) -> AddPartitionsToTxnResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, _FLEXIBLE_ADD)
    throttle, results = reader.int32(), []
    for _ in range(reader.count()):
        topic = reader.string() or ""
        for _ in range(reader.count()):
            reader.skip(_INT32_BYTES)
            results.append((topic, reader.int16()))
            reader.skip_tags()
        reader.skip_tags()
    reader.skip_tags()
    return AddPartitionsToTxnResponse(throttle, results)


def read_end_txn_response(body: memoryview, version: int) -> EndTxnResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, _FLEXIBLE_END)
    response = EndTxnResponse(reader.int32(), reader.int16())
    reader.skip_tags()
    return response


INIT_PRODUCER_ID = ApiSpec(
    "InitProducerId", 22, (0, 4), _FLEXIBLE_INIT, read_init_producer_id_response
)
#: From version 4 on, the request is for brokers only (KIP-890).
ADD_PARTITIONS_TO_TXN = ApiSpec(
    "AddPartitionsToTxn", 24, (0, 3), _FLEXIBLE_ADD, read_add_partitions_to_txn_response
)
#: From version 5 on, EndTxn bumps the epoch (KIP-890), and the task that began the transaction
#: would not learn the new epoch.
END_TXN = ApiSpec("EndTxn", 26, (0, 4), _FLEXIBLE_END, read_end_txn_response)
