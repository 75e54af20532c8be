"""
OffsetCommit and OffsetFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.coordinator import coordinator_of
from tests.simulation.kafka.group_coordinator import (
    MAX_METADATA_BYTES,
    CommittedOffset,
    GroupCoordinator,
)
from tests.simulation.kafka.image import GROUPS, Partition

if TYPE_CHECKING:
    from tests.simulation.kafka.call import Call

_Committed = OffsetCommitResponse.OffsetCommitResponseTopic
_Fetched = OffsetFetchResponse.OffsetFetchResponseTopic
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_NONE = CommittedOffset(-1, -1, "")


def coordinator(call: Call, group: str) -> GroupCoordinator:
    group_coordinator = coordinator_of(call.node, GROUPS, group)
    assert isinstance(group_coordinator, GroupCoordinator)
    return group_coordinator


def offset_commit(call: Call) -> None:
    request = call.request
    errors: dict[Partition, Code] = {}
    accepted: dict[Partition, CommittedOffset] = {}
    for topic in request.topics:
        for part in topic.partitions:
            partition = Partition(topic.name, part.partition_index)
            text = part.committed_metadata
            if call.node.known.find(partition) is None:
                errors[partition] = Code.UNKNOWN_TOPIC_OR_PARTITION
            elif len((text or "").encode()) > MAX_METADATA_BYTES:
                errors[partition] = Code.OFFSET_METADATA_TOO_LARGE
            else:
                offset, epoch = part.committed_offset, part.committed_leader_epoch
                accepted[partition] = CommittedOffset(offset, epoch, text)

    def respond(code: Code) -> None:
        call.respond(_committed(request, {**dict.fromkeys(accepted, code), **errors}))

    def refuse(code: Code) -> None:
        codes = dict.fromkeys([*accepted, *errors], code)
        call.respond(_committed(request, codes))

    try:
        group_coordinator = coordinator(call, request.group_id)
        instance_id, generation = request.group_instance_id, request.generation_id_or_member_epoch
        group_coordinator.check_commit(request.group_id, request.member_id, instance_id, generation)
        group_coordinator.commit(request.group_id, accepted, respond)
    except RequestError as error:
        refuse(error.code)


def _committed(request: Any, codes: dict[Partition, Code]) -> Any:
    kind = _Committed.OffsetCommitResponsePartition
    topics = [
        _Committed(
            name=topic.name,
            partitions=[
                kind(
                    partition_index=part.partition_index,
                    error_code=codes[Partition(topic.name, part.partition_index)],
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


def offset_fetch(call: Call) -> None:
    request = call.request
    if call.version >= 8:
        groups = [_group(call, group) for group in request.groups]
        call.respond(OffsetFetchResponse(throttle_time_ms=0, groups=groups))
        return
    code, topics = _fetched(call, request.group_id, request.topics)
    call.respond(
        OffsetFetchResponse(
            throttle_time_ms=0,
            topics=[
                _Fetched(
                    name=name,
                    partitions=[_Fetched.OffsetFetchResponsePartition(**part) for part in parts],
                )
                for name, parts in topics.items()
            ],
            error_code=code,
        )
    )


def _group(call: Call, requested: Any) -> Any:
    code, topics = _fetched(call, requested.group_id, requested.topics)
    kind = _Group.OffsetFetchResponseTopics
    return _Group(
        group_id=requested.group_id,
        topics=[
            kind(
                name=name,
                partitions=[kind.OffsetFetchResponsePartitions(**part) for part in parts],
            )
            for name, parts in topics.items()
        ],
        error_code=code,
    )


def _fetched(call: Call, group: str, topics: Any) -> tuple[Code, dict[str, list[dict[str, Any]]]]:
    """
    Return the offsets of the requested partitions, or all offsets of the group.
    """
    try:
        committed = coordinator(call, group).committed(group)
    except RequestError as error:
        return error.code, {}
    if topics is None:
        partitions = sorted(committed)
    else:
        partitions = [Partition(topic.name, n) for topic in topics for n in topic.partition_indexes]
    offsets: dict[str, list[dict[str, Any]]] = {}
    for partition in partitions:
        offset, epoch, text = committed.get(partition, _NONE)
        fields = {
            "partition_index": partition.number,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "metadata": text,
            "error_code": Code.NONE,
        }
        offsets.setdefault(partition.topic, []).append(fields)
    return Code.NONE, offsets


APIS = [(OffsetCommitRequest, (2, 9), offset_commit), (OffsetFetchRequest, (1, 9), offset_fetch)]
