"""
A cluster in memory: topics, their ids and their offsets, without records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import Assignment, Offsets, TopicPartition
from pyspark_pykafka.options import Assign, Strategy, Subscribe, SubscribePattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass
class Cluster:
    """
    Topics as lists of (first offset, end) per partition, and their ids.

    The record at an offset is of that time in ms.
    """

    topics: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    stale: list[Offsets] = field(default_factory=list)

    def make(self, topic: str, *ends: int, first: int = 0) -> None:
        self.topics[topic] = [(first, end) for end in ends]
        self.ids[topic] = f"{topic}{len(self.ids)}{sum(ends)}"

    def assigned(self, strategy: Strategy) -> Assignment:
        tps = [
            TopicPartition(topic, number)
            for topic in sorted(self.topics)
            for number in range(len(self.topics[topic]))
            if _selects(strategy, TopicPartition(topic, number))
        ]
        return Assignment(tuple(tps), {tp.topic: self.ids[tp.topic] for tp in tps})

    def earliest(self, tps: Iterable[TopicPartition]) -> Offsets:
        return {tp: found[0] for tp in tps if (found := self._find(tp))}

    def latest(self, tps: Iterable[TopicPartition]) -> Offsets:
        if self.stale:
            return self.stale.pop()
        return {tp: found[1] for tp in tps if (found := self._find(tp))}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        borders = {tp: self._find(tp) for tp in times}
        return {
            tp: max(found[0], times[tp]) if found and times[tp] < found[1] else None
            for tp, found in borders.items()
        }

    def committed(self, tps: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(tps, 1)

    def _find(self, tp: TopicPartition) -> tuple[int, int] | None:
        partitions = self.topics.get(tp.topic, [])
        return partitions[tp.partition] if tp.partition < len(partitions) else None


def _selects(strategy: Strategy, tp: TopicPartition) -> bool:
    if isinstance(strategy, Subscribe):
        return tp.topic in strategy.topics
    if isinstance(strategy, Assign):
        return tp in strategy.partitions
    assert isinstance(strategy, SubscribePattern)
    return tp.topic.startswith(strategy.pattern)
