"""
A librdkafka consumer with its errors, and the request for a log's watermarks.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from pyspark_pykafka.engines.contract import FetchSettings, Watermarks
from pyspark_pykafka.engines.error_mapping import (
    FatalErrors,
    map_read_error,
    translating_errors,
)
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark_pykafka.offsets import OffsetRange

logger = logging.getLogger("pyspark_pykafka")

_MIN_PAUSE, _MAX_PAUSE = 0.1, 1.0


class Client:
    """
    A consumer and the errors that its background threads reported.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.fatal = FatalErrors()
        #: Whether the metadata came from a stale broker, so that no other task may use the client.
        self.is_stale = False
        with translating_errors("connecting"):
            self.consumer = Consumer({**config, "error_cb": self.fatal.record})

    def close(self) -> None:
        """
        Close the consumer.
        """
        self.consumer.close()


def request_watermarks(
    client: Client, requested: OffsetRange, settings: FetchSettings
) -> Watermarks:
    """
    Return the log start offset, and the end offset that the isolation level makes visible.

    Retries for ``settings.poll_timeout_ms``: librdkafka itself does not retry every error.
    """
    tp = requested.tp
    position, action = Position(tp.topic, tp.partition), f"reading the offsets of {tp}"
    deadline = Deadline.after(settings.poll_timeout_ms / 1000)

    def request() -> Watermarks:
        client.fatal.raise_pending(action)
        seconds = max(deadline.remaining(), _MIN_PAUSE)
        with translating_errors(action, map_read_error), _long_wait_logged(action, seconds):
            return Watermarks(*client.consumer.get_watermark_offsets(position, timeout=seconds))

    return retry_until(request, deadline, Backoff(_MIN_PAUSE, _MAX_PAUSE))


@contextmanager
def _long_wait_logged(action: str, seconds: float) -> Iterator[None]:
    """
    Log a call of librdkafka that takes more than five seconds. The call is not divided into shorter
    ones, since each of them would send the request again.
    """
    text = "%s: still waiting for the response, for %.0f s at most"
    rest = seconds - LONG_WAIT_SECONDS
    timer = Timer(LONG_WAIT_SECONDS, logger.warning, (text, action, rest))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
