"""
Reads one range with librdkafka: the position, and the handling of librdkafka's events.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Position

from pyspark_pykafka.engines.contract import (
    BATCH_RECORDS,
    FetchSettings,
    Watermarks,
    report_data_loss,
    report_truncation,
)
from pyspark_pykafka.engines.error_mapping import map_kafka_error, translating_errors
from pyspark_pykafka.engines.librdkafka.client import Client, request_watermarks
from pyspark_pykafka.engines.librdkafka.messages import to_batch
from pyspark_pykafka.errors import PykafkaError, RecordError, StalledReadError
from pyspark_pykafka.offsets import NO_EPOCH
from pyspark_pykafka.retry import Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pyspark_pykafka.offsets import OffsetRange

logger = logging.getLogger("pyspark_pykafka")

# How long one poll may block, and so how soon a fatal error of librdkafka's threads is noticed.
_SLICE_SECONDS = 0.25

# The timeout of a metadata request during a read; the deadline for progress is longer.
_METADATA_SECONDS = 5.0

# After how long without a message to check whether the partition still exists.
_SILENCE_SECONDS = 2.0

# Ends librdkafka's error text if the log was truncated (KIP-320).
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001

# The end offset of the leader epoch in that text, -1 if the leader does not know it.
_EPOCH_END = re.compile(r"broker end offset is (-?\d+)")

_NO_RECORDS = (
    "is the partition's leader reachable, and remote storage fast enough if the topic is in it "
    "(remote.fetch.max.wait.ms, remote.log.manager.fetch.max.bytes.per.second)?"
)

# The pause before fetching again an offset that the leader rejected.
_MIN_PAUSE, _MAX_PAUSE = 0.1, 1.0

_MISSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors have such names
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


def _new_backoff() -> Backoff:
    return Backoff(_MIN_PAUSE, _MAX_PAUSE)


@dataclass(slots=True)
class RangeReader:
    """
    One read: its position, and the signs of data loss that have to be checked.
    """

    client: Client
    settings: FetchSettings
    range: OffsetRange
    #: Whether several brokers have confirmed the metadata of the client.
    is_confirmed: bool = True
    #: Why the rest of the range would be lost, once the client's metadata need to be confirmed.
    unconfirmed_loss: str | None = field(init=False, default=None)
    position: int = field(init=False)
    first_gap: int | None = field(init=False, default=None)
    short_log_seen: int = field(init=False, default=0)
    unchecked: bool = field(init=False, default=False)
    # Why the partition seems to be deleted, and why no records arrive.
    missing_reason: str | None = field(init=False, default=None)
    stall_reason: str = field(init=False, default=_NO_RECORDS)
    backoff: Backoff = field(init=False, default_factory=_new_backoff)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    done: bool = field(init=False)

    def __post_init__(self) -> None:
        self.position = self.range.start
        self.done = self.range.size == 0

    @property
    def rest(self) -> OffsetRange:
        """
        The range from the position on.
        """
        if self.position == self.range.start:
            return self.range
        return replace(self.range, start=self.position, start_epoch=NO_EPOCH)

    def report_unconfirmed_loss(self) -> None:
        """
        Report the rest of the range as lost: no other broker can confirm it.
        """
        self._lose(self.unconfirmed_loss or "", self.range.end)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of the range in batches; the client belongs to this read until then.
        """
        if self.done:
            return
        self._assign()
        while not self.done:
            messages = self._next_records()
            if self.first_gap is not None:
                self._check_gap(self.first_gap)
            if messages:
                yield to_batch(messages, self.settings.schema)

    def _assign(self) -> None:
        tp = self.range.tp
        # With an epoch librdkafka lets the leader check for a truncated log (KIP-320).
        is_checked = self.position == self.range.start and not self.unchecked
        epoch = self.range.start_epoch if is_checked else NO_EPOCH
        self.client.consumer.assign(
            [Position(tp.topic, tp.partition, self.position, leader_epoch=epoch)]
        )

    def _next_records(self) -> list[Message]:
        """
        Return records until a batch is full or the range is done.

        Raises :class:`StalledReadError` if no message arrives within the poll timeout.
        """
        records: list[Message] = []
        size = 0
        deadline = self._deadline()
        check_at = Deadline.after(_SILENCE_SECONDS, self.now)
        while not self.done and len(records) < BATCH_RECORDS and size < self.settings.batch_bytes:
            before = self.position
            for message in self._poll(BATCH_RECORDS - len(records), deadline):
                if self._take(message):
                    records.append(message)
                    size += len(message)
            if self.position != before:
                deadline = self._deadline()
                self.missing_reason, self.backoff = None, _new_backoff()
            elif deadline.expired:
                self._give_up()
            elif check_at.expired:
                self._check_existence()
                check_at = Deadline.after(_SILENCE_SECONDS, self.now)
        return records

    def _give_up(self) -> None:
        """
        Report data loss if the partition is still missing, else raise :class:`StalledReadError`.
        """
        if self.missing_reason is not None:
            self._lose_rest(self.missing_reason)
            return
        msg = (
            f"no record of {self.range} arrived at offset {self.position} within "
            f"{self.settings.poll_timeout_ms} ms, and nothing says that there is none: "
            f"{self.stall_reason} Set kafkaConsumer.pollTimeoutMs to wait longer"
        )
        raise StalledReadError(msg)

    def _deadline(self) -> Deadline:
        return Deadline.after(self.settings.poll_timeout_ms / 1000, self.now)

    def _poll(self, max_messages: int, deadline: Deadline) -> list[Message]:
        self.client.fatal.raise_pending(f"reading {self.range}")
        first = self.client.consumer.poll(deadline.remaining(max_seconds=_SLICE_SECONDS))
        if first is not None:
            # consume() would wait for all messages; a timeout of 0 returns those in the buffer.
            return [first, *self.client.consumer.consume(max_messages - 1, timeout=0)]
        return []

    def _take(self, message: Message) -> bool:
        """
        Advance by one message, and return whether it is a record of the range.
        """
        if self.done:
            return False
        error = message.error()
        if error is not None:
            self._on_event(error, message)
            return False
        offset = _offset_of(message)
        if offset < self.position:
            msg = f"{self.range.tp} returned offset {offset} for offset {self.position}"
            raise RecordError("UNEXPECTED_OFFSET", msg)
        if offset > self.position and self.first_gap is None:
            self.first_gap = self.position
        self._move_to(offset + 1)
        return offset < self.range.end

    def _move_to(self, position: int) -> None:
        self.position = position
        self.done = position >= self.range.end

    def _on_event(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._on_end_of_log(_offset_of(message))
        elif _TRUNCATED in error.str():
            self._on_truncated(error)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
            self._on_out_of_range()
        elif code in _MISSING:
            self._on_missing(f"the partition no longer exists ({error.str()})")
        else:
            mapped = map_kafka_error(error, f"reading {self.range}")
            if not mapped.retriable:
                raise mapped
            logger.info("%s; librdkafka retries", mapped)

    def _check_existence(self) -> None:
        """
        Check that the partition exists: a consumer gets no error for a deleted topic.
        """
        tp = self.range.tp
        try:
            with translating_errors(f"checking whether {tp} exists"):
                topics = self.client.consumer.list_topics(tp.topic, timeout=_METADATA_SECONDS)
        except PykafkaError as error:
            if not error.retriable:
                raise
            # Not an error before the deadline for progress. It confirms no earlier response.
            logger.info("%s; librdkafka retries", error)
            self.missing_reason = None
            return
        topic = topics.topics.get(tp.topic)
        if topic is None or (topic.error and topic.error.code() in _MISSING):
            self._on_missing("the topic no longer exists")
        elif not topic.error and tp.partition not in topic.partitions:
            self._on_missing("the partition no longer exists")
        elif not topic.error:
            self.missing_reason = None

    def _on_missing(self, reason: str) -> None:
        """
        Retry: a broker that has just started, or is partitioned off, does not know all topics.

        The partition counts as deleted if it is still missing at the deadline for progress;
        librdkafka sends each request to any broker.
        """
        logger.info("%s: %s; retrying", self.range.tp, reason)
        self.missing_reason = reason

    def _on_end_of_log(self, log_end: int) -> None:
        """
        Advance to the log end: control and aborted records at the tail have no message.

        If the log ends before the range, that is checked again before it counts as data loss.
        """
        if log_end > self.position and self.first_gap is None:
            self.first_gap = self.position
        self._move_to(max(log_end, self.position))
        if self.done:
            return
        high_watermark = self._high_watermark()
        if high_watermark > log_end and self.settings.isolation_level == "read_committed":
            self._on_open_transaction(log_end, high_watermark)
        else:
            self._on_short_log(log_end)

    def _high_watermark(self) -> int:
        """
        Return the high watermark of the last fetch response, -1 if it is not known.
        """
        tp = self.range.tp
        watermarks = self.client.consumer.get_watermark_offsets(
            Position(tp.topic, tp.partition), cached=True
        )
        return -1 if watermarks is None else int(watermarks[1])

    def _on_open_transaction(self, end: int, high_watermark: int) -> None:
        """
        Wait: records after the last stable offset are not lost.
        """
        self.stall_reason = (
            f"a transaction has been open since offset {end} (last stable offset; high watermark "
            f"{high_watermark}); pykafka transactions list shows its owner."
        )
        self._pause()
        self._assign()

    def _on_short_log(self, log_end: int) -> None:
        self.short_log_seen += 1
        if self.short_log_seen > self.settings.end_retries:
            self._lose_rest(f"the log ends at offset {log_end}")
            return
        if self._wait_for_more(log_end).visible_end > log_end:
            self.short_log_seen = 0
        self._assign()

    def _wait_for_more(self, log_end: int) -> Watermarks:
        deadline = Deadline.after(self.settings.end_retry_ms / 1000, self.now)
        while True:
            watermarks = request_watermarks(self.client, self.range, self.settings)
            if watermarks.visible_end > log_end or deadline.expired:
                return watermarks
            # Without an assignment poll() only waits, and serves callbacks.
            self.client.consumer.unassign()
            self.client.consumer.poll(deadline.remaining(max_seconds=_SLICE_SECONDS))

    def _on_out_of_range(self) -> None:
        log_start, visible_end = request_watermarks(self.client, self.range, self.settings)
        if self.position < log_start:
            reason = (
                f"offset {self.position} is out of range, the log has [{log_start}, {visible_end})"
            )
            self._lose(reason, log_start)
        elif self.position > visible_end:
            self._on_short_log(visible_end)
            return
        else:
            self._on_rejected_offset(log_start, visible_end)
        if not self.done:
            self._assign()

    def _on_truncated(self, error: KafkaError) -> None:
        """
        Continue with the current log if data loss is allowed; do not check this start again.
        """
        epoch_end = _EPOCH_END.search(error.str())
        if epoch_end is None or int(epoch_end[1]) >= 0:
            reason = f"the log of {self.range.tp} was truncated before offset {self.position}: "
            report_truncation(
                self.range, reason + error.str(), fail=self.settings.fail_on_data_loss
            )
        else:
            # A log in the old message format has no epochs, so nothing can be checked.
            logger.info("the start of %s cannot be checked: %s", self.range, error.str())
        self.unchecked = True
        self._assign()

    def _on_rejected_offset(self, log_start: int, visible_end: int) -> None:
        """
        Pause before fetching again an offset that the leader rejects, although its log has it.
        """
        self.stall_reason = (
            "the leader says that the offset is out of range (OFFSET_OUT_OF_RANGE), and also that "
            f"the log has offsets from {log_start} up to {visible_end}; is the cluster at rest?"
        )
        self._pause()

    def _pause(self) -> None:
        """
        Stop fetching for the backoff's pause.
        """
        self.client.consumer.unassign()
        self.sleep(self.backoff.next_pause())

    def _check_gap(self, gap: int) -> None:
        """
        Report the gap as data loss if retention deleted it; compaction and transactions are not.

        The log start offset only grows, so one request covers all gaps since the first.
        """
        # Invariant R6 (gap).
        self.first_gap = None
        log_start = request_watermarks(self.client, self.range, self.settings).log_start
        if log_start > gap:
            self._lose(f"the log now starts at offset {log_start}", self.position, since=gap)

    def _lose_rest(self, reason: str) -> None:
        """
        Report the rest of the range as lost, or end the read so that other brokers are compared.
        """
        # Invariant R18 (no single broker).
        if self.is_confirmed:
            self._lose(reason, self.range.end)
        else:
            self.unconfirmed_loss, self.done = reason, True

    def _lose(self, reason: str, resume_at: int, since: int | None = None) -> None:
        start = self.position if since is None else since
        end = min(resume_at, self.range.end)
        fail = self.settings.fail_on_data_loss
        report_data_loss(self.range, start, end, reason, fail=fail)
        self._move_to(max(self.position, end))


def _offset_of(message: Message) -> int:
    offset: int | None = message.offset()
    if offset is None:
        msg = "librdkafka returned a message without an offset"
        raise RecordError("UNEXPECTED_OFFSET", msg)
    return offset
