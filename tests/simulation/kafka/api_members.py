"""
The requests of consumer group members, and the admin requests on groups.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.simulation.kafka.api_groups import coordinator
from tests.simulation.kafka.call import Gathered
from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.consumer_group import PREPARING, STABLE, Joined, Member
from tests.simulation.kafka.group_coordinator import GroupCoordinator
from tests.support.kafka_schemas import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from tests.simulation.kafka.call import Call
    from tests.simulation.kafka.consumer_group import ConsumerGroup

_Left = LeaveGroupResponse.MemberResponse
_Described = DescribeGroupsResponse.DescribedGroup
_DescribedConsumers = ConsumerGroupDescribeResponse.DescribedGroup
#: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, which every user may use.
_OPERATIONS = frozenset({3, 6, 8, 10, 11})
#: The bit for operations that were not requested.
_NOT_REQUESTED = frozenset({31})
#: From this version on, a new member joins again with the id that it is assigned (KIP-394).
_ID_REQUIRED = 4
_LEAVES_MANY = 3
_REPORTS_MISSING_GROUPS = 6


def join_group(call: Call) -> None:
    request = call.request

    def respond(joined: Joined) -> None:
        call.respond(_joined(request.protocol_type, joined))

    try:
        group = coordinator(call, request.group_id).group(request.group_id)
        _check_identity(group, request.member_id, request.group_instance_id)
        member_id = request.member_id or _new_id(call)
        if not request.member_id and not request.group_instance_id and call.version >= _ID_REQUIRED:
            group.expected.add(member_id)
            respond(Joined(Code.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        group.join(_member(call, member_id), request.protocol_type, respond)
    except RequestError as error:
        respond(Joined(error.code, member_id=request.member_id))


def _check_identity(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """
    Raise :class:`RequestError` for a member id that the group did not assign, or has replaced.
    """
    static = group.of_instance(instance_id)
    if member_id and static is not None and static.member_id != member_id:
        raise RequestError(Code.FENCED_INSTANCE_ID)
    if member_id and member_id not in group.members and member_id not in group.expected:
        raise RequestError(Code.UNKNOWN_MEMBER_ID)


def _new_id(call: Call) -> str:
    name = call.request.group_instance_id or call.client_id
    return f"{name}-{call.node.world.random.getrandbits(64):016x}"


def _member(call: Call, member_id: str) -> Member:
    request = call.request
    rebalance_ms = request.rebalance_timeout_ms
    return Member(
        member_id,
        request.group_instance_id,
        call.client_id,
        request.session_timeout_ms / 1000,
        (rebalance_ms if rebalance_ms > 0 else request.session_timeout_ms) / 1000,
        tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
    )


def _joined(protocol_type: str, joined: Joined) -> Any:
    kind = JoinGroupResponse.JoinGroupResponseMember
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=protocol_type,
        protocol_name=joined.protocol or "",
        leader=joined.leader,
        skip_assignment=False,
        member_id=joined.member_id,
        members=[
            kind(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(joined.protocol),
            )
            for member in joined.members
        ],
    )


def sync_group(call: Call) -> None:
    request = call.request

    def respond(code: Code, assignment: bytes) -> None:
        call.respond(
            SyncGroupResponse(
                throttle_time_ms=0,
                error_code=code,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment,
            )
        )

    try:
        group = coordinator(call, request.group_id).group(request.group_id)
        group.check(request.member_id, request.group_instance_id, request.generation_id)
        assignments = {member.member_id: bytes(member.assignment) for member in request.assignments}
        group.sync(request.member_id, assignments, respond)
    except RequestError as error:
        respond(error.code, b"")


def heartbeat(call: Call) -> None:
    request, code = call.request, Code.NONE
    try:
        group = coordinator(call, request.group_id).group(request.group_id)
        group.check(request.member_id, request.group_instance_id, request.generation_id)
        if group.state == PREPARING:
            code = Code.REBALANCE_IN_PROGRESS
    except RequestError as error:
        code = error.code
    call.respond(HeartbeatResponse(throttle_time_ms=0, error_code=code))


def leave_group(call: Call) -> None:
    request = call.request
    many = call.version >= _LEAVES_MANY
    leaving = [(m.member_id, m.group_instance_id) for m in request.members or ()]
    if not many:
        leaving = [(request.member_id, None)]
    codes, code = [], Code.NONE
    try:
        group_coordinator = coordinator(call, request.group_id)
        codes = [_leave(group_coordinator, request.group_id, *member) for member in leaving]
    except RequestError as error:
        code = error.code
    if not many and codes:
        code = codes[0]
    call.respond(
        LeaveGroupResponse(
            throttle_time_ms=0,
            error_code=code,
            members=[
                _Left(member_id=member_id, group_instance_id=instance_id, error_code=code)
                for (member_id, instance_id), code in zip(leaving, codes, strict=False)
            ],
        )
    )


def _leave(
    group_coordinator: GroupCoordinator, name: str, member_id: str, instance_id: str | None
) -> Code:
    group = group_coordinator.group(name)
    static = group.of_instance(instance_id)
    if static is not None and member_id and static.member_id != member_id:
        return Code.FENCED_INSTANCE_ID
    leaving = static.member_id if static else member_id
    if leaving not in group.members:
        return Code.UNKNOWN_MEMBER_ID
    group.remove(leaving)
    return Code.NONE


def describe_groups(call: Call) -> None:
    groups = [_described(call, name) for name in call.request.groups]
    call.respond(DescribeGroupsResponse(throttle_time_ms=0, groups=groups))


def _described(call: Call, name: str) -> Any:
    code, state, group = Code.NONE, "Dead", None
    try:
        group_coordinator = coordinator(call, name)
        if group_coordinator.exists(name):
            group = group_coordinator.group(name)
            state = group.state
        elif call.version >= _REPORTS_MISSING_GROUPS:
            code = Code.GROUP_ID_NOT_FOUND
    except RequestError as error:
        code, state = error.code, ""
    stable = group is not None and group.state == STABLE
    return _Described(
        error_code=code,
        error_message=None,
        group_id=name,
        group_state=state,
        protocol_type=group.protocol_type if group else "",
        protocol_data=(group.protocol if group and stable else "") or "",
        members=[
            _Described.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host="/127.0.0.1",
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ]
        if group
        else [],
        authorized_operations=_OPERATIONS
        if call.request.include_authorized_operations and not code
        else _NOT_REQUESTED,
    )


def describe_consumer_groups(call: Call) -> None:
    """
    Respond with GROUP_ID_NOT_FOUND for each group, since none has the protocol of KIP-848.
    """
    groups = [
        _DescribedConsumers(
            error_code=_typed_group_error(call, name), error_message=None, group_id=name
        )
        for name in call.request.group_ids
    ]
    call.respond(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups))


def _typed_group_error(call: Call, name: str) -> Code:
    try:
        coordinator(call, name)
    except RequestError as error:
        return error.code
    return Code.GROUP_ID_NOT_FOUND


def list_groups(call: Call) -> None:
    kind = ListGroupsResponse.ListedGroup
    states = call.request.states_filter or ()
    groups = [
        kind(group_id=name, protocol_type=group.protocol_type, group_state=group.state)
        for group_coordinator in call.node.coordinators.values()
        if isinstance(group_coordinator, GroupCoordinator)
        for name, group in group_coordinator.groups.items()
        if not states or group.state in states
    ]
    call.respond(ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups))


def delete_groups(call: Call) -> None:
    kind = DeleteGroupsResponse.DeletableGroupResult
    names = call.request.groups_names

    def done(codes: dict[str, Code]) -> None:
        results = [kind(group_id=name, error_code=codes[name]) for name in names]
        call.respond(DeleteGroupsResponse(throttle_time_ms=0, results=results))

    gathered = Gathered(len(names), done)
    for name in names:
        put = partial(gathered.put, name)
        try:
            coordinator(call, name).delete(name, put)
        except RequestError as error:
            put(error.code)


APIS = [
    (JoinGroupRequest, (0, 9), join_group),
    (SyncGroupRequest, (0, 5), sync_group),
    (HeartbeatRequest, (0, 4), heartbeat),
    (LeaveGroupRequest, (0, 5), leave_group),
    (DescribeGroupsRequest, (0, 6), describe_groups),
    (ConsumerGroupDescribeRequest, (0, 1), describe_consumer_groups),
    (ListGroupsRequest, (0, 4), list_groups),
    (DeleteGroupsRequest, (0, 2), delete_groups),
]
