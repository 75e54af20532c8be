"""
The common base of transaction and group coordinators, and their placement on brokers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tests.simulation.kafka.codes import Code, RequestError
from tests.simulation.kafka.image import TRANSACTIONS, Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.kafka.image import Image
    from tests.simulation.kafka.node import Node


@lru_cache(maxsize=10_000)
def shard_of(kind: str, key: str, partitions: int) -> Shard:
    """
    Return the partition of an id, by Java's hash of its name.
    """
    value = 0
    for unit in memoryview(key.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    # Kafka's Utils.abs clears the sign.
    return Shard(kind, (value & 0x7FFFFFFF) % partitions)


def shard_for(node: Node, kind: str, key: str) -> Shard:
    settings = node.world.settings
    transactional = kind == TRANSACTIONS
    count = settings.transaction_partitions if transactional else settings.group_partitions
    return shard_of(kind, key, count)


class Coordinator:
    """
    A broker's role for one shard, from its election to its replacement.
    """

    def __init__(self, node: Node, shard: Shard, epoch: int) -> None:
        self.node, self.shard, self.epoch = node, shard, epoch
        self.loading = True
        self._incarnation = node.incarnation
        self.later(node.world.settings.coordinator_load.draw(node.world.random), self._load)

    @property
    def active(self) -> bool:
        return self.node.coordinators.get(self.shard) is self

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """
        Run an action after a while, if this is still the coordinator then.
        """

        def run() -> None:
            if self.active:
                action()

        node, incarnation = self.node, self._incarnation
        node.world.schedule.call_later(seconds, lambda: node.run(incarnation, run))

    def write(self, values: dict[Any, Any], done: Callable[[Code], None]) -> None:
        """
        Replicate values by key; the value None deletes its key. ``done`` gets NOT_COORDINATOR if
        another coordinator is elected first.
        """
        node, incarnation = self.node, self._incarnation
        log = node.world.shards[self.shard]
        log.write(node, self.epoch, values, lambda code: node.run(incarnation, lambda: done(code)))

    def _load(self) -> None:
        self.load(dict(self.node.world.shards[self.shard].values))
        self.loading = False

    def load(self, values: dict[Any, Any]) -> None:
        raise NotImplementedError

    def resign(self) -> None:
        """
        End the requests that wait for this coordinator.
        """


def coordinate(node: Node, image: Image) -> None:
    """
    Start and stop a broker's coordinators according to the metadata image.
    """
    from tests.simulation.kafka.group_coordinator import GroupCoordinator
    from tests.simulation.kafka.transaction_coordinator import TransactionCoordinator

    for shard, (leader, epoch) in image.shards.items():
        current = node.coordinators.get(shard)
        if leader == node.id and (current is None or current.epoch != epoch):
            kind = TransactionCoordinator if shard.kind == TRANSACTIONS else GroupCoordinator
            node.coordinators[shard] = kind(node, shard, epoch)
        elif leader != node.id and current is not None:
            del node.coordinators[shard]
        else:
            continue
        if current is not None:
            current.resign()


def coordinator_of(node: Node, kind: str, key: str) -> Any:
    """
    Return this broker's coordinator of an id.

    Raises :class:`RequestError` if another broker has it, or while it is being loaded.
    """
    coordinator = node.coordinators.get(shard_for(node, kind, key))
    if coordinator is None:
        raise RequestError(Code.NOT_COORDINATOR)
    if coordinator.loading:
        raise RequestError(Code.COORDINATOR_LOAD_IN_PROGRESS)
    return coordinator
