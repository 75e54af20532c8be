"""
Reading one range of offsets from record batches as they lie in the log into Arrow batches.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark_pykafka.engines.contract import (
    BATCH_RECORDS,
    FetchSettings,
    report_data_loss,
    report_truncation,
    resolve_range,
    timestamp_error,
)
from pyspark_pykafka.engines.wire.consumer.fetch_size import FetchSizing
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import (
    FetchResult,
    OutOfRangeError,
    PartitionFetcher,
)
from pyspark_pykafka.engines.wire.consumer.retrying_fetcher import RetryingFetcher
from pyspark_pykafka.engines.wire.consumer.stalls import why_nothing, why_out_of_range
from pyspark_pykafka.engines.wire.consumer.truncation_check import LogCheck, LogTruncatedError
from pyspark_pykafka.engines.wire.network.cluster import borrowed_cluster
from pyspark_pykafka.engines.wire.records._decoder import (
    MalformedBatch,
    OldFormat,
    TimestampTooLarge,
    next_offset,
)
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from pyspark_pykafka.engines.wire.records.compression import Decompressor
from pyspark_pykafka.errors import RecordError
from pyspark_pykafka.offsets import OffsetRange
from pyspark_pykafka.retry import Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.settings.wire_config import WireConfig

# How often at least a leader must say that the log ends before that is believed.
_LEAST_ANSWERS = 2


class OldFormatError(Exception):
    """
    The log holds message sets from before record batches, from the start of ``rest`` on.
    """

    def __init__(self, rest: OffsetRange, magic: int) -> None:
        self.rest = rest
        self.magic = magic
        super().__init__(rest, magic)


def fetch(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order; borders that are words are resolved first.

    Raises :class:`DataLossError` when records of the range are gone and ``fail_on_data_loss`` is
    set; otherwise the loss is logged with what was skipped. Raises :class:`OldFormatError` where
    another engine has to go on, and the other errors of :mod:`pyspark_pykafka.errors` as named.
    """
    with borrowed_cluster(settings.kafka) as cluster:
        yield from fetch_from(cluster, requested, settings)


def fetch_from(
    cluster: Cluster, wanted: OffsetRange, settings: FetchSettings
) -> Iterator[pa.RecordBatch]:
    """
    Yield as :func:`fetch` does, over connections that the caller has.
    """
    topic_id = None if wanted.topic_id is None else _uuid(wanted.topic_id)
    partition = PartitionFetcher(cluster, wanted.tp, settings.isolation_level, topic_id)
    asking = RetryingFetcher(partition, settings.poll_timeout_ms, settings.max_throttle_seconds)
    bound = wanted
    if not wanted.resolved:
        bound = resolve_range(wanted, asking.watermarks(), partition.epoch)
    partition.log = LogCheck(bound.tp, bound.end, bound.end_epoch)
    if bound.size > 0:
        yield from _RangeReader(asking, settings, cluster.config, bound).batches()


def _uuid(text: str) -> UUID:
    # Kafka prints ids in base64 without the padding.
    return UUID(bytes=urlsafe_b64decode(f"{text}=="))


