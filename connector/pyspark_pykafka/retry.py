"""
Waiting with a limit: one time budget passed down through the steps of a piece of work.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.errors import PykafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_JITTER = 0.2
# Many more would overflow a float, long after any pause needs them.
_MOST_STEPS = 60


@dataclass(frozen=True, slots=True)
class Deadline:
    """
    A point on the monotonic clock, so that a changed wall clock neither shortens nor stretches it.
    """

    at: float
    now: Callable[[], float] = field(default=time.monotonic, repr=False)

    @classmethod
    def after(cls, seconds: float, now: Callable[[], float] = time.monotonic) -> Deadline:
        """
        Return the deadline that lies this many seconds ahead.
        """
        return cls(now() + seconds, now)

    @property
    def expired(self) -> bool:
        """
        Whether no time is left.
        """
        return self.now() >= self.at

    def remaining(self, max_seconds: float = float("inf")) -> float:
        """
        Return the seconds that are left, never below zero and never above ``max_seconds``.
        """
        return min(max(self.at - self.now(), 0.0), max_seconds)


#: A deadline that does not come.
NEVER = Deadline(math.inf)


@dataclass(slots=True)
class Backoff:
    """
    Pauses that grow from ``initial`` to ``maximum`` seconds, each up to a fifth longer by jitter.

    Chance keeps the tasks of a failed broker from coming back all at once.
    """

    initial: float
    maximum: float
    multiplier: float = 2.0
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    _failures: int = field(init=False, default=0)

    def next_pause(self) -> float:
        """
        Return how many seconds to wait after one more failure.
        """
        pause = min(self.initial * self.multiplier**self._failures, self.maximum)
        self._failures = min(self._failures + 1, _MOST_STEPS)
        return pause * (1 + _JITTER * self.jitter())


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """
    How often work is tried again, and how long to wait in between.
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
    Return what ``work`` returns, trying it again after errors that are ``retriable``.

    Not after the deadline: work that has a time of its own, and used it up, would get it again.
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
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """
    Return what ``work`` returns, trying it again after errors that are ``retriable``, for a time.
    """
    while True:
        try:
            return work()
        except PykafkaError as error:
            if not error.retriable or deadline.expired:
                raise
            sleep(deadline.remaining(max_seconds=backoff.next_pause()))
