"""
Holding back when a broker says that its quota is used up (KIP-219).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import TimeoutExceededError

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.protocol.frames import Frame
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

logger = logging.getLogger("pyspark_pykafka")

_TELL_SECONDS = 5.0

# From these versions on a broker answers at once and expects the client to hold back; before, it
# held the answer itself. By API key, for those that this engine uses.
_HOLDS_BACK = {0: 6, 1: 8, 2: 3, 3: 6, 10: 2, 18: 2, 22: 1, 24: 1, 25: 1, 26: 1, 28: 1}


class Throttle:
    """
    When one connection may send again, on the monotonic clock.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self.until = 0.0

    def record(self, frame: Frame, milliseconds: int) -> None:
        """
        Take in what an answer says of the quota.
        """
        since = _HOLDS_BACK.get(frame.schema.API_KEY)
        if since is not None and frame.version >= since and milliseconds > 0:
            self.until = max(self.until, time.monotonic() + milliseconds / 1000)

    def wait(self, deadline: Deadline) -> None:
        """
        Wait until sending is allowed; an error at once where that is later than the deadline.
        """
        seconds = self.until - time.monotonic()
        if seconds > deadline.remaining():
            msg = (
                f"{self._address}: the broker's quota lets us send again in {seconds:.1f} s, "
                "which is later than the time left; ask for a higher quota"
            )
            raise TimeoutExceededError(msg)
        if seconds > _TELL_SECONDS:
            logger.warning("%s: waiting %.1f s for the broker's quota", self._address, seconds)
        if seconds > 0:
            time.sleep(seconds)
