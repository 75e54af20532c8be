"""
The replicated state of one coordinator's partition, and writes to it that take a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.kafka.codes import Code

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.node import Node
    from tests.simulation.kafka.world import World

#: How long a coordinator waits for replicas, ``offsets.commit.timeout.ms``.
_TIMEOUT_SECONDS = 5.0


@dataclass(eq=False)
class Write:
    """
    Values that are replicated together; None deletes a key. Each write is equal to itself only.
    """

    values: dict[Any, Any]
    incarnation: int
    done: Callable[[Code], None]


@dataclass
class ShardLog:
    """
    ``values`` holds the replicated values by key; only the leader of ``epoch`` can write.
    """

    world: World
    epoch: int = 0
    values: dict[Any, Any] = field(default_factory=dict)
    _pending: list[Write] = field(default_factory=list)
    _ready_at: float = 0.0

    def write(
        self, node: Node, epoch: int, values: dict[Any, Any], done: Callable[[Code], None]
    ) -> None:
        """
        Replicate values, and call ``done`` with the outcome; never if the node has died by then.
        """
        write = Write(values, node.incarnation, done)
        if epoch != self.epoch or not node.reachable:
            # This leader was replaced or is cut off: no replica fetches the write.
            self._time_out(node, write)
            return
        self._pending.append(write)
        now, delay = self.world.now(), self.world.settings.coordinator_write
        # A log keeps the order of its writes.
        self._ready_at = max(self._ready_at, now + delay.draw(self.world.random))
        self.world.schedule.call_later(self._ready_at - now, lambda: self._finish(node, write))

    def _finish(self, node: Node, write: Write) -> None:
        if write not in self._pending:
            # The election of another leader has decided whether the write is kept.
            code = Code.NOT_COORDINATOR
        else:
            self._pending.remove(write)
            if not node.reachable or node.incarnation != write.incarnation:
                # The replicas may have fetched the write before the leader died or was cut off.
                self._maybe_keep(write)
                self._time_out(node, write)
                return
            self._keep(write)
            code = Code.NONE
        if node.incarnation == write.incarnation:
            write.done(code)

    def _time_out(self, node: Node, write: Write) -> None:
        def expire() -> None:
            if node.incarnation == write.incarnation:
                write.done(Code.COORDINATOR_NOT_AVAILABLE)

        self.world.schedule.call_later(_TIMEOUT_SECONDS, expire)

    def change_leader(self, epoch: int) -> None:
        """
        Elect another leader, which has a prefix of the writes in flight.
        """
        self.epoch = epoch
        pending, self._pending = self._pending, []
        for write in pending[: self.world.random.randint(0, len(pending))]:
            self._keep(write)

    def _maybe_keep(self, write: Write) -> None:
        if self.world.random.random() < 0.5:
            self._keep(write)

    def _keep(self, write: Write) -> None:
        for key, value in write.values.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
