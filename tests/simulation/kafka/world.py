"""
The shared state of a simulated cluster: time, randomness, settings, nodes and the controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.kafka.controller import Controller
    from tests.simulation.kafka.image import Shard
    from tests.simulation.kafka.node import Node
    from tests.simulation.kafka.settings import ClusterSettings, Delay, Schedule
    from tests.simulation.kafka.shard_log import ShardLog


@dataclass
class World:
    """
    ``shards`` holds the replicated state of the coordinators, by their partition.
    """

    schedule: Schedule
    random: random.Random
    settings: ClusterSettings
    nodes: dict[int, Node] = field(default_factory=dict)
    shards: dict[Shard, ShardLog] = field(default_factory=dict)
    controller: Controller = field(init=False)
    next_producer_id: int = 0
    #: By topic: how likely a read is to return no records although there are some.
    empty_reads: dict[str, float] = field(default_factory=dict)
    #: By topic: the longest time that a read may take, as from remote storage.
    slow_reads: dict[str, float] = field(default_factory=dict)

    #: By topic: how likely a write is to be refused, as while a partition lacks in-sync replicas.
    refused_writes: dict[str, float] = field(default_factory=dict)

    def now(self) -> float:
        return self.schedule.now()

    def now_ms(self) -> int:
        return int(self.schedule.now() * 1000)

    def later(self, delay: Delay, action: Callable[[], None]) -> None:
        self.schedule.call_later(delay.draw(self.random), action)

    def connected(self, one: int, other: int) -> bool:
        """
        Return whether two nodes can exchange requests.
        """
        return one == other or (self.nodes[one].reachable and self.nodes[other].reachable)

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def replicate_all(self) -> None:
        """
        Let every follower fetch, since an obstacle may be gone.
        """
        for node in self.nodes.values():
            for replica in node.replicas.values():
                replica.pull_soon()
