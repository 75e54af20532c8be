"""
Describes, lists and deletes consumer groups with the wire engine.

librdkafka aborts the process if the response of a group's coordinator arrives together with the
request's timeout (librdkafka issue 4605), which ends a driver with all its queries.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_read_error_code
from pyspark_pykafka.engines.group_contract import (
    CONSUMER_PROTOCOLS,
    GroupDescription,
    MemberDescription,
)
from pyspark_pykafka.engines.wire.network.api_timeout import retry_within_api_timeout
from pyspark_pykafka.engines.wire.network.coordinator_lookup import CoordinatorLookup
from pyspark_pykafka.engines.wire.network.pipeline import request_pipelined
from pyspark_pykafka.engines.wire.protocol.find_coordinator import GROUP
from pyspark_pykafka.engines.wire.protocol.groups import (
    CONSUMER_GROUP_DESCRIBE,
    DEAD,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    GroupEntry,
    consumer_group_describe_request,
    delete_groups_request,
    describe_groups_request,
    list_groups_request,
)
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.engines.wire.network.api_timeout import Attempt
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.groups import ListGroupsResponse
    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.settings.wire_config import Address

T = TypeVar("T")

# Kafka's operations by their numbers, which are bit positions in a response (AclOperation.java).
_OPERATIONS = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}

# The errors of ConsumerGroupDescribe for groups that are not of the type ``consumer``, and from
# brokers on which this type is disabled.
_NOT_OF_THE_TYPE = frozenset(
    {KafkaErrorCode.GROUP_ID_NOT_FOUND, KafkaErrorCode.UNSUPPORTED_VERSION}
)


class WireGroups:
    """
    Implements :class:`~pyspark_pykafka.engines.group_contract.GroupBackend`.

    Caches the coordinators of groups between calls.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._addresses: dict[str, Address] = {}

    def describe(self, group: str, *, include_operations: bool = False) -> GroupDescription:
        """
        Return the members of a group; a group that does not exist has none.
        """

        def request(coordinator: _Coordinator) -> GroupDescription:
            return _describe(coordinator, include_operations=include_operations)

        return self._on_coordinator(group, f"describing the consumer group {group}", request)

    def list_groups(self) -> list[str]:
        """
        Return the ids of all consumer groups that the user may describe, in order.
        """

        def request(cluster: Cluster, attempt: Attempt) -> list[str]:
            return sorted(_list_once(cluster, attempt.deadline))

        return retry_within_api_timeout(self._kafka, request)

    def delete(self, group: str) -> None:
        """
        Delete a group without members, and its offsets; a missing group is not an error.
        """
        self._on_coordinator(group, f"deleting the consumer group {group}", _delete)

    def _on_coordinator(self, group: str, action: str, request: Callable[[_Coordinator], T]) -> T:
        def once(cluster: Cluster, attempt: Attempt) -> T:
            lookup = CoordinatorLookup(cluster, GROUP, _lookup_error, self._addresses)
            return request(_Coordinator(lookup, group, action, attempt.deadline))

        return retry_within_api_timeout(self._kafka, once)


@dataclass(frozen=True, slots=True)
class _Coordinator:
    """
    The coordinator of a group, for one attempt; a coordinator that fails is forgotten.
    """

    lookup: CoordinatorLookup
    group: str
    action: str
    deadline: Deadline

    def supports(self, api: ApiSpec[T]) -> bool:
        with _naming(self.action):
            return self._connection().supports(api)

    def request(self, factory: Callable[[Connection], Request[T]]) -> T:
        with _naming(self.action):
            connection = self._connection()
            try:
                return self.lookup.cluster.request(connection, factory(connection), self.deadline)
            except PykafkaError:
                self.lookup.invalidate(connection.address)
                raise

    def check(self, code: int, permission: str) -> None:
        """
        Raise the error of a response that has one; ``permission`` names the permission that the
        request needs.
        """
        self.lookup.invalidate_if_moved(self.group, code)
        if code:
            raise map_read_error_code(code, self.action, permission)

    def _connection(self) -> Connection:
        address = self.lookup.find(self.group, self.deadline)
        try:
            return self.lookup.cluster.connection_at(address, self.deadline)
        except PykafkaError:
            self.lookup.invalidate(address)
            raise


def _describe(coordinator: _Coordinator, *, include_operations: bool) -> GroupDescription:
    group = coordinator.group
    entry = coordinator.request(
        lambda connection: describe_groups_request(
            connection.version(DESCRIBE_GROUPS), group, include_operations=include_operations
        )
    ).group
    coordinator.check(entry.error_code, _describe_permission(group))
    if entry.state == DEAD and coordinator.supports(CONSUMER_GROUP_DESCRIBE):
        typed = coordinator.request(
            lambda connection: consumer_group_describe_request(
                connection.version(CONSUMER_GROUP_DESCRIBE),
                group,
                include_operations=include_operations,
            )
        ).group
        if typed.error_code not in _NOT_OF_THE_TYPE:
            coordinator.check(typed.error_code, _describe_permission(group, typed.error_code))
            entry = typed
    return _to_description(entry)


def _to_description(entry: GroupEntry) -> GroupDescription:
    members = tuple(
        MemberDescription(member.client_id, member.client_host, member.instance_id)
        for member in entry.members
    )
    bits = entry.authorized_operations
    names = frozenset(name for number, name in _OPERATIONS.items() if bits >> number & 1)
    return GroupDescription(members, None if bits < 0 else names)


def _delete(coordinator: _Coordinator) -> None:
    group = coordinator.group
    response = coordinator.request(
        lambda connection: delete_groups_request(connection.version(DELETE_GROUPS), group)
    )
    # An earlier request, whose response was lost, may have deleted the group.
    if response.error_code != KafkaErrorCode.GROUP_ID_NOT_FOUND:
        coordinator.check(response.error_code, f"Delete on the consumer group {group}")


def _list_once(cluster: Cluster, deadline: Deadline) -> set[str]:
    action = "listing the consumer groups"

    def request(connection: Connection) -> Request[ListGroupsResponse]:
        return list_groups_request(connection.version(LIST_GROUPS))

    with _naming(action):
        requested = {address: [(address, request)] for address in cluster.addresses(deadline)}
        done = request_pipelined(cluster, requested, deadline, cluster.config.request_seconds)
        for error in done.errors.values():
            raise error
    groups: set[str] = set()
    for response in done.responses.values():
        if response.error_code:
            raise map_read_error_code(response.error_code, action, "Describe on the cluster")
        groups |= {
            group.group_id for group in response.groups if group.protocol_type in CONSUMER_PROTOCOLS
        }
    return groups


@contextmanager
def _naming(action: str) -> Iterator[None]:
    """
    Add the action to the errors of brokers that cannot be reached or do not answer.
    """
    try:
        yield
    except (BrokerUnavailableError, TimeoutExceededError) as error:
        msg = f"{action}: {error}"
        raise type(error)(msg) from error


def _lookup_error(code: int, action: str, group: str) -> PykafkaError:
    return map_read_error_code(code, action, _describe_permission(group))


def _describe_permission(group: str, code: int = KafkaErrorCode.NONE) -> str:
    """
    Return the permission that a description needs; ``code`` is the error of a user without it.
    """
    if code == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
        # Returned only for groups of the type consumer, whose description has the topics' names.
        return f"Describe on the topics that the consumer group {group} subscribes to"
    return f"Describe, which Read includes, on the consumer group {group}"
