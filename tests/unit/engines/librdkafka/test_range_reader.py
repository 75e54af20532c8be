"""
The waits of librdkafka's range reader, on a clock that only its consumer and its pauses advance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.fetching import VALUES, settings

from pyspark_pykafka.engines.error_mapping import FatalErrors
from pyspark_pykafka.engines.librdkafka.assigned_range import AssignedRange
from pyspark_pykafka.engines.librdkafka.range_reader import RangeReader
from pyspark_pykafka.errors import DataLossError, StalledReadError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition

TP = TopicPartition("t", 0)


@dataclass
class SilentConsumer:
    """
    Delivers no message, and keeps the time: a poll advances it by the whole timeout.
    """

    log_end: int = 10
    topics: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    checks: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def assign(self, _: object) -> None:
        pass

    def unassign(self) -> None:
        pass

    def poll(self, timeout: float) -> None:
        self.sleep(timeout)

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ARG002
        self.checks.append(self.seconds)
        return SimpleNamespace(topics={name: self.topics[name] for name in [topic]})

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, self.log_end


def make_reader(consumer: SilentConsumer, **changes: Any) -> RangeReader:
    """
    Return the reader of ten offsets.
    """
    assigned = AssignedRange(
        SimpleNamespace(consumer=consumer, fatal=FatalErrors()),  # type: ignore[arg-type]
        settings("b:1", "librdkafka", poll_timeout_ms=7_000, **changes),
        OffsetRange(TP, 0, 10),
    )
    return RangeReader(assigned, now=consumer.now, sleep=consumer.sleep)


def metadata_with(*partitions: int) -> dict[str, Any]:
    """
    Return the metadata of the topic with these partitions.
    """
    return {"t": SimpleNamespace(error=None, partitions=partitions)}


def test_silent_partition_ends_the_read_at_the_poll_timeout() -> None:
    """
    Without a message the read stalls after its poll timeout; meanwhile the reader checks every two
    seconds that the partition exists.
    """
    consumer = SilentConsumer(topics=metadata_with(0))

    with pytest.raises(StalledReadError, match="within 7000 ms"):
        list(make_reader(consumer).batches())

    assert consumer.seconds == 7.0
    assert consumer.checks == [2.0, 4.0, 6.0]


def test_missing_partition_is_lost_at_the_poll_timeout() -> None:
    """
    A partition that stays missing is data loss, but not before the poll timeout.
    """
    consumer = SilentConsumer(topics=metadata_with(1))

    with pytest.raises(DataLossError, match="the partition no longer exists"):
        list(make_reader(consumer).batches())

    assert consumer.seconds == 7.0


class FailingChecks(SilentConsumer):
    """
    Reports the partition as missing in its first response, and responds to no later request.
    """

    def list_topics(self, topic: str, timeout: float) -> Any:
        response = super().list_topics(topic, timeout)
        if len(self.checks) > 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return response


def test_one_report_of_a_missing_partition_before_silence_is_no_data_loss() -> None:
    """
    Brokers that do not respond until the poll timeout do not confirm that a partition is missing.
    """
    consumer = FailingChecks(topics=metadata_with(1))

    with pytest.raises(StalledReadError, match="within 7000 ms"):
        list(make_reader(consumer).batches())

    assert consumer.checks == [2.0, 4.0, 6.0]


def test_short_log_is_awaited_for_each_retry() -> None:
    """
    If the log ends before the range, each retry waits once for more records; then it is data loss.
    """
    consumer = SilentConsumer(log_end=4)
    reader = make_reader(consumer, end_retries=3, end_retry_ms=1_000)

    for _ in range(3):
        reader._events._on_end_of_log(4)
    assert consumer.seconds == 3.0

    with pytest.raises(DataLossError, match="the log ends at offset 4"):
        reader._events._on_end_of_log(4)
    assert consumer.seconds == 3.0


@dataclass
class Received:
    """
    A message of librdkafka: a record, or an event if it has an error.
    """

    position: int
    event: KafkaError | None = None

    def __len__(self) -> int:
        return 1

    def offset(self) -> int:
        return self.position

    def error(self) -> KafkaError | None:
        return self.event

    def value(self) -> bytes:
        return b"v%d" % self.position


@dataclass
class QueueingConsumer(SilentConsumer):
    """
    Has an event and later records in its queue when the reader polls it; an assignment drops the
    queue, and fetches the records from its position on.
    """

    event: int = KafkaError._PARTITION_EOF
    assigned: list[int] = field(default_factory=list)
    queue: list[Received] = field(default_factory=list)

    def assign(self, positions: Any) -> None:
        (position,) = positions
        self.assigned.append(position.offset)
        records = [Received(offset) for offset in range(position.offset, self.log_end)]
        if len(self.assigned) == 1:
            # The replica's log ended at 5, and three records arrived before the reader's next poll.
            records[5:] = [Received(5, KafkaError(self.event)), *records[5:8]]
        self.queue = records

    def unassign(self) -> None:
        self.queue = []

    def poll(self, timeout: float) -> Any:
        if self.queue:
            return self.queue.pop(0)
        return super().poll(timeout)

    def consume(self, _: int, timeout: float) -> list[Received]:  # noqa: ARG002
        messages, self.queue = self.queue, []
        return messages


@pytest.mark.parametrize(
    "event",
    [KafkaError._PARTITION_EOF, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION],
    ids=["end of log", "out of range", "truncated"],
)
def test_messages_of_a_former_assignment_are_dropped(event: int) -> None:
    """
    An event that makes the reader fetch again makes the messages behind it stale: each record is
    read once, in order.
    """
    consumer = QueueingConsumer(event=event)
    reader = make_reader(consumer, schema=VALUES, end_retry_ms=100, fail_on_data_loss=False)

    offsets = [offset for batch in reader.batches() for offset in batch["offset"].to_pylist()]

    assert offsets == list(range(10))
    assert consumer.assigned == [0, 5]
