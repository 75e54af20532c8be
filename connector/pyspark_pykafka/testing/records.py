"""
Writes and reads records with librdkafka, to set up tests and to check their results.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from operator import methodcaller
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

from .properties import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

POLL_SECONDS = 0.05

# This call raises SystemError if the key of a header is not UTF-8. A call that is written as
# ``message.headers()`` crashes the process instead, once the interpreter has specialized it.
_call_headers = methodcaller("headers")


@dataclass(frozen=True, slots=True)
class Record:
    """
    One record; `timestamp` is in milliseconds.

    In a record to produce, `partition` and `timestamp` may be None: the client then chooses them.
    `offset` is assigned by the broker. A consumed record has all three, unless it was written
    without a timestamp.
    """

    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int | None = None


class DeliveryError(RuntimeError):
    """
    Records were not written, or a topic was not read to its end, before the deadline.
    """


class _Delivery:
    """
    Records being produced, and the delivery report of each.
    """

    def __init__(self, topic: str, producer: Producer, seconds: float) -> None:
        self.topic = topic
        self.producer = producer
        self.deadline = time.monotonic() + seconds
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
                self._wait_for_queue()
            else:
                self.producer.poll(0)
                return

    def finish(self) -> list[Record]:
        unsent = self.producer.flush(max(0.0, self.deadline - time.monotonic()))
        if unsent:
            msg = f"{unsent} of {len(self.records)} records for {self.topic} were not written."
            raise DeliveryError(msg)
        return [
            self._written(record, *self.reports[index]) for index, record in enumerate(self.records)
        ]

    def _written(self, record: Record, error: KafkaError | None, message: Message) -> Record:
        if error is not None:
            msg = f"{record!r:.200} was not written to {self.topic}: {error.str()} ({error.name()})"
            raise DeliveryError(msg)
        return replace(
            record,
            partition=message.partition(),
            offset=message.offset(),
            timestamp=message.timestamp()[1],
        )

    def _wait_for_queue(self) -> None:
        if time.monotonic() > self.deadline:
            msg = f"The producer's queue for {self.topic} stayed full until the deadline."
            raise DeliveryError(msg)
        self.producer.poll(POLL_SECONDS)


def produce(
    topic: str, records: Iterable[Record], config: Mapping[str, Any], seconds: float
) -> list[Record]:
    """
    Write records in order, and return them with their partition, offset and timestamp.

    Raises :class:`DeliveryError` if a record is rejected, or is not written within ``seconds``.
    """
    delivery = _Delivery(topic, Producer({**_PRODUCER, **config}), seconds)
    for record in records:
        delivery.add(record)
    return delivery.finish()


def _arguments(record: Record) -> dict[str, Any]:
    optional = {"partition": record.partition, "timestamp": record.timestamp}
    return {
        "value": record.value,
        "key": record.key,
        "headers": list(record.headers),
        **{name: value for name, value in optional.items() if value is not None},
    }


def consume(topic: str, config: Mapping[str, Any], seconds: float) -> list[Record]:
    """
    Return a topic's records from its start to its current end, sorted by partition and offset.

    Raises :class:`DeliveryError` if that takes longer than ``seconds``, and ``KafkaException``
    after an error that is not retriable.
    """
    deadline = time.monotonic() + seconds
    consumer = Consumer({**_CONSUMER, **config})
    try:
        unfinished = _assign_all(consumer, topic, seconds)
        records: list[Record] = []
        while unfinished:
            if time.monotonic() > deadline:
                msg = f"Partitions {sorted(unfinished)} of {topic} were not read in {seconds:g} s."
                raise DeliveryError(msg)
            for message in consumer.consume(1000, timeout=POLL_SECONDS):
                _take(message, records, unfinished)
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition or 0, record.offset or 0))


def _assign_all(consumer: Consumer, topic: str, seconds: float) -> set[int]:
    metadata = consumer.list_topics(topic, timeout=seconds).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    partitions = set(metadata.partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return partitions


def _take(message: Message, records: list[Record], unfinished: set[int]) -> None:
    error = message.error()
    if error is None:
        records.append(_record(message))
    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (its public name)
        unfinished.discard(message.partition() or 0)
    elif not error.retriable():
        raise KafkaException(error)


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        value=message.value(),
        key=message.key(),
        partition=message.partition(),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        headers=tuple(_call_headers(message) or ()),
        offset=message.offset(),
    )


_PRODUCER: dict[str, Any] = {
    "message.max.bytes": MAX_MESSAGE_BYTES,
    # The partitioner of the Java client.
    "partitioner": "murmur2_random",
    # One request in flight keeps the order as idempotence would, without the half second that
    # librdkafka takes to get a producer id. Only the failure of a broker could duplicate a record.
    "enable.idempotence": False,
    "max.in.flight": 1,
    "acks": "all",
    "linger.ms": 5,
}
_CONSUMER: dict[str, Any] = {
    # Partitions are assigned explicitly, so the consumer never joins the group.
    "group.id": "pykafka-testing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    # An empty response signals the end of a partition; the broker delays it by this time.
    "fetch.wait.max.ms": 10,
}
