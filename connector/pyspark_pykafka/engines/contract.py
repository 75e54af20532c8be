"""
What every engine of the data plane is asked for, and answers.

An engine reads one :class:`~pyspark_pykafka.offsets.OffsetRange` into Arrow batches, and writes
Arrow batches as records. All engines give equal tables for equal ranges.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.log_truncation import LOG_TRUNCATED
from pyspark_pykafka.errors import DataLossError, OffsetsError, RecordError
from pyspark_pykafka.offsets import EARLIEST, LATEST, NO_EPOCH, OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

#: A batch handed to Spark is closed after so many records, or ``FetchSettings.batch_bytes``.
BATCH_RECORDS = 10_000

#: How long a read waits for brokers that throttle it (KIP-219), between two records. The wait does
#: not count as time without progress.
MAX_THROTTLE_SECONDS = 300.0

# The shares of a task's memory: a response (twice, as it is parsed), and the columns being filled
# (twice, as they grow); the rest is for a record batch that has to be decompressed.
_FETCH_SHARE = 16
_BATCH_SHARE = 8
# More would leave a core's own caches between being filled and being handed over: with values of
# 1 and 10 KB 8 MiB took an eighth more CPU, 2 MiB a twentieth; with 100 B there is no difference.
_MOST_BATCH_BYTES = 512 * 1024


class Watermarks(NamedTuple):
    """
    The offsets that a partition holds: ``[log_start, visible_end)``.

    ``visible_end`` is the high watermark, or the last stable offset under ``read_committed``.
    """

    log_start: int
    visible_end: int


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """
    How to read ranges: crosses from the driver to the executors with every task.

    ``poll_timeout_ms`` bounds each wait without progress; ``end_retries`` and ``end_retry_ms``
    say how often, and how far apart, a log that ends too early is asked again (a new leader's
    high watermark may lag behind for a moment, KAFKA-7703). ``memory_bytes`` bounds what a task
    holds of records; ``engine`` is the user's word: auto, wire or librdkafka.
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

    @property
    def fetch_bytes(self) -> int:
        """
        The most to ask a broker for at a time; a larger record batch comes whole all the same.
        """
        return self.memory_bytes // _FETCH_SHARE

    @property
    def batch_bytes(self) -> int:
        """
        What closes an Arrow batch; one record that is larger makes a larger batch.
        """
        return min(self.memory_bytes // _BATCH_SHARE, _MOST_BATCH_BYTES)


def resolve_range(
    requested: OffsetRange, watermarks: Watermarks, epoch: int = NO_EPOCH
) -> OffsetRange:
    """
    Return the range with EARLIEST and LATEST replaced by the log's offsets.

    ``epoch`` is the leader epoch in which the leader returned the watermarks. Raises
    :class:`OffsetsError` if the resolved range ends before it starts.
    """
    visible_end = watermarks.visible_end
    end = visible_end if requested.end == LATEST else requested.end
    resolved = replace(
        requested,
        start=watermarks.log_start if requested.start == EARLIEST else requested.start,
        end=end,
        end_epoch=epoch if end <= visible_end else NO_EPOCH,
    )
    if resolved.size < 0:
        msg = (
            f"{requested} starts at {resolved.start} and ends at {resolved.end}: the start offset "
            "must not lie beyond the end; the topic holds fewer records than the options say"
        )
        raise OffsetsError("UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET", msg)
    return resolved


def report_data_loss(wanted: OffsetRange, start: int, end: int, why: str, *, fail: bool) -> None:
    """
    Raise :class:`DataLossError` for the offsets ``[start, end)``, or log them if that is allowed.
    """
    text = (
        f"cannot read {wanted}: {why}. Up to {end - start} records from offset {start} on "
        "have aged out, or the topic was deleted or made again"
    )
    if fail:
        text += ". Set failOnDataLoss to false to go on without them"
        raise DataLossError("KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", text)
    logger.warning("%s; going on, since failOnDataLoss is false", text)


def report_truncation(wanted: OffsetRange, why: str, *, fail: bool) -> None:
    """
    Raise :class:`DataLossError` for a log that was truncated, or log it if that is allowed.
    """
    text = f"cannot read {wanted} as it was planned: {why}"
    if fail:
        text += ". Set failOnDataLoss to false to go on with what is there now"
        raise DataLossError(LOG_TRUNCATED, text)
    logger.warning("%s; going on, since failOnDataLoss is false", text)


def timestamp_error(tp: TopicPartition, offset: int, millis: int) -> RecordError:
    """
    Return the error for a record whose time Spark's microseconds cannot hold.
    """
    msg = (
        f"the timestamp of {tp} at offset {offset} is {millis} ms, which is more than a Spark "
        "timestamp can hold"
    )
    return RecordError("KAFKA_MALFORMED_RECORD_TIMESTAMP", msg)
