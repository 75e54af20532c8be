"""
A streaming query as Spark runs one: ``MicroBatchExecution`` of 4.2, its processes and its tasks.

The order of the calls is that of ``MicroBatchExecution`` (``org.apache.spark.sql.execution``). The
planner, the sink's committer and each Python worker are processes of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.spark.connector import TaskContext
from tests.simulation.spark.endpoints import Prefetched
from tests.simulation.spark.shapes import DIRECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.kernel.world import Process, Task, World
    from tests.simulation.spark.connector import Connector
    from tests.simulation.spark.endpoints import PlannedSource, Row, Sink
    from tests.simulation.spark.shapes import Shape

_MAX_TASK_FAILURES = 4
_STAGE_RETRY_CHANCE = 0.2
# The pause between two requests for the latest offsets while the log has no new records.
_MEAN_IDLE_SECONDS = 0.5


class QueryFailedError(Exception):
    """
    A query that ended with an error.
    """


class ProcessLostError(Exception):
    """
    A process ended in the middle of a call.
    """


class ConcurrentUpdateError(Exception):
    """
    Another driver has written to the checkpoint: Spark ends the query.
    """


class StoppedTaskError(Exception):
    """
    Stands for the end of a task's input after Spark has stopped the task.
    """


class FinishedRun(NamedTuple):
    """
    An availableNow run that has reached its end; ``before`` and ``after`` are the true states of
    the source before and after the run fixed its end.
    """

    before: Any
    after: Any
    end: Any


@dataclass
class Checkpoint:
    """
    The state that survives the driver: the ends of planned micro-batches, and the completed ones.
    """

    query: str
    ends: dict[int, Any] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)
    #: The start with which the first micro-batch was planned. It is kept for the checkers only:
    #: Spark stores no start for a Python source.
    initial: Any = None
    finished: list[FinishedRun] = field(default_factory=list)

    @property
    def last_end(self) -> Any:
        """
        The end of the last completed micro-batch, None before the first.
        """
        return self.ends.get(max(self.completed, default=-1))

    def plan(self, batch: int, start: Any, end: Any) -> None:
        """
        Write a micro-batch to the offset log; raise :class:`ConcurrentUpdateError` if it is there.
        """
        if batch in self.ends:
            raise ConcurrentUpdateError(batch)
        self.ends[batch] = end
        if not batch:
            self.initial = start

    def complete(self, batch: int) -> None:
        """
        Write a micro-batch to the commit log; raise :class:`ConcurrentUpdateError` if it is there.
        """
        if batch in self.completed:
            raise ConcurrentUpdateError(batch)
        self.completed.add(batch)


@dataclass(frozen=True, slots=True)
class Definition:
    """
    A query; ``source`` and ``sink`` create new endpoints in each process.
    """

    source: Callable[[], PlannedSource]
    sink: Callable[[], Sink]
    shape: Shape = DIRECT
    #: Rows of another source, for a union: a function of the start and end of the micro-batch.
    other_rows: Callable[[Any, Any], list[list[Row]]] | None = None
    trigger_seconds: float = 0.1
    available_now: bool = False
    #: Returns the source's true state, with which the end of an availableNow run is compared.
    true_state: Callable[[], Any] = lambda: None
    #: The chance that a task has a second, speculative attempt.
    speculation: float = 0.0
    #: Whether executors, and the tasks on them, outlive the driver for a while.
    has_executors: bool = False


class Query:
    """
    One run of a query. It ends with an exception, after :meth:`stop` was called, or with
    availableNow when everything is read.
    """

    def __init__(
        self,
        connector: Connector,
        definition: Definition,
        checkpoint: Checkpoint,
        executors: Executors,
        strike: Callable[[str, Query], None],
    ) -> None:
        self._connector = connector
        self._definition = definition
        self._checkpoint = checkpoint
        self._executors = executors
        self._strike = strike
        self.world: World = connector.world()
        self.driver = connector.world().process("driver")
        self.planner = connector.process("planner")
        self.committer = connector.process("committer")
        self.is_stopping = False
        self.main = self.driver.spawn("query", self._run)
        self._source: PlannedSource | None = None

    def stop(self) -> None:
        """
        End the query before its next micro-batch.
        """
        self.is_stopping = True

    def kill(self) -> None:
        """
        Kill the driver with all its processes, and the tasks, too, unless executors outlive the
        driver.
        """
        for process in (self.driver, self.planner, self.committer):
            process.kill()
        if not self._definition.has_executors:
            self._executors.kill_all()

    @property
    def is_done(self) -> bool:
        """
        Whether the run has ended.
        """
        return self.main.is_done

    @property
    def is_new(self) -> bool:
        """
        Whether the query has completed no micro-batch, in any run.
        """
        return not self._checkpoint.completed

    # --- MicroBatchExecution ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._run_batches()
        finally:
            if not self.world.is_closed:
                for process in (self.planner, self.committer):
                    process.kill()

    def _run_batches(self) -> None:
        checkpoint, definition = self._checkpoint, self._definition
        last = max(checkpoint.ends, default=-1)
        is_replay = last >= 0 and last not in checkpoint.completed
        before = definition.true_state()
        if definition.available_now:
            self._plan("prepareForTriggerAvailableNow", lambda s: s.prepare_for_available_now())
        after = definition.true_state()
        batch = last if is_replay else last + 1
        # The run that executes the query's first micro-batch resolves the start, even if it only
        # replays that micro-batch.
        initial = None if batch else self._plan("initialOffset", lambda s: s.initial())
        while not self.is_stopping:
            start = checkpoint.ends[batch - 1] if batch else initial
            if not is_replay:
                end = self._plan_latest(start)
                if end == start:
                    if definition.available_now:
                        checkpoint.finished.append(FinishedRun(before, after, end))
                        return
                    self.world.sleep(self.world.random.expovariate(1 / _MEAN_IDLE_SECONDS))
                    continue
                checkpoint.plan(batch, start, end)
                self._strike("planned", self)
                if batch:
                    self._commit_source(start)
            self._run_batch(batch, start, checkpoint.ends[batch])
            is_replay = False
            checkpoint.complete(batch)
            self._strike("completed", self)
            batch += 1
            self.world.sleep(definition.trigger_seconds * self.world.random.random())

    def _run_batch(self, batch: int, start: Any, end: Any) -> None:
        self.world.trace("batch %d: %s to %s", batch, start, end)
        definition = self._definition
        partitions = self._plan("partitions", lambda s: s.partitions(start, end))
        ids = (str(batch), self._checkpoint.query)
        exchange = definition.shape.exchange
        job = Job(
            *(self._connector, ids, self._executors, definition.speculation),
            has_shuffle=exchange is not None,
        )
        other_rows = definition.other_rows
        extra = [] if other_rows is None else other_rows(start, end)
        if exchange is None:
            inputs = [self._reading(partition) for partition in partitions]
            inputs += [partial(_whole, rows) for rows in extra]
        else:
            read = job.run([self._collecting(partition) for partition in partitions], "read")
            outputs = exchange([*read, *extra], self.world.random)
            inputs = [partial(_pieces, rows) for rows in outputs]
        # Spark makes one writer for the tasks, and others to commit and to abort.
        sink = definition.sink()
        messages: list[Any] = [None] * len(inputs)
        try:
            job.run([self._writing(sink, rows) for rows in inputs], "write", messages)
            self._strike("written", self)
            self._call(self.committer, "commit", lambda: definition.sink().commit(messages, batch))
        except Exception:
            self._call(self.committer, "abort", lambda: definition.sink().abort(messages, batch))
            raise

    def _reading(self, partition: Any) -> Callable[[], Iterator[list[Row]]]:
        source = self._source
        assert source is not None
        if isinstance(partition, Prefetched):
            # Spark keeps the rows as a block, which may be lost.
            if self.world.random.random() < 0.8:
                return lambda: iter(partition.rows)
            return lambda: source.read(partition.partition)
        return lambda: source.read(partition)

    def _collecting(self, partition: Any) -> Callable[[Attempt], list[Row]]:
        read = self._reading(partition)

        def collect(attempt: Attempt) -> list[Row]:
            return [row for rows in attempt.input(read()) for row in rows]

        return collect

    def _writing(
        self, sink: Sink, rows: Callable[[], Iterator[list[Row]]]
    ) -> Callable[[Attempt], Any]:
        return lambda attempt: sink.write(attempt.input(rows()))

    # --- Calls to other processes -----------------------------------------------------------------

    def _plan_latest(self, start: Any) -> Any:
        return self._plan("latestOffset", lambda s: s.latest(start))

    def _commit_source(self, end: Any) -> None:
        self._plan("source commit", lambda s: s.commit(end))

    def _plan(self, name: str, action: Callable[[Any], Any]) -> Any:
        def run() -> Any:
            if self._source is None:
                self._source = self._definition.source()
            return action(self._source)

        return self._call(self.planner, name, run)

    def _call(self, process: Process, name: str, action: Callable[[], Any]) -> Any:
        self._strike(name, self)
        self.world.trace("%s", name)
        task = process.spawn(name, action)
        self.world.wait(lambda: task.is_done, None, self.world.ended)
        if task.error is not None:
            self.world.trace("%s failed: %r", name, task.error)
            raise task.error
        if not process.is_alive:
            msg = f"the process ended during {name}"
            raise ProcessLostError(msg)
        return task.result


def _whole(rows: list[Row]) -> Iterator[list[Row]]:
    yield rows


def _pieces(rows: list[Row]) -> Iterator[list[Row]]:
    for start in range(0, len(rows), 5):
        yield rows[start : start + 5]


@dataclass
class Attempt:
    """
    One attempt of a task.
    """

    index: int
    number: int
    process: Process
    task: Task | None = None
    is_stopped: bool = False

    def input(self, batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
        """
        Yield the rows until Spark stops the attempt.
        """
        world = self.process.world
        for rows in batches:
            if self.is_stopped:
                raise StoppedTaskError
            world.give_way(0.2)
            yield rows
        if self.is_stopped:
            raise StoppedTaskError


class Executors:
    """
    The Python workers, which tasks use one after another.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._idle: list[Process] = []
        self.busy: dict[Process, None] = {}
        self._ids = count()
        self._names = count()

    def acquire(self) -> Process:
        """
        Return a worker for an attempt: usually one that has run other attempts.
        """
        world = self._connector.world()
        self._idle = [process for process in self._idle if process.is_alive]
        if self._idle and world.random.random() < 0.9:
            process = self._idle.pop(world.random.randrange(len(self._idle)))
        else:
            process = self._connector.process(f"worker-{next(self._names)}")
            process.clock_offset = world.random.choice((0.0, 0.0, 0.0, -30.0, 45.0))
        self.busy[process] = None
        return process

    def release(self, process: Process) -> None:
        """
        Take a worker back.
        """
        self.busy.pop(process, None)
        if process.is_alive:
            self._idle.append(process)

    def next_task_attempt(self) -> int:
        """
        Return an id that no other attempt has.
        """
        return next(self._ids)

    def workers(self) -> list[Process]:
        """
        Return the workers that run an attempt.
        """
        return [process for process in self.busy if process.is_alive]

    def kill_all(self) -> None:
        """
        Kill all workers.
        """
        for process in (*self.busy, *self._idle):
            process.kill()
        self.busy.clear()
        self._idle.clear()


