"""
Admission control: how many offsets a micro-batch takes, and whether it waits for more.

The division of ``max_offsets`` is Spark's (KafkaMicroBatchStream.rateLimit): each partition gets
its share of the backlog, and at least one offset, so that small partitions do not starve.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.byte_density import DensitySamples, fraction_within
from pyspark_pykafka.offsets import format_partitions
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import Offsets, TopicPartition

logger = logging.getLogger("pyspark_pykafka")

#: Returns the estimated bytes per offset at each position, except at positions without records.
BytesPerOffset = Callable[["Offsets"], Mapping["TopicPartition", float]]

# The partitions with the largest backlogs are sampled for their record sizes, several times each.
# Many partitions are sampled less often: their differences even out.
_MAX_SAMPLED_PARTITIONS = 64
_MIN_SAMPLES, _FEW_SAMPLES, _MANY_SAMPLES = 2, 8, 32
# Bytes per offset if no partition has a record to sample: the typical size of a Kafka record.
_DEFAULT_BYTES_PER_OFFSET = 1024.0

# A failed sample has cost a whole timeout, so its partition is not sampled again for this long.
_SAMPLE_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """
    The limits that the options set for a micro-batch; None means no limit.

    Sizes count offsets, not records.
    """

    max_offsets: int | None = None
    max_offsets_per_partition: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_seconds: float = 900.0

    @property
    def has_limits(self) -> bool:
        """
        Whether a batch can end before the latest offsets, or be delayed.
        """
        caps = (self.max_offsets, self.max_offsets_per_partition, self.max_bytes)
        return any(limit is not None for limit in (*caps, self.min_offsets))

    def apply_limits(
        self, start: Offsets, latest: Offsets, bytes_per_offset: BytesPerOffset
    ) -> Offsets:
        """
        Return the end of a batch from ``start``, which has every partition of ``latest``.
        """
        end = _limit_each(start, latest, self.max_offsets_per_partition)
        if self.max_offsets is not None:
            end = _limit_offsets(start, end, self.max_offsets)
        if self.max_bytes is not None:
            end = _limit_bytes(start, end, self.max_bytes, bytes_per_offset)
        return end


class Admission:
    """
    Applies a policy batch after batch, and remembers when it admitted the last one.

    The first batch of a process never waits: the time since the previous batch is unknown.
    """

    def __init__(
        self,
        policy: AdmissionPolicy,
        bytes_per_offset: BytesPerOffset,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._bytes_per_offset = bytes_per_offset
        self._now = now
        self._max_delay = Deadline(now(), now)

    def admit(self, start: Offsets, latest: Offsets) -> Offsets | None:
        """
        Return the end of the next batch; None if it has to wait for more records or more time.
        """
        backlog = sum(_backlog(start, latest).values())
        if backlog < (self._policy.min_offsets or 0) and not self._max_delay.expired:
            return None
        if backlog == 0:
            # No batch is planned here, so the delay since the last one keeps running.
            return latest
        self._max_delay = Deadline.after(self._policy.max_delay_seconds, self._now)
        return self._policy.apply_limits(start, latest, self._bytes_per_offset)

    def admit_all(self, start: Offsets, latest: Offsets) -> Offsets:
        """
        Return the end of the next batch of a run with a fixed end, which does not wait for more.
        """
        return self._policy.apply_limits(start, latest, self._bytes_per_offset)


class FaultTolerantSampling:
    """
    Samples record sizes, even if some brokers do not respond: an estimate must not end a query.

    A partition whose sample fails with a retriable error has its last known size, or is left out;
    it is sampled again after a pause.
    """

    def __init__(
        self,
        sample: Callable[[Offsets], DensitySamples],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sample = sample
        self._now = now
        self._pauses: dict[TopicPartition, Deadline] = {}
        self._last: dict[TopicPartition, float] = {}

    def __call__(self, positions: Offsets) -> dict[TopicPartition, float]:
        """
        Return the bytes per offset at each position that has records and could be read.
        """
        due = {tp: position for tp, position in positions.items() if not self._is_paused(tp)}
        densities, errors = self._sample(due) if due else DensitySamples({}, {})
        for tp in errors:
            self._pauses[tp] = Deadline.after(_SAMPLE_PAUSE_SECONDS, self._now)
        for error in list(errors.values())[:1]:
            names = format_partitions(errors)
            logger.warning("the record sizes of %s are not sampled: %s", names, error)
        self._last.update(densities)
        without_sample = [tp for tp in positions if tp not in due or tp in errors]
        return {**densities, **{tp: self._last[tp] for tp in without_sample if tp in self._last}}

    def _is_paused(self, tp: TopicPartition) -> bool:
        return tp in self._pauses and not self._pauses[tp].expired


def _backlog(start: Offsets, latest: Offsets) -> Offsets:
    """
    Return the number of unread offsets of each partition that has any.
    """
    sizes = {tp: end - start[tp] for tp, end in latest.items()}
    return {tp: size for tp, size in sizes.items() if size > 0}


def _limit_each(start: Offsets, latest: Offsets, limit: int | None) -> Offsets:
    if limit is None:
        return dict(latest)
    return {tp: min(end, start[tp] + limit) for tp, end in latest.items()}


def _limit_offsets(start: Offsets, latest: Offsets, limit: int) -> Offsets:
    backlog = _backlog(start, latest)
    total = sum(backlog.values())
    if total <= limit:
        return dict(latest)
    shares = {tp: _share(size, total, limit) for tp, size in backlog.items()}
    return {tp: start[tp] + shares[tp] if tp in shares else end for tp, end in latest.items()}


def _share(size: int, total: int, limit: int) -> int:
    # In integers: Java's doubles lose single offsets above 2**53.
    return max(size * limit // total, 1)


def _limit_bytes(
    start: Offsets, latest: Offsets, limit: int, bytes_per_offset: BytesPerOffset
) -> Offsets:
    """
    Take the same fraction of each partition; partitions without a sample count as average.
    """
    backlog = _backlog(start, latest)
    if not backlog:
        return dict(latest)
    sampled = sorted(backlog, key=lambda tp: (-backlog[tp], tp))[:_MAX_SAMPLED_PARTITIONS]

    def density(fraction: float) -> float:
        positions = {tp: start[tp] + _sampled_position(backlog[tp], fraction) for tp in sampled}
        densities = bytes_per_offset(positions)
        average = (
            sum(densities.values()) / len(densities) if densities else _DEFAULT_BYTES_PER_OFFSET
        )
        return sum(size * densities.get(tp, average) for tp, size in backlog.items())

    few, many = (max(n // len(sampled), _MIN_SAMPLES) for n in (_FEW_SAMPLES, _MANY_SAMPLES))
    fraction = fraction_within(density, limit, few, many)
    if fraction >= 1:
        return dict(latest)
    ends = dict(latest)
    for tp, size in backlog.items():
        ends[tp] = start[tp] + min(size, max(_scale(size, fraction), 1))
    return ends


def _scale(size: int, fraction: float) -> int:
    # Rounded before it is truncated, since the fraction is inexact: 2.9999999 must become 3.
    return int(round(size * fraction, 3))


def _sampled_position(size: int, fraction: float) -> int:
    return min(_scale(size, fraction), size - 1)
