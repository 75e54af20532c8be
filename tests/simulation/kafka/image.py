"""
The cluster's metadata: the controller's decisions, and each broker's knowledge of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

NO_LEADER = -1
TRANSACTIONS, GROUPS = "transaction", "group"


class Partition(NamedTuple):
    """
    A topic and a partition number.
    """

    topic: str
    number: int


class Shard(NamedTuple):
    """
    A partition of ``__transaction_state`` or ``__consumer_offsets``; its leader coordinates.
    """

    kind: str
    number: int


class Leadership(NamedTuple):
    """
    The leading node, -1 for none, and the number of leader changes.
    """

    node: int
    epoch: int


@dataclass(frozen=True)
class PartitionState:
    """
    A partition's replicas, in the order of preference, and its leader.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    epoch: int = 0


@dataclass(frozen=True)
class TopicState:
    """
    A topic with its id and settings.
    """

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    min_isr: int = 1
    compacted: bool = False
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Image:
    """
    All metadata at one moment; ``brokers`` are the nodes that the controller considers alive.
    """

    topics: Mapping[str, TopicState]
    shards: Mapping[Shard, Leadership]
    brokers: frozenset[int]

    def find(self, partition: Partition) -> PartitionState | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.number < len(topic.partitions):
            return None
        return topic.partitions[partition.number]

    def topic_of(self, topic_id: UUID) -> TopicState | None:
        return self._by_id.get(topic_id)

    @cached_property
    def _by_id(self) -> Mapping[UUID, TopicState]:
        return {topic.topic_id: topic for topic in self.topics.values()}

    def with_partition(self, partition: Partition, state: PartitionState) -> Image:
        topic = self.topics[partition.topic]
        partitions = list(topic.partitions)
        partitions[partition.number] = state
        changed = replace(topic, partitions=tuple(partitions))
        return replace(self, topics={**self.topics, topic.name: changed})

    def partitions(self) -> list[tuple[Partition, PartitionState]]:
        return [
            (Partition(topic.name, number), state)
            for topic in self.topics.values()
            for number, state in enumerate(topic.partitions)
        ]
