"""
The part of a read that both engines share: settings, range resolution, reports of data loss.

An engine reads one :class:`~pyspark_pykafka.offsets.OffsetRange` into Arrow batches, and writes
Arrow batches as records. Both engines return equal tables for equal ranges.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.log_truncation import LOG_TRUNCATED
from pyspark_pykafka.errors import DataLossError, OffsetsError, RecordError, UnknownTopicError
from pyspark_pykafka.offsets import EARLIEST, LATEST, NO_EPOCH, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from pyspark_pykafka.options import RackSource
    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

#: The maximum number of records in an Arrow batch for Spark; ``FetchSettings.batch_bytes`` limits
#: the batch, too.
BATCH_RECORDS = 10_000

#: The longest throttle time (KIP-219) between two records; it does not count as time without
#: progress.
MAX_THROTTLE_SECONDS = 300.0

# The parts of a task's memory: 1/16 for a response (twice, while it is parsed), and 1/8 for the
# columns of a batch (twice, while they grow); the rest is for decompressing a record batch.
_FETCH_DIVISOR = 16
_BATCH_DIVISOR = 8
# Larger batches no longer fit into the private caches of a CPU core: with values of 1 and 10 KB,
# batches of 8 MiB took 1/8 more CPU time, and batches of 2 MiB 1/20 more; with values of 100 B
# there was no difference.
_MAX_BATCH_BYTES = 512 * 1024

# If only the first records are requested, the range is read in parts. These are the minimum size of
# the first part in offsets, and the factor by which each part is larger than the one before.
_MIN_PART_OFFSETS, _PART_GROWTH = 10, 4


class Watermarks(NamedTuple):
    """
    The offsets that a partition holds: ``[log_start, visible_end)``.

    ``visible_end`` is the high watermark, or the last stable offset under ``read_committed``.
    """

    log_start: int
    visible_end: int


class RecreatedTopicError(UnknownTopicError):
    """
    The brokers return a topic id that is not the range's: the topic was recreated, or a broker has
    stale metadata.
    """


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """
    The settings of a read; sent from the driver to the executors with every task.

    ``schema`` has the columns to read, with the types of ``SOURCE_TYPES``, except that ``key`` and
    ``value`` may be strings, and ``timestamp`` may be ``TIMESTAMP_MS``. ``engine`` is the user's
    choice: ``auto``, ``wire`` or ``librdkafka``. ``poll_timeout_ms`` limits the time without
    progress. A log that ends inside the range is read again up to ``end_retries`` times (with wire
    at least twice), every ``end_retry_ms``: a new leader's high watermark may lag behind
    (KAFKA-7703). ``memory_bytes`` limits the memory for records in a task. ``rack_source`` says
    where the process that reads finds its rack.
    """

    engine: str
    kafka: KafkaSettings
    schema: pa.Schema
    group_id: str
    isolation_level: str
    poll_timeout_ms: int
    fail_on_data_loss: bool
    end_retries: int
    end_retry_ms: int
    memory_bytes: int
    max_throttle_seconds: float = MAX_THROTTLE_SECONDS
    rack_source: RackSource | None = None

    @property
    def fetch_bytes(self) -> int:
        """
        The maximum bytes of a fetch; the broker sends a larger record batch whole.
        """
        return self.memory_bytes // _FETCH_DIVISOR

    @property
    def batch_bytes(self) -> int:
        """
        The maximum bytes of an Arrow batch, except for a single larger record.
        """
        return min(self.memory_bytes // _BATCH_DIVISOR, _MAX_BATCH_BYTES)


def limit_records(
    batches: Iterable[pa.RecordBatch], max_records: int | None
) -> Iterator[pa.RecordBatch]:
    """
    Yield the first ``max_records`` records of the batches, or all if ``max_records`` is None.
    """
    remaining = max_records
    for batch in batches:
        yield batch if remaining is None else batch.slice(0, remaining)
        if remaining is not None:
            remaining -= batch.num_rows
            if remaining <= 0:
                return


def first_records(
    fetch_one: Callable[[OffsetRange], Iterator[pa.RecordBatch]],
    requested: OffsetRange,
    max_records: int | None,
) -> Iterator[pa.RecordBatch]:
    """
    Yield the first ``max_records`` records of a range, or all if ``max_records`` is None.

    ``fetch_one`` reads the range in parts that grow, so that a few records cost little, and a large
    gap takes few requests.
    """
    if max_records is None or not requested.resolved:
        yield from limit_records(fetch_one(requested), max_records)
        return
    start, size, remaining = requested.start, max(max_records, _MIN_PART_OFFSETS), max_records
    while remaining > 0 and start < requested.end:
        end = min(start + size, requested.end)
        part = replace(requested, start=start, end=end)
        for batch in limit_records(fetch_one(part), remaining):
            remaining -= batch.num_rows
            yield batch
        start, size = end, size * _PART_GROWTH


def with_end_not_before_start(
    requested: OffsetRange, watermarks: Watermarks, high_watermark: Callable[[], int]
) -> Watermarks:
    """
    Return the watermarks, with a later end if a range up to LATEST starts beyond the visible end.

    The later end is the range's start, which makes the range empty, or the high watermark if that
    is lower.
    """
    # Invariant R9 (last stable offset).
    if requested.end != LATEST or requested.start <= watermarks.visible_end:
        return watermarks
    return watermarks._replace(visible_end=min(requested.start, high_watermark()))


def resolve_range(
    requested: OffsetRange,
    watermarks: Watermarks,
    epoch: int = NO_EPOCH,
    *,
    fail_on_data_loss: bool,
) -> OffsetRange:
    """
    Return the range with EARLIEST and LATEST replaced by the log's offsets.

    ``epoch`` is the leader epoch in which the leader returned the watermarks. If the log starts
    after the end of a range from EARLIEST, the returned range is empty. That is data loss, which
    :func:`report_data_loss` reports, if the log had records of the range when the range was
    planned. Raises :class:`OffsetsError` if the start, once replaced, is beyond the end.
    """
    log_start, visible_end = watermarks
    start = log_start if requested.start == EARLIEST else requested.start
    end = visible_end if requested.end == LATEST else requested.end
    if requested.start == EARLIEST and 0 <= requested.end < log_start:
        # For example the first part of a split range, or a range that ends at a timestamp.
        reason = f"the log starts at offset {log_start}"
        if not requested.is_empty:
            first = requested.log_start
            report_data_loss(requested, first, end, reason, fail=fail_on_data_loss)
        start = end
    resolved = replace(
        requested, start=start, end=end, end_epoch=epoch if end <= visible_end else NO_EPOCH
    )
    if resolved.size < 0:
        msg = (
            f"{requested} starts at offset {resolved.start}, beyond its end {resolved.end}: the "
            "topic holds fewer records than the options assume, or it was deleted and recreated "
            "since the read was planned. Correct the offsets in the options, or run the query again"
        )
        raise OffsetsError("UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET", msg)
    return resolved


def report_data_loss(
    requested: OffsetRange, start: int, end: int, reason: str, *, fail: bool
) -> None:
    """
    Raise :class:`DataLossError` for the offsets ``[start, end)``, or log it if ``fail`` is false.
    """
    text = (
        f"cannot read {requested}: {reason}. Up to {end - start} records from offset {start} on "
        "have aged out, or the topic was deleted or recreated"
    )
    if fail:
        text += ". Set failOnDataLoss to false to continue without them"
        raise DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", text)
    logger.warning("%s; continuing, since failOnDataLoss is false", text)


def report_lost_topic(requested: OffsetRange, *, fail: bool) -> None:
    """
    Raise :class:`DataLossError` for a topic that was deleted or recreated, or log it if ``fail`` is
    false.
    """
    planned = "" if requested.topic_id is None else f" for the topic id {requested.topic_id}"
    text = (
        f"cannot read {requested}: the topic was deleted or recreated since the read was "
        f"planned{planned}"
    )
    if fail:
        text += (
            ". Load the data again to read the new topic, or set failOnDataLoss to false "
            "to continue without the deleted one"
        )
        raise DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", text)
    logger.warning("%s; continuing, since failOnDataLoss is false", text)


def report_truncation(requested: OffsetRange, reason: str, *, fail: bool) -> None:
    """
    Raise :class:`DataLossError` for a truncated log, or log it if ``fail`` is false.
    """
    text = f"cannot read {requested} as planned: {reason}"
    if fail:
        text += ". Set failOnDataLoss to false to continue with the log as it is now"
        raise DataLossError(LOG_TRUNCATED, text)
    logger.warning("%s; continuing, since failOnDataLoss is false", text)


def timestamp_error(tp: TopicPartition, offset: int, millis: int) -> RecordError:
    """
    Return the error for a record whose timestamp does not fit Spark's microseconds.
    """
    msg = (
        f"the timestamp of {tp} at offset {offset} is {millis} ms, which is more than a Spark "
        "timestamp can hold"
    )
    return RecordError("KAFKA_MALFORMED_RECORD_TIMESTAMP", msg)
