"""
Where partitions' logs begin and end: the ListOffsets request, and an answer of many partitions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import Reader, single_partition
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.engines.wire.protocol.primitives import ByTopic

# What came with which version (Kafka's ListOffsetsRequest.json and ListOffsetsResponse.json).
_LEADER_EPOCHS = 4
_FLEXIBLE = 6

#: The isolation levels, as the protocol numbers them.
ISOLATION = {"read_uncommitted": 0, "read_committed": 1}

# No replica, and the isolation level.
_FIXED = struct.Struct(">ib")
_CONSUMER = -1

# A partition's index, leader epoch and time as asked for; its index, error and offset as told, with
# a time between them, and the leader's epoch behind them.
_ASKED, _ASKED_WITHOUT_EPOCH = struct.Struct(">iiq"), struct.Struct(">iq")
_TOLD, _TOLD_WITHOUT_EPOCH = struct.Struct(">ih8xqi"), struct.Struct(">ih8xq")


class ListOffsetsPartition(NamedTuple):
    """
    A partition, its leader's epoch, and a time, or one of Kafka's words for the ends of the log.
    """

    partition_index: int
    leader_epoch: int
    timestamp: int


class ListOffsetsPartitionResponse(NamedTuple):
    """
    What a broker says of one partition; the offset is -1 after an error, and for "no such".

    The epoch is the leader's own for the end of the log, -1 where brokers do not tell it.
    """

    partition_index: int
    error_code: int
    offset: int
    leader_epoch: int = -1


class ListOffsetsResponse(NamedTuple):
    """
    What a broker says of all partitions that were asked for, by topic.
    """

    throttle_time_ms: int
    topics: ByTopic[ListOffsetsPartitionResponse]

    def only(self) -> ListOffsetsPartitionResponse:
        """
        Return the answer of the one partition that was asked for.

        Raises :class:`KafkaClientError` if it is not the answer of one.
        """
        return single_partition(self.topics, "ListOffsetsResponse")


def list_offsets_request(
    version: int, wanted: Mapping[str, Sequence[ListOffsetsPartition]], isolation: int
) -> Request[ListOffsetsResponse]:
    """
    Ask for the offsets of some partitions, by topic.
    """
    encoding = LIST_OFFSETS.encoding(version)
    pieces = [_FIXED.pack(_CONSUMER, isolation), encoding.count(len(wanted))]
    for topic, partitions in wanted.items():
        pieces += [encoding.string(topic), encoding.count(len(partitions))]
        if version >= _LEADER_EPOCHS:
            pieces += [_ASKED.pack(*one) + encoding.tags for one in partitions]
        else:
            pieces += [_ASKED_WITHOUT_EPOCH.pack(one[0], one[2]) for one in partitions]
        pieces.append(encoding.tags)
    pieces.append(encoding.tags)
    return Request(LIST_OFFSETS, version, b"".join(pieces))


def read_list_offsets_response(body: memoryview, version: int) -> ListOffsetsResponse:
    """
    Return what an answer says.
    """
    # Single bytes of a bytes object are got at faster than those of a view.
    return _Reader(bytes(body), version, _FLEXIBLE).listed()


#: From the first with isolation levels on; later ones add nothing that we need.
LIST_OFFSETS = ApiSpec.of("ListOffsets", 2, (2, 7), _FLEXIBLE, read_list_offsets_response)


class _Reader(Reader):
    __slots__ = ()

    def listed(self) -> ListOffsetsResponse:
        return ListOffsetsResponse(self.int32(), self.by_topic(self._partitions))

    # With what is used most in local variables: a broker may lead thousands of partitions.
    def _partitions(self, count: int) -> list[ListOffsetsPartitionResponse]:
        form = _TOLD if self._version >= _LEADER_EPOCHS else _TOLD_WITHOUT_EPOCH
        view, at, unpack, size = self._view, self._at, form.unpack_from, form.size
        found = []
        for _ in range(count):
            found.append(ListOffsetsPartitionResponse(*unpack(view, at)))
            at += size
            if self._flexible:
                if view[at]:
                    self._at = at
                    self.skip_tags()
                    at = self._at
                else:
                    at += 1
        self._at = at
        return found