class Job:
    """
    The tasks of one stage, each with up to four attempts.
    """

    def __init__(
        self,
        connector: Connector,
        ids: tuple[str, str],
        executors: Executors,
        speculation: float,
        *,
        has_shuffle: bool = False,
    ) -> None:
        self._connector = connector
        self._world = connector.world()
        #: The ids of the micro-batch and the query, empty in a batch query.
        self._ids = ids
        self._executors = executors
        self._speculation = speculation
        self._has_shuffle = has_shuffle

    def run(
        self,
        tasks: Sequence[Callable[[Attempt], Any]],
        stage: str,
        results: list[Any] | None = None,
    ) -> list[Any]:
        """
        Return the results of all tasks; ``results`` gets those that succeeded before a failure.
        """
        results = [None] * len(tasks) if results is None else results
        missing = set(range(len(tasks)))
        numbers, failures = [0] * len(tasks), [0] * len(tasks)
        running: list[Attempt] = []
        try:
            running += [self._launch(tasks, index, numbers, stage) for index in range(len(tasks))]
            while missing:
                self._speculate(tasks, running, numbers, stage)
                self._world.wait(
                    lambda: any(_is_done(attempt) for attempt in running), 1.0, self._world.ended
                )
                for attempt in [attempt for attempt in running if _is_done(attempt)]:
                    running.remove(attempt)
                    self._executors.release(attempt.process)
                    error = self._error(attempt)
                    index = attempt.index
                    if index not in missing:
                        continue
                    if error is None:
                        missing.discard(index)
                        assert attempt.task is not None
                        results[index] = attempt.task.result
                        self._stop([other for other in running if other.index == index])
                        continue
                    self._world.trace("task %d.%d failed: %r", index, attempt.number, error)
                    if self._retries_stage(stage):
                        # The attempts that still run are not stopped.
                        numbers[:] = [0] * len(tasks)
                        running.extend(
                            self._launch(tasks, task_index, numbers, stage)
                            for task_index in sorted(missing)
                        )
                        continue
                    failures[index] += 1
                    if failures[index] >= _MAX_TASK_FAILURES:
                        msg = f"task {index} failed {failures[index]} times: {error}"
                        raise QueryFailedError(msg) from error
                    running.append(self._launch(tasks, index, numbers, stage))
        finally:
            if not self._world.is_closed:
                self._stop(running)
        return results

    def _retries_stage(self, stage: str) -> bool:
        """
        Decide at random whether a task has failed because a block of a shuffle was lost.

        Then Spark runs the stage again, and numbers the attempts from 0 again (SPARK-24552).
        """
        if not self._has_shuffle or stage != "write":
            return False
        retries = self._world.random.random() < _STAGE_RETRY_CHANCE
        if retries:
            self._world.trace("the stage is tried again")
        return retries

    def _launch(
        self, tasks: Sequence[Callable[[Attempt], Any]], index: int, numbers: list[int], stage: str
    ) -> Attempt:
        process = self._executors.acquire()
        attempt = Attempt(index, numbers[index], process)
        numbers[index] += 1
        context = TaskContext(
            index, attempt.number, self._executors.next_task_attempt(), *self._ids
        )

        def run() -> Any:
            self._connector.set_task_context(context)
            return tasks[index](attempt)

        attempt.task = process.spawn(f"{stage} {self._ids[0]}/{index}.{attempt.number}", run)
        return attempt

    def _speculate(
        self,
        tasks: Sequence[Callable[[Attempt], Any]],
        running: list[Attempt],
        numbers: list[int],
        stage: str,
    ) -> None:
        chance = self._speculation
        for attempt in tuple(running):
            alone = sum(other.index == attempt.index for other in running) == 1
            if alone and chance and self._world.random.random() < chance:
                running.append(self._launch(tasks, attempt.index, numbers, stage))

    def _stop(self, attempts: Sequence[Attempt]) -> None:
        """
        Stop superfluous attempts: they see the end of their input, or are killed.
        """
        for attempt in attempts:
            attempt.is_stopped = True
            if self._world.random.random() < 0.3:
                attempt.process.kill()
            self._watch(attempt)

    def _watch(self, attempt: Attempt) -> None:
        """
        Let the executors take the worker back once its attempt has ended.
        """

        def check() -> None:
            if _is_done(attempt):
                self._executors.release(attempt.process)
            else:
                self._world.call_later(1.0, check)

        check()

    def _error(self, attempt: Attempt) -> BaseException | None:
        assert attempt.task is not None
        if attempt.task.error is not None:
            return attempt.task.error
        if attempt.task.state != "done":
            return ProcessLostError(f"{attempt.process} was lost")
        return None


def _is_done(attempt: Attempt) -> bool:
    return attempt.task is not None and attempt.task.is_done
