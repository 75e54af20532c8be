"""
A cluster in memory: topics, their ids and their offsets, without records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import Assignment, LogEnds, Offsets, TopicPartition
from pyspark_pykafka.options import Assign, Strategy, Subscribe, SubscribePattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass
class Cluster:
    """
    Topics as lists of (first offset, end) per partition, and their ids.

    The record at an offset is of that time in ms. Leader epochs are told of partitions that have
    any, with the offsets at which they began.
    """

    topics: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    stale: list[Offsets] = field(default_factory=list)
    epochs: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    asked: list[dict[TopicPartition, int]] = field(default_factory=list)

    def make(self, topic: str, *ends: int, first: int = 0) -> None:
        self.topics[topic] = [(first, end) for end in ends]
        self.ids[topic] = f"{topic}{len(self.ids)}{sum(ends)}"

    def elect(self, tp: TopicPartition, epoch: int, end: int, then: int) -> None:
        """
        Make a broker leader whose log ends at an offset, and let the log grow after that.
        """
        first, _ = self.topics[tp.topic][tp.partition]
        self.topics[tp.topic][tp.partition] = (first, then)
        kept = {old: start for old, start in self.epochs.get(tp, {}).items() if start < end}
        self.epochs[tp] = {**kept, epoch: end}

    def age(self, tp: TopicPartition, first: int) -> None:
        """
        Let the records before an offset age out, with the epochs that ended before it.
        """
        _, end = self.topics[tp.topic][tp.partition]
        self.topics[tp.topic][tp.partition] = (first, end)
        began = self.epochs[tp]
        at_first = max(epoch for epoch, start in began.items() if start <= first)
        self.epochs[tp] = {
            epoch: max(it, first) for epoch, it in began.items() if epoch >= at_first
        }

    def assignment(self, strategy: Strategy) -> Assignment:
        tps = [
            TopicPartition(topic, number)
            for topic in sorted(self.topics)
            for number in range(len(self.topics[topic]))
            if _selects(strategy, TopicPartition(topic, number))
        ]
        return Assignment(tuple(tps), {tp.topic: self.ids[tp.topic] for tp in tps})

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return {tp: found[0] for tp in tps if (found := self._find(tp))}

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        if self.stale:
            return self.stale.pop()
        return {tp: found[1] for tp in tps if (found := self._find(tp))}

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        found = self.end_offsets(tps)
        return LogEnds(found, {tp: max(self.epochs[tp]) for tp in found if tp in self.epochs})

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        self.asked.append(dict(epochs))
        return {tp: self._epoch_end(tp, epoch) for tp, epoch in epochs.items() if self._find(tp)}

    def _epoch_end(self, tp: TopicPartition, epoch: int) -> int:
        # As a broker's cache of leader epochs answers.
        began = self.epochs.get(tp, {})
        if epoch == max(began, default=None):
            return self.topics[tp.topic][tp.partition][1]
        return min((start for later, start in began.items() if later > epoch), default=-1)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        borders = {tp: self._find(tp) for tp in times}
        return {
            tp: max(found[0], times[tp]) if found and times[tp] < found[1] else None
            for tp, found in borders.items()
        }

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
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
