"""
Asking again for as long as a writer may be blocked.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.wire.network.racing import LONG_WAIT_SECONDS
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import NEVER, Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.settings.wire_config import ProducerConfig

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

# What the last question before a deadline may take all the same, or it could never be answered.
_LEAST_SECONDS = 1.0


def retry_within_max_block(
    ask: Callable[[Deadline], T], config: ProducerConfig, least_pause: float, lacking: str
) -> T:
    """
    Ask again after errors that pass, for ``config.block_seconds``; ``least_pause`` is in seconds.

    Raises :class:`TimeoutExceededError` when time is over; ``lacking`` says what was not reached.
    """
    deadline = Deadline.after(config.block_seconds)
    tell_at = Deadline.after(LONG_WAIT_SECONDS)
    backoff = Backoff(least_pause, config.direct.retry_backoff_max_seconds)

    def once() -> T:
        nonlocal tell_at
        if tell_at.expired:
            tell_at = NEVER
            logger.warning("%s yet; waiting for %.0f s at most", lacking, deadline.remaining())
        seconds = deadline.remaining(config.request_seconds)
        return ask(Deadline.after(max(seconds, _LEAST_SECONDS)))

    try:
        return retry_until(once, deadline, backoff)
    except PykafkaError as error:
        if not error.retriable:
            raise
        msg = f"{lacking} within {config.block_seconds * 1000:.0f} ms (kafka.max.block.ms): {error}"
        raise TimeoutExceededError(msg) from error
