"""
Reads small micro-batches in the driver process that plans them, without Python worker tasks.
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

# Limits on a single wait, also for a quota, and on the engine's memory: a micro-batch must not wait
# here for long, nor fill the driver's memory if it turns out to be too large after all.
_MAX_POLL_MS = 5_000
_MAX_THROTTLE_SECONDS = 2.0
_MAX_MEMORY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DriverReadPolicy:
    """
    Which batches are small enough for the driver to read; bytes are those of Arrow batches.

    Above about the default ``max_offsets``, Spark needs longer to handle the rows on the driver
    than to start tasks. A driver read is abandoned if it takes more than ``max_seconds``
    (``first_max_seconds`` for the first one, which loads code and connects), exceeds ``max_bytes``
    or fails. The next one is tried after ``pause_seconds``.
    """

    max_offsets: int = 5_000
    max_bytes: int = 2 * 1024 * 1024
    max_ranges: int = 32
    max_seconds: float = 2.0
    first_max_seconds: float = 10.0
    pause_seconds: float = 30.0

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:
        """
        Whether the ranges are few and small enough to be read together.
        """
        few = 0 < len(ranges) <= self.max_ranges
        return few and sum(r.size for r in ranges) <= self.max_offsets


class DriverReader(Protocol):
    """
    Reads a batch on the driver, or leaves it to tasks.
    """

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:
        """
        Whether all ranges become one task.

        This depends only on the ranges, and not on whether the driver can read them, so that a
        replayed batch has the same tasks.
        """

    def read(self, ranges: Sequence[OffsetRange]) -> list[pa.RecordBatch] | None:
        """
        Return all records of the ranges, in their order; None if a task must read them.
        """


class DisabledDriverReader:
    """
    Leaves every batch to tasks, one for each range.
    """

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:  # noqa: ARG002
        """
        Return False.
        """
        return False

    def read(self, ranges: Sequence[OffsetRange]) -> None:
        """
        Return None.
        """


class BoundedDriverReader:
    """
    Reads the ranges that the policy admits, in sequence.

    It handles no failure: after data loss, an outage or a slow read, a task reads the batch from
    its start, with the user's settings and Spark's retries.
    """

    def __init__(
        self,
        read_range: Callable[[OffsetRange], Iterator[pa.RecordBatch]],
        policy: DriverReadPolicy = DriverReadPolicy(),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_range = read_range
        self._policy = policy
        self._now = now
        self._pause = Deadline(now(), now)
        self._max_seconds = policy.first_max_seconds

    def admits(self, ranges: Sequence[OffsetRange]) -> bool:
        """
        Whether all ranges become one task: if the policy admits them.
        """
        return self._policy.admits(ranges)

    def read(self, ranges: Sequence[OffsetRange]) -> list[pa.RecordBatch] | None:
        """
        Return all records of the ranges, in their order; None if a task must read them.
        """
        if not self._pause.expired or not self._policy.admits(ranges):
            return None
        try:
            batches = self._read_all(ranges)
        except NeedsTaskError as reason:
            # The next batch may have no such record, so driver reads are not paused.
            logger.info("%s; a task reads this batch", reason)
            return None
        except (PykafkaError, _TooMuchError) as error:
            self._pause = Deadline.after(self._policy.pause_seconds, self._now)
            seconds = self._policy.pause_seconds
            logger.info(
                "%s; tasks read this batch and all batches of the next %.0f s", error, seconds
            )
            return None
        self._max_seconds = self._policy.max_seconds
        return batches

    def _read_all(self, ranges: Sequence[OffsetRange]) -> list[pa.RecordBatch]:
        deadline = Deadline.after(self._max_seconds, self._now)
        all_batches: list[pa.RecordBatch] = []
        size = 0
        # Closed as soon as the read is abandoned: a range that is read in part holds a connection.
        with closing(self._batches(ranges, deadline)) as batches:
            for batch in batches:
                all_batches.append(batch)
                size += batch.nbytes
                if size > self._policy.max_bytes:
                    msg = f"the batch has more than {self._policy.max_bytes} bytes"
                    raise _TooMuchError(msg)
        return all_batches

    def _batches(
        self, ranges: Sequence[OffsetRange], deadline: Deadline
    ) -> Generator[pa.RecordBatch, None, None]:
        for r in ranges:
            self._check_time(r, deadline)
            expected = r.size
            for batch in self._read_range(r):
                yield batch
                expected -= batch.num_rows
                # A range that is complete is kept, however long it took.
                if expected > 0:
                    self._check_time(r, deadline)

    def _check_time(self, r: OffsetRange, deadline: Deadline) -> None:
        if deadline.expired:
            msg = f"reading took more than {self._max_seconds} seconds before the end of {r}"
            raise _TooMuchError(msg)


class NeedsTaskError(Exception):
    """
    The batch has a record that is left to a task, because handling the record may take long.
    """


class _TooMuchError(Exception):
    """
    The batch is too large, or too slow to read, for the driver.
    """


def fail_fast_settings(settings: FetchSettings) -> FetchSettings:
    """
    Return the settings with which a read fails soon if records are missing or late.
    """
    return replace(
        settings,
        poll_timeout_ms=min(settings.poll_timeout_ms, _MAX_POLL_MS),
        max_throttle_seconds=min(settings.max_throttle_seconds, _MAX_THROTTLE_SECONDS),
        memory_bytes=min(settings.memory_bytes, _MAX_MEMORY_BYTES),
        fail_on_data_loss=True,
        end_retries=0,
    )
