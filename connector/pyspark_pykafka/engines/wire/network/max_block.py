"""
Retries within kafka.max.block.ms, the time for which a writer may block.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, NEVER, Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.settings.wire_config import ProducerConfig

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

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
    log_at = Deadline.after(LONG_WAIT_SECONDS, now)
    backoff = Backoff(min_pause_seconds, config.wire.retry_backoff_max_seconds)

    last_error: PykafkaError | None = None

    def try_once() -> T:
        nonlocal log_at, last_error
        if log_at.expired:
            log_at, reason = NEVER, last_error or unmet
            logger.warning("%s; waiting for %.0f s at most", reason, deadline.remaining())
        seconds = deadline.remaining(config.request_seconds)
        try:
            return attempt(Deadline.after(max(seconds, _MIN_ATTEMPT_SECONDS), now, sleep))
        except PykafkaError as error:
            last_error = error
            raise

    try:
        return retry_until(try_once, deadline, backoff)
    except PykafkaError as error:
        if not error.retriable:
            raise
        msg = f"{unmet} within {config.block_seconds * 1000:.0f} ms (kafka.max.block.ms): {error}"
        raise TimeoutExceededError(msg) from error
