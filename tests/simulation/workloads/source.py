"""
A stream from Kafka into a sink that keeps each micro-batch once.

Most histories read everything, in one way. The others start at the latest offsets or at a time, end
at a time, run with availableNow, or change the isolation level when the query is restarted. These
differences have random numbers of their own, so that they change no other history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.kernel.world import EPOCH
from tests.simulation.spark.endpoints import Collector, KafkaSource
from tests.simulation.spark.query import Definition
from tests.simulation.spark.shapes import Shape, shapes
from tests.simulation.workloads.fault_kinds import READ_FAULTS
from tests.simulation.workloads.history import FAULT_SECONDS, History, Supervisor
from tests.simulation.workloads.nemesis import Nemesis
from tests.simulation.workloads.options import COMMITTED_LEVEL, UNCOMMITTED_LEVEL, read_options
from tests.simulation.workloads.topics import (
    INPUT,
    check_producers,
    check_progress,
    fill,
    first_at,
    is_filled,
    stop,
    truth,
)

from pyspark_pykafka.verify.checker import Verdict, check_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.workloads.producers import PlainProducer

EARLIEST, LATEST, AT_TIME = "earliest", "latest", "at a time"
_LATEST_START_SECONDS = 15.0
_FIRST_STRIKE_CHANCE = 0.1
_VISIBLE_STATES = {COMMITTED_LEVEL: {"committed"}, UNCOMMITTED_LEVEL: {"committed", "aborted"}}


@dataclass(frozen=True, slots=True)
class Variant:
    """
    How a history differs from most: its start, its end, its trigger and its restarts.

    Times are in milliseconds since 1970.
    """

    start: str = EARLIEST
    #: When the query is started for the first time, in seconds.
    begins_at: float = 0.0
    start_ms: int = 0
    #: What happens to a partition without a record at or after ``start_ms``.
    strategy: str = LATEST
    end_ms: int | None = None
    available_now: bool = False
    changes_isolation: bool = False

    def options(self) -> dict[str, str]:
        """
        Return the options that say where to start and to end.
        """
        options = {"startingOffsets": self.start}
        if self.start == AT_TIME:
            options = {
                "startingTimestamp": str(self.start_ms),
                "startingOffsetsByTimestampStrategy": self.strategy,
            }
        if self.end_ms is not None:
            options["endingTimestamp"] = str(self.end_ms)
        return options


def draw_variant(seed: int) -> Variant:
    """
    Return the variant of a history; about half of them have none.
    """
    draw = Random(f"source variant {seed}")
    start = draw.choices((EARLIEST, LATEST, AT_TIME), (8, 1, 1))[0]
    begins_at = draw.uniform(1.0, _LATEST_START_SECONDS)
    start_seconds = begins_at * draw.uniform(0.0, 1.3)
    end_seconds = start_seconds + draw.uniform(0.0, FAULT_SECONDS)
    return Variant(
        start,
        0.0 if start == EARLIEST else begins_at,
        _milliseconds(start_seconds),
        draw.choice((LATEST, "error")),
        _milliseconds(end_seconds) if draw.random() < 0.1 else None,
        available_now=draw.random() < 0.15,
        changes_isolation=draw.random() < 0.15,
    )


def _milliseconds(seconds: float) -> int:
    return int((EPOCH + seconds) * 1000)


def source(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    A stream from Kafka; every visible record between its start and its end is read once.
    """
    with History(seed, is_traced=is_traced) as history:
        partitions = history.draw.choice((1, 3, 6))
        producers = fill(history, partitions)
        variant = draw_variant(seed)
        history.world.trace("%s", variant)
        isolation = history.draw.choice((COMMITTED_LEVEL, UNCOMMITTED_LEVEL))
        options = {**read_options(history, isolation), **variant.options()}
        stream = _Stream(
            *(history, variant, partitions, producers, options),
            shape=history.draw.choice(shapes()),
            speculation=history.draw.choice((0.0, 0.05)),
            has_executors=history.draw.random() < 0.5,
        )
        supervisor = history.supervise(stream.next_definition, after=variant.begins_at)
        nemesis = Nemesis(
            *(history, [supervisor], [(INPUT, partitions)], READ_FAULTS, 0.01),
            first_strike_chance=0.0 if variant.start == EARLIEST else _FIRST_STRIKE_CHANCE,
        )
        history.world.call_later(FAULT_SECONDS, lambda: stop(producers))
        history.run(nemesis, lambda: stream.is_read(supervisor))
        if history.verdict.is_clean:
            records = truth(history, INPUT, partitions)
            stream.check(records, supervisor)
            check_producers(history, producers, records)
        check_progress(history.verdict)
        return history.verdict, history


