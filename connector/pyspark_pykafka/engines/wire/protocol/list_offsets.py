"""
The ListOffsets request and its response, for many partitions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import Reader, single_partition
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.engines.wire.protocol.primitives import ByTopic

# The first version with each field (Kafka's ListOffsetsRequest.json and ListOffsetsResponse.json).
_LEADER_EPOCHS = 4
_FLEXIBLE = 6

#: The isolation levels' numbers in the protocol.
ISOLATION = {"read_uncommitted": 0, "read_committed": 1}

# replica_id, isolation_level.
_FRONT = struct.Struct(">ib")
_CONSUMER_REPLICA_ID = -1

# A requested partition: partition_index, current_leader_epoch, timestamp. In a response:
# partition_index, error_code, a timestamp that we skip, offset, leader_epoch.
_REQUESTED, _REQUESTED_WITHOUT_EPOCH = struct.Struct(">iiq"), struct.Struct(">iq")
_LISTED, _LISTED_WITHOUT_EPOCH = struct.Struct(">ih8xqi"), struct.Struct(">ih8xq")


class ListOffsetsPartition(NamedTuple):
    """
    A requested partition; ``timestamp`` is in milliseconds, or -2 (earliest) or -1 (latest).
    """

    partition_index: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsPartitionResponse(NamedTuple):
    """
    The offset for one partition: -1 after an error, or if no record is as late as the timestamp.

    For the end of the log, ``leader_epoch`` is the current one; -1 if the version has no epochs.
    """

    partition_index: int
    error_code: int
    offset: int
    leader_epoch: int = -1


class ListOffsetsResponse(NamedTuple):
    """
    The offsets of all requested partitions, by topic.
    """

    throttle_time_ms: int
    topics: ByTopic[ListOffsetsPartitionResponse]

    def single(self) -> ListOffsetsPartitionResponse:
        """
        Return the only partition of the response.

        Raises :class:`KafkaClientError` if the response has none, or several.
        """
        return single_partition(self.topics, "ListOffsetsResponse")


def list_offsets_request(
    version: int,
    partitions_by_topic: Mapping[str, Sequence[ListOffsetsPartition]],
    isolation_level: int,
) -> Request[ListOffsetsResponse]:
    """
    Return a ListOffsets request.
    """
    encoding = LIST_OFFSETS.encoding(version)
    pieces = [
        _FRONT.pack(_CONSUMER_REPLICA_ID, isolation_level),
        encoding.count(len(partitions_by_topic)),
    ]
    for topic, partitions in partitions_by_topic.items():
        pieces += [encoding.string(topic), encoding.count(len(partitions))]
        if version >= _LEADER_EPOCHS:
            pieces += [_REQUESTED.pack(*partition) + encoding.tags for partition in partitions]
        else:
            pieces += [
                _REQUESTED_WITHOUT_EPOCH.pack(partition[0], partition[2])
                for partition in partitions
            ]
        pieces.append(encoding.tags)
    pieces.append(encoding.tags)
    return Request(LIST_OFFSETS, version, b"".join(pieces))


def read_list_offsets_response(body: memoryview, version: int) -> ListOffsetsResponse:
    """
    Return a decoded response.
    """
    # Indexing a bytes object is faster than indexing a memoryview.
    return _Reader(bytes(body), version, _FLEXIBLE).response()


#: Used from the first version with isolation levels on; versions after 7 add nothing that we need.
LIST_OFFSETS = ApiSpec("ListOffsets", 2, (2, 7), _FLEXIBLE, read_list_offsets_response)


class _Reader(Reader):
    __slots__ = ()

    def response(self) -> ListOffsetsResponse:
        return ListOffsetsResponse(self.int32(), self.partitions_by_topic(self._partitions))

    # Local variables are faster, and a broker may lead thousands of partitions.
    def _partitions(self, count: int) -> list[ListOffsetsPartitionResponse]:
        layout = _LISTED if self._version >= _LEADER_EPOCHS else _LISTED_WITHOUT_EPOCH
        view, position, unpack, size = self._view, self._position, layout.unpack_from, layout.size
        entries = []
        for _ in range(count):
            entries.append(ListOffsetsPartitionResponse(*unpack(view, position)))
            position += size
            if self._flexible:
                if view[position]:
                    self._position = position
                    self.skip_tags()
                    position = self._position
                else:
                    position += 1
        self._position = position
        return entries
