"""
The controller: live brokers, leaders and in-sync replicas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from tests.simulation.kafka.image import (
    GROUPS,
    NO_LEADER,
    TRANSACTIONS,
    Image,
    Leadership,
    Partition,
    PartitionState,
    Shard,
    TopicState,
)
from tests.simulation.kafka.shard_log import ShardLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.kafka.node import Node
    from tests.simulation.kafka.world import World


class Controller:
    """
    Decides at once; the brokers that it can reach apply each decision a moment later.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        nodes = sorted(world.nodes)
        shards = [Shard(TRANSACTIONS, n) for n in range(world.settings.transaction_partitions)]
        shards += [Shard(GROUPS, n) for n in range(world.settings.group_partitions)]
        leaders = {shard: Leadership(nodes[shard.number % len(nodes)], 0) for shard in shards}
        self.image = Image({}, leaders, frozenset(nodes))
        world.shards = {shard: ShardLog(world) for shard in shards}

    # --- Topics ---------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication: int,
        *,
        compacted: bool,
        min_isr: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> TopicState:
        states = self._place(partitions, replication)
        bytes_ = self._world.random.getrandbits(128).to_bytes(16, "big")
        topic = TopicState(
            name,
            UUID(bytes=bytes_, version=4),
            states,
            min_isr or max(1, replication - 1),
            compacted,
            dict(config or {}),
        )
        self._change(replace(self.image, topics={**self.image.topics, name: topic}))
        return topic

    def add_partitions(self, name: str, partitions: int) -> None:
        """
        Add partitions with as many replicas as the first one has.
        """
        topic = self.image.topics[name]
        placed = self._place(partitions, len(topic.partitions[0].replicas))
        grown = replace(topic, partitions=(*topic.partitions, *placed))
        self._change(replace(self.image, topics={**self.image.topics, name: grown}))

    def _place(self, partitions: int, replication: int) -> tuple[PartitionState, ...]:
        """
        Return new partitions, spread over the brokers that are alive.
        """
        nodes = sorted(self.image.brokers)
        first = self._world.random.randrange(len(nodes))
        placed = []
        for number in range(partitions):
            order = [nodes[(first + number + i) % len(nodes)] for i in range(len(nodes))]
            replicas = tuple(order[:replication])
            placed.append(PartitionState(replicas, replicas, replicas[0]))
        return tuple(placed)

    def delete_topic(self, name: str) -> None:
        topics = {key: topic for key, topic in self.image.topics.items() if key != name}
        self._change(replace(self.image, topics=topics))

    # --- Brokers --------------------------------------------------------------------------------

    def lose_connection(self, node: Node) -> None:
        """
        Fence a node once its session expires, unless it returns earlier.
        """
        loss = node.losses

        def expire() -> None:
            if node.losses == loss and not node.reachable:
                self.fence(node.id)

        self._world.schedule.call_later(self._world.settings.broker_session_seconds, expire)

    def fence(self, node_id: int) -> None:
        """
        Mark a node as dead: elect other leaders, and remove it from the in-sync replicas.
        """
        image = replace(self.image, brokers=self.image.brokers - {node_id})
        for partition, state in image.partitions():
            if node_id in state.isr:
                isr = tuple(n for n in state.isr if n != node_id) or state.isr
                elected = self._elected(image, replace(state, isr=isr))
                image = image.with_partition(partition, elected)
        self._change(self._with_shards(image))

    def register(self, node_id: int) -> None:
        """
        Mark a node as alive; it may lead partitions that have no leader.
        """
        image = replace(self.image, brokers=self.image.brokers | {node_id})
        for partition, state in image.partitions():
            image = image.with_partition(partition, self._elected(image, state))
        self._change(self._with_shards(image))

    # --- Leaders --------------------------------------------------------------------------------

    def _elected(self, image: Image, state: PartitionState) -> PartitionState:
        if state.leader in state.isr and state.leader in image.brokers:
            return state
        alive = [n for n in state.replicas if n in image.brokers]
        leader = next((n for n in alive if n in state.isr), NO_LEADER)
        isr = state.isr
        if leader == NO_LEADER and alive and self._world.settings.unclean_leader_election:
            leader, isr = alive[0], (alive[0],)
        if (leader, isr) == (state.leader, state.isr):
            return state
        return replace(state, leader=leader, isr=isr, epoch=state.epoch + 1)

    def _with_shards(self, image: Image) -> Image:
        alive = sorted(image.brokers)
        shards = dict(image.shards)
        for shard, (node, epoch) in image.shards.items():
            if node not in image.brokers:
                leader = alive[shard.number % len(alive)] if alive else NO_LEADER
                if leader != node:
                    shards[shard] = Leadership(leader, epoch + 1)
        return replace(image, shards=shards)

    def move_leader(self, partition: Partition, node_id: int, *, unclean: bool = False) -> None:
        """
        Make a replica the leader. With ``unclean`` it need not be in sync, and records may be lost.

        Raises :class:`ValueError` if the node is not alive, or is not in sync without ``unclean``.
        """
        state = self.image.topics[partition.topic].partitions[partition.number]
        if unclean and node_id not in state.isr:
            state = replace(state, isr=(node_id,))
        if node_id not in state.isr or node_id not in self.image.brokers:
            msg = f"node {node_id} cannot lead {partition}: {state}, alive {self.image.brokers}"
            raise ValueError(msg)
        moved = replace(state, leader=node_id, epoch=state.epoch + 1)
        self._change(self.image.with_partition(partition, moved))

    def move_shard(self, shard: Shard, node_id: int) -> None:
        epoch = self.image.shards[shard].epoch + 1
        shards = {**self.image.shards, shard: Leadership(node_id, epoch)}
        self._change(replace(self.image, shards=shards))

    def alter_isr(self, leader: Node, partition: Partition, isr: tuple[int, ...]) -> bool:
        """
        Accept a leader's change of the in-sync replicas, and return True; return False if the
        leader is unreachable, its epoch is old, or a new replica is fenced.
        """
        state = self.image.find(partition)
        replica = leader.replicas.get(partition)
        if state is None or replica is None or not leader.reachable:
            return False
        if (state.leader, state.epoch) != (leader.id, replica.epoch):
            return False
        if any(node not in self.image.brokers for node in isr if node not in state.isr):
            return False
        self._change(self.image.with_partition(partition, replace(state, isr=isr)))
        return True

    # --- Propagation ----------------------------------------------------------------------------

    def _change(self, image: Image) -> None:
        for shard, leadership in image.shards.items():
            if leadership != self.image.shards[shard]:
                self._world.shards[shard].change_leader(leadership.epoch)
        self.image = image
        for node in self._world.nodes.values():
            self.inform_later(node)

    def inform_later(self, node: Node) -> None:
        self._world.later(self._world.settings.metadata, self._inform_action(node))

    def _inform_action(self, node: Node) -> Callable[[], None]:
        def inform() -> None:
            if node.reachable:
                node.apply(self.image)

        return inform
