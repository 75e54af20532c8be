"""
Attempts that overtake each other: the next one starts when those before it take long (RFC 8305).
"""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

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
TRANSIENT_ERRORS = (BrokerUnavailableError, TimeoutExceededError)


@dataclass(frozen=True, slots=True)
class AttemptResult(Generic[T]):
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


class ConcurrentAttempts(Generic[T]):
    """
    Runs each attempt in a thread of its own, and collects what comes of them.

    ``on_late_result`` gets what is returned after :meth:`stop`, in the attempt's thread.
    """

    def __init__(self, on_late_result: Callable[[T], None]) -> None:
        self._on_late_result = on_late_result
        self._results: queue.SimpleQueue[AttemptResult[T]] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._stopped = False
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

    def next(self, seconds: float) -> AttemptResult[T] | None:
        """
        Return what an attempt came to, or None if none ends within the time.
        """
        try:
            found = self._results.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None
        self.running -= 1
        return found

    def stop(self) -> None:
        """
        Want no more; what has not been taken is late.
        """
        with self._turn:
            self._stopped = True
        while (left := self.next(0)) is not None:
            self._give_up(left)

    def _run(self, number: int, attempt: Callable[[], T]) -> None:
        try:
            found: AttemptResult[T] = AttemptResult(number, attempt(), None)
        except BaseException as error:  # noqa: BLE001 # it is raised where it is awaited
            found = AttemptResult(number, None, error)
        with self._turn:
            if not self._stopped:
                self._results.put(found)
                return
        self._give_up(found)

    def _give_up(self, outcome: AttemptResult[T]) -> None:
        if outcome.error is None:
            self._on_late_result(outcome.unwrap())


def race(
    attempts: Sequence[Callable[[], T]],
    delay_seconds: float,
    deadline: Deadline,
    *,
    on_late_result: Callable[[T], None],
    on_overtaken: Callable[[int], None],
    goal: str,
) -> T:
    """
    Return the result of the first attempt that succeeds.

    The next attempt starts after ``delay_seconds``, or at once if all earlier ones have failed.
    ``on_late_result`` gets the results of attempts that succeed after the winner, ``on_overtaken``
    the number of each unfinished attempt that started before the winner. Raises
    :class:`BrokerUnavailableError` with all reasons if every attempt failed or the deadline has
    passed, and at once any error that is not in :data:`TRANSIENT_ERRORS`.
    """
    running: ConcurrentAttempts[T] = ConcurrentAttempts(on_late_result)
    failures: list[BaseException] = []
    ended: set[int] = set()
    try:
        for outcome in _results(running, attempts, delay_seconds, deadline, goal):
            ended.add(outcome.attempt)
            if outcome.error is None:
                for number in range(outcome.attempt):
                    if number not in ended:
                        on_overtaken(number)
                return outcome.unwrap()
            if not isinstance(outcome.error, TRANSIENT_ERRORS):
                raise outcome.error
            failures.append(outcome.error)
    finally:
        unanswered = running.running
        running.stop()
    reasons = list(map(str, failures[:_SHOWN]))
    if len(failures) > _SHOWN:
        reasons.append(f"and {len(failures) - _SHOWN} more")
    if unanswered or not reasons:
        reasons.append(f"no answer in time from {max(unanswered, 1)} of {len(attempts)}")
    msg = f"no broker answers: {'; '.join(reasons)}"
    raise BrokerUnavailableError(msg) from (failures[-1] if failures else None)


def _results(
    running: ConcurrentAttempts[T],
    attempts: Sequence[Callable[[], T]],
    delay_seconds: float,
    deadline: Deadline,
    goal: str,
) -> Iterator[AttemptResult[T]]:
    """
    Yield what attempts come to, until none is left or the time is over.
    """
    now, start_at = deadline.now, deadline.now()
    tell_at = start_at + LONG_WAIT_SECONDS
    while not deadline.expired:
        is_left = running.started < len(attempts)
        if is_left and (not running.running or now() >= start_at):
            running.start(attempts[running.started])
            start_at = now() + delay_seconds
            continue
        if not running.running:
            return
        until = min(tell_at, start_at) if is_left else tell_at
        outcome = running.next(deadline.remaining(max_seconds=max(until - now(), 0.0)))
        if outcome is not None:
            yield outcome
        elif now() >= tell_at:
            seconds = deadline.remaining()
            logger.warning("still waiting for %s, for %.0f s at most", goal, seconds)
            tell_at = float("inf")
