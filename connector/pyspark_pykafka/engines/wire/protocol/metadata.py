"""
The Metadata request and its response: brokers, topics and partition leaders.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

# The first version with each field (Kafka's MetadataRequest.json and MetadataResponse.json).
_OFFLINE_REPLICAS = 5
_LEADER_EPOCHS = 7
_AUTHORIZED_OPERATIONS = 8
_FLEXIBLE = 9
_TOPIC_IDS = 10
_WITHOUT_CLUSTER_OPERATIONS = 11

_INT32_BYTES = INT32.size
_NO_EPOCH = -1

# partition_index, leader_id, leader_epoch; the error code before them is skipped, since it adds
# nothing to these fields.
_FIXED = struct.Struct(">xxiii")
_WITHOUT_EPOCH = struct.Struct(">xxii")


class BrokerMetadata(NamedTuple):
    """
    A broker and the address of its listener.
    """

    node_id: int
    host: str
    port: int


class PartitionMetadata(NamedTuple):
    """
    The leader of a partition, -1 for none; the epoch is -1 if the version has no epochs.
    """

    partition_index: int
    leader_id: int
    leader_epoch: int = _NO_EPOCH


class TopicMetadata(NamedTuple):
    """
    A topic; ``topic_id`` is None on brokers before 2.8 (KIP-516).
    """

    error_code: int
    name: str | None
    topic_id: UUID | None
    partitions: list[PartitionMetadata]
    is_internal: bool = False


class MetadataResponse(NamedTuple):
    """
    The fields of a Metadata response that the engine uses.
    """

    throttle_time_ms: int
    brokers: list[BrokerMetadata]
    topics: list[TopicMetadata]

    def topic_ids(self) -> dict[str, UUID]:
        """
        Return the topic ids by name, without the topics that this broker knows no id of.
        """
        return {
            topic.name: topic.topic_id
            for topic in self.topics
            if topic.name is not None and topic.topic_id is not None
        }


def metadata_request(
    version: int, topics: Collection[str] | None, *, allow_auto_topic_creation: bool
) -> Request[MetadataResponse]:
    """
    Return a Metadata request for some topics, all topics (None), or the brokers alone (empty).

    ``allow_auto_topic_creation`` lets the brokers create missing topics.
    """
    encoding = METADATA.encoding(version)
    pieces = [encoding.count(-1 if topics is None else len(topics))]
    for topic in topics or ():
        pieces += [
            encoding.uuid(None) if version >= _TOPIC_IDS else b"",
            encoding.string(topic),
            encoding.tags,
        ]
    # The flags that request authorized operations: none of them.
    flags = 0
    if version >= _AUTHORIZED_OPERATIONS:
        flags = 1 if version >= _WITHOUT_CLUSTER_OPERATIONS else 2
    pieces += [b"\x01" if allow_auto_topic_creation else b"\x00", bytes(flags), encoding.tags]
    return Request(METADATA, version, b"".join(pieces))


def read_metadata_response(body: memoryview, version: int) -> MetadataResponse:
    """
    Return a decoded response.
    """
    # Indexing a bytes object is faster than indexing a memoryview.
    return _Reader(bytes(body), version, _FLEXIBLE).response()


#: Used from the version of the first brokers with record batches (0.11) on; versions after 12 add
#: nothing that we need.
METADATA = ApiSpec("Metadata", 3, (4, 12), _FLEXIBLE, read_metadata_response)


class _Reader(Reader):
    __slots__ = ()

    def response(self) -> MetadataResponse:
        throttle = self.int32()
        brokers = [self._broker() for _ in range(self.count())]
        self.skip_string()
        self.int32()
        topics = [self._topic() for _ in range(self.count())]
        if _AUTHORIZED_OPERATIONS <= self._version < _WITHOUT_CLUSTER_OPERATIONS:
            self.int32()
        self.skip_tags()
        return MetadataResponse(throttle, brokers, topics)

    def _broker(self) -> BrokerMetadata:
        node, host, port = self.int32(), self.string() or "", self.int32()
        self.skip_string()
        self.skip_tags()
        return BrokerMetadata(node, host, port)

    def _topic(self) -> TopicMetadata:
        error, name = self.int16(), self.string()
        topic_id = self.uuid() if self._version >= _TOPIC_IDS else None
        is_internal = self.boolean()
        count = self.count()
        partitions = self._flexible_partitions(count) if self._flexible else self._partitions(count)
        if self._version >= _AUTHORIZED_OPERATIONS:
            self.int32()
        self.skip_tags()
        return TopicMetadata(error, name, topic_id, partitions, is_internal)

    # Local variables are faster in both methods: a topic may have thousands of partitions.

    def _partitions(self, count: int) -> list[PartitionMetadata]:
        view, fixed, unpack_size = self._view, self._fixed(), INT32.unpack_from
        arrays = range(3 if self._version >= _OFFLINE_REPLICAS else 2)
        entries = []
        for _ in range(count):
            values = fixed.unpack_from(view, self._position)
            position = self._position + fixed.size
            for _array in arrays:
                (size,) = unpack_size(view, position)
                position += _INT32_BYTES + max(size, 0) * _INT32_BYTES
            self._position = position
            entries.append(PartitionMetadata(*values))
        # Raises if the last array claims to end after the message.
        self.skip(0)
        return entries

    def _fixed(self) -> struct.Struct:
        return _FIXED if self._version >= _LEADER_EPOCHS else _WITHOUT_EPOCH

    def _flexible_partitions(self, count: int) -> list[PartitionMetadata]:
        view, position, unpack, fixed = self._view, self._position, _FIXED.unpack_from, _FIXED.size
        entries = []
        for _ in range(count):
            values = unpack(view, position)
            position += fixed
            # replica_nodes, isr_nodes, offline_replicas.
            for _array in range(3):
                size = view[position]
                position += 1
                if size >= 0x80:
                    self._position = position - 1
                    size = self.varint()
                    position = self._position
                if size:
                    position += (size - 1) * _INT32_BYTES
            if view[position]:
                self._position = position
                self.skip_tags()
                position = self._position
            else:
                position += 1
            entries.append(PartitionMetadata(*values))
        self._position = position
        return entries
