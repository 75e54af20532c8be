"""
How far a limit in bytes reaches into what is pending, from as few looks at the log as it takes.

Brokers tell no sizes of ranges, and records differ along a log: those of the morning may be ten
times as large as those of the night. So the log is looked at where most is uncertain yet, until the
bytes up to the limit are known well enough, or there were looks enough.
"""

from __future__ import annotations

from bisect import insort
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: Of the limit, so much may be uncertain.
_TOLERANCE = 0.05
#: One look sees so many bytes (and more, where a batch is larger): all there is, if it is not more.
LOOK_BYTES = 32 * 1024
#: Where the whole comes to this part of the limit by two looks, it fits, and nobody looks closer.
_SURELY = 0.5


class _Look(NamedTuple):
    """
    How many bytes all that is pending would take if it were everywhere as it is at this part of it.
    """

    at: float
    density: float


def reach(density: Callable[[float], float], limit: float, least: int, most: int) -> float:
    """
    Return the part of what is pending, from 0 to 1, that takes ``limit`` bytes.

    ``density`` looks at the log at such a part, and returns the bytes of the whole if all of it
    were as it is there; it is called ``least`` to ``most`` times.
    """
    looks = [_Look(0.0, density(0.0))]
    if looks[0].density <= min(LOOK_BYTES, limit):
        return 1.0
    end = _end(looks, limit)
    if end >= 1:
        looks.append(_Look(1.0, density(1.0)))
        if _area(*looks) <= _SURELY * limit:
            return 1.0
        end = _end(looks, limit)
    while len(looks) < least or (len(looks) < most and _doubt(looks, end) > _TOLERANCE * limit):
        at = _most_uncertain(looks, end)
        insort(looks, _Look(at, density(at)))
        end = _end(looks, limit)
    return end


def _end(looks: list[_Look], limit: float) -> float:
    """
    Return where the bytes come to the limit: between two looks they change evenly.
    """
    left = limit
    for one, other in pairwise(looks):
        size = _area(one, other)
        if size >= left:
            return one.at + _within(one, other, left)
        left -= size
    last = looks[-1]
    return min(last.at + left / max(last.density, 1.0), 1.0)


def _within(one: _Look, other: _Look, size: float) -> float:
    """
    Return how far into the stretch between two looks so many bytes reach.
    """
    low, high = 0.0, other.at - one.at
    slope = (other.density - one.density) / high
    # Bisected, since the formula divides by a slope that may be next to nothing.
    for _ in range(50):
        middle = (low + high) / 2
        if middle * (one.density + slope * middle / 2) < size:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _most_uncertain(looks: list[_Look], end: float) -> float:
    """
    Return where to look next: at the end, or half way where the log changes most up to there.
    """
    if looks[-1].at < end:
        return end
    one, other = max(_stretches(looks, end), key=lambda it: (_change(*it), it[1].at - it[0].at))
    return (one.at + other.at) / 2


def _doubt(looks: list[_Look], end: float) -> float:
    """
    Return how many bytes more or less there may be up to the end; any number beyond the last look.
    """
    if looks[-1].at < end:
        return inf
    return sum(_change(*it) for it in _stretches(looks, end))


def _stretches(looks: list[_Look], end: float) -> list[tuple[_Look, _Look]]:
    reached = [(one, other) for one, other in pairwise(looks) if one.at < end]
    return reached or [(looks[0], looks[1])]


def _change(one: _Look, other: _Look) -> float:
    return abs(one.density - other.density) * (other.at - one.at) / 2


def _area(one: _Look, other: _Look) -> float:
    return (other.at - one.at) * (one.density + other.density) / 2
