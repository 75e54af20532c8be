"""
The coordinator of consumer groups: committed offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.kafka.codes import Code
from tests.simulation.kafka.coordinator import Coordinator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.kafka.image import Partition, Slot
    from tests.simulation.kafka.node import Node

MAX_METADATA_BYTES = 4096


class CommittedOffset(NamedTuple):
    """
    A committed offset, with the leader epoch and the text that a member gave.
    """

    offset: int
    leader_epoch: int
    metadata: str | None


class GroupCoordinator(Coordinator):
    """
    ``offsets`` is what has been replicated, by group and partition.
    """

    def __init__(self, node: Node, slot: Slot, epoch: int) -> None:
        self.offsets: dict[tuple[str, Partition], CommittedOffset] = {}
        super().__init__(node, slot, epoch)

    def load(self, values: dict[Any, Any]) -> None:
        self.offsets = values

    def committed(self, group: str) -> dict[Partition, CommittedOffset]:
        return {p: offset for (name, p), offset in self.offsets.items() if name == group}

    def commit(
        self,
        group: str,
        offsets: Mapping[Partition, CommittedOffset],
        respond: Callable[[Code], None],
    ) -> None:
        """
        Replicate offsets, all or none of them.
        """

        def done(code: Code) -> None:
            if not code:
                self.offsets.update({(group, p): offset for p, offset in offsets.items()})
            respond(code)

        if not offsets:
            respond(Code.NONE)
            return
        self.write({(group, p): offset for p, offset in offsets.items()}, done)
