"""
Who is in the cluster, and who leads what: the Metadata request, and an answer of many partitions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

# What came with which version (Kafka's MetadataRequest.json and MetadataResponse.json).
_OFFLINE_REPLICAS = 5
_LEADER_EPOCHS = 7
_RIGHTS = 8
_FLEXIBLE = 9
_TOPIC_IDS = 10
_NO_RIGHTS_OF_CLUSTER = 11

_INT32_BYTES = INT32.size
_NO_EPOCH = -1

# A partition's index, leader and epoch; the error code before them says no more than they do.
_FIXED = struct.Struct(">xxiii")
_WITHOUT_EPOCH = struct.Struct(">xxii")


class BrokerMetadata(NamedTuple):
    """
    Where a broker listens.
    """

    node_id: int
    host: str
    port: int


class PartitionMetadata(NamedTuple):
    """
    Who leads a partition, -1 for nobody; the epoch is -1 where brokers do not tell it.
    """

    partition_index: int
    leader_id: int
    leader_epoch: int = _NO_EPOCH


class TopicMetadata(NamedTuple):
    """
    A topic; its id is None on brokers before 2.8.
    """

    error_code: int
    name: str | None
    topic_id: UUID | None
    partitions: list[PartitionMetadata]
    is_internal: bool = False


class MetadataResponse(NamedTuple):
    """
    What of the brokers' answer the engine has a use for.
    """

    throttle_time_ms: int
    brokers: list[BrokerMetadata]
    topics: list[TopicMetadata]


def metadata_request(
    version: int, topics: Collection[str] | None, *, creates: bool
) -> Request[MetadataResponse]:
    """
    Ask for some topics, for the brokers only, or for all topics (None).

    ``creates`` lets brokers make those missing.
    """
    encoding = METADATA.encoding(version)
    pieces = [encoding.count(-1 if topics is None else len(topics))]
    for topic in topics or ():
        pieces += [
            encoding.uuid(None) if version >= _TOPIC_IDS else b"",
            encoding.string(topic),
            encoding.tags,
        ]
    rights = 0
    if version >= _RIGHTS:
        rights = 1 if version >= _NO_RIGHTS_OF_CLUSTER else 2
    pieces += [b"\x01" if creates else b"\x00", bytes(rights), encoding.tags]
    return Request(METADATA, version, b"".join(pieces))


def read_metadata_response(body: memoryview, version: int) -> MetadataResponse:
    """
    Return what an answer says.
    """
    # Single bytes of a bytes object are got at faster than those of a view.
    return _Reader(bytes(body), version, _FLEXIBLE).metadata()


#: From the first of brokers with record batches on; later ones add nothing that we need.
METADATA = ApiSpec.of("Metadata", 3, (4, 12), _FLEXIBLE, read_metadata_response)


class _Reader(Reader):
    __slots__ = ()

    def metadata(self) -> MetadataResponse:
        throttle = self.int32()
        brokers = [self._broker() for _ in range(self.count())]
        self.skip_text()
        self.int32()
        topics = [self._topic() for _ in range(self.count())]
        if _RIGHTS <= self._version < _NO_RIGHTS_OF_CLUSTER:
            self.int32()
        self.skip_tags()
        return MetadataResponse(throttle, brokers, topics)

    def _broker(self) -> BrokerMetadata:
        node, host, port = self.int32(), self.text() or "", self.int32()
        self.skip_text()
        self.skip_tags()
        return BrokerMetadata(node, host, port)

    def _topic(self) -> TopicMetadata:
        error, name = self.int16(), self.text()
        topic_id = self.uuid() if self._version >= _TOPIC_IDS else None
        is_internal = self.boolean()
        count = self.count()
        partitions = self._flexible_partitions(count) if self._flexible else self._partitions(count)
        if self._version >= _RIGHTS:
            self.int32()
        self.skip_tags()
        return TopicMetadata(error, name, topic_id, partitions, is_internal)

    # Both with what is used most in local variables: a topic may have thousands of partitions.

    def _partitions(self, count: int) -> list[PartitionMetadata]:
        view, fixed, unpack_size = self._view, self._fixed(), INT32.unpack_from
        arrays = range(3 if self._version >= _OFFLINE_REPLICAS else 2)
        found = []
        for _ in range(count):
            values = fixed.unpack_from(view, self._at)
            at = self._at + fixed.size
            for _array in arrays:
                (size,) = unpack_size(view, at)
                at += _INT32_BYTES + max(size, 0) * _INT32_BYTES
            self._at = at
            found.append(PartitionMetadata(*values))
        # The last array may say that it ends behind the message.
        self.skip(0)
        return found

    def _fixed(self) -> struct.Struct:
        return _FIXED if self._version >= _LEADER_EPOCHS else _WITHOUT_EPOCH

    def _flexible_partitions(self, count: int) -> list[PartitionMetadata]:
        view, at, unpack, fixed = self._view, self._at, _FIXED.unpack_from, _FIXED.size
        found = []
        for _ in range(count):
            values = unpack(view, at)
            at += fixed
            # The replicas, those in sync, and those offline.
            for _array in range(3):
                size = view[at]
                at += 1
                if size >= 0x80:
                    self._at = at - 1
                    size = self.varint()
                    at = self._at
                if size:
                    at += (size - 1) * _INT32_BYTES
            if view[at]:
                self._at = at
                self.skip_tags()
                at = self._at
            else:
                at += 1
            found.append(PartitionMetadata(*values))
        self._at = at
        return found
