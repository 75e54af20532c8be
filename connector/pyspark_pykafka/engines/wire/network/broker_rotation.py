"""
The order in which brokers are tried, so that no single broker is always first.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark_pykafka.settings.wire_config import Address

#: How long a demoted broker comes last in the rotation.
DEMOTED_SECONDS = 10.0


class BrokerRotation:
    """
    Orders brokers for the next request: least recently used first; then demoted ones, and those
    that cannot be reached.
    """

    def __init__(
        self,
        is_unreachable: Callable[[Address], bool],
        jitter: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_unreachable = is_unreachable
        self._jitter = jitter
        self._now = now
        self._last_request: dict[Address, int] = {}
        self._demoted_until: dict[Address, float] = {}
        self._requests = 0

    def __repr__(self) -> str:
        now = self._now()
        demoted = [str(address) for address, until in self._demoted_until.items() if until > now]
        return (
            f"<BrokerRotation {self._requests} requests, demoted: {', '.join(demoted) or 'none'}>"
        )

    def ordered(self, addresses: Iterable[Address], ready: Collection[Address]) -> list[Address]:
        """
        Return all addresses: ``ready`` ones first, then others, demoted ones, unreachable ones.

        Within each of these groups, the least recently used comes first; ties are broken at random.
        """
        now = self._now()

        def rank(address: Address) -> tuple[bool, bool, bool, int, float]:
            is_demoted = self._demoted_until.get(address, now) > now
            last = self._last_request.get(address, 0)
            is_unreachable = self._is_unreachable(address) and address not in ready
            return is_unreachable, is_demoted, address not in ready, last, self._jitter()

        return sorted(dict.fromkeys(addresses), key=rank)

    def record_request(self, address: Address) -> None:
        """
        Record that a request was sent to a broker.
        """
        self._requests += 1
        self._last_request[address] = self._requests

    def demote(self, address: Address) -> None:
        """
        Try the other brokers before this one for a while.
        """
        self._demoted_until[address] = self._now() + DEMOTED_SECONDS
