"""
Exactly-once batch writes, one after another; the outcome that each reports must stay true.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

from tests.simulation.spark.endpoints import KafkaBatchSink, Row
from tests.simulation.spark.query import Attempt, Job, QueryFailedError
from tests.simulation.workloads.fault_kinds import CLUSTER_FAULTS
from tests.simulation.workloads.history import FAULT_SECONDS, History
from tests.simulation.workloads.nemesis import Nemesis
from tests.simulation.workloads.options import write_options
from tests.simulation.workloads.topics import OUTPUT, check_progress, is_settled, truth

from pyspark_pykafka.verify.checker import COMMITTED, OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.simulation.kafka.truth import TrueRecord
    from tests.simulation.kernel.world import Process, Task

    from pyspark_pykafka.verify.checker import Verdict

#: The share of histories in which coordinators move during each commit.
_MOVES = 0.15
_DONE, _NOTHING, _UNKNOWN = "done", "nothing", "unknown"
_DEATH_CHANCE = 0.4
# The mean life of a driver that dies, from the start of its write and of its commit.
_MEAN_LIFE_SECONDS, _MEAN_COMMIT_SECONDS = 1.0, 0.01


def batch_write(seed: int, *, is_traced: bool = False) -> tuple[Verdict, History]:
    """
    Writes with several tasks each. In some histories drivers die: the next write has the same
    prefix, and ends the transactions that the dead driver left open.
    """
    with History(seed, is_traced=is_traced) as history:
        output_partitions = history.draw.choice((1, 3))
        history.cluster.create_topic(OUTPUT, output_partitions)
        writes = BatchWrites(history, output_partitions, _draw_deaths(seed))
        faults = (*CLUSTER_FAULTS, "kill worker", "pause worker", "move coordinator")
        extra_faults = {"cut off driver": lambda: nemesis.cut_off("batch")}
        nemesis: Nemesis = Nemesis(
            history, [], [(OUTPUT, output_partitions)], faults, extra_faults=extra_faults
        )
        writes.cut_off = lambda: nemesis.cut_off("batch")
        if Random(f"coordinators move {seed}").random() < _MOVES:
            writes.move_coordinators = nemesis.move_coordinators
        history.world.call_later(1.0, writes.start)
        logger = history.connector.module("sink.batch_committer").logger
        with patch.object(logger, "warning", writes.warned):
            history.run(
                nemesis, lambda: writes.is_over and is_settled(history, OUTPUT, output_partitions)
            )
        if history.verdict.is_clean:
            writes.check()
        check_progress(history.verdict)
        return history.verdict, history


def _draw_deaths(seed: int) -> Random | None:
    """
    Return the random numbers of the drivers' deaths, or None if no driver dies.

    They are not drawn from the history's own random numbers, so they change no history without
    deaths.
    """
    draw = Random(f"driver deaths {seed}")
    return draw if draw.random() < 0.3 else None


@dataclass
class BatchWrites:
    """
    The writes, their rows, and the result that each reported.
    """

    history: History
    partitions: int
    deaths: Random | None
    cut_off: Callable[[], None] = lambda: None
    #: Called during each commit; None in most histories.
    move_coordinators: Callable[[], None] | None = None
    warned: Mock = field(default_factory=Mock)
    _rows: list[list[list[Row]]] = field(default_factory=list)
    _reports: dict[int, str] = field(default_factory=dict)
    #: Rows that read_committed readers could not see when their write had succeeded.
    _late: list[bytes | None] = field(default_factory=list)
    _task: Task | None = None

    @property
    def is_over(self) -> bool:
        """
        Whether the last write has ended.
        """
        is_late = self.history.world.elapsed > FAULT_SECONDS
        return is_late and (self._task is None or self._task.is_done)

    def start(self) -> None:
        """
        Begin a write, and further ones after it, until the faults end.
        """
        history, draw = self.history, self.history.draw
        if history.world.elapsed > FAULT_SECONDS:
            return
        if self._task is None or self._task.is_done:
            number, tasks = len(self._rows), draw.choice((1, 3, 6))
            self._rows.append(
                [
                    [
                        Row(f"{number}:{task}:{index}".encode())
                        for index in range(draw.choice((0, 3, 20)))
                    ]
                    for task in range(tasks)
                ]
            )
            options = write_options(history, "exactly-once")
            # Without a common prefix no later write ends the transactions of a dead or failed
            # write.
            if draw.random() < 0.5 and self.deaths is None:
                del options["transactionalIdPrefix"]
            process = history.connector.process("batch")
            self._task = process.spawn("write", lambda: self._write(number, options, process))
            self._plan_death(number, process, _MEAN_LIFE_SECONDS)
        history.world.call_later(draw.expovariate(0.5), self.start)

    def check(self) -> None:
        """
        Compare the visible rows with the reported results of the writes.
        """
        verdict, visible = self.history.verdict, self._visible()
        verdict.add("not visible yet", self._late)
        for number, report in self._reports.items():
            values = self._values(number)
            verdict.records += len(values)
            verdict.add("duplicate", [value for value in values if visible[value] > 1])
            if report == _DONE:
                verdict.add("lost", [value for value in values if not visible[value]])
            elif report == _NOTHING:
                verdict.add("visible after a report of nothing", [v for v in values if visible[v]])

    def _plan_death(self, number: int, driver: Process, mean_seconds: float) -> None:
        """
        Let a write's driver die later in some cases, with its executors.
        """
        if self.deaths is None or self.deaths.random() > _DEATH_CHANCE:
            return

        def die() -> None:
            if driver.is_alive and number not in self._reports:
                self._reports[number] = _UNKNOWN
                driver.kill()
                self.history.executors.kill_all()

        self.history.world.call_later(self.deaths.expovariate(1 / mean_seconds), die)

    def _write(self, number: int, options: dict[str, str], driver: Process) -> None:
        history, draw = self.history, self.history.draw
        errors = history.connector.module("errors")
        job = Job(history.connector, ("", ""), history.executors, draw.choice((0.0, 0.05)))
        messages: list[Any] = [None] * len(self._rows[number])
        try:
            sink = KafkaBatchSink(history.connector, options)
            try:
                tasks = [self._writing(sink, rows) for rows in self._rows[number]]
                job.run(tasks, "write", messages)
                if draw.random() < 0.2:
                    history.world.call_later(draw.random() * 0.05, self.cut_off)
                if self.move_coordinators is not None and history.world.elapsed < FAULT_SECONDS:
                    history.world.call_later(draw.random() * 0.05, self.move_coordinators)
                self._plan_death(number, driver, _MEAN_COMMIT_SECONDS)
                self._commit(number, sink, messages)
            except (QueryFailedError, errors.PykafkaError):
                # Spark raises the first error, and suppresses an error of the abort.
                with suppress(errors.PykafkaError):
                    sink.abort([message for message in messages if message is not None])
                raise
        except errors.ExactlyOnceError as error:
            history.world.trace("write %d: %r", number, error)
            self._reports[number] = _UNKNOWN
        except (QueryFailedError, errors.PykafkaError) as error:
            history.world.trace("write %d: %r", number, error)
            self._reports[number] = _NOTHING
        else:
            self._reports[number] = _DONE

    def _commit(self, number: int, sink: KafkaBatchSink, messages: list[Any]) -> None:
        """
        Commit, and check that all rows are visible, unless a warning says that readers have to
        wait.
        """
        self.warned.reset_mock()
        sink.commit(messages)
        if not self.warned.called:
            visible = self._visible()
            self._late += [value for value in self._values(number) if not visible[value]]

    def _values(self, number: int) -> list[bytes | None]:
        return [row.value for rows in self._rows[number] for row in rows]

    def _visible(self) -> Counter[bytes | None]:
        """
        Return how often each committed value is in the logs.

        If drivers die, all writes have one prefix, and each ends the transactions that earlier
        writes left open. Then only records before the first open transaction count, as for a
        read_committed reader.
        """
        logs: Iterable[Iterable[TrueRecord]]
        logs = truth(self.history, OUTPUT, self.partitions).values()
        if self.deaths is not None:
            logs = (takewhile(lambda record: record.state != OPEN, log) for log in logs)
        return Counter(record.value for log in logs for record in log if record.state == COMMITTED)

    def _writing(self, sink: KafkaBatchSink, rows: list[Row]) -> Callable[[Attempt], object]:
        def pieces() -> Iterator[list[Row]]:
            for start in range(0, len(rows), 5):
                yield rows[start : start + 5]

        return lambda attempt: sink.write(attempt.input(pieces()))
