"""
The requests that describe, list and delete consumer groups, and their responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.protocol.primitives import INT32, Reader
from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

if TYPE_CHECKING:
    from collections.abc import Callable

# The first flexible versions, and the first versions with filters by state and type and with the
# type of a member (as in Kafka's ListGroupsRequest.json and ConsumerGroupDescribeResponse.json).
_FLEXIBLE_DESCRIBE = 5
_FLEXIBLE_LIST = 3
_LIST_STATES, _LIST_TYPES = 4, 5
_FLEXIBLE_DELETE = 2
_MEMBER_TYPES = 1

_UUID_BYTES = 16
_TRUE, _FALSE = b"\x01", b"\x00"

#: The state of a group that does not exist, or that is not of the type that the request describes.
DEAD = "Dead"


class GroupMemberEntry(NamedTuple):
    """
    A member of a group; a dynamic member has no ``instance_id``.
    """

    instance_id: str | None
    client_id: str
    client_host: str


class GroupEntry(NamedTuple):
    """
    The described group; each bit of ``authorized_operations`` is one operation that the user may
    use, and a negative number means that none were requested.
    """

    error_code: int
    state: str
    members: list[GroupMemberEntry]
    authorized_operations: int


class DescribeGroupsResponse(NamedTuple):
    """
    A group of the classic protocol; a group of another type is ``Dead``, without members.
    """

    throttle_time_ms: int
    group: GroupEntry


class ConsumerGroupDescribeResponse(NamedTuple):
    """
    A group of the type ``consumer`` (KIP-848); others have the error GROUP_ID_NOT_FOUND.
    """

    throttle_time_ms: int
    group: GroupEntry


class ListedGroup(NamedTuple):
    """
    A group, and the protocol of its members: ``consumer``, or empty if it has only offsets.
    """

    group_id: str
    protocol_type: str


class ListGroupsResponse(NamedTuple):
    """
    The groups that one broker coordinates.
    """

    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]


class DeleteGroupsResponse(NamedTuple):
    """
    The result of deleting one group.
    """

    throttle_time_ms: int
    error_code: int


# --- Requests -------------------------------------------------------------------------------------


def describe_groups_request(
    version: int, group: str, *, include_operations: bool
) -> Request[DescribeGroupsResponse]:
    """
    Return a DescribeGroups request for a group of the classic protocol.
    """
    body = _describe_body(DESCRIBE_GROUPS, version, group, include_operations=include_operations)
    return Request(DESCRIBE_GROUPS, version, body)


def consumer_group_describe_request(
    version: int, group: str, *, include_operations: bool
) -> Request[ConsumerGroupDescribeResponse]:
    """
    Return a ConsumerGroupDescribe request for a group of the type ``consumer`` (KIP-848).
    """
    api = CONSUMER_GROUP_DESCRIBE
    body = _describe_body(api, version, group, include_operations=include_operations)
    return Request(api, version, body)


def _describe_body(
    api: ApiSpec[DescribeGroupsResponse] | ApiSpec[ConsumerGroupDescribeResponse],
    version: int,
    group: str,
    *,
    include_operations: bool,
) -> bytes:
    encoding = api.encoding(version)
    flag = _TRUE if include_operations else _FALSE
    return encoding.count(1) + encoding.string(group) + flag + encoding.tags


def list_groups_request(version: int) -> Request[ListGroupsResponse]:
    """
    Return a ListGroups request for the groups of every state and type.
    """
    encoding = LIST_GROUPS.encoding(version)
    filters = (version >= _LIST_STATES) + (version >= _LIST_TYPES)
    return Request(LIST_GROUPS, version, encoding.count(0) * filters + encoding.tags)


def delete_groups_request(version: int, group: str) -> Request[DeleteGroupsResponse]:
    """
    Return a DeleteGroups request for one group.
    """
    encoding = DELETE_GROUPS.encoding(version)
    body = encoding.count(1) + encoding.string(group) + encoding.tags
    return Request(DELETE_GROUPS, version, body)


# --- Responses ------------------------------------------------------------------------------------


def read_describe_groups_response(body: memoryview, version: int) -> DescribeGroupsResponse:
    """
    Return a decoded response.
    """
    reader = _Reader(body, version, _FLEXIBLE_DESCRIBE)
    throttle = reader.int32()
    group = reader.single_group(reader.classic_group)
    return DescribeGroupsResponse(throttle, group)


def read_consumer_group_describe_response(
    body: memoryview, version: int
) -> ConsumerGroupDescribeResponse:
    """
    Return a decoded response.
    """
    reader = _Reader(body, version, 0)
    throttle = reader.int32()
    group = reader.single_group(reader.consumer_group)
    return ConsumerGroupDescribeResponse(throttle, group)


def read_list_groups_response(body: memoryview, version: int) -> ListGroupsResponse:
    """
    Return a decoded response.
    """
    reader = _Reader(body, version, _FLEXIBLE_LIST)
    throttle, error = reader.int32(), reader.int16()
    groups = [reader.listed_group() for _ in range(reader.count())]
    reader.skip_tags()
    return ListGroupsResponse(throttle, error, groups)


def read_delete_groups_response(body: memoryview, version: int) -> DeleteGroupsResponse:
    """
    Return a decoded response.
    """
    reader = Reader(body, version, _FLEXIBLE_DELETE)
    throttle = reader.int32()
    reader.expect_single("groups")
    reader.skip_string()
    error = reader.int16()
    reader.skip_tags()
    reader.skip_tags()
    return DeleteGroupsResponse(throttle, error)


class _Reader(Reader):
    __slots__ = ()

    def single_group(self, read_group: Callable[[], GroupEntry]) -> GroupEntry:
        self.expect_single("groups")
        group = read_group()
        # The tags of the group, and those of the response.
        self.skip_tags()
        self.skip_tags()
        return group

    def classic_group(self) -> GroupEntry:
        error = self.int16()
        # group_id
        self.skip_string()
        state = self.string() or ""
        # protocol_type, protocol_data
        self.skip_string()
        self.skip_string()
        members = [self._classic_member() for _ in range(self.count())]
        return GroupEntry(error, state, members, self.int32())

    def _classic_member(self) -> GroupMemberEntry:
        # member_id
        self.skip_string()
        member = GroupMemberEntry(self.string(), self.string() or "", self.string() or "")
        # member_metadata, member_assignment
        self._skip_bytes()
        self._skip_bytes()
        self.skip_tags()
        return member

    def consumer_group(self) -> GroupEntry:
        error = self.int16()
        # error_message, group_id
        self.skip_string()
        self.skip_string()
        state = self.string() or ""
        # group_epoch, assignment_epoch, assignor_name
        self.skip(2 * INT32.size)
        self.skip_string()
        members = [self._consumer_member() for _ in range(self.count())]
        return GroupEntry(error, state, members, self.int32())

    def _consumer_member(self) -> GroupMemberEntry:
        # member_id
        self.skip_string()
        instance = self.string()
        # rack_id, member_epoch
        self.skip_string()
        self.skip(INT32.size)
        member = GroupMemberEntry(instance, self.string() or "", self.string() or "")
        # subscribed_topic_names, subscribed_topic_regex
        for _ in range(self.count()):
            self.skip_string()
        self.skip_string()
        # assignment, target_assignment, member_type
        self._skip_assignment()
        self._skip_assignment()
        self.skip(1 if self._version >= _MEMBER_TYPES else 0)
        self.skip_tags()
        return member

    def _skip_assignment(self) -> None:
        # topic_id, topic_name and partitions of each topic
        for _ in range(self.count()):
            self.skip(_UUID_BYTES)
            self.skip_string()
            self.skip(max(self.count(), 0) * INT32.size)
            self.skip_tags()
        self.skip_tags()

    def _skip_bytes(self) -> None:
        self.skip(max(self.count(), 0))

    def listed_group(self) -> ListedGroup:
        group = ListedGroup(self.string() or "", self.string() or "")
        for version in (_LIST_STATES, _LIST_TYPES):
            # group_state, group_type
            if self._version >= version:
                self.skip_string()
        self.skip_tags()
        return group


#: Used from the first version with instance ids on. Version 6 is not used: for a group that does
#: not exist, the broker returns an error without the authorized operations (KIP-1043).
DESCRIBE_GROUPS = ApiSpec(
    "DescribeGroups", 15, (4, 5), _FLEXIBLE_DESCRIBE, read_describe_groups_response
)
LIST_GROUPS = ApiSpec("ListGroups", 16, (1, 5), _FLEXIBLE_LIST, read_list_groups_response)
DELETE_GROUPS = ApiSpec("DeleteGroups", 42, (0, 2), _FLEXIBLE_DELETE, read_delete_groups_response)
CONSUMER_GROUP_DESCRIBE = ApiSpec(
    "ConsumerGroupDescribe", 69, (0, 1), 0, read_consumer_group_describe_response
)