@dataclass(slots=True)
class _RangeReader:
    """
    The state of one read: where it stands, and what has kept it there.
    """

    asking: RetryingFetcher
    settings: FetchSettings
    config: WireConfig
    range: OffsetRange
    columns: ArrowDecoder = field(init=False)
    sizing: FetchSizing = field(init=False)
    # Answers that brought nothing since the last progress, and those that the log ends too early.
    empty_answers: int = field(init=False, default=0)
    short_answers: int = field(init=False, default=0)

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
        limits = (self.config.fetch_max_bytes, self.config.max_partition_fetch_bytes)
        given = [limit for limit in limits if limit is not None]
        self.sizing = FetchSizing(min([self.settings.fetch_bytes, *given]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        # Invariant R11 (completion of a range).
        while not self.columns.done:
            # What one answer holds is gone before the next is received, which takes its memory.
            yield from self._one_answer()
        yield from self.columns.flush()

    def _one_answer(self) -> Iterator[pa.RecordBatch]:
        fetched = self._fetch()
        if fetched is None:
            return
        if fetched.records:
            yield from self._read(fetched)
        else:
            self._on_nothing(fetched)

    def _fetch(self) -> FetchResult | None:
        """
        Return an answer, or None if there is none and the reader has moved on.
        """
        position = self.columns.position
        size = self.sizing.next_fetch_bytes(self.range.end - position)
        try:
            fetched = self.asking.fetch(position, size, self._wait_ms())
        except OutOfRangeError:
            self._on_out_of_range()
            return None
        except LogTruncatedError as error:
            self._on_truncated(error)
            return None
        if fetched is None:
            self._lose("the topic or the partition does not exist any more", self.range.end)
        return fetched

    def _wait_ms(self) -> int:
        """
        Return how long the broker may wait for a record: longer where its log ends too early.
        """
        if self.short_answers:
            return min(self.settings.end_retry_ms, int(self.config.request_seconds * 500))
        return self.config.fetch_wait_max_ms

    def _read(self, fetched: FetchResult) -> Iterator[pa.RecordBatch]:
        position = self.columns.position
        after = next_offset(fetched.records, position)
        self.sizing.record_response(after - position, len(fetched.records))
        if after < self.range.end and not fetched.throttled and after > position:
            size = self.sizing.next_fetch_bytes(self.range.end - after)
            self.asking.prefetch(after, size, self.config.fetch_wait_max_ms)
        try:
            yield from self.columns.batches(fetched.records, fetched.aborted)
        except OldFormat as old:
            yield from self.columns.flush()
            rest = OffsetRange(self.range.tp, self.columns.position, self.range.end)
            raise OldFormatError(rest, old.magic) from old
        except MalformedBatch as bad:
            raise self._corrupt(bad) from bad
        except TimestampTooLarge as bad:
            raise timestamp_error(self.range.tp, bad.offset, bad.millis) from bad
        if self.columns.position == position:
            self._on_part_of_a_batch(fetched)
        self._progressed()

    def _progressed(self) -> None:
        self.empty_answers = self.short_answers = 0
        self.asking.progressed()

    def _corrupt(self, bad: MalformedBatch) -> RecordError:
        msg = (
            f"cannot read {self.range.tp} at offset {bad.offset}: {bad.why}. The record batch is "
            "damaged, on the broker's disk or on the way; if it stays so, restore the partition "
            "from another replica, or read around the offset"
        )
        return RecordError("KAFKA_CORRUPT_RECORD_BATCH", msg)

    def _on_part_of_a_batch(self, fetched: FetchResult) -> None:
        # Since KIP-74 (Kafka 0.10.1) the first batch comes whole, whatever the size asked for.
        msg = (
            f"the broker's answer for {self.range.tp} at offset {self.columns.position} holds "
            f"{len(fetched.records)} bytes and no whole record batch"
        )
        raise RecordError("KAFKA_CORRUPT_RECORD_BATCH", msg)

    def _on_nothing(self, fetched: FetchResult) -> None:
        """
        Tell a log that ends before the range does from an answer that only brings nothing.

        No answer without records says that there are none below the end of the log: a quota, slow
        remote storage (KIP-405) and a broker that has just begun to lead all answer so. Offsets
        are passed over only where a record batch, or the start of the log, says so.
        """
        # Invariants R7 and R8: no offset is skipped here; a hole ends at the next record batch.
        self.empty_answers += 1
        position = self.columns.position
        if fetched.is_authoritative:
            self.asking.partition.forget()
            if fetched.high_watermark <= position:
                self._on_short_log(fetched.high_watermark)
                return
        elif fetched.redirected and self.empty_answers > 1:
            # Replicas may name each other for ever; whoever has no rack is served by the leader.
            self.asking.partition.stay_with_leader()
        # A replica is asked at once when it is named for the first time.
        pause = self.empty_answers > 1 or not fetched.redirected
        why = why_nothing(fetched, position)
        self.asking.bear(position, why, pause=pause)

    def _on_short_log(self, end: int) -> None:
        """
        Ask again before the end of the log is believed, and what lies behind it is lost.

        A new leader's end may lag behind (KAFKA-7703), one that has just started may not know its
        own yet, and one that was deposed does not know of it. The broker waits for records
        meanwhile. The last word is that of ListOffsets: a leader that was just elected tells no end
        before it knows it (KIP-207), but answers fetches.
        """
        # Invariant R10 (end of the log).
        self.short_answers += 1
        position = self.columns.position
        if self.short_answers > max(self.settings.end_retries, _LEAST_ANSWERS):
            end = self.asking.uncommitted_watermarks().visible_end
            if end <= position:
                self._lose(f"the log ends at offset {end}", self.range.end)
                return
        self.asking.bear(position, f"the log ends at offset {end}")

    def _on_out_of_range(self) -> None:
        low, high = self.asking.uncommitted_watermarks()
        position = self.columns.position
        if position < low:
            self._lose(f"offset {position} is out of range, the log has [{low}, {high})", low)
        elif position > high:
            self.asking.partition.forget()
            self._on_short_log(high)
            self._await_end(position)
        else:
            self.empty_answers += 1
            self.asking.partition.forget()
            self.asking.bear(position, why_out_of_range(low, high))

    def _on_truncated(self, error: LogTruncatedError) -> None:
        """
        Go on, if that is allowed, with what the log holds now.
        """
        fail = self.settings.fail_on_data_loss
        report_truncation(self.range, str(error.truncation), fail=fail)
        self.asking.partition.log.forget()
        self.columns.log_changed()

    def _await_end(self, position: int) -> None:
        """
        Wait until the log reaches the position, or it is time to ask for the records again.
        """
        deadline = Deadline.after(self.settings.end_retry_ms / 1000)
        backoff = Backoff(self.config.retry_backoff_seconds, self.config.retry_backoff_max_seconds)
        while not self.columns.done and not deadline.expired:
            time.sleep(deadline.remaining(max_seconds=backoff.next_pause()))
            if self.asking.uncommitted_watermarks().visible_end >= position:
                return

    def _lose(self, why: str, go_on_at: int) -> None:
        end = min(go_on_at, self.range.end)
        fail = self.settings.fail_on_data_loss
        report_data_loss(self.range, self.columns.position, end, why, fail=fail)
        self.columns.skip_to(end)
        self._progressed()
