"""
The state of all queries at one moment, as frozen values. Exporters and the page show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.metrics.lag import longest_lag, total_lag
from pyspark_pykafka.metrics.partition_counts import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_pykafka.metrics.partition_counts import Label
    from pyspark_pykafka.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """
    A partition of one Kafka source of a query.

    ``position`` is the next offset to read. ``lag`` counts offsets. ``end``, ``lag`` and
    ``lag_seconds`` are None while the latest offset is unknown. It also counts as unknown if the
    query has read up to the last known end, and that end was observed before the current run.

    In an entry that aggregates partitions, the partition is :data:`ALL`, and so is the topic if the
    entry aggregates topics; position and end are None. ``read`` and ``lost`` then count from the
    beginning of the aggregation.
    """

    source: int
    topic: str
    partition: str
    position: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None
    read: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """
    One Kafka source of a query; the rates are those of the last micro-batch.
    """

    index: int
    rows: int
    input_rate: float
    processed_rate: float


@dataclass(frozen=True, slots=True)
class QuerySnapshot:
    """
    One query since the listener was added; times are in seconds since 1970.

    ``has_failed``: the last run has ended with an error, and none has started since.
    ``last_seconds`` and ``total_seconds`` hold the duration of each of Spark's phases in the last
    micro-batch and in all micro-batches. ``failures`` counts the errors that ended runs, by name;
    ``dead_letters`` counts the records set aside, by (topic, partition). ``lost`` and
    ``dead_letter_count`` are totals that include partitions which the query no longer reads.
    ``losses`` counts data losses by (source, condition).
    """

    id: str
    name: str
    is_running: bool
    starts: int
    has_failed: bool = False
    batches: int = 0
    replays: int = 0
    batch_id: int | None = None
    last_batch_time: float | None = None
    last_event_time: float | None = None
    last_error: str | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    last_seconds: Mapping[str, float] = field(default_factory=dict)
    total_seconds: Mapping[str, float] = field(default_factory=dict)
    sources: tuple[SourceSnapshot, ...] = ()
    partitions: tuple[PartitionSnapshot, ...] = ()
    dead_letters: Mapping[tuple[str, str], int] = field(default_factory=dict)
    lost: int = 0
    losses: Mapping[tuple[int, str], int] = field(default_factory=dict)
    dead_letter_count: int = 0

    @property
    def lag(self) -> int | None:
        """
        The sum of the partitions' lags; None if none is known.
        """
        return total_lag(partition.lag for partition in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """
        The longest lag of a partition; None if none is known.
        """
        return longest_lag(partition.lag_seconds for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    All queries, the number of audited micro-batches by (auditor, verdict), and the end offsets of
    the dead-letter topic of the listener's options by (topic, partition).
    """

    queries: tuple[QuerySnapshot, ...] = ()
    audits: Mapping[tuple[str, str], int] = field(default_factory=dict)
    dead_letter_ends: Mapping[tuple[str, str], int] = field(default_factory=dict)


def limit_labels(counts: Mapping[TopicPartition, int], maximum: int) -> dict[tuple[str, str], int]:
    """
    Return counts or offsets by (topic, partition). If there are more than ``maximum``, return their
    sums by topic, or else one sum.
    """
    labels: tuple[Callable[[TopicPartition], tuple[str, str]], ...] = (
        lambda tp: (tp.topic, str(tp.partition)),
        lambda tp: (tp.topic, ALL),
        lambda _: (ALL, ALL),
    )
    limited: dict[tuple[str, str], int] = {}
    for label in labels:
        limited = {}
        for tp, count in counts.items():
            limited[label(tp)] = limited.get(label(tp), 0) + count
        if len(limited) <= maximum:
            break
    return limited


def summed(label: Label, partitions: Sequence[PartitionSnapshot]) -> PartitionSnapshot:
    """
    Return one entry for several partitions: the sum of their lags in offsets, and the longest of
    their lags in seconds.
    """
    return PartitionSnapshot(
        source=label.source,
        topic=label.topic,
        partition=label.partition,
        position=None,
        end=None,
        lag=total_lag(partition.lag for partition in partitions),
        lag_seconds=longest_lag(partition.lag_seconds for partition in partitions),
    )
