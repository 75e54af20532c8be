"""
Deciding how much of what is there a micro-batch takes: caps, and waiting until there is enough.

The rule for ``max_offsets`` is Spark's (KafkaMicroBatchStream.rateLimit): each partition gets its
share of what is pending, and at least one offset, so that small partitions do not starve.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.byte_density import reach
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import Offsets, TopicPartition


#: Tells about how many bytes an offset takes after each position, for those that have records.
Sizes = Callable[["Offsets"], Mapping["TopicPartition", float]]

# How many partitions are looked at for their sizes, and how often all of them; each look at one
# costs a request. Many partitions are looked at less often, since what is odd about them evens out.
_SAMPLES = 64
_LEAST_LOOKS, _FEW_LOOKS, _MANY_LOOKS = 2, 8, 32
# An offset's size where nothing can be looked at: a record of Kafka's usual order.
_UNKNOWN_BYTES = 1024.0


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """
    What the options ask for; None is no limit. Sizes count offsets, not records.
    """

    max_offsets: int | None = None
    max_offsets_per_partition: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_seconds: float = 900.0

    @property
    def has_limits(self) -> bool:
        """
        Whether a batch can end before all there is.
        """
        caps = (self.max_offsets, self.max_offsets_per_partition, self.max_bytes)
        return any(limit is not None for limit in (*caps, self.min_offsets))

    def apply_limits(self, begin: Offsets, latest: Offsets, sizes: Sizes) -> Offsets:
        """
        Return where a batch ends that starts at ``begin``, which has every partition of ``latest``.
        """
        ends = _capped_each(begin, latest, self.max_offsets_per_partition)
        if self.max_offsets is not None:
            ends = _shared(begin, ends, self.max_offsets)
        return ends if self.max_bytes is None else _within(begin, ends, self.max_bytes, sizes)


class Admission:
    """
    Applies a policy batch after batch, and remembers when the last one was let through.

    The first batch of a process never waits: how long the one before it took is not known.
    """

    def __init__(
        self,
        policy: AdmissionPolicy,
        sizes: Sizes,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._sizes = sizes
        self._now = now
        self._patience = Deadline(now(), now)

    def admit(self, begin: Offsets, latest: Offsets) -> Offsets | None:
        """
        Return where the next batch ends; None if it has to wait for more records or more time.
        """
        pending = sum(_pending(begin, latest).values())
        if pending < (self._policy.min_offsets or 0) and not self._patience.expired:
            return None
        if pending == 0:
            # No batch comes of this, so the time since the last one goes on.
            return latest
        self._patience = Deadline.after(self._policy.max_delay_seconds, self._now)
        return self._policy.apply_limits(begin, latest, self._sizes)

    def admit_all(self, begin: Offsets, latest: Offsets) -> Offsets:
        """
        Return where the next batch ends if nothing more will come that is worth waiting for.
        """
        return self._policy.apply_limits(begin, latest, self._sizes)


def _pending(begin: Offsets, latest: Offsets) -> Offsets:
    """
    Return how many offsets each partition has to read, where it has any.
    """
    sizes = {tp: end - begin[tp] for tp, end in latest.items()}
    return {tp: size for tp, size in sizes.items() if size > 0}


def _capped_each(begin: Offsets, latest: Offsets, most: int | None) -> Offsets:
    if most is None:
        return dict(latest)
    return {tp: min(end, begin[tp] + most) for tp, end in latest.items()}


def _shared(begin: Offsets, latest: Offsets, most: int) -> Offsets:
    pending = _pending(begin, latest)
    total = sum(pending.values())
    if total <= most:
        return dict(latest)
    shares = {tp: _share(size, total, most) for tp, size in pending.items()}
    return {tp: begin[tp] + shares[tp] if tp in shares else end for tp, end in latest.items()}


def _share(size: int, total: int, most: int) -> int:
    # In whole numbers: Java's doubles lose single offsets beyond 2**53.
    return max(size * most // total, 1)


def _within(begin: Offsets, latest: Offsets, most: int, sizes: Sizes) -> Offsets:
    """
    Give each partition the same part of its offsets; those not looked at are taken for average.
    """
    pending = _pending(begin, latest)
    if not pending:
        return dict(latest)
    longest = sorted(pending, key=lambda tp: (-pending[tp], tp))[:_SAMPLES]

    def density(part: float) -> float:
        found = sizes({tp: begin[tp] + _before(pending[tp], part) for tp in longest})
        average = sum(found.values()) / len(found) if found else _UNKNOWN_BYTES
        return sum(size * found.get(tp, average) for tp, size in pending.items())

    few, many = (max(it // len(longest), _LEAST_LOOKS) for it in (_FEW_LOOKS, _MANY_LOOKS))
    part = reach(density, most, few, many)
    if part >= 1:
        return dict(latest)
    ends = dict(latest)
    for tp, size in pending.items():
        ends[tp] = begin[tp] + min(size, max(_cut(size, part), 1))
    return ends


def _cut(size: int, part: float) -> int:
    # Rounded first, since the part is only as exact as its floating point.
    return int(round(size * part, 3))


def _before(size: int, part: float) -> int:
    return min(_cut(size, part), size - 1)
