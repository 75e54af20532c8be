"""
The state of running and ended queries: consumes Spark's events, returns snapshots. No I/O.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.metrics.end_offset_history import EndOffsetHistory
from pyspark_pykafka.metrics.lag import lag_in_offsets
from pyspark_pykafka.metrics.partition_counts import Grouping, PartitionCounts
from pyspark_pykafka.metrics.snapshot import (
    PartitionSnapshot,
    QuerySnapshot,
    Snapshot,
    SourceSnapshot,
    limit_labels,
    summed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.metrics.partition_counts import Label
    from pyspark_pykafka.metrics.progress_event import Batch, SourceBatch
    from pyspark_pykafka.offsets import Offsets, TopicPartition

#: The maximum number of ended queries kept: memory stays bounded in a job that keeps starting
#: queries.
MAX_ENDED = 20

# The maximum number of error names per query; errors with further names are counted as other.
_MAX_ERRORS = 20
_OTHER_ERRORS = "other"

_MAX_ERROR_LENGTH = 300


class QueryPartition(NamedTuple):
    """
    A partition that a source of a query reads; ``topic_id`` is None if it is unknown.

    Sources and queries may read partitions of the same name from several clusters, each at another
    position.
    """

    query: str
    source: int
    tp: TopicPartition
    topic_id: str | None


@dataclass(slots=True)
class _Partition:
    position: int
    topic_id: str | None = None
    end: int | None = None
    is_end_old: bool = False
    history: EndOffsetHistory = field(default_factory=EndOffsetHistory)

    def observe_end(self, end: int, time: float) -> None:
        if self.history.observe(end, time):
            self.end, self.is_end_old = end, False
            self.history.forget_before(self.position)

    def identify(self, topic_id: str | None) -> None:
        """
        Set the id of the topic; the end offsets of another topic of the same name do not count.
        """
        if None not in {topic_id, self.topic_id} and topic_id != self.topic_id:
            self.end, self.history = None, EndOffsetHistory()
        self.topic_id = topic_id or self.topic_id

    def snapshot(self, source: int, tp: TopicPartition, now: float) -> PartitionSnapshot:
        end = self._known_end()
        lag = None if end is None else lag_in_offsets(self.position, end)
        return PartitionSnapshot(
            source=source,
            topic=tp.topic,
            partition=str(tp.partition),
            position=self.position,
            end=end,
            lag=lag,
            lag_seconds=self._lag_seconds(lag, now),
        )

    def _known_end(self) -> int | None:
        """
        Return the end of the log, or None if it is old and the position has reached it.

        The log may have grown since an old end was observed. If such an end is beyond the position,
        the lag is at least the difference.
        """
        if self.end is None or (self.is_end_old and self.position >= self.end):
            return None
        return self.end

    def _lag_seconds(self, lag: int | None, now: float) -> float | None:
        if not lag:
            return None if lag is None else 0.0
        arrival = self.history.arrival(self.position)
        return None if arrival is None else max(now - arrival, 0.0)


@dataclass(slots=True)
class _Run:
    """
    A run of a query: whether it has finished a micro-batch, and its losses up to its last report,
    by source.
    """

    has_finished_batch: bool = False
    lost: dict[int, Offsets] = field(default_factory=dict)
    losses: dict[int, Mapping[str, int]] = field(default_factory=dict)

    def newly_lost(self, batch: SourceBatch) -> Offsets:
        """
        Return the offsets that the run has lost since its last report, by partition.
        """
        before = self.lost.get(batch.index, {})
        self.lost[batch.index] = {**before, **batch.lost}
        return {tp: max(lost - before.get(tp, 0), 0) for tp, lost in batch.lost.items()}

    def new_losses(self, batch: SourceBatch) -> dict[str, int]:
        """
        Return the data losses of the run since its last report, by condition.
        """
        before = self.losses.get(batch.index, {})
        self.losses[batch.index] = {**before, **batch.losses}
        return {name: max(count - before.get(name, 0), 0) for name, count in batch.losses.items()}


@dataclass(slots=True)
class _Source:
    rows: int = 0
    input_rate: float = 0.0
    processed_rate: float = 0.0
    partitions: dict[TopicPartition, _Partition] = field(default_factory=dict)

    def add(self, batch: SourceBatch, planned_at: float) -> None:
        self.rows += batch.rows
        self.input_rate, self.processed_rate = batch.input_rate, batch.processed_rate
        # Partitions that have left the query's subscription are no longer shown.
        for tp in self.partitions.keys() - batch.end.keys():
            del self.partitions[tp]
        for tp, end in batch.end.items():
            partition = self.partitions.setdefault(tp, _Partition(end))
            partition.identify(batch.topic_ids.get(tp.topic))
            partition.position = end
            if batch.latest is not None and tp in batch.latest:
                partition.observe_end(batch.latest[tp], planned_at)


@dataclass(slots=True)
class _Query:
    id: str
    name: str
    max_partitions: int
    is_running: bool = False
    has_failed: bool = False
    starts: int = 0
    batches: int = 0
    replays: int = 0
    batch_id: int | None = None
    last_batch_time: float | None = None
    last_event_time: float | None = None
    last_error: str | None = None
    failures: dict[str, int] = field(default_factory=dict)
    last_seconds: Mapping[str, float] = field(default_factory=dict)
    total_seconds: dict[str, float] = field(default_factory=dict)
    sources: dict[int, _Source] = field(default_factory=dict)
    losses: dict[tuple[int, str], int] = field(default_factory=dict)
    read: PartitionCounts = field(init=False)
    lost: PartitionCounts = field(init=False)
    dead_letters: PartitionCounts = field(init=False)
    dead_letter_origins: set[TopicPartition] = field(default_factory=set)
    # By id, in the order in which the runs started. Spark reports the start of a run at once, and
    # batches and ends through a queue (StreamingQueryListenerBus.post). So the last events of a run
    # may follow the start of the next run, but precede the next run's other events.
    runs: dict[str, _Run] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.read, self.lost, self.dead_letters = (
            PartitionCounts(self.max_partitions) for _ in range(3)
        )

    def start(self, run_id: str, now: float) -> None:
        self.runs[run_id] = _Run()
        self.is_running, self.has_failed = True, False
        self.starts += 1
        self.last_event_time = now
        # The log may have grown since the last run, and Spark reports no latest offsets for a batch
        # that the new run continues, nor for an idle trigger.
        for _, _, partition in self._partitions():
            partition.is_end_old = True

    def add(self, batch: Batch, now: float) -> None:
        # A run without a start began before the listener was added.
        run = self.runs.setdefault(batch.run_id, _Run())
        self.is_running = True
        self.batches += 1
        if not run.has_finished_batch and batch.was_planned_before:
            self.replays += 1
        run.has_finished_batch = True
        self.batch_id, self.last_seconds = batch.batch_id, batch.seconds
        self.last_batch_time = self.last_event_time = now
        for phase, seconds in batch.seconds.items():
            self.total_seconds[phase] = self.total_seconds.get(phase, 0.0) + seconds
        planned_at = now - batch.seconds_since_planning
        for source in batch.sources:
            self.sources.setdefault(source.index, _Source()).add(source, planned_at)
        partitions = [(index, tp) for index, tp, _ in self._partitions()]
        self.read.keep(partitions)
        self.lost.keep(partitions)
        for source in batch.sources:
            self._count(source, run.newly_lost(source))
            for condition, count in run.new_losses(source).items():
                key = (source.index, condition)
                self.losses[key] = self.losses.get(key, 0) + count

    def _count(self, batch: SourceBatch, lost: Offsets) -> None:
        for tp, end in batch.end.items():
            # A partition that is new in this batch has no start in the report; its offsets before
            # the end are not counted as read.
            self.read.add(batch.index, tp, max(end - batch.start.get(tp, end), 0))
            self.lost.add(batch.index, tp, lost.get(tp, 0))

    def count_dead_letters(self, tps: Sequence[TopicPartition]) -> None:
        self.dead_letter_origins.update(tps)
        # Which of the query's sources a record came from is not known.
        self.dead_letters.keep([(0, tp) for tp in self.dead_letter_origins])
        for tp in tps:
            self.dead_letters.add(0, tp, 1)

    def end(self, run_id: str, error: tuple[str, str] | None, now: float) -> None:
        if next(reversed(self.runs), run_id) == run_id:
            self.is_running, self.has_failed = False, error is not None
            self.runs.clear()
        self.runs.pop(run_id, None)
        self.last_event_time = now
        if error is None:
            return
        name, text = error
        if name not in self.failures and len(self.failures) >= _MAX_ERRORS:
            name = _OTHER_ERRORS
        self.failures[name] = self.failures.get(name, 0) + 1
        self.last_error = text[:_MAX_ERROR_LENGTH]

    def snapshot(self, now: float) -> QuerySnapshot:
        return QuerySnapshot(
            id=self.id,
            name=self.name,
            is_running=self.is_running,
            has_failed=self.has_failed,
            starts=self.starts,
            batches=self.batches,
            replays=self.replays,
            batch_id=self.batch_id,
            last_batch_time=self.last_batch_time,
            last_event_time=self.last_event_time,
            last_error=self.last_error,
            failures=dict(self.failures),
            last_seconds=dict(self.last_seconds),
            total_seconds=dict(self.total_seconds),
            sources=tuple(
                SourceSnapshot(index, source.rows, source.input_rate, source.processed_rate)
                for index, source in sorted(self.sources.items())
            ),
            partitions=tuple(self._grouped_partitions(now)),
            lost=self.lost.total,
            losses=dict(self.losses),
            dead_letters={
                (label.topic, label.partition): count
                for label, count in self.dead_letters.counts.items()
            },
            dead_letter_count=self.dead_letters.total,
        )

    def _grouped_partitions(self, now: float) -> Iterator[PartitionSnapshot]:
        groups: dict[Label, list[PartitionSnapshot]] = {}
        for index, tp, partition in self._partitions():
            label = self.read.grouping.label(index, tp)
            groups.setdefault(label, []).append(partition.snapshot(index, tp, now))
        for label, group in groups.items():
            entry = group[0] if self.read.grouping is Grouping.PARTITION else summed(label, group)
            yield replace(entry, read=self.read.counts[label], lost=self.lost.counts[label])

    def _partitions(self) -> Iterator[tuple[int, TopicPartition, _Partition]]:
        for index, source in sorted(self.sources.items()):
            for tp, partition in sorted(source.partitions.items()):
                yield index, tp, partition


class QueryMetrics:
    """
    Collects the metrics of all queries of a session; its methods may be called from any thread.

    Queries are identified by Spark's query id. A restart from the same checkpoint has the same id,
    so its counters continue. A snapshot has at most ``max_partitions`` entries for the partitions
    of a query.
    """

    def __init__(self, max_partitions: int) -> None:
        self._max_partitions = max_partitions
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._audits: dict[tuple[str, str], int] = {}
        self._dead_letter_ends: Mapping[TopicPartition, int] = {}

    def start(self, query_id: str, run_id: str, name: str, now: float) -> None:
        """
        Count a new run of a query.
        """
        with self._lock:
            self._query(query_id, name).start(run_id, now)

    def add(self, batch: Batch, now: float) -> None:
        """
        Count a finished micro-batch.
        """
        with self._lock:
            self._query(batch.query_id, batch.query_name).add(batch, now)

    def record_idle(self, query_id: str, now: float) -> None:
        """
        Record that a query has looked for new records and found none.
        """
        with self._lock:
            if query_id in self._queries:
                self._queries[query_id].last_event_time = now

    def end(self, query_id: str, run_id: str, error: tuple[str, str] | None, now: float) -> None:
        """
        Count the end of a run; ``error`` is the (name, text) of the error that ended it, or None.
        """
        with self._lock:
            if query_id not in self._queries:
                return
            # The query that ended last is dropped last.
            query = self._queries[query_id] = self._queries.pop(query_id)
            query.end(run_id, error, now)
            # The empty id, under which dead letters are counted outside of queries, never ends.
            ended = [
                query.id for query in self._queries.values() if query.id and not query.is_running
            ]
            for dropped in ended[:-MAX_ENDED]:
                del self._queries[dropped]

    def count_dead_letters(self, query_id: str, tps: Iterable[TopicPartition]) -> None:
        """
        Count records that were set aside, given the partition of each; the id is empty if no query
        runs.
        """
        with self._lock:
            self._query(query_id, "").count_dead_letters(list(tps))

    def count_audit(self, auditor: str, verdict: str) -> None:
        """
        Count an audited micro-batch.
        """
        with self._lock:
            key = (auditor, verdict)
            self._audits[key] = self._audits.get(key, 0) + 1

    def observe_dead_letter_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """
        Record the current end offsets of the dead-letter topic.
        """
        with self._lock:
            self._dead_letter_ends = ends

    def observe_ends(self, ends: Mapping[QueryPartition, int], now: float) -> None:
        """
        Record end offsets that the brokers have returned.
        """
        with self._lock:
            for key, partition in self._running_partitions().items():
                if key in ends:
                    partition.observe_end(ends[key], now)

    def expire_ends(self, matches: Callable[[TopicPartition], bool]) -> None:
        """
        Record that the brokers do not return the end offsets of matching partitions at the moment.
        """
        with self._lock:
            for key, partition in self._running_partitions().items():
                if matches(key.tp):
                    partition.is_end_old = True

    def partitions(self, matches: Callable[[TopicPartition], bool]) -> list[QueryPartition]:
        """
        Return the matching partitions that running queries read.
        """
        with self._lock:
            return [key for key in self._running_partitions() if matches(key.tp)]

    def without_arrival(self, keys: Iterable[QueryPartition]) -> dict[QueryPartition, int]:
        """
        Return the positions of those partitions whose first unread record is older than the
        history of their end offsets, and whose timestamp is not known yet.
        """
        with self._lock:
            running = self._running_partitions()
            return {
                key: running[key].position
                for key in keys
                if key in running and running[key].history.needs_arrival(running[key].position)
            }

    def record_arrivals(self, times: Mapping[QueryPartition, tuple[int, float]]) -> None:
        """
        Extend the histories back to first unread records, given as (offset, time) by partition.
        """
        with self._lock:
            for key, partition in self._running_partitions().items():
                if key in times:
                    partition.history.record_arrival(*times[key])

    def snapshot(self, now: float) -> Snapshot:
        """
        Return the state of all queries.
        """
        with self._lock:
            queries = tuple(query.snapshot(now) for query in self._queries.values())
            letters = limit_labels(self._dead_letter_ends, self._max_partitions)
            return Snapshot(queries, dict(self._audits), letters)

    def _query(self, query_id: str, name: str) -> _Query:
        query = self._queries.setdefault(query_id, _Query(query_id, name, self._max_partitions))
        query.name = name or query.name
        return query

    def _running_partitions(self) -> dict[QueryPartition, _Partition]:
        return {
            QueryPartition(query.id, index, tp, partition.topic_id): partition
            for query in self._queries.values()
            if query.is_running
            for index, source in query.sources.items()
            for tp, partition in source.partitions.items()
        }
