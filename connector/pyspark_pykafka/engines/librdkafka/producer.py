"""
Writes Arrow batches as records through librdkafka's idempotent producer, at least once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pyspark_pykafka.engines import first_contact, row_errors
from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.error_mapping import (
    FatalErrors,
    map_kafka_error,
    map_read_error,
    no_response_error,
    translating_errors,
)
from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin, describe_cluster
from pyspark_pykafka.engines.librdkafka.bootstrap_check import bootstrap_error
from pyspark_pykafka.engines.librdkafka.rows import Row, rows_of
from pyspark_pykafka.errors import MissingTopicError, RecordError, TimeoutExceededError
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, NEVER, Deadline, log_long_wait
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.librdkafka_config import (
    delivery_timeout_ms,
    max_block_ms,
    producer_config,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa
    from confluent_kafka.admin import TopicMetadata

_SLICE_SECONDS = 0.1

# How many records to send between polls: each poll costs a call, but delivery reports take memory
# until they are polled.
_POLL_INTERVAL_RECORDS = 1_000

# How long to wait for delivery reports beyond librdkafka's own delivery timeout.
_GRACE_SECONDS = 10.0


class _Client:
    """
    A producer and the errors that its background threads reported.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.fatal = FatalErrors()
        with translating_errors("connecting"):
            self.producer = Producer({**config, "error_cb": self.fatal.record})

    def close(self) -> None:
        # Spark retries the failed task: records that are still queued must not be sent.
        self.producer.purge()
        self.producer.poll(0)


_pool: ClientPool[_Client] = ClientPool(_Client.close)


def produce(batches: Iterable[pa.RecordBatch], kafka: KafkaSettings, topic: str | None) -> int:
    """
    Write every row, and return the number of rows once the brokers have acknowledged them all.

    ``topic`` overrides the topics of the rows. Raises :class:`RecordError` for a row that cannot be
    written, and the other errors of :mod:`pyspark_pykafka.errors`.
    """
    config = producer_config(kafka)
    key = frozenset(config.items())
    with (
        _pool.borrow(key, lambda: _Client(config)) as client,
        translating_errors("writing"),
    ):
        task = _Task(client, kafka)
        for batch in batches:
            for row in rows_of(batch, topic):
                task.send(row)
        return task.finish()


def check_topic(kafka: KafkaSettings, topic: str) -> None:
    """
    Raise :class:`MissingTopicError` if the topic is still missing at the time limit.

    The limit is ``kafka.max.block.ms``, or less until a broker has answered.
    """
    deadline = _begin_check(kafka)
    config = producer_config(kafka)
    key = frozenset(config.items())
    limited = KafkaSettings.of({**dict(kafka.pairs), "max.block.ms": str(_block_ms(kafka))})
    with (
        _pool.borrow(key, lambda: _Client(config)) as client,
        translating_errors(f"looking up the topic '{topic}'"),
    ):
        _Task(client, limited).partition_count(topic, deadline)
    first_contact.record_contact(kafka)


def check_brokers(kafka: KafkaSettings) -> None:
    """
    Raise the error of brokers that cannot be reached or reject the login.

    The limit is that of :func:`check_topic`.
    """
    deadline = _begin_check(kafka)
    action = f"connecting within {_block_ms(kafka)} ms (kafka.max.block.ms)"
    RetryingAdmin(kafka).call(describe_cluster, action, deadline)


def _begin_check(kafka: KafkaSettings) -> Deadline:
    """
    Return the deadline of a check; raise the reason if the brokers reject this client.
    """
    deadline = Deadline.after(first_contact.block_seconds(kafka))
    error = bootstrap_error(kafka)
    if error is not None and not error.retriable:
        raise error
    return deadline


def _block_ms(kafka: KafkaSettings) -> int:
    return round(first_contact.block_seconds(kafka) * 1000)


