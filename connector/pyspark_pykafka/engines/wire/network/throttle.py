"""
Client-side throttling: wait before the next request when a broker's quota is exceeded (KIP-219).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import TimeoutExceededError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.protocol.frames import Frame
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

logger = logging.getLogger("pyspark_pykafka")

_LOG_AFTER_SECONDS = 5.0

# By API key, the first version with which brokers respond at once and expect the client to wait
# (KIP-219); with earlier versions they delay the response. Only the APIs that this engine uses. The
# Java client does not wait after responses of the last three APIs (shouldClientThrottle), but after
# these, too, brokers stop reading from the connection.
_CLIENT_THROTTLES = {0: 6, 1: 8, 2: 3, 3: 6, 10: 2, 18: 2, 22: 1, 24: 1, 25: 1, 26: 1, 28: 1} | {
    23: 2,
    65: 0,
    66: 0,
}


class Throttle:
    """
    The throttle time of one connection; ``until`` is the monotonic time at which it ends.
    """

    def __init__(
        self,
        address: Address,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = address
        self._now = now
        self._sleep = sleep
        self.until = 0.0

    def __repr__(self) -> str:
        return f"<Throttle {self._address}, {max(self.until - self._now(), 0.0):.1f} s left>"

    def record(self, frame: Frame, throttle_time_ms: int) -> None:
        """
        Record the throttle time that a response carries.
        """
        first_version = _CLIENT_THROTTLES.get(frame.schema.API_KEY)
        if first_version is None or frame.version < first_version or throttle_time_ms <= 0:
            return
        self.until = max(self.until, self._now() + throttle_time_ms / 1000)

    def wait(self, deadline: Deadline) -> None:
        """
        Wait until sending is allowed.

        Raises :class:`TimeoutExceededError`, without waiting, if the deadline is earlier.
        """
        seconds = self.until - self._now()
        if seconds > deadline.remaining():
            msg = (
                f"{self._address}: the broker throttles this client for another {seconds:.1f} s, "
                "until after the deadline; raise the client's quota"
            )
            raise TimeoutExceededError(msg)
        if seconds > _LOG_AFTER_SECONDS:
            logger.warning("%s: throttled by the broker's quota for %.1f s", self._address, seconds)
        if seconds > 0:
            self._sleep(seconds)
