"""
Which broker to ask next, so that no single one is asked always, and believed for ever.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark_pykafka.settings.wire_config import Address

#: A broker whose answer was doubted is asked after the others for so long.
DEMOTED_SECONDS = 10.0


class BrokerRotation:
    """
    Brokers in the order in which to ask them: the one that was asked last comes after the others.
    """

    def __init__(
        self,
        is_unreachable: Callable[[Address], bool],
        chance: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_unreachable = is_unreachable
        self._chance = chance
        self._now = now
        self._asked: dict[Address, int] = {}
        self._doubted_until: dict[Address, float] = {}
        self._turns = 0

    def ordered(self, known: Iterable[Address], ready: Collection[Address]) -> list[Address]:
        """
        Return all known addresses, those that are ready before others; equals come by chance.

        Behind them stand those that were doubted, and then those that could not be reached.
        """
        now = self._now()

        def rank(address: Address) -> tuple[bool, bool, bool, int, float]:
            doubted = self._doubted_until.get(address, now) > now
            last = self._asked.get(address, 0)
            is_away = self._is_unreachable(address) and address not in ready
            return is_away, doubted, address not in ready, last, self._chance()

        return sorted(dict.fromkeys(known), key=rank)

    def record_request(self, address: Address) -> None:
        """
        Note whose turn it was.
        """
        self._turns += 1
        self._asked[address] = self._turns

    def demote(self, address: Address) -> None:
        """
        Ask the others before this one for a while.
        """
        self._doubted_until[address] = self._now() + DEMOTED_SECONDS
