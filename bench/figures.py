"""
Turns measured values into figures: paired ratios with their spread, percentiles, and the refusal
of what was short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class ShortReadError(RuntimeError):
    """
    A contender delivered another number of records than it was to; its time means nothing.
    """

    def __init__(self, who: str, wanted: int, found: int) -> None:
        self.who, self.wanted, self.found = who, wanted, found
        super().__init__(
            f"{who} delivered {found:,} records of {wanted:,}; only what is complete is timed. "
            "Find out which are missing or doubled before you measure again"
        )


def check_records(who: str, wanted: int, found: int) -> None:
    """
    Refuse a read or a write that is not complete.
    """
    if found != wanted:
        raise ShortReadError(who, wanted, found)


@dataclass(frozen=True, slots=True)
class Spread:
    """
    The middle of some values, and how far they lie apart.
    """

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}..{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """
    Return the median with the least and the greatest of at least one value.
    """
    if not values:
        msg = "A spread needs at least one value, but none was measured."
        raise ValueError(msg)
    return Spread(median(values), min(values), max(values))


def times_as_fast(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """
    Return how many times as fast we were as they, from the seconds of rounds run side by side.

    Each round is compared with itself, so what slowed a whole round cancels out.
    """
    return spread([their / our for our, their in zip(ours, theirs, strict=True)])


def percentile(values: Sequence[float], percent: float) -> float:
    """
    Return the smallest value that at least so many percent of all do not exceed.
    """
    if not values:
        msg = f"The percentile {percent:g} needs at least one value, but none was measured."
        raise ValueError(msg)
    place = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(place, 1) - 1]
