"""
Where the records up to a leader epoch end (KIP-320): the OffsetForLeaderEpoch request.

Of a log that was truncated and grew again the answer for the old epoch is the offset at which it
was truncated; of any other log it is at or behind all that was seen in that epoch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader, single_partition
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.engines.wire.protocol.primitives import ByTopic

# The first version that asks for no more than the right to describe the topic; Kafka 2.3.
_OLDEST = 3
_FLEXIBLE = 4

_CONSUMER = INT32.pack(-1)
# A partition's index, its leader's epoch, and the epoch that is asked for.
_ASKED = struct.Struct(">iii")


class OffsetForLeaderPartition(NamedTuple):
    """
    A partition, its leader's epoch, and the epoch whose end is asked for.
    """

    partition_index: int
    leader_epoch: int
    wanted_epoch: int


class EpochEndOffset(NamedTuple):
    """
    What a broker says of one partition: the largest epoch up to the one wanted, and where it ends.

    Both are -1 after an error, and for an epoch that the broker does not know.
    """

    partition_index: int
    error_code: int
    end_offset: int
    leader_epoch: int


class OffsetForLeaderEpochResponse(NamedTuple):
    """
    What a broker says of all partitions that were asked for, by topic.
    """

    throttle_time_ms: int
    topics: ByTopic[EpochEndOffset]

    def only(self) -> EpochEndOffset:
        """
        Return the answer of the one partition that was asked for.

        Raises :class:`KafkaClientError` if it is not the answer of one.
        """
        return single_partition(self.topics, "OffsetForLeaderEpochResponse")


def offset_for_leader_epoch_request(
    version: int, wanted: Mapping[str, Sequence[OffsetForLeaderPartition]]
) -> Request[OffsetForLeaderEpochResponse]:
    """
    Ask for the ends of some partitions' epochs, by topic.
    """
    encoding = OFFSET_FOR_LEADER_EPOCH.encoding(version)
    pieces = [_CONSUMER, encoding.count(len(wanted))]
    for topic, partitions in wanted.items():
        pieces += [encoding.string(topic), encoding.count(len(partitions))]
        pieces += [_ASKED.pack(*one) + encoding.tags for one in partitions]
        pieces.append(encoding.tags)
    pieces.append(encoding.tags)
    return Request(OFFSET_FOR_LEADER_EPOCH, version, b"".join(pieces))


def read_offset_for_leader_epoch_response(
    body: memoryview, version: int
) -> OffsetForLeaderEpochResponse:
    """
    Return what an answer says.
    """
    return _Reader(body, version, _FLEXIBLE).ends()


OFFSET_FOR_LEADER_EPOCH = ApiSpec.of(
    "OffsetForLeaderEpoch", 23, (_OLDEST, 4), _FLEXIBLE, read_offset_for_leader_epoch_response
)


class _Reader(Reader):
    __slots__ = ()

    def ends(self) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(self.int32(), self.by_topic(self._partitions))

    def _partitions(self, count: int) -> list[EpochEndOffset]:
        return [self._partition() for _ in range(count)]

    def _partition(self) -> EpochEndOffset:
        error, index, epoch, end = self.int16(), self.int32(), self.int32(), self.int64()
        self.skip_tags()
        return EpochEndOffset(index, error, end, epoch)
