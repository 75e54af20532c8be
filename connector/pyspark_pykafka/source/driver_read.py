"""
Reading tiny micro-batches where they are planned, so that no Python worker has to run for them.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow as pa

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.offsets import OffsetRange

logger = logging.getLogger("pyspark_pykafka")

# What one wait may take, and what the engine may hold: a micro-batch must not wait for long here,
# and the records of one that is too large after all must not fill the planning process.
_WAIT_MS = 5_000
_MEMORY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PrefetchPolicy:
    """
    Which batches are tiny. Sizes count offsets, and bytes as Arrow columns.

    Beyond about the default ``offsets``, Spark's handling of such rows on the driver takes longer
    than starting the tasks. A prefetch that takes more than ``seconds`` (``first_seconds`` for the
    first, which loads code and connects), holds too much or fails is given up, and none is tried
    for the next ``rest_seconds``.
    """

    offsets: int = 5_000
    size: int = 2 * 1024 * 1024
    ranges: int = 32
    seconds: float = 2.0
    first_seconds: float = 10.0
    rest_seconds: float = 30.0

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:
        """
        Whether these ranges may be read in one place, as far as can be told beforehand.
        """
        return 0 < len(ranges) <= self.ranges and sum(r.size for r in ranges) <= self.offsets


class Prefetch(Protocol):
    """
    Reads a batch on the driver, or leaves it to tasks.
    """

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:
        """
        Whether one task has all ranges, read here or not: the same for the same ranges.
        """

    def records(self, ranges: Sequence[OffsetRange]) -> list[pa.RecordBatch] | None:
        """
        Return all records of the ranges in their order, or None if a task must read them.
        """


class NoPrefetch:
    """
    Leaves every batch to tasks, one for each range.
    """

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:  # noqa: ARG002
        """
        Return that it is not so.
        """
        return False

    def records(self, ranges: Sequence[OffsetRange]) -> None:
        """
        Return None.
        """


class DriverRead:
    """
    Reads what the policy admits, one range after the other.

    Nothing that is out of the ordinary is settled here: lost records, an outage, a slow broker
    all mean that a task reads the batch from its start, by the user's rules and with Spark's
    retries.
    """

    def __init__(
        self,
        read: Callable[[OffsetRange], Iterator[pa.RecordBatch]],
        policy: PrefetchPolicy = PrefetchPolicy(),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._policy = policy
        self._now = now
        self._rest = Deadline(now(), now)
        self._seconds = policy.first_seconds

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:
        """
        Whether one task has all ranges.
        """
        return self._policy.admits(ranges)

    def records(self, ranges: Sequence[OffsetRange]) -> list[pa.RecordBatch] | None:
        """
        Return all records of the ranges in their order, or None if a task must read them.
        """
        if not self._rest.expired or not self._policy.admits(ranges):
            return None
        try:
            found = self._gather(ranges)
        except (PykafkaError, _TooMuchError) as reason:
            self._rest = Deadline.after(self._policy.rest_seconds, self._now)
            logger.info("%s; a task reads the batch, as all batches for a while", reason)
            return None
        self._seconds = self._policy.seconds
        return found

    def _gather(self, ranges: Sequence[OffsetRange]) -> list[pa.RecordBatch]:
        deadline = Deadline.after(self._seconds, self._now)
        found: list[pa.RecordBatch] = []
        size = 0
        # Closed at once when it is given up: a half-read range holds a connection.
        with closing(self._batches(ranges, deadline)) as batches:
            for batch in batches:
                found.append(batch)
                size += batch.nbytes
                if size > self._policy.size:
                    msg = f"the batch has more than {self._policy.size} bytes"
                    raise _TooMuchError(msg)
        return found

    def _batches(
        self, ranges: Sequence[OffsetRange], deadline: Deadline
    ) -> Generator[pa.RecordBatch, None, None]:
        for wanted in ranges:
            if deadline.expired:
                msg = f"reading took more than {self._seconds} seconds up to {wanted}"
                raise _TooMuchError(msg)
            yield from self._read(wanted)


class _TooMuchError(Exception):
    """
    The batch turned out to be too large, or too slow to read, for one place.
    """


def fail_fast(settings: FetchSettings) -> FetchSettings:
    """
    Return settings under which a read fails soon where anything is missing or late.
    """
    return replace(
        settings,
        poll_timeout_ms=min(settings.poll_timeout_ms, _WAIT_MS),
        memory_bytes=min(settings.memory_bytes, _MEMORY_BYTES),
        fail_on_data_loss=True,
        end_retries=0,
    )
