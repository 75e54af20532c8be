"""
Remembers which addresses could not be reached, and which connections went silent.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

H = TypeVar("H", bound="Hashable")

#: How long an address that could not be reached is ordered after the others.
UNREACHABLE_SECONDS = 10.0


class Reachability:
    """
    Orders addresses without excluding any: brokers, or the IP addresses of one broker's name.

    Threads may share it: each update is one atomic dictionary operation, and a lost update costs
    one slow connection attempt.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._unreachable_until: dict[Hashable, float] = {}
        self._silent_since = -math.inf

    def __repr__(self) -> str:
        unreachable = [
            str(address)
            for address in list(self._unreachable_until)
            if self.is_unreachable(address)
        ]
        return f"<Reachability unreachable: {', '.join(unreachable) or 'none'}>"

    def record_failure(self, address: Hashable) -> None:
        """
        Record that an address could not be reached.
        """
        now = self._now()
        for known_address, until in list(self._unreachable_until.items()):
            if until <= now:
                self._unreachable_until.pop(known_address, None)
        self._unreachable_until[address] = now + UNREACHABLE_SECONDS

    def record_success(self, address: Hashable) -> None:
        """
        Record that an address was reached.
        """
        self._unreachable_until.pop(address, None)

    def is_unreachable(self, address: Hashable) -> bool:
        """
        Return whether an address could not be reached a moment ago.
        """
        return self._unreachable_until.get(address, -math.inf) > self._now()

    def ordered(self, addresses: Iterable[H]) -> list[H]:
        """
        Return the addresses in the given order, but unreachable ones last.
        """
        return sorted(addresses, key=self.is_unreachable)

    def record_silence(self, last_response_at: float, sent_at: float) -> None:
        """
        Record that a request got no response: when it was sent, and the last response before it.

        A firewall that has dropped this idle connection has probably dropped others too. Its idle
        timeout is unknown, and is estimated at half of this connection's idle time: connections
        whose last response is older than the middle of that time are not trusted.
        """
        self._silent_since = max(self._silent_since, (last_response_at + sent_at) / 2)

    def is_trusted(self, last_response_at: float) -> bool:
        """
        Return whether a connection had its last response well after those that went silent.
        """
        return last_response_at > self._silent_since


#: Shared by all connections of this process.
REACHABILITY = Reachability()
