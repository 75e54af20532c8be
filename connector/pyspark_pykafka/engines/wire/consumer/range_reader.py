"""
Reads one offset range into Arrow batches, straight from the log's record batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.contract import (
    BATCH_RECORDS,
    FetchSettings,
    report_data_loss,
    report_lost_topic,
    report_truncation,
    resolve_range,
    timestamp_error,
    with_end_not_before_start,
)
from pyspark_pykafka.engines.wire.consumer.fetch_size import FetchSizing
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import (
    FetchResult,
    OutOfRangeError,
    PartitionFetcher,
)
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.consumer.stall_causes import (
    explain_empty_fetch,
    explain_out_of_range,
)
from pyspark_pykafka.engines.wire.consumer.topics import format_topic_id, parse_topic_id
from pyspark_pykafka.engines.wire.consumer.truncation_check import (
    LogTruncatedError,
    TruncationCheck,
)
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster
from pyspark_pykafka.engines.wire.records._decoder import (
    MalformedBatch,
    OldFormat,
    TimestampTooLarge,
    next_offset,
)
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from pyspark_pykafka.engines.wire.records.compression import Decompressor
from pyspark_pykafka.errors import OffsetsError, RecordError
from pyspark_pykafka.offsets import OffsetRange
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.settings.wire_config import WireConfig

# An early end of the log is accepted after at least this many retries.
_MIN_END_RETRIES = 2


class OldFormatError(Exception):
    """
    The log has message sets, the format before record batches, from the start of ``rest`` on.
    """

    def __init__(self, rest: OffsetRange, magic: int) -> None:
        self.rest = rest
        self.magic = magic
        super().__init__(rest, magic)


def fetch(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order; EARLIEST and LATEST are resolved first.

    Raises :class:`DataLossError` if records of the range no longer exist and ``fail_on_data_loss``
    is set; otherwise logs the loss with the skipped offsets. Raises :class:`OldFormatError` if
    another engine has to read the rest, and other errors of :mod:`pyspark_pykafka.errors`.
    """
    with borrowed_cluster(settings.kafka) as cluster:
        yield from fetch_from(cluster, requested, settings)


def fetch_from(
    cluster: Cluster, requested: OffsetRange, settings: FetchSettings
) -> Iterator[pa.RecordBatch]:
    """
    Yield as :func:`fetch` does, over the caller's connections.
    """
    topic_id = None if requested.topic_id is None else parse_topic_id(requested.topic_id)
    partition = PartitionFetcher(cluster, requested.tp, settings.isolation_level, topic_id)
    fetcher = RetryingFetcher(partition, settings.poll_timeout_ms, settings.max_throttle_seconds)
    fail = settings.fail_on_data_loss
    resolved = requested if requested.resolved else _resolve(requested, fetcher, fail=fail)
    if resolved is None:
        report_lost_topic(requested, fail=fail)
        return
    partition.truncation_check = TruncationCheck(resolved.tp, resolved.end, resolved.end_epoch)
    if resolved.size > 0:
        yield from _RangeReader(fetcher, settings, cluster.config, resolved).batches()


def _resolve(requested: OffsetRange, fetcher: RetryingFetcher, *, fail: bool) -> OffsetRange | None:
    """
    Return the range with offsets of the log, or None if the planned topic no longer exists.
    """
    watermarks = fetcher.planned_watermarks()
    if watermarks is None:
        return None
    watermarks = with_end_not_before_start(
        requested, watermarks, lambda: fetcher.uncommitted_watermarks().visible_end
    )
    try:
        epoch = fetcher.partition.epoch
        resolved = resolve_range(requested, watermarks, epoch, fail_on_data_loss=fail)
    except OffsetsError:
        if fetcher.confirm_one_topic():
            raise
        return None
    # Leaders list the offsets of any topic with this name; if there is nothing to fetch, no
    # response shows that the topic was recreated.
    return resolved if resolved.size > 0 or fetcher.confirm_one_topic() else None


