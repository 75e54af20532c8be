"""
The batches of one partition, and the order in which they are sent: no sockets, no clock.

A partition's batches carry consecutive sequence numbers. Once a batch has failed, nothing more is
sent for the partition until every in-flight batch is answered. Then the batches are sent again in
order, each with its old sequence number, and the broker drops duplicates (KIP-98).
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
    The unacknowledged batches of one partition; ``last_error`` is for messages.
    """

    tp: TopicPartition
    max_in_flight: int
    waiting: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: deque[ProducerBatch] = field(default_factory=deque)
    requeued: list[ProducerBatch] = field(default_factory=list)
    next_sequence: int = 0
    #: Until the leader has acknowledged a batch, it accepts any sequence number as the first, even
    #: that of the second batch if the first one was lost (KAFKA-14359). So the first batch is sent
    #: alone.
    has_acknowledged_batch: bool = False
    not_before: float = 0.0
    last_error: PykafkaError | None = None

    @property
    def is_empty(self) -> bool:
        """
        Whether every batch is acknowledged.
        """
        return not (self.waiting or self.in_flight or self.requeued)

    def add(self, batch: ProducerBatch) -> None:
        """
        Append a batch.
        """
        self.waiting.append(batch)

    def is_sendable(self, now: float) -> bool:
        """
        Return whether the next batch may be sent.
        """
        return (
            bool(self.waiting)
            and not self.requeued
            and len(self.in_flight) < (self.max_in_flight if self.has_acknowledged_batch else 1)
            and now >= self.not_before
        )

    def send(self) -> ProducerBatch:
        """
        Remove and return the next batch, which is in flight from now on.
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
        Remove a batch that the broker has acknowledged.
        """
        self.in_flight.remove(batch)
        self.has_acknowledged_batch = True
        self.last_error = None
        self._settle()

    def is_behind_failed_batch(self, batch: ProducerBatch) -> bool:
        """
        Return whether an earlier batch has failed, or is still in flight.
        """
        return bool(self.requeued) or self.in_flight[0] is not batch

    def requeue(self, batch: ProducerBatch, not_before: float, error: PykafkaError) -> None:
        """
        Schedule a failed batch to be sent again, not before a time.
        """
        self.in_flight.remove(batch)
        self.requeued.append(batch)
        self._delay(not_before, error)
        self._settle()

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ...]) -> None:
        """
        Replace a batch that was too large with its parts.
        """
        self.in_flight.remove(batch)
        self.requeued.extend(parts)
        self._settle()

    def back_off(self, not_before: float, error: PykafkaError) -> None:
        """
        Send nothing before a time: the partition has no reachable leader.
        """
        self._delay(not_before, error)

    def unacknowledged(self) -> Iterator[ProducerBatch]:
        """
        Yield the unacknowledged batches, oldest first.
        """
        yield from self.in_flight
        yield from self.requeued
        yield from self.waiting

    def _delay(self, not_before: float, error: PykafkaError) -> None:
        self.not_before = max(self.not_before, not_before)
        self.last_error = error

    def _settle(self) -> None:
        # Invariant R23 (order).
        if self.requeued and not self.in_flight:
            # Batches fail in the order of the responses, which is arbitrary across connections.
            first = self.requeued[0].sequence
            assert first is not None
            self.requeued.sort(key=lambda batch: _distance(batch, first), reverse=True)
            self.waiting.extendleft(self.requeued)
            self.requeued.clear()


def _distance(batch: ProducerBatch, first: int) -> int:
    """
    Return how far a batch comes after the sequence number ``first``; negative if it comes before.

    Sequence numbers wrap around.
    """
    assert batch.sequence is not None
    half = next_sequence(0, 2**31 - 1) // 2
    distance = next_sequence(batch.sequence, 2**31 - first)
    return distance if distance <= half else distance - 2**31
