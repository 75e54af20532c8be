"""
Reads one range with librdkafka: polls its consumer for the records, up to the end of the range.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.contract import BATCH_RECORDS
from pyspark_pykafka.engines.librdkafka.consumer_events import (
    POLL_SECONDS,
    ConsumerEvents,
    offset_of,
)
from pyspark_pykafka.engines.librdkafka.messages import to_batch
from pyspark_pykafka.errors import RecordError, StalledReadError
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, NEVER, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from confluent_kafka import Message

    from pyspark_pykafka.engines.librdkafka.assigned_range import AssignedRange

logger = logging.getLogger("pyspark_pykafka")

# After this time without a message, check whether the partition still exists.
_SILENCE_SECONDS = 2.0


@dataclass(slots=True)
class RangeReader:
    """
    One read of an assigned range.
    """

    assigned: AssignedRange
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    _events: ConsumerEvents = field(init=False)

    def __post_init__(self) -> None:
        self._events = ConsumerEvents(self.assigned, self.now, self.sleep)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of the range in batches; the client is in use until the last batch.
        """
        assigned = self.assigned
        if assigned.done:
            return
        assigned.assign()
        while not assigned.done:
            messages = self._next_records()
            if assigned.first_gap is not None:
                assigned.check_gap(assigned.first_gap)
            if messages:
                yield to_batch(messages, assigned.settings.schema)

    def _next_records(self) -> list[Message]:
        """
        Return records until a batch is full or the range is done.

        Raises :class:`StalledReadError` if no message arrives within the poll timeout.
        """
        assigned, batch_bytes = self.assigned, self.assigned.settings.batch_bytes
        records: list[Message] = []
        size = 0
        deadline = self._deadline()
        check_at = Deadline.after(_SILENCE_SECONDS, self.now)
        log_at = Deadline.after(LONG_WAIT_SECONDS, self.now)
        while not assigned.done and len(records) < BATCH_RECORDS and size < batch_bytes:
            before = assigned.position
            for message in self._current(self._poll(BATCH_RECORDS - len(records), deadline)):
                if self._take(message):
                    records.append(message)
                    size += len(message)
            if assigned.position != before:
                deadline = self._deadline()
                log_at = Deadline.after(LONG_WAIT_SECONDS, self.now)
                self._events.on_progress()
            elif deadline.expired:
                self._give_up()
            elif log_at.expired:
                log_at = NEVER
                self._log_wait(deadline)
            elif check_at.expired:
                self._events.check_existence()
                check_at = Deadline.after(_SILENCE_SECONDS, self.now)
        return records

    def _log_wait(self, deadline: Deadline) -> None:
        assigned = self.assigned
        logger.warning(
            "still waiting for %s at offset %d, for %.0f s at most: %s",
            *(assigned.range, assigned.position, deadline.remaining(), self._events.stall_reason),
        )

    def _give_up(self) -> None:
        """
        Report data loss if the partition is still missing, else raise :class:`StalledReadError`.
        """
        assigned, events = self.assigned, self._events
        if events.missing_reason is not None:
            assigned.lose_rest(events.missing_reason)
            return
        msg = (
            f"no record of {assigned.range} arrived at offset {assigned.position} within "
            f"{assigned.settings.poll_timeout_ms} ms, and no response shows that there is none: "
            f"{events.stall_reason} Set kafkaConsumer.pollTimeoutMs to wait longer"
        )
        raise StalledReadError(msg)

    def _deadline(self) -> Deadline:
        return Deadline.after(self.assigned.settings.poll_timeout_ms / 1000, self.now)

    def _poll(self, max_messages: int, deadline: Deadline) -> list[Message]:
        client = self.assigned.client
        client.fatal.raise_pending(f"reading {self.assigned.range}")
        first = client.consumer.poll(deadline.remaining(max_seconds=POLL_SECONDS))
        if first is not None:
            # consume() would wait for all messages; a timeout of 0 returns those in the buffer.
            return [first, *client.consumer.consume(max_messages - 1, timeout=0)]
        return []

    def _current(self, messages: list[Message]) -> Iterator[Message]:
        """
        Yield messages until one of them, an event, makes the consumer fetch again.

        librdkafka then drops the messages in its queue, and the rest of the list is just as stale.
        """
        assignments = self.assigned.assignments
        for message in messages:
            if self.assigned.assignments != assignments:
                return
            yield message

    def _take(self, message: Message) -> bool:
        """
        Advance by one message, and return whether it is a record of the range.
        """
        assigned = self.assigned
        if assigned.done:
            return False
        error = message.error()
        if error is not None:
            self._events.on_event(error, message)
            return False
        offset = offset_of(message)
        if offset < assigned.position:
            msg = f"{assigned.range.tp} returned offset {offset} for offset {assigned.position}"
            raise RecordError("UNEXPECTED_OFFSET", msg)
        if offset > assigned.position and assigned.first_gap is None:
            assigned.first_gap = assigned.position
        assigned.move_to(offset + 1)
        return offset < assigned.range.end
