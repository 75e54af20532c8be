"""
The pace of a run: its longest pause and its maximum lag.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Pace:
    """
    Samples of the number of acknowledged records and of the number that a consumer has seen.

    ``max_lag`` is in records, ``longest_pause`` in seconds. A pause is a period in which the
    consumer sees no new record although it lags behind the acknowledged records. The time before
    the first record is not counted: Spark is starting then.
    """

    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    max_lag: int = 0
    longest_pause: float = 0.0
    _seen: int = 0
    _since: float = 0.0

    def sample(self, acknowledged: int, seen: int) -> None:
        """
        Add one sample: the numbers of acknowledged records and of records seen.
        """
        now = self.now()
        self.max_lag = max(self.max_lag, acknowledged - seen)
        if 0 < seen == self._seen and seen < acknowledged:
            self.longest_pause = max(self.longest_pause, now - self._since)
        if seen != self._seen or acknowledged <= seen:
            self._seen, self._since = seen, now
