"""
Deadlines and retries, on a clock that only moves when a test moves it.
"""

from __future__ import annotations

import pytest
from tests.support.clock import Clock

from pyspark_pykafka.errors import AuthenticationError, BrokerUnavailableError
from pyspark_pykafka.retry import Backoff, Deadline, RetryPolicy, retry


def test_deadline_counts_down_to_zero() -> None:
    """
    The remaining time shrinks with the clock and is never negative.
    """
    clock = Clock()
    deadline = Deadline.after(2.0, clock.now)

    assert deadline.remaining() == 2.0
    assert deadline.remaining(max_seconds=0.5) == 0.5
    clock.sleep(3.0)
    assert deadline.expired
    assert deadline.remaining() == 0.0


def test_a_pause_ends_at_the_deadline() -> None:
    """
    A pause takes the given time, but not longer than the deadline; then no time is left to sleep.
    """
    clock = Clock()
    deadline = Deadline.after(2.0, clock.now, clock.sleep)

    deadline.pause(1.5)
    assert clock.slept == [1.5]
    deadline.pause(1.5)
    assert clock.slept == [1.5, 0.5]
    assert deadline.expired


def test_a_shorter_deadline_never_ends_later() -> None:
    """
    ``within`` limits a deadline, and ``extended`` moves it; both keep its clock.
    """
    clock = Clock()
    deadline = Deadline.after(2.0, clock.now, clock.sleep)

    assert deadline.within(0.5).remaining() == 0.5
    assert deadline.within(5.0).remaining() == 2.0
    assert deadline.extended(3.0).remaining() == 5.0
    deadline.within(5.0).pause(9.0)
    assert clock.slept == [2.0]


def test_retriable_errors_are_retried() -> None:
    """
    Work that fails twice and then succeeds is retried after two pauses.
    """
    clock, remaining_errors = Clock(), [BrokerUnavailableError("a"), BrokerUnavailableError("b")]

    def work() -> str:
        if remaining_errors:
            raise remaining_errors.pop()
        return "done"

    assert retry(work, RetryPolicy(3, 1.5), clock.sleep) == "done"
    assert clock.time == 103.0


def test_last_attempt_raises() -> None:
    """
    After the last attempt its own error is raised.
    """
    clock = Clock()

    def work() -> str:
        msg = "down"
        raise BrokerUnavailableError(msg)

    with pytest.raises(BrokerUnavailableError, match="down"):
        retry(work, RetryPolicy(3, 1.0), clock.sleep)
    assert clock.time == 102.0


def test_fatal_errors_are_not_retried() -> None:
    """
    An error that is not retriable, such as a rejected login, is raised at once.
    """
    clock = Clock()

    def work() -> str:
        msg = "who?"
        raise AuthenticationError(msg)

    with pytest.raises(AuthenticationError, match=r"who\?"):
        retry(work, RetryPolicy(3, 1.0), clock.sleep)
    assert clock.time == 100.0


def test_pauses_double_up_to_the_maximum() -> None:
    """
    Each consecutive failure doubles the pause, up to the maximum.
    """
    backoff = Backoff(0.1, 1.0, jitter=lambda: 0.0)

    assert [backoff.next_pause() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_adds_at_most_a_fifth() -> None:
    """
    Jitter makes a pause at most a fifth longer.
    """
    assert Backoff(1.0, 1.0, jitter=lambda: 1.0).next_pause() == pytest.approx(1.2)
