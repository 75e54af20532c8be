"""
Attempts that overtake each other: the next one starts when those before it take long (RFC 8305).
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pyspark_pykafka.errors import BrokerUnavailableError, TimeoutExceededError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_pykafka.retry import Deadline

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

#: A wait that is longer than this is told of in the log.
LONG_WAIT_SECONDS = 5.0

_SHOWN = 5

#: Of these each attempt fails for itself; any other error ends the race.
PASSING = (BrokerUnavailableError, TimeoutExceededError)


class Outcome(NamedTuple, Generic[T]):
    """
    What an attempt returned, or the error that it raised.
    """

    attempt: int
    value: T | None
    error: BaseException | None

    def unwrap(self) -> T:
        """
        Return the value, or raise the error.
        """
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value] # without an error it is there


class Attempts(Generic[T]):
    """
    Runs each attempt in a thread of its own, and collects what comes of them.

    ``late`` gets what is returned after :meth:`end`, in the attempt's thread.
    """

    def __init__(self, late: Callable[[T], None]) -> None:
        self._late = late
        self._outcomes: queue.SimpleQueue[Outcome[T]] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._ended = False
        self.started = 0
        self.running = 0

    def start(self, attempt: Callable[[], T]) -> None:
        """
        Start an attempt; they are numbered from 0 on.
        """
        number = self.started
        threading.Thread(target=self._run, args=(number, attempt), daemon=True).start()
        self.started += 1
        self.running += 1

    def next(self, seconds: float) -> Outcome[T] | None:
        """
        Return what an attempt came to, or None if none ends within the time.
        """
        try:
            found = self._outcomes.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None
        self.running -= 1
        return found

    def end(self) -> None:
        """
        Want no more; what has not been taken is late.
        """
        with self._turn:
            self._ended = True
        while (left := self.next(0)) is not None:
            self._give_up(left)

    def _run(self, number: int, attempt: Callable[[], T]) -> None:
        try:
            found: Outcome[T] = Outcome(number, attempt(), None)
        except BaseException as error:  # noqa: BLE001 # it is raised where it is awaited
            found = Outcome(number, None, error)
        with self._turn:
            if not self._ended:
                self._outcomes.put(found)
                return
        self._give_up(found)

    def _give_up(self, outcome: Outcome[T]) -> None:
        if outcome.error is None:
            self._late(outcome.unwrap())


def race(
    attempts: Sequence[Callable[[], T]],
    pause: float,
    deadline: Deadline,
    *,
    late: Callable[[T], None],
    overtaken: Callable[[int], None],
    awaited: str,
) -> T:
    """
    Return what the first attempt returns that comes to an end without an error.

    The next one starts after ``pause`` seconds, or at once when all before it have failed.
    ``late`` gets what others return later, ``overtaken`` the numbers of those that began before the
    one that won, and have not ended. Raises :class:`BrokerUnavailableError` with all
    reasons if none is left, or the time is over, and any other error of an attempt at once.
    """
    running: Attempts[T] = Attempts(late)
    failures: list[BaseException] = []
    ended: set[int] = set()
    try:
        for outcome in _outcomes(running, attempts, pause, deadline, awaited):
            ended.add(outcome.attempt)
            if outcome.error is None:
                for number in range(outcome.attempt):
                    if number not in ended:
                        overtaken(number)
                return outcome.unwrap()
            if not isinstance(outcome.error, PASSING):
                raise outcome.error
            failures.append(outcome.error)
    finally:
        unanswered = running.running
        running.end()
    reasons = list(map(str, failures[:_SHOWN]))
    if len(failures) > _SHOWN:
        reasons.append(f"and {len(failures) - _SHOWN} more")
    if unanswered or not reasons:
        reasons.append(f"no answer in time from {max(unanswered, 1)} of {len(attempts)}")
    msg = f"no broker answers: {'; '.join(reasons)}"
    raise BrokerUnavailableError(msg) from (failures[-1] if failures else None)


def _outcomes(
    running: Attempts[T],
    attempts: Sequence[Callable[[], T]],
    pause: float,
    deadline: Deadline,
    awaited: str,
) -> Iterator[Outcome[T]]:
    """
    Yield what attempts come to, until none is left or the time is over.
    """
    now, start_at = deadline.now, deadline.now()
    tell_at = start_at + LONG_WAIT_SECONDS
    while not deadline.expired:
        is_left = running.started < len(attempts)
        if is_left and (not running.running or now() >= start_at):
            running.start(attempts[running.started])
            start_at = now() + pause
            continue
        if not running.running:
            return
        until = min(tell_at, start_at) if is_left else tell_at
        outcome = running.next(deadline.remaining(max_seconds=max(until - now(), 0.0)))
        if outcome is not None:
            yield outcome
        elif now() >= tell_at:
            seconds = deadline.remaining()
            logger.warning("still waiting for %s, for %.0f s at most", awaited, seconds)
            tell_at = float("inf")
