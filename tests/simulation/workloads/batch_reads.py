"""
Batch reads, one after another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

from tests.simulation.kernel.world import EPOCH
from tests.simulation.spark.endpoints import rows_of
from tests.simulation.workloads.history import FAULT_SECONDS
from tests.simulation.workloads.options import COMMITTED_LEVEL, read_options
from tests.simulation.workloads.topics import INPUT, RECREATION, first_at

from pyspark_pykafka.verify.checker import check_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.kernel.world import Process, Task
    from tests.simulation.spark.endpoints import Row
    from tests.simulation.workloads.changing_log import Change
    from tests.simulation.workloads.history import History

    from pyspark_pykafka.verify.checker import Verdict

_MAX_PAUSE_SECONDS = 5.0
#: Among the reads of an unchanged topic: the share with start or end times, and the share that
#: reads the latest record of each key.
_TIMED, _LATEST_PER_KEY = 0.1, 0.1


@dataclass(frozen=True, slots=True)
class Selection:
    """
    The start and end times of a read in milliseconds since 1970, or whether it reads only the
    latest record of each key.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    is_latest_per_key: bool = False

    def options(self) -> dict[str, str]:
        """
        Return the options of the read.
        """
        options = {}
        if self.start_ms is not None:
            options = {
                "startingTimestamp": str(self.start_ms),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        if self.end_ms is not None:
            options["endingTimestamp"] = str(self.end_ms)
        if self.is_latest_per_key:
            options["latestPerKey"] = "true"
        return options


ALL = Selection()


@dataclass(frozen=True, slots=True)
class _Start:
    """
    The topic at the start of a read: its number, None if no topic exists, and the offset at which
    the visible records of each partition end.
    """

    topic: int | None
    visible: Mapping[int, int]
    selection: Selection = ALL


@dataclass(frozen=True, slots=True)
class _Result:
    """
    The rows of a read; ``earlier`` has the rows of the first use of the same plan.
    """

    start: _Start
    rows: list[Row]
    earlier: list[Row]


class BatchReads:
    """
    One batch read after another, in new processes.

    If the topic changes, some views are used several times: Spark plans them once (from 4.1 on).
    """

    def __init__(self, change: Change, isolation: str) -> None:
        self._change = change
        self._history: History = change.history
        self._isolation = isolation
        self._results: list[_Result] = []
        self._task: Task | None = None
        self._uses_left = 0
        self._spans = Random(f"spans {change.history.seed}")

    @property
    def is_idle(self) -> bool:
        """
        Whether no read is running, and no view is to be used again.
        """
        is_done = self._task is None or self._task.is_done
        if is_done and self._task is not None and self._task.error is not None:
            self._uses_left = 0
        return is_done and not self._uses_left

    def start(self) -> None:
        """
        Begin a read, and further ones after it, until the faults end.
        """
        history = self._history
        if self.is_idle and history.world.elapsed < FAULT_SECONDS:
            start = self._start()
            options = read_options(history, self._isolation)
            start = replace(start, selection=self._draw_selection())
            options |= start.selection.options()
            if start.selection.is_latest_per_key:
                options.pop("minPartitions", None)
            if self._change.kind == RECREATION:
                # The ranges of a former topic time out one after another, each after this time.
                options["kafkaConsumer.pollTimeoutMs"] = "5000"
            process = history.connector.process("batch")
            self._task = process.spawn("read", lambda: self._read(process, options, start))
        if history.world.elapsed < FAULT_SECONDS:
            history.world.call_later(history.draw.expovariate(1.0), self.start)

    def _draw_selection(self) -> Selection:
        """
        Return the selection of a read: usually the whole topic, and always if the topic changes.
        """
        if self._change.kind:
            return ALL
        draw, elapsed = self._spans, self._history.world.elapsed
        kind = draw.random()
        if kind < _TIMED:
            times = sorted(int((EPOCH + draw.uniform(-1.0, elapsed)) * 1000) for _ in range(2))
            return Selection(draw.choice((None, times[0])), draw.choice((None, times[1])))
        # Aborted records are never the latest ones of a key.
        can_be_latest = self._isolation == COMMITTED_LEVEL
        return Selection(is_latest_per_key=can_be_latest and kind < _TIMED + _LATEST_PER_KEY)

    def check(self, verdict: Verdict, last_topic: Mapping[Any, Any]) -> None:
        """
        Compare each read with the logs, up to the offsets that were visible when it started.

        ``last_topic`` has the records of the topic that exists at the end.
        """
        topics = [*self._change.former, last_topic]
        for result in self._results:
            start, rows = result.start, result.rows
            # A plan keeps the topics' ids, so all rows of its uses belong to the same topic.
            sources = [topic for topic in topics if _has_rows(topic, [*result.earlier, *rows])]
            # With failOnDataLoss=false the ranges of a former topic are skipped.
            verdict.records += len(rows) or bool(self._change.former)
            if not sources:
                verdict.add("mixed topics", [(row.partition, row.offset) for row in rows])
                continue
            committed_only = self._isolation == "read_committed"
            check_rows(verdict, sources[0], [rows], committed_only=committed_only)
            if start.selection != ALL:
                self._check_span(verdict, sources[0], start, rows)
            elif start.topic is not None:
                verdict.add("lost", self._missing(topics[start.topic], start, rows))

    def _check_span(
        self,
        verdict: Verdict,
        topic: Mapping[Any, Sequence[Any]],
        start: _Start,
        rows: Sequence[Row],
    ) -> None:
        """
        Check the rows of a read that selects only some records of a topic.
        """
        positions = {(row.partition, row.offset) for row in rows}
        if start.selection.is_latest_per_key:
            ends = {**start.visible}
            for partition, offset in positions:
                ends[partition] = max(ends.get(partition, 0), offset + 1)
            expected = _latest_per_key(topic, ends)
            verdict.add("lost", sorted(expected - positions))
            verdict.add("not the latest of its key", sorted(positions - expected))
            return
        start_ms, end_ms = start.selection.start_ms or 0, start.selection.end_ms
        starts = first_at(topic, start_ms)
        ends = {} if end_ms is None else first_at(topic, end_ms)
        expected = {
            (partition, offset)
            for partition, offset in self._missing(topic, start, ())
            if starts.get(partition, offset + 1) <= offset < ends.get(partition, offset + 1)
        }
        verdict.add("lost", sorted(expected - positions))
        early = {
            (partition, offset)
            for partition, offset in positions
            if offset < min(starts.get(partition, offset + 1), start.visible.get(partition, 0))
        }
        late = {position for position in positions if position[1] >= ends.get(position[0], 2**63)}
        verdict.add("outside the time range", sorted(early | late))

    def _missing(
        self, topic: Mapping[Any, Any], start: _Start, rows: Sequence[Row]
    ) -> list[tuple[int, int]]:
        committed_only = self._isolation == "read_committed"
        states = {"committed"} if committed_only else {"committed", "aborted", "open"}
        positions = {(row.partition, row.offset) for row in rows}
        return [
            (partition, record.offset)
            for (_, partition), records in topic.items()
            for record in records
            if record.offset < start.visible.get(partition, 0)
            and record.state in states
            and (partition, record.offset) not in positions
        ]

    def _start(self, planned_partitions: int = 0) -> _Start:
        """
        Return the start of a read that begins now. If a view is read again, ``planned_partitions``
        is the number of partitions in its plan.

        Partitions that were added after planning are expected only if every broker knows them: a
        stale broker could hide them from a process that has confirmed the topic.
        """
        cluster, partitions = self._history.cluster, self._change.partitions
        if not cluster.has_topic(INPUT):
            return _Start(None, {})
        if planned_partitions and not cluster.is_known_everywhere(INPUT, partitions):
            partitions = planned_partitions
        visible = {number: self._visible_end(number) for number in range(partitions)}
        return _Start(len(self._change.former), visible)

    def _visible_end(self, partition: int) -> int:
        cluster = self._history.cluster
        if self._isolation == "read_committed":
            return cluster.last_stable_offset(INPUT, partition)
        return cluster.high_watermark(INPUT, partition)

    def _read(self, process: Process, options: dict[str, str], start: _Start) -> None:
        """
        Plan a read, and read its records.
        """
        history = self._history
        source = history.connector.source(options)
        reader = source.reader(source.schema())
        with self._warnings() as warned:
            planned = reader.partitions()
            self._add_rows(start, reader, planned, warned)
        if self._change.kind:
            self._uses_left = history.draw.choice((0, 1, 2))
            first = replace(self._results[-1], start=_Start(None, {}) if warned.called else start)
            self._use_later(process, first, reader, planned)

    def _use_later(self, process: Process, first: _Result, reader: Any, planned: list[Any]) -> None:
        """
        Use the plan again after a while, in the same process or another one.

        If the topic was recreated since the first use, no rows are expected: users would have to
        load the view again.
        """
        history = self._history

        def use() -> None:
            start = self._start(len(first.start.visible))
            if start.topic != first.start.topic:
                start = _Start(None, {})
            with self._warnings() as warned:
                self._add_rows(start, reader, planned, warned, first.rows)
            self._uses_left -= 1
            self._use_later(later_process, first, reader, planned)

        def begin() -> None:
            self._task = later_process.spawn("read", use)

        later_process = process
        if self._uses_left and history.draw.random() < 0.5:
            later_process = history.connector.process("batch")

        if self._uses_left:
            history.world.call_later(history.draw.uniform(0.0, _MAX_PAUSE_SECONDS), begin)

    def _warnings(self) -> Any:
        metadata_reader = self._history.connector.module(
            "engines.wire.network.metadata_reader"
        ).MetadataReader
        return patch.object(metadata_reader, "_warn_of_one_broker", Mock())

    def _add_rows(
        self,
        start: _Start,
        reader: Any,
        planned: list[Any],
        warned: Mock,
        earlier: Sequence[Row] = (),
    ) -> None:
        """
        Read the rows of a plan; ``earlier`` are those of its first use.

        If only one broker responds, and a warning says so, some rows may be missing. If the topic
        is recreated during the read, the rows may be those of either topic.
        """
        rows = [
            row
            for partition in planned
            for batch in rows_of(reader.read(partition))
            for row in batch
        ]
        has_changed = self._start().topic != start.topic
        if warned.called or has_changed:
            start = _Start(None, {}, start.selection)
        self._results.append(_Result(start, rows, list(earlier)))


def _latest_per_key(
    topic: Mapping[Any, Sequence[Any]], ends: Mapping[int, int]
) -> set[tuple[int, int]]:
    """
    Return the position of each key's last committed record before the end of its partition.
    """
    return {
        (partition, offset)
        for (_, partition), records in topic.items()
        for offset in {
            record.key: record.offset
            for record in records
            if record.state == "committed" and record.offset < ends.get(partition, 0)
        }.values()
    }


def _has_rows(topic: Mapping[Any, Sequence[Any]], rows: Sequence[Row]) -> bool:
    """
    Return whether all rows are records of a topic; each value is written once.
    """
    values = {
        (*tp, record.offset): record.value for tp, records in topic.items() for record in records
    }
    return all(values.get((row.topic, row.partition, row.offset)) == row.value for row in rows)
