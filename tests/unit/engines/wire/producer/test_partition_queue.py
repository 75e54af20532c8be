"""
The order of a partition's batches, against a broker in memory that loses requests and responses.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch, next_sequence
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

TP = TopicPartition("t", 0)
IN_FLIGHT = 5
UNAVAILABLE = BrokerUnavailableError("away")


class Fate(enum.Enum):
    """
    What happens to a request.
    """

    DONE = "the batch is written, and the response arrives"
    ANSWER_LOST = "the batch is written, and the response is lost"
    REQUEST_LOST = "the batch does not arrive"


@dataclass
class LeaderInMemory:
    """
    A partition's leader: it accepts the next sequence number, knows the last five, rejects others.

    Without any batch of a producer it accepts any number, as Kafka's leader does (KAFKA-14359).
    """

    log: list[ProducerBatch] = field(default_factory=list)
    next_sequence: int | None = None
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=IN_FLIGHT))

    def take(self, batch: ProducerBatch) -> bool:
        """
        Return whether the batch is in the log now; False for a batch that is out of order.
        """
        if batch.sequence in self.recent:
            return True
        if self.next_sequence not in {None, batch.sequence}:
            return False
        assert batch.sequence is not None
        self.log.append(batch)
        self.recent.append(batch.sequence)
        self.next_sequence = next_sequence(batch.sequence, batch.count)
        return True


def batch_of(count: int) -> ProducerBatch:
    """
    Return a batch with nothing in it.
    """
    return ProducerBatch(memoryview(b""), 0, count, 0, 0, created=0.0)


def deliver(
    queue: PartitionQueue,
    leader: LeaderInMemory,
    batches: list[ProducerBatch],
    fate: Callable[[], Fate],
) -> None:
    """
    Send all batches; requests are answered in order, and fail as ``fate`` decides.
    """
    for batch in batches:
        queue.add(batch)
    for _ in range(10_000):
        if queue.is_empty:
            return
        in_flight = []
        while queue.is_sendable(now=0.0):
            batch = queue.send()
            in_flight.append((batch, fate()))
        for batch, happens in in_flight:
            in_log = happens is not Fate.REQUEST_LOST and leader.take(batch)
            if in_log and happens is Fate.DONE:
                queue.acknowledge(batch)
            else:
                queue.requeue(batch, 0.0, UNAVAILABLE)
    pytest.fail("the batches do not get through")


@given(
    st.lists(st.integers(1, 1_000), min_size=1, max_size=40),
    st.integers(0, 2**31 - 1),
    st.randoms(use_true_random=False),
)
def test_each_batch_arrives_once_and_in_order(
    counts: list[int], first: int, chance: random.Random
) -> None:
    """
    Each batch arrives once and in order, whatever is lost, and wherever sequence numbers wrap
    around.
    """
    queue = PartitionQueue(TP, IN_FLIGHT, next_sequence=first)
    leader = LeaderInMemory()
    batches = [batch_of(count) for count in counts]

    deliver(queue, leader, batches, lambda: chance.choice(list(Fate)))

    assert leader.log == batches
    assert queue.next_sequence == next_sequence(first, sum(counts))


def test_the_leader_in_memory_rejects_gaps() -> None:
    """
    The model detects a queue that forgets a batch's sequence number: the log has the batch twice.
    """

    class Forgetful(PartitionQueue):
        def send(self) -> ProducerBatch:
            self.waiting[0].sequence = None
            return super().send()

    queue, leader = Forgetful(TP, IN_FLIGHT), LeaderInMemory()
    fates = iter([Fate.ANSWER_LOST])

    deliver(queue, leader, [batch_of(1)], lambda: next(fates, Fate.DONE))

    assert len(leader.log) == 2


def test_the_first_batch_is_sent_alone() -> None:
    """
    A leader without state for the producer would accept the second batch as the first.
    """

    class Bold(PartitionQueue):
        def is_sendable(self, now: float) -> bool:
            self.has_acknowledged_batch = True
            return super().is_sendable(now)

    queue, leader = PartitionQueue(TP, IN_FLIGHT), LeaderInMemory()
    batches = [batch_of(1), batch_of(1)]
    fates = iter([Fate.REQUEST_LOST])
    deliver(queue, leader, batches, lambda: next(fates, Fate.DONE))
    assert leader.log == batches

    fates = iter([Fate.REQUEST_LOST])
    with pytest.raises(pytest.fail.Exception, match="do not get through"):
        deliver(Bold(TP, IN_FLIGHT), LeaderInMemory(), batches[:], lambda: next(fates, Fate.DONE))


def test_nothing_is_sent_until_in_flight_batches_settle() -> None:
    """
    After a batch has failed, the other in-flight batches are awaited, and are sent again after it.
    """
    queue = PartitionQueue(TP, IN_FLIGHT)
    first, second, third = (batch_of(1) for _ in range(3))
    for batch in (first, second, third):
        queue.add(batch)
    assert (queue.send(), queue.send()) == (first, second)

    queue.requeue(first, 3.0, UNAVAILABLE)
    assert queue.is_behind_failed_batch(second)
    assert not queue.is_sendable(now=9.0)

    queue.requeue(second, 2.0, UNAVAILABLE)
    assert not queue.is_sendable(now=2.9)
    assert queue.is_sendable(now=3.0)
    assert [queue.send(), queue.send(), queue.send()] == [first, second, third]
    assert (first.attempts, third.attempts) == (2, 1)
    assert not queue.is_behind_failed_batch(first)


def test_the_parts_of_a_split_batch_replace_it() -> None:
    """
    If a batch is split, the batches that were sent after it come after its parts.
    """
    queue = PartitionQueue(TP, IN_FLIGHT)
    unsplit, behind = batch_of(4), batch_of(2)
    queue.add(unsplit)
    queue.add(behind)
    queue.send()
    queue.send()
    parts = (batch_of(2), batch_of(2))
    parts[0].sequence, parts[1].sequence = 0, 2

    queue.replace(unsplit, parts)
    queue.requeue(behind, 0.0, UNAVAILABLE)

    assert [queue.send() for _ in range(3)] == [*parts, behind]
    assert [batch.sequence for batch in queue.in_flight] == [0, 2, 4]
    assert queue.last_error is UNAVAILABLE


def test_in_flight_batches_are_limited() -> None:
    """
    Brokers remember five batches of a producer; a duplicate of a sixth might not be recognised.
    """
    queue = PartitionQueue(TP, IN_FLIGHT, has_acknowledged_batch=True)
    for _ in range(IN_FLIGHT + 1):
        queue.add(batch_of(1))

    for _ in range(IN_FLIGHT):
        assert queue.is_sendable(now=0.0)
        queue.send()
    assert not queue.is_sendable(now=0.0)

    queue.acknowledge(queue.in_flight[0])
    assert queue.is_sendable(now=0.0)
