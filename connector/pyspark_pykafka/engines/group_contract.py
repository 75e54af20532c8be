"""
The requests about consumer groups; both engines implement them.

Both return equal results, and raise the same errors of :mod:`pyspark_pykafka.errors`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

#: The protocols of groups that commit offsets: the protocol of consumers, and the empty protocol of
#: a group without members. Other protocols belong to Kafka Connect, share groups and so on.
CONSUMER_PROTOCOLS = frozenset({"consumer", ""})


class MemberDescription(NamedTuple):
    """
    A member of a consumer group; ``instance_id`` is the ``group.instance.id`` of a static member.
    """

    client_id: str
    host: str
    instance_id: str | None


class GroupDescription(NamedTuple):
    """
    The members of a consumer group, and the operations on it that the user may use.

    ``operations`` is None if the brokers do not return the operations.
    """

    members: tuple[MemberDescription, ...]
    operations: frozenset[str] | None


class GroupBackend(Protocol):
    """
    Sends requests about consumer groups; each takes at most ``kafka.default.api.timeout.ms``.

    Each is retried while a coordinator moves, loads its groups or does not respond.
    """

    def describe(self, group: str, *, include_operations: bool = False) -> GroupDescription:
        """
        Return the members of a group; a group that does not exist has none.
        """

    def list_groups(self) -> list[str]:
        """
        Return the ids of all consumer groups that the user may describe, in order.

        Every broker must answer.
        """

    def delete(self, group: str) -> None:
        """
        Delete a group without members, and its offsets; a missing group is not an error.
        """
