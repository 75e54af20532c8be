"""
The faults of a simulated cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.kafka.coordinator import coordinator_of
from tests.simulation.kafka.image import TRANSACTIONS, Partition
from tests.simulation.kafka.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.node import Node


class Faults(Truth):
    """
    Faults of brokers, partitions and coordinators; each call returns at once, before its effects.
    """

    # --- Brokers ----------------------------------------------------------------------

    def crash(self, node_id: int) -> None:
        """
        Kill a broker: its connections close, and its logs stay as they are.
        """
        node = self._world.nodes[node_id]
        if node.alive:
            node.die()
            node.lose()

    def start(self, node_id: int) -> None:
        """
        Start a broker that has crashed; it serves requests once it has registered.
        """
        node = self._world.nodes[node_id]
        if node.alive:
            return
        node.alive = True
        for replica in node.replicas.values():
            replica.restart()
        node.losses += 1
        # A new process is a new broker to the controller, which fences the old one.
        self._world.controller.fence(node_id)
        self._register_later(node)

    def pause(self, node_id: int, seconds: float) -> None:
        """
        Suspend a broker: its connections stay open, and requests wait.
        """
        node = self._world.nodes[node_id]
        if not node.serving:
            return
        node.paused = True
        node.lose()
        incarnation = node.incarnation

        def resume() -> None:
            if node.incarnation == incarnation:
                node.resume()
                self._reconnect(node)

        self._world.schedule.call_later(seconds, resume)

    def isolate(self, node_id: int) -> None:
        """
        Cut a broker off from all others and the controller; clients still reach it.
        """
        node = self._world.nodes[node_id]
        if not node.isolated:
            node.isolated = True
            node.lose()

    def heal(self) -> None:
        """
        Connect all isolated brokers again.
        """
        for node in self._world.nodes.values():
            if node.isolated:
                node.isolated = False
                self._reconnect(node)

    def _reconnect(self, node: Node) -> None:
        if node.reachable:
            node.losses += 1
            self._register_later(node)
            self._world.replicate_all()

    def _register_later(self, node: Node) -> None:
        losses = node.losses

        def register() -> None:
            if node.reachable and node.losses == losses:
                self._world.controller.register(node.id)
                self._world.replicate_all()

        self._world.later(self._world.settings.metadata, register)

    def throttle(self, node_id: int, milliseconds: int) -> None:
        """
        Let a broker's responses carry a throttle time.
        """
        self._world.nodes[node_id].throttle_ms = milliseconds

    def forget_topics(self, node_id: int, seconds: float) -> None:
        """
        Let a broker return metadata without topics, as a broker that has just started may.
        """
        self._world.nodes[node_id].forgets_until = self._world.now() + seconds

    # --- Partitions -------------------------------------------------------------------

    def move_leader(
        self, topic: str, partition: int, node_id: int | None = None, *, held_seconds: float = 0.0
    ) -> int | None:
        """
        Elect another in-sync replica, by default the next one; return its node id, or None if there
        is no other.

        For ``held_seconds`` the high watermark of the new leader stays at an earlier value, which
        it had as a follower.
        """
        state, alive = self._state(topic, partition), self._world.controller.image.brokers
        others = [n for n in state.isr if n in alive and n != state.leader]
        leader = others[0] if node_id is None and others else node_id
        if leader is None:
            return None
        replica = self._world.nodes[leader].replicas.get(Partition(topic, partition))
        if held_seconds and replica is not None:
            replica.restart()
            replica.hold(held_seconds)
        self._world.controller.move_leader(Partition(topic, partition), leader)
        return leader

    def elect_unclean(self, topic: str, partition: int, node_id: int) -> None:
        """
        Elect a replica that may lack acknowledged records, which are then lost.
        """
        self._world.controller.move_leader(Partition(topic, partition), node_id, unclean=True)

    def lag_replica(self, topic: str, partition: int, node_id: int, seconds: float) -> None:
        """
        Stop a follower from fetching for a while; after the lag time it is not in sync.
        """
        replica = self._world.nodes[node_id].replicas.get(Partition(topic, partition))
        if replica is not None:
            replica.lags_until = self._world.now() + seconds

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """
        Remove records before an offset, as retention does.
        """
        self._leading(topic, partition).delete_before(before)

    def compact(self, topic: str, partition: int) -> None:
        """
        Keep the last record of each key, in all replicas.
        """
        limit = self._leading(topic, partition).last_stable
        for node in self._world.nodes.values():
            replica = node.replicas.get(Partition(topic, partition))
            if replica is not None and replica.high_watermark >= limit:
                replica.log.compact(limit)

    def tiered(self, topic: str, probability: float, seconds: float = 0.0) -> None:
        """
        Let some reads return no records although the log has some, as reads of tiered storage may.

        Each read takes up to ``seconds``.
        """
        self._world.empty_reads[topic] = probability
        self._world.slow_reads[topic] = seconds

    def refuse_writes(self, topic: str, probability: float) -> None:
        """
        Reject some writes, like a partition that temporarily lacks in-sync replicas.
        """
        self._world.refused_writes[topic] = probability

    # --- Coordinators -----------------------------------------------------------------

    def move_coordinator(
        self, key: str, node_id: int | None = None, kind: str = TRANSACTIONS
    ) -> int | None:
        """
        Elect another coordinator, by default the next live broker; return its node id, or None if
        no broker is alive.
        """
        shard = self._shard(key, kind)
        current = self._world.controller.image.shards[shard].node
        alive = sorted(self._world.controller.image.brokers)
        leader = node_id or next((n for n in alive if n > current), next(iter(alive), None))
        if leader is None:
            return None
        self._world.controller.move_shard(shard, leader)
        return leader

    def expire_transactional_id(self, name: str) -> None:
        """
        Forget an id without an open transaction, as after a week without use.
        """
        coordinator_of(self._world.nodes[self.coordinator(name)], TRANSACTIONS, name).expire(name)

    def time_out_transaction(self, name: str, done: Callable[[], None]) -> None:
        """
        Abort an open transaction, as after its ``transaction.timeout.ms``; then call ``done``.

        Raises :class:`RequestError` while its coordinator is being loaded.
        """
        node = self._world.nodes[self.coordinator(name)]
        coordinator_of(node, TRANSACTIONS, name).time_out(name, done)
