"""
What waits for each partition, and in which order it may go: no socket, no clock of its own.

A partition's batches carry consecutive sequence numbers. Once one comes back, nothing more is sent
for that partition until all that are under way have been answered; then they go again in order,
each under the number that it had, and the broker drops what it already has (KIP-98).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.records.record_batch import next_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.offsets import TopicPartition


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """
    The batches of one partition; ``trouble`` is the last error, for messages.
    """

    tp: TopicPartition
    max_in_flight: int
    waiting: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: deque[ProducerBatch] = field(default_factory=deque)
    returned: list[ProducerBatch] = field(default_factory=list)
    next_sequence: int = 0
    #: Whether the partition's leader has taken a batch. Until then it would take any number for the
    #: first, that of a second batch too whose first one was lost (KAFKA-14359), so that one goes
    #: alone.
    has_acknowledged_batch: bool = False
    not_before: float = 0.0
    last_error: PykafkaError | None = None

    @property
    def is_empty(self) -> bool:
        """
        Whether everything was acknowledged.
        """
        return not (self.waiting or self.in_flight or self.returned)

    def add(self, batch: ProducerBatch) -> None:
        """
        Put a batch behind the others.
        """
        self.waiting.append(batch)

    def is_sendable(self, now: float) -> bool:
        """
        Whether the next batch may go.
        """
        return (
            bool(self.waiting)
            and not self.returned
            and len(self.in_flight) < (self.max_in_flight if self.has_acknowledged_batch else 1)
            and now >= self.not_before
        )

    def send(self) -> ProducerBatch:
        """
        Return the next batch, which counts as sent from now on.
        """
        batch = self.waiting.popleft()
        if batch.sequence is None:
            batch.sequence = self.next_sequence
            self.next_sequence = next_sequence(self.next_sequence, batch.count)
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def acknowledge(self, batch: ProducerBatch) -> None:
        """
        Forget a batch that the broker has.
        """
        self.in_flight.remove(batch)
        self.has_acknowledged_batch = True
        self.last_error = None
        self._settle()

    def is_behind_failed_batch(self, batch: ProducerBatch) -> bool:
        """
        Whether a batch before this one has come back, or may still do so.
        """
        return bool(self.returned) or self.in_flight[0] is not batch

    def requeue(self, batch: ProducerBatch, not_before: float, trouble: PykafkaError) -> None:
        """
        Send a batch again, not before a time.
        """
        self.in_flight.remove(batch)
        self.returned.append(batch)
        self._delay(not_before, trouble)
        self._settle()

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ...]) -> None:
        """
        Send parts in place of a batch that was too large.
        """
        self.in_flight.remove(batch)
        self.returned.extend(parts)
        self._settle()

    def back_off(self, not_before: float, trouble: PykafkaError) -> None:
        """
        Send nothing before a time: there is nobody to send it to.
        """
        self._delay(not_before, trouble)

    def unacknowledged(self) -> Iterator[ProducerBatch]:
        """
        Yield all batches that the broker has not acknowledged.
        """
        yield from self.in_flight
        yield from self.returned
        yield from self.waiting

    def _delay(self, not_before: float, trouble: PykafkaError) -> None:
        self.not_before = max(self.not_before, not_before)
        self.last_error = trouble

    def _settle(self) -> None:
        # Invariant R22 (order).
        if self.returned and not self.in_flight:
            # They come back in the order of the answers, which with several connections is any.
            first = self.returned[0].sequence
            assert first is not None
            self.returned.sort(key=lambda batch: _distance(batch, first), reverse=True)
            self.waiting.extendleft(self.returned)
            self.returned.clear()


def _distance(batch: ProducerBatch, first: int) -> int:
    """
    Return how far behind ``first`` a sequence lies, negative if before: numbers begin anew.
    """
    assert batch.sequence is not None
    half = next_sequence(0, 2**31 - 1) // 2
    distance = next_sequence(batch.sequence, 2**31 - first)
    return distance if distance <= half else distance - 2**31
