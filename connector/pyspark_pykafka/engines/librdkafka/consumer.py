"""
Reading one range of offsets through librdkafka's consumer into Arrow batches.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Position

from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.contract import (
    BATCH_RECORDS,
    FetchSettings,
    Watermarks,
    report_data_loss,
    report_truncation,
    resolve_range,
)
from pyspark_pykafka.engines.error_mapping import FatalErrors, map_kafka_error, translating_errors
from pyspark_pykafka.engines.librdkafka.messages import to_batch
from pyspark_pykafka.errors import PykafkaError, RecordError, StalledReadError
from pyspark_pykafka.offsets import NO_EPOCH
from pyspark_pykafka.retry import Backoff, Deadline
from pyspark_pykafka.settings.librdkafka_config import consumer_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from pyspark_pykafka.offsets import OffsetRange

logger = logging.getLogger("pyspark_pykafka")

# How long one poll may block, which is also how soon a fatal error raised by a background
# thread of librdkafka's is noticed.
_SLICE_SECONDS = 0.25

# How long a question on the side may take; the deadline for progress is longer.
_ASK_SECONDS = 5.0

# After how long without a message to ask whether the partition still exists.
_SILENCE_SECONDS = 2.0

# What librdkafka says behind the reason why it would have to choose another offset (KIP-320).
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001

# And where the leader says that the records of the epoch end, -1 if it does not know.
_EPOCH_END = re.compile(r"broker end offset is (-?\d+)")

_NO_ANSWER = (
    "is the partition's leader reachable, and remote storage fast enough if the topic is in it "
    "(remote.fetch.max.wait.ms, remote.log.manager.fetch.max.bytes.per.second)?"
)

# How long to wait before an offset is asked for again that its leader refuses.
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 1.0

_MISSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's names for its own errors start so
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


def _refused_backoff() -> Backoff:
    return Backoff(_LEAST_PAUSE, _MOST_PAUSE)


class _Client:
    """
    A consumer together with the errors that its background threads reported.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.fatal = FatalErrors()
        self.consumer = Consumer({**config, "error_cb": self.fatal.record})

    def close(self) -> None:
        self.consumer.close()


_pool: ClientPool[_Client] = ClientPool(_Client.close)


