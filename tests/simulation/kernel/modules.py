"""
The standard modules that a simulated process sees: clocks, threads, queues, random numbers.

Each has the functions that the connector uses, with CPython's semantics. Any other attribute is an
AttributeError, so that nothing real is used unnoticed.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
import uuid
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.kernel.world import Process, Signal, Task, World

if TYPE_CHECKING:
    from collections.abc import Callable

#: How likely it is that taking a lock lets another thread run first.
_PREEMPTION = 0.05


class Clocks:
    """
    The module ``time``.
    """

    struct_time = time.struct_time
    strftime = staticmethod(time.strftime)
    gmtime = staticmethod(time.gmtime)

    def __init__(self, world: WorldProxy) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.present.monotonic()

    perf_counter = monotonic

    def monotonic_ns(self) -> int:
        return int(self._world.present.monotonic() * 1e9)

    perf_counter_ns = monotonic_ns

    def time(self) -> float:
        world = self._world.present
        world.monotonic()
        return world.now() + world.task.process.clock_offset

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds)


def _process(world: World) -> Process:
    return world.task.process


class Lock:
    """
    A lock; reentrant if ``reentrant``.
    """

    def __init__(self, world: World, *, reentrant: bool = False) -> None:
        self._world = world
        self._freed = Signal(world)
        self._reentrant = reentrant
        self._owner: Task | None = None
        self._depth = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Lock:
        return Lock(self._world, reentrant=self._reentrant)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._world.is_closed or self._world.current is None:
            return True
        task = self._world.task
        if self._reentrant and self._owner is task:
            self._depth += 1
            return True
        self._world.give_way(_PREEMPTION)
        if self._owner is not None:
            seconds = None if blocking and timeout < 0 else max(timeout, 0.0)
            if not self._world.wait(lambda: self._owner is None, seconds, self._freed):
                return False
        self._owner, self._depth = task, 1
        return True

    def release(self) -> None:
        if self._world.is_closed or self._world.current is None:
            return
        if self._owner is None:
            msg = "release unlocked lock"
            raise RuntimeError(msg)
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._freed.notify()

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """
    A condition variable.
    """

    def __init__(self, world: World, lock: Lock | None = None) -> None:
        self._world = world
        self._lock = lock or Lock(world, reentrant=True)
        self._tickets: deque[list[bool]] = deque()
        self._notified = Signal(world)
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        ticket = [False]
        self._tickets.append(ticket)
        self._lock.release()
        try:
            return self._world.wait(lambda: ticket[0], timeout, self._notified)
        finally:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = None if timeout is None else self._world.monotonic() + timeout
        while not (result := predicate()):
            remaining = None if deadline is None else deadline - self._world.monotonic()
            if remaining is not None and remaining <= 0:
                return result
            self.wait(remaining)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._tickets))):
            self._tickets.popleft()[0] = True
        self._notified.notify()

    def notify_all(self) -> None:
        self.notify(len(self._tickets))


class Event:
    """
    A flag that threads wait for.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = Signal(world)
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._changed.notify()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._world.wait(lambda: self._is_set, timeout, self._changed)


