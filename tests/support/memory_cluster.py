"""
A cluster in memory: topics, their ids and their offsets, without records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.offsets import Assignment, LogEnds, Offsets, TopicPartition
from pyspark_pykafka.options import Assign, Strategy, Subscribe, SubscribePattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass
class Cluster:
    """
    Topics as lists of (log start, log end) by partition, and their ids.

    The timestamp of each record in ms equals its offset. ``epochs`` holds the start offset of each
    leader epoch by partition, ``epoch_requests`` the requests for epoch ends so far, ``stale``
    the next responses for end offsets, and ``open_transactions`` the first offset of an open
    transaction by partition: the log's end for readers of committed records.
    """

    topics: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    stale: list[Offsets] = field(default_factory=list)
    epochs: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    epoch_requests: list[dict[TopicPartition, int]] = field(default_factory=list)
    open_transactions: Offsets = field(default_factory=dict)

    def create_topic(self, topic: str, *ends: int, log_start: int = 0) -> None:
        self.topics[topic] = [(log_start, end) for end in ends]
        self.ids[topic] = f"{topic}{len(self.ids)}{sum(ends)}"

    def elect(self, tp: TopicPartition, epoch: int, end: int, grown: int) -> None:
        """
        Elect a leader whose log ends at ``end``, and let its log grow to ``grown``.
        """
        log_start, _ = self.topics[tp.topic][tp.partition]
        self.topics[tp.topic][tp.partition] = (log_start, grown)
        epochs = {old: start for old, start in self.epochs.get(tp, {}).items() if start < end}
        self.epochs[tp] = {**epochs, epoch: end}

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """
        Delete the records before an offset, as retention does, and the epochs that end before it.
        """
        _, end = self.topics[tp.topic][tp.partition]
        self.topics[tp.topic][tp.partition] = (offset, end)
        starts = self.epochs[tp]
        first_epoch = max(epoch for epoch, start in starts.items() if start <= offset)
        self.epochs[tp] = {
            epoch: max(start, offset) for epoch, start in starts.items() if epoch >= first_epoch
        }

    def assignment(self, strategy: Strategy) -> Assignment:
        is_selected = _selector(strategy)
        tps = [
            TopicPartition(topic, number)
            for topic in sorted(self.topics)
            for number in range(len(self.topics[topic]))
            if is_selected(TopicPartition(topic, number))
        ]
        return Assignment(tuple(tps), {tp.topic: self.ids[tp.topic] for tp in tps})

    def existing(self, topics: Iterable[str]) -> Assignment:
        return self.assignment(Subscribe(tuple(topics)))

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return {tp: log[0] for tp in tps if (log := self._find(tp))}

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        if self.stale:
            return self.stale.pop()
        return {
            tp: min(log[1], self.open_transactions.get(tp, log[1]))
            for tp in tps
            if (log := self._find(tp))
        }

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        return self._with_epochs(self.end_offsets(tps))

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> LogEnds:
        return self._with_epochs({tp: log[1] for tp in tps if (log := self._find(tp))})

    def _with_epochs(self, ends: Offsets) -> LogEnds:
        return LogEnds(ends, {tp: max(self.epochs[tp]) for tp in ends if tp in self.epochs})

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        self.epoch_requests.append(dict(epochs))
        return {tp: self._epoch_end(tp, epoch) for tp, epoch in epochs.items() if self._find(tp)}

    def _epoch_end(self, tp: TopicPartition, epoch: int) -> int:
        # As a broker's leader epoch cache does.
        starts = self.epochs.get(tp, {})
        if epoch == max(starts, default=None):
            return self.topics[tp.topic][tp.partition][1]
        return min((start for later, start in starts.items() if later > epoch), default=-1)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        logs = {tp: self._find(tp) for tp in times}
        return {
            tp: max(log[0], times[tp]) if log and times[tp] < log[1] else None
            for tp, log in logs.items()
        }

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(tps, 1)

    def _find(self, tp: TopicPartition) -> tuple[int, int] | None:
        partitions = self.topics.get(tp.topic, [])
        return partitions[tp.partition] if tp.partition < len(partitions) else None


def _selector(strategy: Strategy) -> Callable[[TopicPartition], bool]:
    if isinstance(strategy, Subscribe):
        topics = set(strategy.topics)
        return lambda tp: tp.topic in topics
    if isinstance(strategy, Assign):
        return set(strategy.partitions).__contains__
    assert isinstance(strategy, SubscribePattern)
    return lambda tp: tp.topic.startswith(strategy.pattern)
