"""
The OffsetForLeaderEpoch request (KIP-320) and its response: where a leader epoch ends.

If a log was truncated and grew again, the end of the old epoch is the offset of the truncation.
Otherwise it is at or after every offset that was read in that epoch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader, single_partition
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.engines.wire.protocol.primitives import ByTopic

# The first version that needs no more than the DESCRIBE permission on the topic; Kafka 2.3.
_MIN_VERSION = 3
_FLEXIBLE = 4

_CONSUMER_REPLICA_ID = INT32.pack(-1)
# partition, current_leader_epoch, leader_epoch.
_REQUESTED = struct.Struct(">iii")


class OffsetForLeaderPartition(NamedTuple):
    """
    A requested partition: its current leader epoch, and the epoch whose end is requested.
    """

    partition_index: int
    current_leader_epoch: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """
    The largest epoch of a partition up to the requested one, and its end offset.

    Both are -1 after an error, and for an epoch that the broker does not know.
    """

    partition_index: int
    error_code: int
    end_offset: int
    leader_epoch: int


class OffsetForLeaderEpochResponse(NamedTuple):
    """
    The end offsets of the epochs of all requested partitions, by topic.
    """

    throttle_time_ms: int
    topics: ByTopic[EpochEndOffset]

    def single(self) -> EpochEndOffset:
        """
        Return the only partition of the response.

        Raises :class:`KafkaClientError` if the response has none, or several.
        """
        return single_partition(self.topics, "OffsetForLeaderEpochResponse")


def offset_for_leader_epoch_request(
    version: int, partitions_by_topic: Mapping[str, Sequence[OffsetForLeaderPartition]]
) -> Request[OffsetForLeaderEpochResponse]:
    """
    Return an OffsetForLeaderEpoch request.
    """
    encoding = OFFSET_FOR_LEADER_EPOCH.encoding(version)
    pieces = [_CONSUMER_REPLICA_ID, encoding.count(len(partitions_by_topic))]
    for topic, partitions in partitions_by_topic.items():
        pieces += [encoding.string(topic), encoding.count(len(partitions))]
        pieces += [_REQUESTED.pack(*partition) + encoding.tags for partition in partitions]
        pieces.append(encoding.tags)
    pieces.append(encoding.tags)
    return Request(OFFSET_FOR_LEADER_EPOCH, version, b"".join(pieces))


def read_offset_for_leader_epoch_response(
    body: memoryview, version: int
) -> OffsetForLeaderEpochResponse:
    """
    Return a decoded response.
    """
    return _Reader(body, version, _FLEXIBLE).response()


OFFSET_FOR_LEADER_EPOCH = ApiSpec(
    "OffsetForLeaderEpoch", 23, (_MIN_VERSION, 4), _FLEXIBLE, read_offset_for_leader_epoch_response
)


class _Reader(Reader):
    __slots__ = ()

    def response(self) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            self.int32(), self.partitions_by_topic(self._partitions)
        )

    def _partitions(self, count: int) -> list[EpochEndOffset]:
        return [self._partition() for _ in range(count)]

    def _partition(self) -> EpochEndOffset:
        error, index, epoch, end = self.int16(), self.int32(), self.int32(), self.int64()
        self.skip_tags()
        return EpochEndOffset(index, error, end, epoch)
