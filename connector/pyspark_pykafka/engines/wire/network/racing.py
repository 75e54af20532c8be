"""
Racing attempts: the next one starts while slow ones are still running (RFC 8305).
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark_pykafka.engines.error_mapping import no_response_error
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, log_long_wait, without_wait_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark_pykafka.retry import Deadline

T = TypeVar("T")

#: Errors of one attempt only; any other error ends the race.
TRANSIENT_ERRORS = (BrokerUnavailableError, TimeoutExceededError)


@dataclass(eq=False, repr=False)
class AttemptResult(Generic[T]):
    """
    The value that an attempt returned, or the error that it raised.
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
        return self.value  # type: ignore[return-value] # set unless there was an error


class ConcurrentAttempts(Generic[T]):
    """
    Runs each attempt in its own thread and collects the results.

    ``on_late_result`` gets the values that :meth:`next` has not returned before :meth:`stop`, often
    in an attempt's thread. ``on_result`` is called for each result that :meth:`next` can return,
    in the attempt's thread and never after :meth:`stop`.
    """

    def __init__(
        self,
        on_late_result: Callable[[T], None],
        on_result: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_late_result = on_late_result
        self._on_result = on_result
        self._results: queue.SimpleQueue[AttemptResult[T]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self.started = 0
        self.running = 0

    def start(self, attempt: Callable[[], T]) -> None:
        """
        Start an attempt; attempts are numbered from 0.
        """
        number = self.started
        threading.Thread(target=self._run, args=(number, attempt), daemon=True).start()
        self.started += 1
        self.running += 1

    def next(self, seconds: float) -> AttemptResult[T] | None:
        """
        Return the next result, or None if no attempt ends within the time.
        """
        try:
            result = self._results.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None
        self.running -= 1
        return result

    def stop(self) -> None:
        """
        End the collection of results: all remaining values go to ``on_late_result``.
        """
        with self._lock:
            self._stopped = True
        while (result := self.next(0)) is not None:
            self._hand_over(result)

    def _run(self, number: int, attempt: Callable[[], T]) -> None:
        try:
            result: AttemptResult[T] = AttemptResult(number, attempt(), None)
        except BaseException as error:  # noqa: BLE001 # raised in the thread that unwraps it
            result = AttemptResult(number, None, error)
        with self._lock:
            if not self._stopped:
                self._results.put(result)
                self._on_result()
                return
        self._hand_over(result)

    def _hand_over(self, result: AttemptResult[T]) -> None:
        if result.error is None:
            self._on_late_result(result.unwrap())


def race(
    attempts: Sequence[Callable[[], T]],
    delay_seconds: float,
    deadline: Deadline,
    *,
    on_late_result: Callable[[T], None],
    on_slow_attempt: Callable[[int], None],
    names: Sequence[str],
    goal: str,
) -> T:
    """
    Return the result of the first attempt that succeeds.

    The next attempt starts after ``delay_seconds``, or at once if all earlier ones have failed.
    ``on_late_result`` gets the results of attempts that succeed after the winner.
    ``on_slow_attempt`` gets the number of each unfinished attempt that started before the winner.
    ``names`` are the brokers of the attempts. Raises :class:`BrokerUnavailableError` with all
    reasons if every attempt failed or the deadline has passed, and at once any error that is not in
    :data:`TRANSIENT_ERRORS`.
    """
    # The race itself logs a long wait.
    attempts = [partial(_run_as_part, attempt) for attempt in attempts]
    running: ConcurrentAttempts[T] = ConcurrentAttempts(on_late_result)
    failures: dict[int, PykafkaError] = {}
    try:
        for result in _results(running, attempts, delay_seconds, deadline, goal):
            if result.error is None:
                for number in range(result.attempt):
                    if number not in failures:
                        on_slow_attempt(number)
                return result.unwrap()
            if not isinstance(result.error, TRANSIENT_ERRORS):
                raise result.error
            failures[result.attempt] = result.error
    finally:
        running.stop()
    raise _no_answer_error(failures, names)


def _run_as_part(attempt: Callable[[], T]) -> T:
    with without_wait_log():
        return attempt()


def _no_answer_error(
    failures: Mapping[int, PykafkaError], names: Sequence[str]
) -> BrokerUnavailableError:
    """
    Return the error of a race that no attempt has won; its cause is the last failure.
    """
    reasons = (
        failures[number].without_advice() if number in failures else f"{name}: no response in time"
        for number, name in enumerate(names)
    )
    # Each reason once: a slow broker may have got a second attempt.
    error = no_response_error(list(dict.fromkeys(reasons)))
    error.__cause__ = next(reversed(list(failures.values())), None)
    return error


def _results(
    running: ConcurrentAttempts[T],
    attempts: Sequence[Callable[[], T]],
    delay_seconds: float,
    deadline: Deadline,
    goal: str,
) -> Iterator[AttemptResult[T]]:
    """
    Yield the results of attempts, until none is left or the deadline has passed.
    """
    now, start_at = deadline.now, deadline.now()
    log_at = start_at + LONG_WAIT_SECONDS
    while not deadline.expired:
        has_more = running.started < len(attempts)
        if has_more and (not running.running or now() >= start_at):
            running.start(attempts[running.started])
            start_at = now() + delay_seconds
            continue
        if not running.running:
            return
        wake_at = min(log_at, start_at) if has_more else log_at
        result = running.next(deadline.remaining(max_seconds=max(wake_at - now(), 0.0)))
        if result is not None:
            yield result
        elif now() >= log_at:
            seconds = deadline.remaining()
            log_long_wait("still waiting for %s, for %.0f s at most", goal, seconds)
            log_at = float("inf")
