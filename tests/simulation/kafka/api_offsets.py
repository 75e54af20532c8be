"""
ListOffsets and OffsetForLeaderEpoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.simulation.kafka.call import Call, find_replica
from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.image import Partition

if TYPE_CHECKING:
    from tests.simulation.kafka.replica import Replica

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_READ_COMMITTED = 1
#: The first version with OFFSET_NOT_AVAILABLE (KIP-207).
_OFFSET_NOT_AVAILABLE_VERSION = 5


class _Listed(NamedTuple):
    offset: int = -1
    timestamp: int = -1
    epoch: int = -1


def list_offsets(call: Call) -> None:
    topics = [
        _Topic(name=topic.name, partitions=[_listed(call, topic.name, p) for p in topic.partitions])
        for topic in call.request.topics
    ]
    call.respond(ListOffsetsResponse(throttle_time_ms=0, topics=topics))


def _listed(call: Call, topic: str, requested: Any) -> Any:
    code, listed = Code.NONE, _Listed()
    try:
        partition = Partition(topic, requested.partition_index)
        replica = find_replica(call.node, partition, requested.current_leader_epoch)
        listed = _find(call, replica, requested.timestamp)
    except RequestError as error:
        code = error.code
    return _Topic.ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        error_code=code,
        timestamp=listed.timestamp,
        offset=listed.offset,
        leader_epoch=listed.epoch,
    )


def _find(call: Call, replica: Replica, timestamp: int) -> _Listed:
    log = replica.log
    limit = replica.high_watermark
    if call.request.isolation_level == _READ_COMMITTED:
        limit = replica.last_stable
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return _Listed(log.start, epoch=log.epoch_at(log.start))
    if timestamp == LATEST_TIERED:
        return _Listed()
    if timestamp == LATEST:
        _check_watermark(call, replica)
        return _Listed(limit, epoch=replica.epoch)
    record = log.newest(limit) if timestamp == MAX_TIMESTAMP else log.find_time(timestamp)
    if record is not None and record.offset < limit:
        return _Listed(record.offset, record.timestamp, log.epoch_at(record.offset))
    _check_watermark(call, replica)
    return _Listed()


def _check_watermark(call: Call, replica: Replica) -> None:
    """
    Raise :class:`RequestError` if the high watermark may be below acknowledged records (KIP-207).
    """
    if not replica.watermark_is_current:
        newer = call.version >= _OFFSET_NOT_AVAILABLE_VERSION
        raise RequestError(Code.OFFSET_NOT_AVAILABLE if newer else Code.LEADER_NOT_AVAILABLE)


def offsets_for_leader_epochs(call: Call) -> None:
    topics = [
        _EpochTopic(
            topic=topic.topic,
            partitions=[_epoch_end(call, topic.topic, p) for p in topic.partitions],
        )
        for topic in call.request.topics
    ]
    call.respond(OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics))


def _epoch_end(call: Call, topic: str, requested: Any) -> Any:
    code, epoch, end = Code.NONE, -1, -1
    try:
        partition = Partition(topic, requested.partition)
        replica = find_replica(call.node, partition, requested.current_leader_epoch)
        epoch, end = replica.log.end_of_epoch(requested.leader_epoch)
    except RequestError as error:
        code = error.code
    return _EpochTopic.EpochEndOffset(
        error_code=code, partition=requested.partition, leader_epoch=epoch, end_offset=end
    )


APIS = [
    (ListOffsetsRequest, (1, 9), list_offsets),
    (OffsetForLeaderEpochRequest, (2, 4), offsets_for_leader_epochs),
]
