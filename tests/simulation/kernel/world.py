"""
The discrete-event loop: virtual time, processes, and their threads as greenlets.

One thread runs at a time, and gives way only where it waits. The order of simultaneous events is
drawn from the seed, so that each seed gives one history.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

#: The wall clock at the start of each history.
EPOCH = 1_700_000_000.0

#: Reading a clock takes this long, so that a loop that only reads it reaches its deadline.
_CLOCK_READ_SECONDS = 1e-6

#: The maximum number of events within a millisecond: more mean that two threads wake each other
#: endlessly.
_MAX_EVENTS_AT_ONCE = 200_000


class SpinError(AssertionError):
    """
    Threads that run without end and never wait.
    """


class Signal:
    """
    Something that threads wait for; each notification wakes all of them.
    """

    __slots__ = ("_waiting", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: dict[Task, None] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Signal:
        return Signal(self._world)

    def add(self, task: Task) -> None:
        """
        Add a thread that waits.
        """
        self._waiting[task] = None

    def discard(self, task: Task) -> None:
        """
        Forget a thread that stopped waiting.
        """
        self._waiting.pop(task, None)

    def notify(self) -> None:
        """
        Wake all threads that wait.
        """
        waiting, self._waiting = self._waiting, {}
        for task in waiting:
            self._world.wake(task)


class Process:
    """
    An operating-system process: threads, a clock of its own, and the modules' state.
    """

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.world = world
        self.name = name
        self.pid = pid
        self.is_alive = True
        #: How far the wall clock is ahead of the cluster's, in seconds.
        self.clock_offset = 0.0
        self.tasks: list[Task] = []
        #: Values that the simulated modules keep per process, such as caches.
        self.caches: dict[object, Any] = {}
        #: Saves and restores the state of the connector's modules (see ``loading``).
        self.state: Any = None
        self._is_paused = False
        self._suspended: deque[Task] = deque()

    def __repr__(self) -> str:
        return f"<Process {self.pid} {self.name}>"

    def spawn(self, name: str, action: Callable[[], object]) -> Task:
        """
        Start a thread.
        """
        task = Task(self, name, action)
        self.tasks.append(task)
        self.world.wake(task)
        return task

    def kill(self) -> None:
        """
        End the process as ``kill -9`` does: no thread runs again, not even to clean up.
        """
        if self.is_alive:
            self.is_alive = False
            self.world.trace("killed %s", self.name)
            self.world.ended.notify()
            for listener in tuple(self.world.on_kill):
                listener(self)

    def pause(self, seconds: float) -> None:
        """
        Stop all threads for a time, as SIGSTOP or a long garbage collection does.
        """
        if not self._is_paused and self.is_alive:
            self._is_paused = True
            self.world.trace("paused %s for %.1f s", self.name, seconds)
            self.world.call_later(seconds, self.resume)

    @property
    def is_paused(self) -> bool:
        """
        Whether the process will run again later.
        """
        return self._is_paused and self.is_alive

    def holds(self, task: Task) -> bool:
        """
        Return whether the process is paused; if so, suspend the thread until it is resumed.
        """
        if self._is_paused:
            self._suspended.append(task)
        return self._is_paused

    def resume(self) -> None:
        """
        Let all threads run again.
        """
        if not self._is_paused:
            return
        self._is_paused = False
        self.world.trace("resumed %s", self.name)
        suspended, self._suspended = self._suspended, deque()
        for task in suspended:
            self.world.wake(task, even_if_scheduled=True)


class Task:
    """
    A thread of a process.
    """

    __slots__ = (
        "__weakref__",
        "_greenlet",
        "error",
        "is_scheduled",
        "locals",
        "name",
        "process",
        "result",
        "started",
        "state",
        "ticket",
    )

    def __init__(self, process: Process, name: str, action: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.state = "ready"
        #: Counts the waits, so that the end of an earlier wait does not end a later one.
        self.ticket = 0
        self.started = False
        self.is_scheduled = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.locals: dict[int, dict[str, Any]] = {}
        self._greenlet = greenlet(lambda: self._run(action), process.world.hub)

    def __repr__(self) -> str:
        return f"<Task {self.process.name}/{self.name} {self.state}>"

    @property
    def is_done(self) -> bool:
        """
        Whether the thread has ended, or its process has.
        """
        return self.state == "done" or not self.process.is_alive

    def switch(self) -> None:
        """
        Run the thread until it waits or ends.
        """
        self.started = True
        self._greenlet.switch()

    def close(self) -> None:
        """
        Unwind the thread's stack, after the history.
        """
        if self.started and not self._greenlet.dead:
            self._greenlet.throw(GreenletExit)

    def _run(self, action: Callable[[], object]) -> None:
        try:
            self.result = action()
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 (kept for the history's end)
            self.error = error
        self.state = "done"
        self.process.world.ended.notify()


class World:
    """
    All processes and all scheduled events, in the order of virtual time.
    """

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.hub = getcurrent()
        self.current: Task | None = None
        self.processes: list[Process] = []
        self.on_kill: list[Callable[[Process], None]] = []
        self.ended = Signal(self)
        self.is_closed = False
        self.lines: list[str] = []
        self._is_traced = is_traced
        self._now = 0.0
        self._events: list[tuple[float, float, int, Callable[[], None]]] = []
        self._number = 0
        self._draw = self.random.random
        self._pids = count(1000)
        self._active: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- Time -----------------------------------------------------------------------------------

    def now(self) -> float:
        """
        Return the wall clock of the cluster: seconds since 1970.
        """
        return EPOCH + self._now

    @property
    def elapsed(self) -> float:
        """
        Return the seconds since the start of the history.
        """
        return self._now

    def monotonic(self) -> float:
        """
        Return the monotonic clock of a process, which this call advances by a microsecond.
        """
        self._now += _CLOCK_READ_SECONDS
        return self._now

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """
        Run an action in ``seconds``.
        """
        time = self._now + seconds if seconds > 0.0 else self._now
        self._number = number = self._number + 1
        heapq.heappush(self._events, (time, self._draw(), number, action))

    # --- Processes and threads ------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """
        Return a new process.
        """
        process = Process(self, name, next(self._pids))
        self.processes.append(process)
        return process

    def wake(self, task: Task, *, even_if_scheduled: bool = False) -> None:
        """
        Let a thread run soon.
        """
        if even_if_scheduled or not task.is_scheduled:
            task.is_scheduled = True
            self.call_later(0.0, partial(self._resume, task))

    def park(self, seconds: float | None, signals: Iterable[Signal]) -> None:
        """
        Let other threads run until a signal or the timeout wakes this one; it may wake early.
        """
        task = self.task
        if self.is_closed:
            raise GreenletExit
        task.state = "waiting"
        task.ticket = ticket = task.ticket + 1
        for signal in signals:
            signal.add(task)
        if seconds is not None:
            self.call_later(seconds, partial(self._time_out, task, ticket))
        self.hub.switch()
        for signal in signals:
            signal.discard(task)
        if self.is_closed:
            raise GreenletExit

    def wait(self, is_met: Callable[[], object], seconds: float | None, *signals: Signal) -> bool:
        """
        Wait until a condition is met, checked whenever a signal arrives; return whether it is met.
        """
        deadline = None if seconds is None else self._now + seconds
        while not is_met():
            remaining = None if deadline is None else deadline - self._now
            if remaining is not None and remaining <= 0:
                return False
            self.park(remaining, signals)
        return True

    def sleep(self, seconds: float) -> None:
        """
        Let the current thread wait.
        """
        self.wait(lambda: False, max(seconds, 0.0))

    def give_way(self, probability: float) -> None:
        """
        Let another thread run now and then, as the interpreter's lock does.
        """
        if self.current is not None and self._draw() < probability:
            self.sleep(self._draw() * 1e-4)

    @property
    def task(self) -> Task:
        """
        The running thread.
        """
        if self.current is None:
            msg = "only a simulated thread can wait"
            raise RuntimeError(msg)
        return self.current

    def run(self, is_done: Callable[[], object], seconds: float, every: float = 0.0) -> bool:
        """
        Process events until a condition is met; return whether it is met within ``seconds``.

        The condition is checked after events that are ``every`` seconds or more apart. Raises
        :class:`SpinError` if threads run without end and never wait.
        """
        deadline, queue, check_at = self._now + seconds, self._events, self._now
        events, started = 0, self._now
        while True:
            if self._now >= check_at:
                if is_done():
                    return True
                check_at = self._now + every
            if not queue or queue[0][0] > deadline:
                self._now = deadline
                return bool(is_done())
            moment, _, _, action = heapq.heappop(queue)
            self._now = max(self._now, moment)
            if self._now > started + 1e-3:
                events, started = 0, self._now
            else:
                events += 1
                if events > _MAX_EVENTS_AT_ONCE:
                    msg = f"{_MAX_EVENTS_AT_ONCE} events within a millisecond; {self.current}"
                    raise SpinError(msg)
            action()

    def blocked(self) -> list[Task]:
        """
        Return the threads of living processes that have not ended.
        """
        return [
            task
            for process in self.processes
            if process.is_alive
            for task in process.tasks
            if not task.is_done
        ]

    def close(self) -> None:
        """
        Unwind all threads.
        """
        self.is_closed = True
        for process in self.processes:
            for task in process.tasks:
                self._activate(process)
                self.current = task
                task.close()
        self.current = None
        self._activate(None)

    def trace(self, text: str, *arguments: object) -> None:
        """
        Record a line of the history.
        """
        if self._is_traced:
            self.lines.append(f"{self._now:10.4f} {text % arguments if arguments else text}")

    def _time_out(self, task: Task, ticket: int) -> None:
        if task.ticket == ticket and task.state == "waiting":
            self.wake(task)

    def _resume(self, task: Task) -> None:
        process = task.process
        if task.is_done:
            return
        if process.holds(task):
            return
        task.is_scheduled = False
        task.state = "running"
        self.current = task
        self._activate(process)
        task.switch()
        self.current = None

    def _activate(self, process: Process | None) -> None:
        state = None if process is None else process.state
        if state is not self._active:
            if self._active is not None:
                self._active.leave()
            self._active = state
            if state is not None:
                state.enter()
