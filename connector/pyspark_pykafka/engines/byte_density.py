"""
Finds how far a limit in bytes reaches into the pending offsets, by sampling the log. Pure: no I/O.

Brokers do not report the sizes of ranges, and record sizes vary along a log: records may be ten
times as large by day as by night. So the log is sampled where the size is most uncertain, until the
bytes up to the limit are known well enough or the number of samples is used up.
"""

from __future__ import annotations

from bisect import insort
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.offsets import TopicPartition

#: The acceptable uncertainty, as a fraction of the limit.
_TOLERANCE = 0.05
#: The bytes that one sample fetches (more if a batch is larger). One sample suffices if the pending
#: bytes exceed neither this nor the limit.
SAMPLE_BYTES = 32 * 1024
#: If two samples estimate all pending bytes at no more than this fraction of the limit, no more
#: samples are taken: everything fits.
_CERTAIN_FRACTION = 0.5


class DensitySamples(NamedTuple):
    """
    The bytes per offset at the positions that have records, and the errors of partitions that could
    not be sampled.
    """

    densities: dict[TopicPartition, float]
    errors: dict[TopicPartition, PykafkaError]


class _Sample(NamedTuple):
    """
    The density at ``position``, a fraction from 0 to 1 of the pending offsets.

    The density is the bytes that all pending offsets would take if the bytes per offset were the
    same everywhere as here.
    """

    position: float
    density: float


def fraction_within(
    density: Callable[[float], float], limit: float, min_samples: int, max_samples: int
) -> float:
    """
    Return the fraction of the pending offsets, from 0 to 1, that takes ``limit`` bytes.

    ``density`` samples the log at a position, which is a fraction of the pending offsets. It
    returns the bytes that all pending offsets would take if the bytes per offset were the same
    everywhere as there. It is called ``min_samples`` to ``max_samples`` times, and fewer times if
    everything certainly fits.
    """
    samples = [_Sample(0.0, density(0.0))]
    if samples[0].density <= min(SAMPLE_BYTES, limit):
        return 1.0
    end = _end(samples, limit)
    if end >= 1:
        samples.append(_Sample(1.0, density(1.0)))
        if _bytes_between(*samples) <= _CERTAIN_FRACTION * limit:
            return 1.0
        end = _end(samples, limit)
    while len(samples) < min_samples or (
        len(samples) < max_samples and _uncertainty(samples, end) > _TOLERANCE * limit
    ):
        position = _next_position(samples, end)
        insort(samples, _Sample(position, density(position)))
        end = _end(samples, limit)
    return end


def _end(samples: list[_Sample], limit: float) -> float:
    """
    Return the position, at most 1, where the bytes reach the limit; the density between two samples
    is interpolated.
    """
    remaining = limit
    for first, second in pairwise(samples):
        size = _bytes_between(first, second)
        if size >= remaining:
            return first.position + _distance(first, second, remaining)
        remaining -= size
    last = samples[-1]
    return min(last.position + remaining / max(last.density, 1.0), 1.0)


def _distance(first: _Sample, second: _Sample, size: float) -> float:
    """
    Return the distance from the first sample, towards the second, that takes ``size`` bytes.
    """
    lower, upper = 0.0, second.position - first.position
    slope = (second.density - first.density) / upper
    # Found by bisection, since the formula divides by the slope, which may be close to zero.
    for _ in range(50):
        middle = (lower + upper) / 2
        if middle * (first.density + slope * middle / 2) < size:
            lower = middle
        else:
            upper = middle
    return (lower + upper) / 2


def _next_position(samples: list[_Sample], end: float) -> float:
    """
    Return the next position to sample: the end, or the middle of the most uncertain interval.
    """
    if samples[-1].position < end:
        return end
    first, second = max(
        _intervals(samples, end),
        key=lambda interval: (
            _interval_uncertainty(*interval),
            interval[1].position - interval[0].position,
        ),
    )
    return (first.position + second.position) / 2


def _uncertainty(samples: list[_Sample], end: float) -> float:
    """
    Return the possible error in bytes up to the end; infinite beyond the last sample.
    """
    if samples[-1].position < end:
        return inf
    return sum(_interval_uncertainty(*interval) for interval in _intervals(samples, end))


def _intervals(samples: list[_Sample], end: float) -> list[tuple[_Sample, _Sample]]:
    reached = [(first, second) for first, second in pairwise(samples) if first.position < end]
    return reached or [(samples[0], samples[1])]


def _interval_uncertainty(first: _Sample, second: _Sample) -> float:
    return abs(first.density - second.density) * (second.position - first.position) / 2


def _bytes_between(first: _Sample, second: _Sample) -> float:
    return (second.position - first.position) * (first.density + second.density) / 2