@dataclass(slots=True)
class _Task:
    """
    One write: the numbers of records sent and acknowledged, and the first failure.
    """

    client: _Client
    kafka: KafkaSettings
    sent: int = 0
    acknowledged: int = 0
    failure: Exception | None = None
    partitions: dict[str, int] = field(default_factory=dict)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)

    def send(self, row: Row) -> None:
        self._check_destination(row)
        deadline = Deadline.after(max_block_ms(self.kafka) / 1000, self.now)
        while not self._enqueue(row):
            if deadline.expired:
                msg = (
                    f"the send buffer stayed full for {max_block_ms(self.kafka)} ms "
                    f"(kafka.max.block.ms), without room for {row.description}; the brokers "
                    "acknowledge too slowly, or kafka.buffer.memory is smaller than one record"
                )
                raise TimeoutExceededError(msg)
            self._poll(_SLICE_SECONDS)
        self.sent += 1
        if self.sent % _POLL_INTERVAL_RECORDS == 0:
            self._poll(0)

    def finish(self) -> int:
        deadline = Deadline.after(delivery_timeout_ms(self.kafka) / 1000 + _GRACE_SECONDS, self.now)
        while self.acknowledged < self.sent:
            self._flush(_SLICE_SECONDS)
            if deadline.expired:
                msg = (
                    f"{self.sent - self.acknowledged} of {self.sent} records were not "
                    f"acknowledged within {delivery_timeout_ms(self.kafka)} ms "
                    "(kafka.delivery.timeout.ms); run the task again"
                )
                raise TimeoutExceededError(msg)
        return self.acknowledged

    def _enqueue(self, row: Row) -> bool:
        optional: dict[str, int] = {}
        if row.partition is not None:
            optional["partition"] = row.partition
        if row.timestamp_ms is not None:
            optional["timestamp"] = row.timestamp_ms
        try:
            self.client.producer.produce(
                row.topic,
                key=row.key,
                value=row.value,
                headers=row.headers,
                on_delivery=self._on_delivery,
                **optional,
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise _rejected_error(row, error.args[0]) from error
        return True

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif self.failure is None:
            where = row_errors.describe_row(message.topic(), message.key())
            self.failure = map_kafka_error(error, f"writing {where}")

    def _poll(self, seconds: float) -> None:
        self.client.producer.poll(seconds)
        self._raise_failure()

    def _flush(self, seconds: float) -> None:
        # flush() sends lingering batches; failures come with the delivery reports.
        self.client.producer.flush(seconds)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.client.fatal.raise_pending("writing")

    def _check_destination(self, row: Row) -> None:
        """
        Reject a missing topic or partition before the delivery timeout.

        A missing topic is looked up again for ``kafka.max.block.ms``, and a missing partition once:
        it may have been added since the last lookup.
        """
        partition = 0 if row.partition is None else row.partition
        count = self.partitions.get(row.topic)
        if count is None or partition >= count:
            count = self.partitions[row.topic] = self.partition_count(row.topic)
        if not 0 <= partition < count:
            raise row_errors.unknown_partition_error(row.description, count)

    def partition_count(self, topic: str, deadline: Deadline | None = None) -> int:
        """
        Return the number of partitions of the topic, once it exists.

        Without a deadline the limit is ``kafka.max.block.ms``.
        """
        deadline = deadline or Deadline.after(max_block_ms(self.kafka) / 1000, self.now)
        log_at = Deadline.after(LONG_WAIT_SECONDS, self.now)
        while True:
            metadata = self._metadata(topic, deadline)
            if metadata is not None and metadata.error is None and metadata.partitions:
                return len(metadata.partitions)
            error = None if metadata is None else metadata.error
            if error is not None and (_is_final(error) or (deadline.expired and _has_topic(error))):
                raise map_read_error(error, f"reading the metadata of topic '{topic}'")
            if deadline.expired and metadata is None:
                reason = bootstrap_error(self.kafka) or no_response_error(())
                msg = (
                    f"reading the partitions of topic '{topic}': not done within "
                    f"{max_block_ms(self.kafka)} ms (kafka.max.block.ms): {reason}"
                )
                raise TimeoutExceededError(msg)
            if deadline.expired:
                msg = (
                    f"topic '{topic}' was not found within {max_block_ms(self.kafka)} ms "
                    "(kafka.max.block.ms); create it, or correct the option or column 'topic'"
                )
                raise MissingTopicError(msg)
            if log_at.expired:
                log_at, seconds = NEVER, deadline.remaining()
                log_long_wait(
                    "reading the partitions of topic '%s': not done yet; retrying for %.0f s at "
                    "most",
                    *(topic, seconds),
                )
            self._poll(_SLICE_SECONDS)

    def _metadata(self, topic: str, deadline: Deadline) -> TopicMetadata | None:
        try:
            seconds = max(deadline.remaining(max_seconds=1.0), _SLICE_SECONDS)
            metadata = self.client.producer.list_topics(topic, timeout=seconds)
        except KafkaException as error:
            self._raise_failure()
            if map_read_error(error.args[0], "reading topic metadata").retriable:
                return None
            raise
        topic_metadata: TopicMetadata | None = metadata.topics.get(topic)
        return topic_metadata


def _has_topic(error: KafkaError) -> bool:
    """
    Return false if the error means that the topic does not exist, and true for any other error.
    """
    return bool(error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART)


def _is_final(error: KafkaError) -> bool:
    return _has_topic(error) and not map_read_error(error, "reading topic metadata").retriable


def _rejected_error(row: Row, error: KafkaError) -> RecordError:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return row_errors.too_large_error(row.description, error.str())
    msg = f"{row.description} cannot be written: {error.str()}"
    return RecordError(error.name() or "RECORD_REFUSED", msg)
