"""
The coordinator of consumer groups: members and committed offsets.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.consumer_group import COMPLETING, EMPTY, ConsumerGroup
from tests.simulation.kafka.coordinator import Coordinator
from tests.simulation.kafka.image import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.kafka.consumer_group import GroupSnapshot
    from tests.simulation.kafka.image import Shard
    from tests.simulation.kafka.node import Node

MAX_METADATA_BYTES = 4096


class CommittedOffset(NamedTuple):
    """
    A committed offset, with its leader epoch and metadata.
    """

    offset: int
    leader_epoch: int
    metadata: str | None


class GroupCoordinator(Coordinator):
    """
    ``offsets`` holds the replicated offsets, by group and partition.
    """

    def __init__(self, node: Node, shard: Shard, epoch: int) -> None:
        self.offsets: dict[tuple[str, Partition], CommittedOffset] = {}
        self.groups: dict[str, ConsumerGroup] = {}
        super().__init__(node, shard, epoch)

    def load(self, values: dict[Any, Any]) -> None:
        for (name, partition), value in values.items():
            if isinstance(partition, Partition):
                self.offsets[name, partition] = value
            else:
                self.group(name).restore(value)

    def resign(self) -> None:
        for group in self.groups.values():
            group.resign()

    def group(self, name: str) -> ConsumerGroup:
        """
        Return a group, which is created on its first use.
        """
        if name not in self.groups:
            settings, now = self.node.world.settings, self.node.world.now
            save = partial(self._save, name)
            self.groups[name] = ConsumerGroup(
                self.later, now, save, settings.initial_rebalance_seconds
            )
        return self.groups[name]

    def _save(self, name: str, snapshot: GroupSnapshot, done: Callable[[Code], None]) -> None:
        self.write({(name, None): snapshot}, done)

    def exists(self, name: str) -> bool:
        return name in self.groups or bool(self.committed(name))

    def committed(self, name: str) -> dict[Partition, CommittedOffset]:
        return {p: offset for (group, p), offset in self.offsets.items() if group == name}

    def check_commit(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """
        Raise :class:`RequestError` if this member, or a client without membership, cannot commit.
        """
        group = self.groups.get(name)
        empty = group is None or group.state == EMPTY
        if generation < 0 and empty:
            return
        if group is None:
            raise RequestError(Code.ILLEGAL_GENERATION)
        group.check(member_id, instance_id, generation)
        if group.state == COMPLETING:
            raise RequestError(Code.REBALANCE_IN_PROGRESS)

    def commit(
        self,
        name: str,
        offsets: Mapping[Partition, CommittedOffset],
        respond: Callable[[Code], None],
    ) -> None:
        """
        Replicate offsets, all or none of them.
        """
        values = {(name, partition): offset for partition, offset in offsets.items()}

        def done(code: Code) -> None:
            if not code:
                self.offsets.update(values)
            respond(code)

        if values:
            self.write(values, done)
        else:
            respond(Code.NONE)

    def delete(self, name: str, respond: Callable[[Code], None]) -> None:
        """
        Delete a group without members, and its offsets.
        """
        group = self.groups.get(name)
        if not self.exists(name):
            respond(Code.GROUP_ID_NOT_FOUND)
            return
        if group is not None and group.state != EMPTY:
            respond(Code.NON_EMPTY_GROUP)
            return

        def done(code: Code) -> None:
            if not code:
                self.groups.pop(name, None)
                for partition in self.committed(name):
                    del self.offsets[name, partition]
            respond(code)

        keys: list[tuple[str, Partition | None]] = [(name, None)]
        keys += [(name, partition) for partition in self.committed(name)]
        self.write(dict.fromkeys(keys), done)