class Thread:
    """
    A thread of the current process; an uncaught exception is an error of the history.
    """

    def __init__(
        self,
        world: World,
        group: None = None,  # noqa: ARG002
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._world = world
        self._target = functools.partial(target or (lambda: None), *args, **(kwargs or {}))
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._task: Task | None = None

    def start(self) -> None:
        self._task = _process(self._world).spawn(self.name, self._target)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_done

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        if task is not None:
            self._world.wait(lambda: task.is_done, timeout, self._world.ended)


class Local:
    """
    Thread-local attributes.
    """

    def __init__(self, world: World) -> None:
        object.__setattr__(self, "_world", world)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._world.task.locals.setdefault(id(self), {})[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._world.task.locals.setdefault(id(self), {})[name] = value


class SimpleQueue:
    """
    A queue, unbounded unless ``maxsize`` is positive.
    """

    def __init__(self, world: World, maxsize: int = 0) -> None:
        self._world = world
        self._items: deque[Any] = deque()
        self._changed = Signal(world)
        self._maxsize = maxsize

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        limit = timeout if block else 0.0
        if self._maxsize and not self._world.wait(
            lambda: len(self._items) < self._maxsize, limit, self._changed
        ):
            raise queue.Full
        self._items.append(item)
        self._changed.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._world.wait(lambda: self._items, timeout if block else 0.0, self._changed):
            raise queue.Empty
        item = self._items.popleft()
        self._changed.notify()
        return item

    def put_nowait(self, item: object) -> None:
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Caches:
    """
    ``functools.lru_cache`` with one cache per process.
    """

    def __init__(self, world: Callable[[], World]) -> None:
        self._world = world

    def lru_cache(self, maxsize: Any = 128, typed: bool = False) -> Any:  # noqa: ARG002
        if callable(maxsize):
            return self._cached(maxsize)
        return self._cached

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._cached(function)

    def _cached(self, function: Callable[..., Any]) -> Callable[..., Any]:
        world, key = self._world, object()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            task = world().current
            if task is None:
                return function(*args, **kwargs)
            cached = task.process.caches.setdefault(key, {})
            arguments = (args, tuple(sorted(kwargs.items())))
            if arguments not in cached:
                cached[arguments] = function(*args, **kwargs)
            return cached[arguments]

        call.cache_clear = lambda: None  # type: ignore[attr-defined]
        return call


class WorldProxy:
    """
    Stands for the world of the current history, so that modules are loaded only once.
    """

    #: The world, set for each history.
    present: World

    def __call__(self) -> World:
        return self.present

    @property
    def or_self(self) -> World | WorldProxy:
        """
        The world of the current history, or this object before the first one.
        """
        world: World | WorldProxy = self.__dict__.get("present", self)
        return world

    def __getattr__(self, name: str) -> Any:
        if name == "present":
            msg = "the simulated modules work within a history only"
            raise RuntimeError(msg)
        return getattr(self.present, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> WorldProxy:
        return self


class _Namespace(SimpleNamespace):
    """
    A module with only these attributes.
    """


def _bound(kind: type[Any], world: WorldProxy) -> type[Any]:
    """
    Return a class whose instances belong to the world.
    """

    class Bound(kind):  # type: ignore[misc] # a class that is known at run time only
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(world.or_self, *args, **kwargs)

    return Bound


def _threading(world: Any) -> Any:
    return _Namespace(
        Thread=_bound(Thread, world),
        Lock=_bound(Lock, world),
        RLock=lambda: Lock(world.or_self, reentrant=True),
        Condition=_bound(Condition, world),
        Event=_bound(Event, world),
        local=_bound(Local, world),
        TIMEOUT_MAX=threading.TIMEOUT_MAX,
        get_ident=lambda: id(world.task),
        current_thread=lambda: world.task,
    )


def _queue(world: Any) -> Any:
    kind = _bound(SimpleQueue, world)
    return _Namespace(SimpleQueue=kind, Queue=kind, Empty=queue.Empty, Full=queue.Full)


class _Random:
    """
    The module ``random``, from the seed.
    """

    def __init__(self, world: WorldProxy) -> None:
        self._world = world

    def random(self) -> float:
        return self._world.present.random.random()

    def uniform(self, low: float, high: float) -> float:
        return float(self._world.random.uniform(low, high))

    def choice(self, items: Any) -> Any:
        return self._world.random.choice(items)

    def shuffle(self, items: Any) -> None:
        self._world.random.shuffle(items)

    def sample(self, items: Any, k: int) -> Any:
        return self._world.random.sample(items, k)

    def randrange(self, *limits: int) -> int:
        return int(self._world.random.randrange(*limits))

    def getrandbits(self, k: int) -> int:
        return int(self._world.random.getrandbits(k))

    def randbytes(self, n: int) -> bytes:
        return bytes(self._world.random.randbytes(n))


class _Os:
    """
    The module ``os``: process ids and random bytes are simulated, the rest is real.
    """

    def __init__(self, world: Any) -> None:
        self._world = world

    def getpid(self) -> int:
        return _process(self._world).pid

    def urandom(self, size: int) -> bytes:
        return bytes(self._world.random.randbytes(size))

    def register_at_fork(self, **_: object) -> None:
        """
        Do nothing: simulated processes do not fork.
        """

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def _uuid(world: Any) -> Any:
    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=world.random.getrandbits(128), version=4)

    return _Namespace(uuid4=uuid4, UUID=uuid.UUID)


class _Functools:
    """
    The module ``functools`` with caches per process.
    """

    def __init__(self, world: WorldProxy) -> None:
        caches = Caches(world)
        self.lru_cache, self.cache = caches.lru_cache, caches.cache

    def __getattr__(self, name: str) -> Any:
        return getattr(functools, name)


def standard_modules(world: WorldProxy) -> dict[str, Any]:
    """
    Return the simulated modules by name, except those of the network.
    """
    return {
        "time": Clocks(world),
        "threading": _threading(world),
        "queue": _queue(world),
        "random": _Random(world),
        "os": _Os(world),
        "uuid": _uuid(world),
        "functools": _Functools(world),
        "gc": _Namespace(freeze=lambda: None, collect=lambda: 0),
    }
