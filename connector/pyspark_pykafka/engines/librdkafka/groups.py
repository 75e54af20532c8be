"""
Requests about consumer groups through librdkafka's admin client, for settings that wire does not
support.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

from pyspark_pykafka.engines.group_contract import GroupDescription, MemberDescription
from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.retry import Backoff, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.admin import (
        AdminClient,
        ConsumerGroupDescription,
        ListConsumerGroupsResult,
    )

    from pyspark_pykafka.engines.librdkafka.admin import Futures
    from pyspark_pykafka.settings import KafkaSettings

K = TypeVar("K")
R = TypeVar("R")

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 1.0


class AdminGroups:
    """
    Implements :class:`~pyspark_pykafka.engines.group_contract.GroupBackend`.

    librdkafka 2.16 aborts the process if the response to a request that is sent to a coordinator
    arrives together with the request's timeout (librdkafka issue 4605). It describes groups of the
    type ``consumer`` (KIP-848) as groups without members.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = RetryingAdmin(kafka, now)

    def describe(self, group: str, *, include_operations: bool = False) -> GroupDescription:
        """
        Return the members of a group; a group that does not exist has none.
        """

        def describe(client: AdminClient, seconds: float) -> Futures[str, ConsumerGroupDescription]:
            futures: Futures[str, ConsumerGroupDescription]
            futures = client.describe_consumer_groups(
                [group],
                include_authorized_operations=include_operations,
                request_timeout=seconds,
            )
            return futures

        descriptions = self._call(describe, f"describing the consumer group {group}")
        if group not in descriptions:
            return GroupDescription((), None)
        description = descriptions[group]
        members = tuple(
            MemberDescription(member.client_id, member.host, member.group_instance_id)
            for member in description.members
        )
        operations = description.authorized_operations
        names = (
            None if operations is None else frozenset(operation.name for operation in operations)
        )
        return GroupDescription(members, names)

    def list_groups(self) -> list[str]:
        """
        Return the ids of all consumer groups that the user may describe, in order.
        """
        action = "listing the consumer groups"

        def list_all(client: AdminClient, seconds: float) -> Futures[str, ListConsumerGroupsResult]:
            return {action: _complete(client.list_consumer_groups(request_timeout=seconds))}

        listing = self._call(list_all, action)[action]
        return sorted(group.group_id for group in listing.valid)

    def delete(self, group: str) -> None:
        """
        Delete a group without members, and its offsets; a missing group is not an error.
        """

        def delete(client: AdminClient, seconds: float) -> Futures[str, None]:
            futures: Futures[str, None] = client.delete_consumer_groups(
                [group], request_timeout=seconds
            )
            return futures

        self._call(delete, f"deleting the consumer group {group}")

    def _call(
        self, request: Callable[[AdminClient, float], Futures[K, R]], action: str
    ) -> dict[K, R]:
        """
        Send a request; retry it also while a coordinator that has just started loads its groups.
        """
        deadline = self._admin.new_deadline()
        backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        return retry_until(lambda: self._admin.call(request, action, deadline), deadline, backoff)


def _complete(listing: Future[ListConsumerGroupsResult]) -> Future[ListConsumerGroupsResult]:
    """
    Return a future that fails with the first error of the listing.

    A broker that does not respond leaves the listing incomplete without failing it.
    """
    complete: Future[ListConsumerGroupsResult] = Future()

    def check(done: Future[ListConsumerGroupsResult]) -> None:
        error = done.exception()
        if error is not None:
            complete.set_exception(error)
        elif errors := done.result().errors:
            complete.set_exception(KafkaException(errors[0]))
        else:
            complete.set_result(done.result())

    listing.add_done_callback(check)
    return complete
