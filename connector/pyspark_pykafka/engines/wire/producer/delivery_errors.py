"""
What a user is told when records could not be written: which, what expired, what happened before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines import row_errors
from pyspark_pykafka.errors import PykafkaError, RecordError, TimeoutExceededError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import Address


def buffer_full_error(
    tp: TopicPartition, seconds: float, others: Iterable[PartitionQueue]
) -> TimeoutExceededError:
    """
    Return the error for a batch for which no room was made in so many seconds.
    """
    trouble = next((it.last_error for it in others if it.last_error), None)
    return TimeoutExceededError(
        f"the send buffer stayed full for {milliseconds(seconds)} ms (kafka.max.block.ms) before a "
        f"batch for {tp} fitted in{_because(trouble)}; the brokers acknowledge too slowly, or "
        "kafka.buffer.memory is too small"
    )


def request_timeout_error(address: Address, seconds: float) -> TimeoutExceededError:
    """
    Return the error for a request without an answer.
    """
    return TimeoutExceededError(
        f"{address}: no answer to Produce within {milliseconds(seconds)} ms "
        "(kafka.request.timeout.ms)"
    )


def name_timeout_setting(error: PykafkaError, seconds: float) -> PykafkaError:
    """
    Return the error; one that says that the time for a request is over says also whose.
    """
    if not isinstance(error, TimeoutExceededError):
        return error
    return TimeoutExceededError(f"{error} (kafka.request.timeout.ms is {milliseconds(seconds)})")


def delivery_timeout_error(queue: PartitionQueue, seconds: float) -> TimeoutExceededError:
    """
    Return the error for a partition whose oldest batch was not acknowledged in so many seconds.
    """
    batches = list(queue.unacknowledged())
    count = sum(batch.count for batch in batches)
    state = "sent and not acknowledged" if queue.in_flight else "waiting to be sent"
    return TimeoutExceededError(
        f"{count} records for {queue.tp} were not acknowledged within {milliseconds(seconds)} ms "
        f"(kafka.delivery.timeout.ms); the oldest were {state}, after {batches[0].attempts} tries"
        f"{_because(queue.last_error)}"
    )


def invalid(tp: TopicPartition, key: bytes | None, why: str | None) -> RecordError:
    """
    Return the error for a record that the broker finds invalid, with what it says of that.
    """
    where = row_errors.describe_row(tp.topic, key, tp.partition)
    said = why or "it is invalid"
    return RecordError("INVALID_RECORD", f"{where} cannot be written: the broker says: {said}")


def milliseconds(seconds: float) -> int:
    """
    Return a time as Kafka's settings have it.
    """
    return round(seconds * 1000)


def _because(trouble: PykafkaError | None) -> str:
    return "" if trouble is None else f"; the last error: {trouble}"
