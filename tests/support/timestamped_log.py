"""
A log in memory whose records have given timestamps, for lookups of offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_pykafka.offsets import LogEnds, Offsets, TopicPartition


@dataclass(frozen=True)
class TimestampedLog:
    """
    Partitions whose records have these timestamps in ms; offsets count from ``first``.

    ``group`` has the committed offsets of the query's consumer group.
    """

    times: Mapping[TopicPartition, list[int]]
    first: int = 0
    group: Mapping[TopicPartition, int] = field(default_factory=dict)

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(tps, self.first)

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return {tp: self.first + len(self.times[tp]) for tp in tps}

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> LogEnds:
        raise AssertionError(tps)

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        return {tp: self.group[tp] for tp in tps if tp in self.group}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        return {
            tp: next((self.first + i for i, t in enumerate(self.times[tp]) if t >= ms), None)
            for tp, ms in times.items()
        }
