"""
Where a partition's log begins and ends: the ListOffsets request, and its answer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.wire.messages import Api, Request
from pyspark_pykafka.wire.primitives import INT32, INT64, Reader

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import TopicPartition

# What came with which version (Kafka's ListOffsetsRequest.json and ListOffsetsResponse.json).
_LEADER_EPOCHS = 4
_FLEXIBLE = 6

# No replica, and the isolation level.
_FIXED = struct.Struct(">ib")
_CONSUMER = -1


class ListedOffset(NamedTuple):
    """
    What a broker says of the one partition that was asked for.
    """

    throttle_time_ms: int
    error_code: int
    offset: int


def list_offsets_request(
    version: int, tp: TopicPartition, epoch: int, timestamp: int, isolation: int
) -> Request:
    """
    Ask for the offset at a timestamp, or at one of Kafka's words for the ends of the log.
    """
    form = LIST_OFFSETS.layout(version)
    pieces = (
        _FIXED.pack(_CONSUMER, isolation),
        form.count(1),
        form.string(tp.topic),
        form.count(1),
        INT32.pack(tp.partition),
        INT32.pack(epoch) if version >= _LEADER_EPOCHS else b"",
        INT64.pack(timestamp),
        # Behind the partition, the topic, and all.
        3 * form.tags,
    )
    return Request(LIST_OFFSETS, version, b"".join(pieces))


def read_listed_offset(body: memoryview, version: int) -> ListedOffset:
    """
    Return what an answer for one partition says.
    """
    reader = Reader(body, version, _FLEXIBLE)
    throttle = reader.int32()
    reader.expect_one("topics")
    reader.skip_text()
    reader.expect_one("partitions")
    reader.int32()
    error = reader.int16()
    reader.int64()
    offset = reader.int64()
    if version >= _LEADER_EPOCHS:
        reader.int32()
    for _ in range(3):
        reader.skip_tags()
    return ListedOffset(throttle, error, offset)


#: From the first with isolation levels on; later ones add nothing that we need.
LIST_OFFSETS = Api.of("ListOffsets", 2, (2, 7), _FLEXIBLE, read_listed_offset)
