"""
What a process has found out about the network: addresses that could not be reached lately, and
connections that went silent.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

H = TypeVar("H", bound="Hashable")

#: An address that could not be reached is tried after the others for so long.
UNREACHABLE_SECONDS = 10.0


class Reachability:
    """
    Puts addresses in order, and excludes none; an address is a broker's, or one of its name's.

    Threads may share it: each change is one of a dictionary's own, and a lost one costs a detour.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._unreachable_until: dict[Hashable, float] = {}
        self._silent_since = -math.inf

    def record_failure(self, address: Hashable) -> None:
        """
        Note that an address could not be reached.
        """
        now = self._now()
        for known, until in list(self._unreachable_until.items()):
            if until <= now:
                self._unreachable_until.pop(known, None)
        self._unreachable_until[address] = now + UNREACHABLE_SECONDS

    def record_success(self, address: Hashable) -> None:
        """
        Note that an address was reached.
        """
        self._unreachable_until.pop(address, None)

    def is_unreachable(self, address: Hashable) -> bool:
        """
        Whether an address could not be reached a moment ago.
        """
        return self._unreachable_until.get(address, -math.inf) > self._now()

    def ordered(self, addresses: Iterable[H]) -> list[H]:
        """
        Return the addresses in their order, those that could not be reached behind the others.
        """
        return sorted(addresses, key=self.is_unreachable)

    def record_silence(self, last_response_at: float, sent: float) -> None:
        """
        Note that a request was never answered: when it was sent, and the last answer before it.

        A firewall that forgets idle connections forgets all that were idle for about as long.
        """
        self._silent_since = max(self._silent_since, (last_response_at + sent) / 2)

    def is_trusted(self, last_response_at: float) -> bool:
        """
        Whether a connection has been answered on long after every one that went silent.
        """
        return last_response_at > self._silent_since


#: What all connections of this process share.
REACHABILITY = Reachability()
