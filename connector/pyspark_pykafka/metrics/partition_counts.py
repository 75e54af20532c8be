"""
Counters by partition with a bounded number of labels. As Prometheus requires, no counter decreases
while it exists.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_pykafka.offsets import TopicPartition

#: The partition, or topic, of a label that stands for several partitions or topics.
ALL = ""


class Label(NamedTuple):
    """
    The labels of one counter; ``source`` is the index of the query's Kafka source.
    """

    source: int
    topic: str
    partition: str


class Grouping(enum.IntEnum):
    """
    Whether each partition, each topic or each source has a label of its own.
    """

    PARTITION = 0
    TOPIC = 1
    SOURCE = 2

    def label(self, source: int, tp: TopicPartition) -> Label:
        """
        Return the label of a partition.
        """
        return Label(
            source,
            ALL if self is Grouping.SOURCE else tp.topic,
            str(tp.partition) if self is Grouping.PARTITION else ALL,
        )


@dataclass(slots=True)
class PartitionCounts:
    """
    One count for each partition. If these are more than ``maximum``, one for each topic; if those
    are still too many, one for each source.

    Sources are never grouped. A grouping is permanent, and its counts start at 0: earlier records
    were counted under the labels of single partitions or topics. ``total`` counts from the
    beginning, and includes partitions that are no longer kept.
    """

    maximum: int
    grouping: Grouping = Grouping.PARTITION
    total: int = 0
    _counts: dict[Label, int] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[Label, int]:
        """
        The count of each label.
        """
        return self._counts

    def keep(self, partitions: Collection[tuple[int, TopicPartition]]) -> None:
        """
        Keep the labels of these partitions, given as (source, partition), and no others.
        """
        labels = {self.grouping.label(source, tp) for source, tp in partitions}
        while len(labels) > self.maximum and self.grouping is not Grouping.SOURCE:
            self.grouping = Grouping(self.grouping + 1)
            self._counts = {}
            labels = {self.grouping.label(source, tp) for source, tp in partitions}
        self._counts = {label: self._counts.get(label, 0) for label in sorted(labels)}

    def add(self, source: int, tp: TopicPartition, count: int) -> None:
        """
        Add to the count of a partition that is kept.
        """
        self._counts[self.grouping.label(source, tp)] += count
        self.total += count
