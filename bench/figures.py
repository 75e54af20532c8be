"""
Statistics of measured values: paired ratios with their spread, percentiles, and a check that reads
and writes are complete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class IncompleteError(RuntimeError):
    """
    A contender delivered the wrong number of records, so its time is meaningless.
    """

    def __init__(self, contender: str, expected: int, actual: int) -> None:
        self.contender, self.expected, self.actual = contender, expected, actual
        super().__init__(
            f"{contender} delivered {actual:,} records instead of {expected:,}, so its time means "
            "nothing; find the missing or duplicate records before you measure again"
        )


def check_records(contender: str, expected: int, actual: int) -> None:
    """
    Raise :class:`IncompleteError` for a read or write with missing or duplicate records.
    """
    if actual != expected:
        raise IncompleteError(contender, expected, actual)


@dataclass(frozen=True, slots=True)
class Spread:
    """
    The median, minimum and maximum of some values.
    """

    median: float
    min: float
    max: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.min:.2f}..{self.max:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """
    Return the median, minimum and maximum of at least one value.
    """
    if not values:
        msg = "A spread needs at least one value, but none was measured."
        raise ValueError(msg)
    return Spread(median(values), min(values), max(values))


def paired_speedup(seconds: Sequence[float], base_seconds: Sequence[float]) -> Spread:
    """
    Return the speedup over the base, from the seconds of paired rounds.

    Only times of the same round are compared, so a disturbance of a whole round cancels out.
    """
    return spread(
        [base / own_seconds for own_seconds, base in zip(seconds, base_seconds, strict=True)]
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """
    Return the smallest value that at least ``percent`` percent of the values do not exceed.
    """
    if not values:
        msg = f"The percentile {percent:g} needs at least one value, but none was measured."
        raise ValueError(msg)
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]
