"""
Handles the events that librdkafka's consumer reports instead of records.

The events are the end of the log, a truncated log, an offset out of range, a missing partition.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Position

from pyspark_pykafka.engines.contract import report_truncation
from pyspark_pykafka.engines.error_mapping import map_read_error, translating_errors
from pyspark_pykafka.errors import KafkaClientError, PykafkaError, RecordError
from pyspark_pykafka.retry import Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from pyspark_pykafka.engines.contract import Watermarks
    from pyspark_pykafka.engines.librdkafka.assigned_range import AssignedRange

logger = logging.getLogger("pyspark_pykafka")

# How long one poll may block, and so how soon a fatal error of librdkafka's threads is noticed.
POLL_SECONDS = 0.25

# The timeout of a metadata request during a read; pollTimeoutMs, which limits the time in which the
# read does not advance, is longer.
_METADATA_SECONDS = 5.0

# The last part of librdkafka's error text if the log was truncated (KIP-320).
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001

# The end offset of the leader epoch in that text, -1 if the leader does not know it.
_EPOCH_END = re.compile(r"broker end offset is (-?\d+)")

_NO_RECORDS = (
    "is the partition's leader reachable, and remote storage fast enough if the topic is in it "
    "(remote.fetch.max.wait.ms, remote.log.manager.fetch.max.bytes.per.second)?"
)

# The pause before an offset that the leader rejected is fetched again.
_MIN_PAUSE, _MAX_PAUSE = 0.1, 1.0

_MISSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors have such names
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


def _new_backoff() -> Backoff:
    return Backoff(_MIN_PAUSE, _MAX_PAUSE)


@dataclass(slots=True)
class ConsumerEvents:
    """
    Decides for each event of a read whether to wait, to fetch again or to report data loss.
    """

    assigned: AssignedRange
    now: Callable[[], float] = field(repr=False)
    sleep: Callable[[float], None] = field(repr=False)
    #: Why the partition seems to be deleted, if it does.
    missing_reason: str | None = field(init=False, default=None)
    #: Why no records arrive, for the error that ends a stalled read.
    stall_reason: str = field(init=False, default=_NO_RECORDS)
    short_log_seen: int = field(init=False, default=0)
    backoff: Backoff = field(init=False, default_factory=_new_backoff)

    def on_progress(self) -> None:
        """
        Forget the errors that were reported before the position advanced.
        """
        self.missing_reason, self.backoff = None, _new_backoff()
        self.stall_reason = _NO_RECORDS

    def on_event(self, error: KafkaError, message: Message) -> None:
        """
        Handle an event, which is a message with an error; raise errors that are not retriable.
        """
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._on_end_of_log(offset_of(message))
        elif _TRUNCATED in error.str():
            self._on_truncated(error)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
            self._on_out_of_range()
        elif code in _MISSING:
            self._on_missing(f"the partition no longer exists ({error.str()})")
        else:
            mapped = map_read_error(error, f"reading {self.assigned.range}")
            if not mapped.retriable:
                raise mapped
            if isinstance(mapped, KafkaClientError):
                self.stall_reason = f"{mapped}."
            logger.info("%s; librdkafka retries", mapped)

    def check_existence(self) -> None:
        """
        Check that the partition exists: a consumer gets no error for a deleted topic.
        """
        tp = self.assigned.range.tp
        consumer = self.assigned.client.consumer
        try:
            with translating_errors(f"checking whether {tp} exists", map_read_error):
                topics = consumer.list_topics(tp.topic, timeout=_METADATA_SECONDS)
        except PykafkaError as error:
            if not error.retriable:
                raise
            # Retried until the read has not advanced for pollTimeoutMs. An earlier report that the
            # partition is missing no longer counts.
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
        Retry: a broker that has just started, or is cut off from its controllers, may not know the
        topic.

        The partition counts as deleted if it is still missing when the read has not advanced for
        pollTimeoutMs. Each retry may reach another broker: librdkafka sends a metadata request to
        any broker.
        """
        logger.info("%s: %s; retrying", self.assigned.range.tp, reason)
        self.missing_reason = reason

    def _on_end_of_log(self, log_end: int) -> None:
        """
        Advance to the log end: control and aborted records at the tail have no message.

        A log end before the end of the range is checked again before it counts as data loss.
        """
        assigned = self.assigned
        if log_end > assigned.position and assigned.first_gap is None:
            assigned.first_gap = assigned.position
        assigned.move_to(max(log_end, assigned.position))
        if assigned.done:
            return
        high_watermark = self._high_watermark()
        if high_watermark > log_end and assigned.settings.isolation_level == "read_committed":
            self._on_open_transaction(log_end, high_watermark)
        else:
            self._on_short_log(log_end)

    def _high_watermark(self) -> int:
        """
        Return the high watermark of the last fetch response, -1 if it is not known.
        """
        tp = self.assigned.range.tp
        watermarks = self.assigned.client.consumer.get_watermark_offsets(
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
        self.assigned.assign()

    def _on_short_log(self, log_end: int) -> None:
        self.short_log_seen += 1
        if self.short_log_seen > self.assigned.settings.end_retries:
            self.assigned.lose_rest(f"the log ends at offset {log_end}")
            return
        if self._wait_for_more(log_end).visible_end > log_end:
            self.short_log_seen = 0
        self.assigned.assign()

    def _wait_for_more(self, log_end: int) -> Watermarks:
        deadline = Deadline.after(self.assigned.settings.end_retry_ms / 1000, self.now)
        consumer = self.assigned.client.consumer
        while True:
            watermarks = self.assigned.watermarks()
            if watermarks.visible_end > log_end or deadline.expired:
                return watermarks
            # Without an assignment poll() only waits, and serves callbacks.
            consumer.unassign()
            consumer.poll(deadline.remaining(max_seconds=POLL_SECONDS))

    def _on_out_of_range(self) -> None:
        assigned = self.assigned
        log_start, visible_end = assigned.watermarks()
        if assigned.position < log_start:
            reason = (
                f"offset {assigned.position} is out of range, "
                f"the log has [{log_start}, {visible_end})"
            )
            assigned.lose(reason, log_start)
        elif assigned.position > visible_end:
            self._on_short_log(visible_end)
            return
        else:
            self._on_rejected_offset(log_start, visible_end)
        if not assigned.done:
            assigned.assign()

    def _on_truncated(self, error: KafkaError) -> None:
        """
        Continue with the current log if data loss is allowed, without another check of the start of
        the range.
        """
        assigned = self.assigned
        epoch_end = _EPOCH_END.search(error.str())
        if epoch_end is None or int(epoch_end[1]) >= 0:
            reason = (
                f"the log of {assigned.range.tp} was truncated before offset {assigned.position}: "
            )
            report_truncation(
                assigned.range, reason + error.str(), fail=assigned.settings.fail_on_data_loss
            )
        else:
            # A log in the old message format has no epochs, so nothing can be checked.
            logger.info("the start of %s cannot be checked: %s", assigned.range, error.str())
        assigned.unchecked = True
        assigned.assign()

    def _on_rejected_offset(self, log_start: int, visible_end: int) -> None:
        """
        Pause before the next fetch: the leader rejects the offset, although its log has it.
        """
        self.stall_reason = (
            "the leader returns OFFSET_OUT_OF_RANGE, although it says that the log has offsets "
            f"from {log_start} up to {visible_end}; is a reassignment or a leader election "
            "in progress?"
        )
        self._pause()

    def _pause(self) -> None:
        """
        Stop fetching for the backoff's pause.
        """
        self.assigned.client.consumer.unassign()
        self.sleep(self.backoff.next_pause())


def offset_of(message: Message) -> int:
    """
    Return the offset of a message, which is a record or an event.
    """
    offset: int | None = message.offset()
    if offset is None:
        msg = "librdkafka returned a message without an offset"
        raise RecordError("UNEXPECTED_OFFSET", msg)
    return offset