def fetch(wanted: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a range in offset order; borders that are words are resolved first.

    Raises :class:`DataLossError` when records of the range are gone and ``fail_on_data_loss`` is
    set; otherwise the loss is logged with what was skipped. Raises the other errors of
    :mod:`pyspark_pykafka.errors` as they are named.
    """
    config = consumer_config(
        settings.kafka, group_id=settings.group_id, isolation_level=settings.isolation_level
    )
    config.setdefault("queued.max.messages.kbytes", str(settings.fetch_bytes // 1024))
    key = frozenset(config.items())
    with (
        _pool.borrow(key, lambda: _Client(config)) as client,
        translating_errors(f"reading {wanted}"),
    ):
        reader = _RangeReader(client, settings, _resolve(wanted, client, settings))
        try:
            yield from reader.batches()
        finally:
            client.consumer.unassign()


def _resolve(wanted: OffsetRange, client: _Client, settings: FetchSettings) -> OffsetRange:
    if wanted.resolved:
        return wanted
    return resolve_range(wanted, _watermarks(client, wanted, settings))


def _watermarks(client: _Client, of: OffsetRange, settings: FetchSettings) -> Watermarks:
    """
    Ask the leader for the log start and the last offset that the isolation level may read.
    """
    position = Position(of.tp.topic, of.tp.partition)
    seconds = settings.poll_timeout_ms / 1000
    client.fatal.raise_pending(f"asking for the offsets of {of.tp}")
    return Watermarks(*client.consumer.get_watermark_offsets(position, timeout=seconds))


@dataclass(slots=True)
class _RangeReader:
    """
    The state of one read: where it stands, and what is suspicious about it.
    """

    client: _Client
    settings: FetchSettings
    range: OffsetRange
    position: int = field(init=False)
    first_gap: int | None = field(init=False, default=None)
    short_log_seen: int = field(init=False, default=0)
    unchecked: bool = field(init=False, default=False)
    # What brokers said last of a partition that they do not know, and of an offset that is refused.
    gone: str | None = field(init=False, default=None)
    trouble: str = field(init=False, default=_NO_ANSWER)
    backoff: Backoff = field(init=False, default_factory=_refused_backoff)
    done: bool = field(init=False)

    def __post_init__(self) -> None:
        self.position = self.range.start
        self.done = self.range.size == 0

    def batches(self) -> Iterator[pa.RecordBatch]:
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
        # librdkafka then asks the leader whether its log is the one that was seen (KIP-320).
        seen = self.position == self.range.start and not self.unchecked
        epoch = self.range.start_epoch if seen else NO_EPOCH
        self.client.consumer.assign(
            [Position(tp.topic, tp.partition, self.position, leader_epoch=epoch)]
        )

    def _next_records(self) -> list[Message]:
        """
        Collect until a batch is full or the range is done, within the deadline for progress.
        """
        records: list[Message] = []
        size = 0
        full = self.settings.batch_bytes
        deadline = self._deadline()
        silent_until = self._silence()
        while not self.done and len(records) < BATCH_RECORDS and size < full:
            before = self.position
            for message in self._poll(BATCH_RECORDS - len(records), deadline):
                if self._take(message):
                    records.append(message)
                    size += len(message)
            if self.position != before:
                deadline = self._deadline()
                self.gone, self.backoff = None, _refused_backoff()
            elif deadline.expired:
                self._give_up()
            elif silent_until.expired:
                self._check_existence()
                silent_until = self._silence()
        return records

    def _give_up(self) -> None:
        """
        Call the partition lost if brokers did not know it to the last; else the time is over.
        """
        if self.gone is not None:
            self._lose(self.gone, self.range.end)
            return
        msg = (
            f"no record of {self.range} arrived at offset {self.position} within "
            f"{self.settings.poll_timeout_ms} ms, and nothing says that there is none: "
            f"{self.trouble} Set kafkaConsumer.pollTimeoutMs to wait longer"
        )
        raise StalledReadError(msg)

    def _silence(self) -> Deadline:
        return Deadline.after(_SILENCE_SECONDS)

    def _deadline(self) -> Deadline:
        return Deadline.after(self._seconds())

    def _poll(self, at_most: int, deadline: Deadline) -> list[Message]:
        self.client.fatal.raise_pending(f"reading {self.range}")
        first = self.client.consumer.poll(deadline.remaining(max_seconds=_SLICE_SECONDS))
        if first is not None:
            # consume() waits until it has as many as asked for, so it may only take what is there.
            return [first, *self.client.consumer.consume(at_most - 1, timeout=0)]
        return []

    def _take(self, message: Message) -> bool:
        """
        Move on by one message and say whether it is a record of the range.
        """
        if self.done:
            return False
        error = message.error()
        if error is not None:
            self._on_event(error, message)
            return False
        offset = _offset_of(message)
        if offset < self.position:
            msg = f"{self.range.tp} gave offset {offset} after offset {self.position} was asked for"
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
            self._on_missing(f"the partition does not exist any more ({error.str()})")
        else:
            mapped = map_kafka_error(error, f"reading {self.range}")
            if not mapped.retriable:
                raise mapped
            logger.info("%s; librdkafka tries again", mapped)

    def _check_existence(self) -> None:
        """
        Ask whether the partition is still there: a consumer is not told of a deleted topic.
        """
        tp = self.range.tp
        try:
            with translating_errors(f"asking whether {tp} exists"):
                found = self.client.consumer.list_topics(tp.topic, timeout=_ASK_SECONDS)
        except PykafkaError as error:
            if not error.retriable:
                raise
            # Silence is no reason to fail before the deadline for progress.
            logger.info("%s; librdkafka tries again", error)
            return
        topic = found.topics.get(tp.topic)
        if topic is None or (topic.error and topic.error.code() in _MISSING):
            self._on_missing("the topic does not exist")
        elif not topic.error and tp.partition not in topic.partitions:
            self._on_missing("the partition does not exist")
        elif not topic.error:
            self.gone = None

    def _on_missing(self, why: str) -> None:
        """
        Bear with it: a broker that has just started, or is cut off, does not know all topics.

        Who still says so when the time for progress is over is believed; librdkafka asks any
        broker each time.
        """
        logger.info("%s: %s; asking again", self.range.tp, why)
        self.gone = why

    def _seconds(self) -> float:
        return self.settings.poll_timeout_ms / 1000

    def _on_end_of_log(self, log_end: int) -> None:
        """
        Go on from where the log ends: control and aborted records at the tail have no message.

        An end before the range's own is asked for again before it counts as a loss.
        """
        if log_end > self.position and self.first_gap is None:
            self.first_gap = self.position
        self._move_to(max(log_end, self.position))
        if self.done:
            return
        high = self._high_watermark()
        if high > log_end and self.settings.isolation_level == "read_committed":
            self._on_open_transaction(log_end, high)
        else:
            self._on_short_log(log_end)

    def _high_watermark(self) -> int:
        """
        Return what the last answer to a fetch said, -1 if that is not known.
        """
        tp = self.range.tp
        known = self.client.consumer.get_watermark_offsets(
            Position(tp.topic, tp.partition), cached=True
        )
        return -1 if known is None else int(known[1])

    def _on_open_transaction(self, end: int, high: int) -> None:
        """
        Wait, since what lies behind the last stable offset is not lost.
        """
        self.trouble = (
            f"a transaction has been open since offset {end} (last stable offset; high watermark "
            f"{high}); pykafka transactions list shows whose it is."
        )
        self._pause()
        self._assign()

    def _on_short_log(self, log_end: int) -> None:
        self.short_log_seen += 1
        if self.short_log_seen > self.settings.end_retries:
            self._lose(f"the log ends at offset {log_end}", self.range.end)
            return
        _low, high = self._wait_for_more(log_end)
        if high > log_end:
            self.short_log_seen = 0
        self._assign()

    def _wait_for_more(self, log_end: int) -> tuple[int, int]:
        deadline = Deadline.after(self.settings.end_retry_ms / 1000)
        while True:
            low, high = _watermarks(self.client, self.range, self.settings)
            if high > log_end or deadline.expired:
                return low, high
            # No assignment delivers anything here: this only waits, and serves callbacks.
            self.client.consumer.unassign()
            self.client.consumer.poll(deadline.remaining(max_seconds=_SLICE_SECONDS))

    def _on_out_of_range(self) -> None:
        low, high = _watermarks(self.client, self.range, self.settings)
        if self.position < low:
            why = f"offset {self.position} is out of range, the log has [{low}, {high})"
            self._lose(why, low)
        elif self.position > high:
            self._on_short_log(high)
            return
        else:
            self._on_refusal(low, high)
        if not self.done:
            self._assign()

    def _on_truncated(self, error: KafkaError) -> None:
        """
        Go on, if that is allowed, with what the log holds now; it is not asked about again.
        """
        told = _EPOCH_END.search(error.str())
        if told is None or int(told[1]) >= 0:
            why = f"the log of {self.range.tp} was truncated before offset {self.position}: "
            report_truncation(self.range, why + error.str(), fail=self.settings.fail_on_data_loss)
        else:
            # A log of the old message format keeps no epochs: nothing is known of it.
            logger.info("the start of %s cannot be checked: %s", self.range, error.str())
        self.unchecked = True
        self._assign()

    def _on_refusal(self, low: int, high: int) -> None:
        """
        Wait before an offset is asked for again that the log has by what its leader says.
        """
        self.trouble = (
            "its leader says that the offset is out of range (OFFSET_OUT_OF_RANGE), and also that "
            f"the log has offsets from {low} up to {high}; is the cluster at rest?"
        )
        self._pause()

    def _pause(self) -> None:
        """
        Ask for nothing for a moment.
        """
        self.client.consumer.unassign()
        time.sleep(self.backoff.next_pause())

    def _check_gap(self, gap: int) -> None:
        """
        Tell compaction and transactions (silent) from records that aged out (a loss).

        The log start only grows, so one question covers all gaps since the first.
        """
        # Invariant R6 (gap).
        self.first_gap = None
        low, _high = _watermarks(self.client, self.range, self.settings)
        if low > gap:
            self._lose(f"the log now starts at offset {low}", self.position, since=gap)

    def _lose(self, why: str, go_on_at: int, since: int | None = None) -> None:
        start = self.position if since is None else since
        end = min(go_on_at, self.range.end)
        fail = self.settings.fail_on_data_loss
        report_data_loss(self.range, start, end, why, fail=fail)
        self._move_to(max(self.position, end))


def _offset_of(message: Message) -> int:
    offset: int | None = message.offset()
    if offset is None:
        msg = "librdkafka gave a message without an offset"
        raise RecordError("UNEXPECTED_OFFSET", msg)
    return offset