@dataclass(slots=True)
class _RangeReader:
    """
    The state of one read: the position, and the number of responses since the last progress.
    """

    fetcher: RetryingFetcher
    settings: FetchSettings
    config: WireConfig
    range: OffsetRange
    columns: ArrowDecoder = field(init=False)
    sizing: FetchSizing = field(init=False)
    # The numbers of responses without records, and of responses that show a log end before the end
    # of the range.
    empty_responses: int = field(init=False, default=0)
    short_responses: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.columns = ArrowDecoder.of_range(
            self.range.tp,
            self.range.start,
            self.range.end,
            self.settings.schema,
            Decompressor(self.settings.memory_bytes),
            max_records=BATCH_RECORDS,
            max_bytes=self.settings.batch_bytes,
            check_crcs=self.config.check_crcs,
        )
        max_bytes = min(self.settings.fetch_bytes, self.config.max_fetch_bytes)
        self.sizing = FetchSizing(max_bytes)

    def batches(self) -> Iterator[pa.RecordBatch]:
        # Invariant R11 (completion of a range).
        old_format: OldFormatError | None = None
        try:
            while not self.columns.done:
                # A response is decoded before the next is received, so that its memory can be
                # reused.
                yield from self._one_response()
        except OldFormatError as error:
            old_format = error
        if self.fetcher.partition.reads_by_name and not self.fetcher.confirm_one_topic():
            report_lost_topic(self.range, fail=self.settings.fail_on_data_loss)
            return
        yield from self.columns.flush()
        if old_format is not None:
            raise old_format

    def _one_response(self) -> Iterator[pa.RecordBatch]:
        fetched = self._fetch()
        if fetched is None:
            return
        if fetched.records:
            yield from self._decode(fetched)
        else:
            self._on_empty_fetch(fetched)

    def _fetch(self) -> FetchResult | None:
        """
        Return a response, or None if offsets were skipped instead.
        """
        position = self.columns.position
        max_bytes = self.sizing.next_fetch_bytes(self.range.end - position)
        try:
            fetched = self.fetcher.fetch(position, max_bytes, self._max_wait_ms())
        except OutOfRangeError:
            self._on_out_of_range()
            return None
        except LogTruncatedError as error:
            self._on_truncated(error)
            return None
        if fetched is None:
            self._skip_lost("the topic or the partition no longer exists", self.range.end)
        return fetched

    def _max_wait_ms(self) -> int:
        """
        Return how long the broker may wait for a record: longer if its log ends too early.
        """
        if self.short_responses:
            return min(self.settings.end_retry_ms, int(self.config.request_seconds * 500))
        return self.config.fetch_wait_max_ms

    def _decode(self, fetched: FetchResult) -> Iterator[pa.RecordBatch]:
        position = self.columns.position
        next_position = next_offset(fetched.records, position)
        self.sizing.record_response(next_position - position, len(fetched.records))
        if position < next_position < self.range.end:
            max_bytes = self.sizing.next_fetch_bytes(self.range.end - next_position)
            self.fetcher.prefetch(next_position, max_bytes, self.config.fetch_wait_max_ms)
        try:
            yield from self.columns.batches(fetched.records, fetched.aborted_transactions)
        except OldFormat as error:
            read_id = self.fetcher.partition.topic_id
            topic_id = None if read_id is None else format_topic_id(read_id)
            rest = OffsetRange(self.range.tp, self.columns.position, self.range.end, topic_id)
            raise OldFormatError(rest, error.magic) from error
        except MalformedBatch as error:
            raise self._corrupt_batch_error(error) from error
        except TimestampTooLarge as error:
            raise timestamp_error(self.range.tp, error.offset, error.millis) from error
        if self.columns.position == position:
            self._on_incomplete_batch(fetched)
        self._on_progress()

    def _on_progress(self) -> None:
        self.empty_responses = self.short_responses = 0
        self.fetcher.on_progress()

    def _corrupt_batch_error(self, error: MalformedBatch) -> RecordError:
        msg = (
            f"cannot read {self.range.tp} at offset {error.offset}: {error.reason}. The record "
            "batch is damaged, on the broker's disk or on the network; if the error persists, "
            "restore the partition from another replica, or skip the offset"
        )
        return RecordError("KAFKA_CORRUPT_RECORD_BATCH", msg)

    def _on_incomplete_batch(self, fetched: FetchResult) -> None:
        # Since KIP-74 (Kafka 0.10.1) the first batch is sent whole, whatever the requested size.
        msg = (
            f"the broker's response for {self.range.tp} at offset {self.columns.position} has "
            f"{len(fetched.records)} bytes and no whole record batch"
        )
        raise RecordError("KAFKA_CORRUPT_RECORD_BATCH", msg)

    def _on_empty_fetch(self, fetched: FetchResult) -> None:
        """
        Distinguish a log that ends inside the range from a response that merely has no records.

        A response without records does not prove that the log has none before its end: slow remote
        storage (KIP-405) and a newly elected leader cause such a response. Offsets are skipped only
        if a record batch or the log start shows that they have no records.
        """
        # Invariants R7 and R8: no offset is skipped here; a hole ends at the next record batch.
        self.empty_responses += 1
        position = self.columns.position
        if fetched.is_authoritative:
            self.fetcher.partition.reset()
            if fetched.high_watermark <= position:
                self._on_short_log(fetched.high_watermark)
                return
        elif fetched.is_redirect and self.empty_responses > 1:
            # Replicas may name each other forever; without a rack the leader returns records.
            self.fetcher.partition.clear_preferred_read_replica()
        # A replica is used at once when it is named for the first time.
        pause = self.empty_responses > 1 or not fetched.is_redirect
        reason = explain_empty_fetch(fetched, position)
        self.fetcher.back_off(position, reason, pause=pause)

    def _on_short_log(self, end: int) -> None:
        """
        Retry before accepting a log end inside the range, which loses the rest of the range.

        The high watermark of a new leader may lag behind (KAFKA-7703), a leader that has just
        started may not know the high watermark yet, and a deposed leader does not know that it is
        deposed. During a retry the broker waits for records. After the retries ListOffsets decides:
        a newly elected leader answers fetches at once, but ListOffsets only when it knows the log
        end (KIP-207).
        """
        # Invariant R10 (end of the log).
        self.short_responses += 1
        position = self.columns.position
        if self.short_responses > max(self.settings.end_retries, _MIN_END_RETRIES):
            end = self.fetcher.uncommitted_watermarks().visible_end
            if end <= position:
                self._skip_lost(f"the log ends at offset {end}", self.range.end)
                return
        self.fetcher.back_off(position, f"the log ends at offset {end}")

    def _on_out_of_range(self) -> None:
        watermarks = self.fetcher.uncommitted_watermarks()
        log_start, end = watermarks
        position = self.columns.position
        if position < log_start:
            reason = f"offset {position} is out of range, the log has [{log_start}, {end})"
            self._skip_lost(reason, log_start)
        elif position > end:
            self.fetcher.partition.reset()
            self._on_short_log(end)
            self._wait_for_end(position)
        else:
            self.empty_responses += 1
            self.fetcher.partition.reset()
            self.fetcher.back_off(position, explain_out_of_range(watermarks))

    def _on_truncated(self, error: LogTruncatedError) -> None:
        """
        Read the log as it is now, if ``fail_on_data_loss`` is not set.
        """
        fail = self.settings.fail_on_data_loss
        report_truncation(self.range, str(error.truncation), fail=fail)
        self.fetcher.partition.truncation_check.reset()
        self.columns.allow_log_change()

    def _wait_for_end(self, position: int) -> None:
        """
        Wait until the log reaches the position, ``end_retry_ms`` at most.
        """
        deadline = self.fetcher.partition.cluster.new_deadline(self.settings.end_retry_ms / 1000)
        backoff = Backoff(self.config.retry_backoff_seconds, self.config.retry_backoff_max_seconds)
        while not self.columns.done and not deadline.expired:
            deadline.pause(backoff.next_pause())
            if self.fetcher.uncommitted_watermarks().visible_end >= position:
                return

    def _skip_lost(self, reason: str, next_position: int) -> None:
        """
        Report the offsets up to ``next_position`` as lost, and skip them if that is allowed.
        """
        end = min(next_position, self.range.end)
        fail = self.settings.fail_on_data_loss
        report_data_loss(self.range, self.columns.position, end, reason, fail=fail)
        self.columns.skip_to(end)
        self._on_progress()
