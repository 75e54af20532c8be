"""
Reads the committed records of the output topic with a plain consumer: during the run, and after it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from pyspark_pykafka.errors import TimeoutExceededError
from pyspark_pykafka.verify.records import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.verify.records import ReadRow

_POLL_SECONDS = 0.1
_MESSAGES = 1_000
_FIXED = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "log_level": 0,
}


class Tail:
    """
    A thread that follows the output topic; ``seen`` holds the partition and the number of each
    record in it.
    """

    def __init__(
        self, config: Mapping[str, Any], output: str, source: str, partitions: int
    ) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.error: Exception | None = None
        self._source = source
        self._arguments = (config, output, partitions)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pykafka-verify-reader")

    def start(self) -> None:
        """
        Start the thread.
        """
        self._thread.start()

    def stop(self) -> None:
        """
        Stop the thread, and return when it has ended.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            # The tail only shows progress, so it may skip records that have been deleted.
            with _AssignedConsumer(*self._arguments, reset="earliest") as consumer:
                while not self._stopping.is_set():
                    for message in consumer.messages():
                        if message.error() is None:
                            row = _row(message, self._source)
                            self.seen.add((row.partition, row.offset))
        except Exception as error:  # noqa: BLE001 (the run raises it)
            self.error = error


def read_all(
    config: Mapping[str, Any], output: str, source: str, partitions: int, deadline: Deadline
) -> list[ReadRow]:
    """
    Return the committed records of the output topic, in order within each partition.

    Raises :class:`TimeoutExceededError` if the end is not reached in time.
    """
    rows: list[ReadRow] = []
    unfinished = set(range(partitions))
    with _AssignedConsumer(config, output, partitions) as consumer:
        while unfinished:
            if deadline.expired:
                msg = f"reading {output}: partitions {sorted(unfinished)} were not read to the end"
                raise TimeoutExceededError(msg)
            for message in consumer.messages():
                if message.error() is None:
                    rows.append(_row(message, source))
                else:
                    unfinished.discard(int(message.partition()))
    return rows


class _AssignedConsumer:
    """
    A consumer of all partitions from their start; it joins no consumer group.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, partitions: int, reset: str = "error"
    ) -> None:
        self._consumer = Consumer({**config, **_FIXED, "auto.offset.reset": reset})
        # The log start may have moved: deleted records must be reported as lost, not end the read.
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def messages(self) -> Iterator[Message]:
        """
        Yield records and end-of-partition messages. The client itself retries after transient
        errors.
        """
        for message in self._consumer.consume(_MESSAGES, timeout=_POLL_SECONDS):
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (its public name)
                yield message
            elif error.fatal() or error.code() in _PERMANENT_ERRORS:
                raise KafkaException(error)


_PERMANENT_ERRORS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 (its public name)
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 (likewise)
}


def _row(message: Message, source: str) -> ReadRow:
    return decode(source, message.value(), int(message.offset()))
