"""
Deadlines, backoff and retries: one time budget is passed through all steps of an operation.
"""

from __future__ import annotations

import logging
import math
import random
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

#: Waits of more than this time are logged.
LONG_WAIT_SECONDS = 5.0

# Whether long waits of the current thread are parts of a wait that another thread logs.
_is_part_of_wait: ContextVar[bool] = ContextVar("is_part_of_wait", default=False)

_JITTER = 0.2
# Bounds the exponent: many more steps would overflow a float.
_MAX_STEPS = 60


def log_long_wait(text: str, *arguments: object) -> None:
    """
    Log a wait of more than :data:`LONG_WAIT_SECONDS`, unless it is part of another one.
    """
    if not _is_part_of_wait.get():
        logger.warning(text, *arguments)


@contextmanager
def without_wait_log() -> Iterator[None]:
    """
    Do not log long waits of the block: another thread waits for the block, and logs its own wait.
    """
    token = _is_part_of_wait.set(True)
    try:
        yield
    finally:
        _is_part_of_wait.reset(token)


@dataclass(frozen=True, slots=True)
class Deadline:
    """
    A point in time on the monotonic clock, so that changes of the wall clock do not affect it.
    """

    at: float
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    @classmethod
    def after(
        cls,
        seconds: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Deadline:
        """
        Return the deadline this many seconds from now.
        """
        return cls(now() + seconds, now, sleep)

    def within(self, seconds: float) -> Deadline:
        """
        Return the deadline this many seconds from now, or this one if it is earlier.
        """
        return Deadline(min(self.at, self.now() + seconds), self.now, self.sleep)

    def extended(self, seconds: float) -> Deadline:
        """
        Return the deadline this many seconds after this one.
        """
        return Deadline(self.at + seconds, self.now, self.sleep)

    @property
    def expired(self) -> bool:
        """
        Whether no time is left.
        """
        return self.now() >= self.at

    def remaining(self, max_seconds: float = float("inf")) -> float:
        """
        Return the seconds left, at least 0 and at most ``max_seconds``.
        """
        return min(max(self.at - self.now(), 0.0), max_seconds)

    def pause(self, seconds: float) -> None:
        """
        Sleep for this time, but not beyond the deadline.
        """
        self.sleep(self.remaining(max_seconds=seconds))


#: A deadline that never expires.
NEVER = Deadline(math.inf)


@dataclass(slots=True)
class Backoff:
    """
    Pauses that grow from ``initial`` to ``maximum`` seconds, plus jitter of up to a fifth.

    The jitter keeps tasks that have lost the same broker from reconnecting all at once.
    """

    initial: float
    maximum: float
    multiplier: float = 2.0
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    _failures: int = field(init=False, default=0)

    def next_pause(self) -> float:
        """
        Count one more failure and return how many seconds to wait.
        """
        pause = min(self.initial * self.multiplier**self._failures, self.maximum)
        self._failures = min(self._failures + 1, _MAX_STEPS)
        return pause * (1 + _JITTER * self.jitter())


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """
    How often an operation is attempted, and the pause between attempts in seconds.
    """

    attempts: int
    interval_seconds: float


def retry(
    work: Callable[[], T],
    policy: RetryPolicy,
    sleep: Callable[[float], None] = time.sleep,
    deadline: Deadline = NEVER,
) -> T:
    """
    Return the result of ``work``, retrying it after ``retriable`` errors.

    Raises the last error of ``work``. Nothing is retried after the deadline: each retry could take
    the timeout of ``work`` once more.
    """
    for _ in range(policy.attempts - 1):
        try:
            return work()
        except PykafkaError as error:
            if not error.retriable or deadline.remaining() <= policy.interval_seconds:
                raise
            sleep(policy.interval_seconds)
    return work()


def retry_until(
    work: Callable[[], T],
    deadline: Deadline,
    backoff: Backoff,
) -> T:
    """
    Return the result of ``work``, retrying it after ``retriable`` errors until the deadline.

    Raises the last error of ``work``. If the retries take more than 5 seconds, one of the errors is
    also logged.
    """
    log_at = Deadline(deadline.now() + LONG_WAIT_SECONDS, deadline.now)
    while True:
        try:
            return work()
        except PykafkaError as error:
            if not error.retriable or deadline.expired:
                raise
            pause = deadline.remaining(max_seconds=backoff.next_pause())
            # Before the pause, which may be the last one.
            if log_at.remaining() <= pause:
                log_at, seconds = NEVER, deadline.remaining()
                logger.warning("%s; retrying for %.0f s at most", error, seconds)
            deadline.pause(pause)
