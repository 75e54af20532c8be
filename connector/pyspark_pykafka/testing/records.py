"""Writes and reads plain records, to set a test up and to look at its result."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from .properties import LARGEST_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """
    One record; `timestamp` is in milliseconds.

    What is None when it is produced (partition, timestamp) is left to the client, `offset` always
    to the broker; a record that was consumed has all three.
    """

    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int | None = None


class DeliveryError(RuntimeError):
    """A record was not accepted, or topics were not read to their end, in the given time."""


class _Writing:
    """Records on their way, and the broker's word on each."""

    def __init__(self, topic: str, producer: Producer, seconds: float) -> None:
        self.topic = topic
        self.producer = producer
        self.end = time.monotonic() + seconds
        self.records: list[Record] = []
        self.reports: dict[int, tuple[KafkaError | None, Message]] = {}

    def add(self, record: Record) -> None:
        index = len(self.records)
        self.records.append(record)

        def delivered(error: KafkaError | None, message: Message) -> None:
            self.reports[index] = (error, message)

        arguments = _arguments(record)
        while True:
            try:
                self.producer.produce(self.topic, on_delivery=delivered, **arguments)
            except BufferError:
                self._make_room()
            else:
                self.producer.poll(0)
                return

    def finish(self) -> list[Record]:
        unsent = self.producer.flush(max(0.0, self.end - time.monotonic()))
        if unsent:
            msg = f"{unsent} of {len(self.records)} records for {self.topic} were not written."
            raise DeliveryError(msg)
        return [self._placed(one, *self.reports[at]) for at, one in enumerate(self.records)]

    def _placed(self, record: Record, error: KafkaError | None, message: Message) -> Record:
        if error is not None:
            msg = f"{record!r:.200} was not written to {self.topic}: {error.str()} ({error.name()})"
            raise DeliveryError(msg)
        return replace(
            record,
            partition=message.partition(),
            offset=message.offset(),
            timestamp=message.timestamp()[1],
        )

    def _make_room(self) -> None:
        if time.monotonic() > self.end:
            msg = f"The producer's queue for {self.topic} stayed full until the deadline."
            raise DeliveryError(msg)
        self.producer.poll(POLL_SECONDS)


def produce(
    topic: str, records: Iterable[Record], config: Mapping[str, Any], seconds: float
) -> list[Record]:
    """Write records in order, wait for every delivery report, and return them with their place."""
    writing = _Writing(topic, Producer({**_PRODUCER, **config}), seconds)
    for record in records:
        writing.add(record)
    return writing.finish()


def _arguments(record: Record) -> dict[str, Any]:
    place = {"partition": record.partition, "timestamp": record.timestamp}
    return {
        "value": record.value,
        "key": record.key,
        "headers": list(record.headers),
        **{name: value for name, value in place.items() if value is not None},
    }


def consume(topic: str, config: Mapping[str, Any], seconds: float) -> list[Record]:
    """Read a topic from its start to its present end; sorted by partition, then offset."""
    end = time.monotonic() + seconds
    consumer = Consumer({**_CONSUMER, **config})
    try:
        waiting = _assign_all(consumer, topic, seconds)
        records: list[Record] = []
        while waiting:
            if time.monotonic() > end:
                msg = f"Partitions {sorted(waiting)} of {topic} were not read in {seconds:g} s."
                raise DeliveryError(msg)
            for message in consumer.consume(1000, timeout=POLL_SECONDS):
                _take(message, records, waiting)
    finally:
        consumer.close()
    return sorted(records, key=lambda one: (one.partition or 0, one.offset or 0))


def _assign_all(consumer: Consumer, topic: str, seconds: float) -> set[int]:
    found = consumer.list_topics(topic, timeout=seconds).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    partitions = set(found.partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return partitions


def _take(message: Message, records: list[Record], waiting: set[int]) -> None:
    error = message.error()
    if error is None:
        records.append(_record(message))
    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (so it is called)
        waiting.discard(message.partition() or 0)
    elif not error.retriable():
        raise KafkaException(error)


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        value=message.value(),
        key=message.key(),
        partition=message.partition(),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        headers=tuple(message.headers() or ()),
        offset=message.offset(),
    )


_PRODUCER: dict[str, Any] = {
    "message.max.bytes": LARGEST_MESSAGE,
    # The partitions that the Java client chooses.
    "partitioner": "murmur2_random",
    # One request in flight keeps the order as idempotence would, without the half second that
    # librdkafka takes to get its producer id. Only a broker lost midway could double a record.
    "enable.idempotence": False,
    "max.in.flight": 1,
    "acks": "all",
    "linger.ms": 5,
}
_CONSUMER: dict[str, Any] = {
    # Partitions are assigned by hand, so the group is never joined.
    "group.id": "pykafka-testing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    # The end of a partition is told by an empty answer, which the broker otherwise holds back.
    "fetch.wait.max.ms": 10,
}
