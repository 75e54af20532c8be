"""
The simulated cluster: requests, faults, and access to its true state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.kafka import wire
from tests.simulation.kafka.controller import Controller
from tests.simulation.kafka.faults import Faults
from tests.simulation.kafka.node import Node, Reply
from tests.simulation.kafka.settings import ClusterSettings
from tests.simulation.kafka.world import World

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.kafka.releases import Release
    from tests.simulation.kafka.settings import Schedule


class SimulatedCluster(Faults):
    """
    Brokers, numbered from 1, and a controller that is always up.

    As brokers handle one request of a connection at a time, the caller passes the next request to
    :meth:`handle` after the reply, or at once if no reply is expected (``expects_reply``).
    """

    def __init__(
        self,
        brokers: int,
        schedule: Schedule,
        random: random.Random,
        settings: ClusterSettings | None = None,
    ) -> None:
        super().__init__(World(schedule, random, settings or ClusterSettings()))
        self._world.nodes = {n: Node(n, self._world) for n in range(1, brokers + 1)}
        self._world.controller = Controller(self._world)
        self._inform_all()

    @property
    def node_ids(self) -> list[int]:
        return list(self._world.nodes)

    @property
    def release(self) -> Release:
        """
        The release of Kafka that all brokers have.
        """
        return self._world.settings.release

    def max_version(self, api_key: int) -> int:
        """
        Return the highest version of an API that the brokers support, -1 for none.
        """
        return wire.versions_of(self.release, api_key)[1]

    def address(self, node_id: int) -> tuple[str, int]:
        return self._world.settings.address(node_id)

    def has_topic(self, name: str) -> bool:
        """
        Return whether a topic exists.
        """
        return name in self._world.controller.image.topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        replication: int | None = None,
        min_isr: int | None = None,
        compacted: bool = False,
    ) -> None:
        """
        Create a topic that all brokers know at once.
        """
        settings = self._world.settings
        copies = min(replication or settings.replication_factor, len(self._world.nodes))
        required = min_isr or settings.min_insync_replicas
        self._world.controller.create_topic(
            name, partitions, copies, compacted=compacted, min_isr=required
        )
        self._inform_all()

    def add_partitions(self, name: str, partitions: int) -> None:
        """
        Add partitions, which one broker after another adds to its metadata.
        """
        self._world.controller.add_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._world.controller.delete_topic(name)
        self._inform_all()

    def _inform_all(self) -> None:
        for node in self._world.nodes.values():
            if node.reachable:
                node.apply(self._world.controller.image)

    # --- Requests -------------------------------------------------------------------------------

    def handle(self, node_id: int, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        """
        Handle a request, passed without its length prefix; ``reply`` gets the response, or None for
        a disconnect.

        ``reply`` is called once, during this call or later, but not for a successful Produce
        request with acks=0.
        """
        node = self._world.nodes[node_id]
        if not node.alive or node.image is None:
            reply(None)
            return
        pending_reply = Reply(node, reply)

        def handle() -> None:
            if pending_reply.open:
                wire.handle(node, frame, pending_reply)

        node.run(node.incarnation, handle)
