"""
Retries within kafka.max.block.ms, the time for which a writer may block.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.settings.wire_config import ProducerConfig

T = TypeVar("T")

# The minimum timeout of an attempt, even shortly before the deadline; less could never succeed.
_MIN_ATTEMPT_SECONDS = 1.0


def retry_within_max_block(
    attempt: Callable[[Deadline], T],
    config: ProducerConfig,
    min_pause_seconds: float,
    unmet: str,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """
    Return the attempt's result, retrying after retriable errors for ``config.block_seconds``.

    Raises :class:`TimeoutExceededError` when that time is over; its message begins with ``unmet``,
    such as "committing: not done".
    """
    deadline = Deadline.after(config.block_seconds, now, sleep)
    backoff = Backoff(min_pause_seconds, config.wire.retry_backoff_max_seconds)

    def try_once() -> T:
        seconds = deadline.remaining(config.request_seconds)
        return attempt(Deadline.after(max(seconds, _MIN_ATTEMPT_SECONDS), now, sleep))

    try:
        return retry_until(try_once, deadline, backoff)
    except PykafkaError as error:
        if not error.retriable:
            raise
        msg = f"{unmet} within {config.block_seconds * 1000:.0f} ms (kafka.max.block.ms): {error}"
        raise TimeoutExceededError(msg) from error
