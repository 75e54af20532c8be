"""
The rules of lag: in offsets, and over several partitions. All commands, metrics and pages use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def lag_in_offsets(position: int, end: int) -> int:
    """
    Return the number of offsets from a position to the end of the log.

    It is not negative: a position beyond the end, as after a truncation, has no unread offsets.
    """
    return max(end - position, 0)


def total_lag(lags: Iterable[int | None]) -> int | None:
    """
    Return the sum of the known lags in offsets; None if none is known.
    """
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def longest_lag(lags: Iterable[float | None]) -> float | None:
    """
    Return the longest of the known lags in seconds; None if none is known.
    """
    return max((lag for lag in lags if lag is not None), default=None)