class _Ends(NamedTuple):
    """
    The true ends of the partitions at one moment: of the records that are visible, and of the logs.
    """

    visible: dict[int, int]
    log: dict[int, int]


class _ObservedSource(KafkaSource):
    """
    Records the true ends of the logs before and after it resolves the start of a new query.
    """

    def __init__(self, stream: _Stream, options: dict[str, str]) -> None:
        super().__init__(stream.history.connector, options)
        self._stream = stream
        self._before = stream.ends(options)

    def initial(self) -> Any:
        start = super().initial()
        self._stream.starts.append((start, self._before, self._stream.ends({})))
        return start


@dataclass
class _LevelCollector(Collector):
    """
    Records the isolation level at which the rows of each micro-batch were read.
    """

    level: str = COMMITTED_LEVEL
    levels: dict[int, str] = field(default_factory=dict)

    def commit(self, messages: Sequence[list[Any]], batch: int) -> None:
        super().commit(messages, batch)
        self.levels[batch] = self.level


@dataclass
class _Stream:
    """
    The query of one history, and the facts recorded about its runs.
    """

    history: History
    variant: Variant
    partitions: int
    producers: list[PlainProducer]
    options: dict[str, str]
    shape: Shape
    speculation: float
    has_executors: bool
    #: Each resolved start, with the true ends before and after it was resolved.
    starts: list[tuple[Any, _Ends, _Ends]] = field(default_factory=list)
    _rows: dict[int, list[Any]] = field(default_factory=dict)
    _levels: dict[int, str] = field(default_factory=dict)
    _runs: int = 0

    def next_definition(self) -> Definition:
        """
        Return the query as it is started the next time.
        """
        options = dict(self.options)
        if self.variant.changes_isolation:
            draw = Random(f"isolation {self.history.seed} {self._runs}")
            options[_LEVEL] = draw.choice((COMMITTED_LEVEL, UNCOMMITTED_LEVEL))
        self._runs += 1
        self.history.world.trace("run %d: %s", self._runs, options[_LEVEL])
        return Definition(
            lambda: _ObservedSource(self, options),
            lambda: _LevelCollector(self._rows, options[_LEVEL], self._levels),
            shape=self.shape,
            available_now=self.variant.available_now,
            true_state=lambda: self.ends(options),
            speculation=self.speculation,
            has_executors=self.has_executors,
        )

    def ends(self, options: Mapping[str, str]) -> _Ends:
        """
        Return the true ends now.
        """
        cluster, numbers = self.history.cluster, range(self.partitions)
        committed = options.get(_LEVEL) == COMMITTED_LEVEL
        visible_end = cluster.last_stable_offset if committed else cluster.high_watermark
        return _Ends(
            {number: visible_end(INPUT, number) for number in numbers},
            {number: cluster.log_end(INPUT, number) for number in numbers},
        )

    def is_read(self, supervisor: Supervisor) -> bool:
        """
        Return whether nothing is appended any more, and the query has completed a micro-batch that
        reaches the end of the stream.
        """
        checkpoint = supervisor.checkpoint
        if not is_filled(self.history, self.producers, self.partitions):
            return False
        if checkpoint.last_end is None:
            return False
        # The ends are read each time, since a coordinator that has moved may write a marker again.
        starts, end = _offsets(checkpoint.initial), _offsets(checkpoint.last_end)
        return all(
            end.get(number) == max(final, starts.get(number, 0))
            for number, final in self._ends_of_stream().items()
        )

    def _ends_of_stream(self) -> dict[int, int]:
        ends = self.ends({}).log
        if self.variant.end_ms is None:
            return ends
        times = first_at(truth(self.history, INPUT, self.partitions), self.variant.end_ms)
        return {number: times.get(number, end) for number, end in ends.items()}

    def check(self, records: Mapping[Any, Sequence[Any]], supervisor: Supervisor) -> None:
        """
        Compare the rows of each micro-batch with the records of its range, and the starts and ends
        with the logs as they were then.
        """
        verdict, checkpoint = self.history.verdict, supervisor.checkpoint
        numbers = sorted(checkpoint.completed)
        batches = [self._rows[number] for number in numbers]
        check_rows(verdict, records, batches, committed_only=False)
        committed = [number for number in numbers if self._levels[number] == COMMITTED_LEVEL]
        committed_batches = [self._rows[number] for number in committed]
        check_rows(verdict, records, committed_batches, committed_only=True)
        for number in numbers:
            start = checkpoint.ends[number - 1] if number else checkpoint.initial
            self._check_batch(number, records, _offsets(start), _offsets(checkpoint.ends[number]))
        verdict.records += self.variant.start != EARLIEST or self.variant.end_ms is not None
        self._check_start(records, checkpoint.initial)
        for run in checkpoint.finished:
            self._check_run(run.before, run.after, _offsets(run.end))

    def _check_batch(
        self,
        batch: int,
        records: Mapping[Any, Sequence[Any]],
        start: Mapping[int, int],
        end: Mapping[int, int],
    ) -> None:
        verdict, states = self.history.verdict, _VISIBLE_STATES[self._levels[batch]]
        positions = {(row.partition, row.offset) for row in self._rows[batch]}
        expected = {
            (number, record.offset)
            for (_, number), log in records.items()
            for record in log
            if start.get(number, 0) <= record.offset < end.get(number, 0) and record.state in states
        }
        verdict.records += len(expected)
        verdict.add("lost", sorted(expected - positions))
        verdict.add("outside of the range", sorted(positions - expected))

    def _check_start(self, records: Mapping[Any, Sequence[Any]], planned: Any) -> None:
        """
        Check that the first micro-batch starts at the earliest offset, the log's end or the time,
        as requested. It may start earlier only if the visible log ended there.
        """
        times = first_at(records, self.variant.start_ms)
        bounds = [(before, after) for start, before, after in self.starts if start == planned]
        for number, offset in _offsets(planned).items():
            highest = {
                EARLIEST: [0 for _ in bounds],
                LATEST: [after.log[number] for _, after in bounds],
                AT_TIME: [times.get(number, after.log[number]) for _, after in bounds],
            }[self.variant.start]
            lowest = [
                min(high, before.visible[number])
                for high, (before, _) in zip(highest, bounds, strict=True)
            ]
            if not any(low <= offset <= high for low, high in zip(lowest, highest, strict=True)):
                self.history.verdict.add("wrong start", [(number, lowest, offset, highest)])

    def _check_run(self, before: _Ends, after: _Ends, end: Mapping[int, int]) -> None:
        """
        Check the end of an availableNow run: every record that was visible when the run began is
        read, and no record that was appended after the run had fixed its end.
        """
        finals = self._ends_of_stream()
        for number, offset in end.items():
            lowest = min(before.visible[number], finals[number])
            if not lowest <= offset <= after.log[number]:
                bounds = (number, lowest, offset, after.log[number])
                self.history.verdict.add("wrong end of a run", [bounds])


_LEVEL = "kafka.isolation.level"


def _offsets(document: Any) -> dict[int, int]:
    return {int(number): offset for number, offset in (document or {}).get(INPUT, {}).items()}
