"""
How long the driver waits for brokers: less until one of them has answered in this process.

Brokers that never answered are probably at another address; those that have answered will come
back.

A plan consists of many steps, each with its own requests. :func:`shared_api_timeout` limits all of
these requests together.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.librdkafka_config import api_timeout_ms, max_block_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.settings import KafkaSettings

#: The wait for a first response, unless the user sets a timeout.
FIRST_CONTACT_MS = 10_000

_SERVERS = "bootstrap.servers"
_reached: set[str] = set()

# Each thread has its own deadline: requests in the background, such as those that record progress,
# are not part of the plan. As an argument, the deadline would pass through every function that
# resolves a position.
_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def record_contact(kafka: KafkaSettings) -> None:
    """
    Record that a broker of the cluster in these settings has responded.
    """
    _reached.add(kafka.get(_SERVERS, ""))


def has_contact(kafka: KafkaSettings) -> bool:
    """
    Return whether a broker of the cluster in these settings has responded.
    """
    return kafka.get(_SERVERS, "") in _reached


@contextmanager
def shared_api_timeout(
    kafka: KafkaSettings, now: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """
    Let all requests of the block together wait for at most ``kafka.default.api.timeout.ms``.

    Inside another such block, only the outer block's limit applies.
    """
    deadline = _deadline.get() or Deadline.after(api_timeout_ms(kafka) / 1000, now)
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def request_seconds(kafka: KafkaSettings) -> float:
    """
    Return the time limit of the driver's next metadata request, retries included.
    """
    limit_ms = _limit_ms(kafka, "default.api.timeout.ms", api_timeout_ms(kafka))
    return _left_of_call(limit_ms / 1000)


def block_seconds(kafka: KafkaSettings) -> float:
    """
    Return how long the driver of a write waits for brokers.
    """
    return _limit_ms(kafka, "max.block.ms", max_block_ms(kafka)) / 1000


def _limit_ms(kafka: KafkaSettings, name: str, limit_ms: int) -> int:
    if has_contact(kafka) or kafka.get(name) is not None:
        return limit_ms
    return min(limit_ms, FIRST_CONTACT_MS)


def _left_of_call(seconds: float) -> float:
    """
    Return this time, or the rest of the timeout of :func:`shared_api_timeout` if that is shorter.
    """
    deadline = _deadline.get()
    return seconds if deadline is None else deadline.remaining(max_seconds=seconds)
