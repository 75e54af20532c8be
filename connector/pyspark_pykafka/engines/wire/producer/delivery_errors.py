"""
The errors for records that could not be written: which records, which timeout, the last error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines import row_errors
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    RecordError,
    TimeoutExceededError,
)
from pyspark_pykafka.offsets import format_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import Address


def buffer_full_error(
    tp: TopicPartition, seconds: float, queues: Iterable[PartitionQueue]
) -> TimeoutExceededError:
    """
    Return the error for a batch that found no room in the buffer for ``seconds``.
    """
    last_error = next((queue.last_error for queue in queues if queue.last_error), None)
    return TimeoutExceededError(
        f"the send buffer had no room for a batch for {tp} for {milliseconds(seconds)} ms "
        f"(kafka.max.block.ms){_because(last_error)}; the brokers acknowledge too slowly, or "
        "kafka.buffer.memory is too small"
    )


def request_timeout_error(address: Address, seconds: float) -> TimeoutExceededError:
    """
    Return the error for a Produce request without a response.
    """
    return TimeoutExceededError(
        f"{address}: no response to Produce within {milliseconds(seconds)} ms "
        "(kafka.request.timeout.ms)"
    )


def deposed_leader_error(address: Address, tps: Iterable[TopicPartition]) -> BrokerUnavailableError:
    """
    Return the error for a broker that does not answer and no longer leads these partitions.
    """
    return BrokerUnavailableError(
        f"{address}: no response to Produce yet, and other brokers know another leader of "
        f"{format_partitions(tps)}"
    )


def name_timeout_setting(error: PykafkaError, seconds: float) -> PykafkaError:
    """
    Add the setting and its value to a request timeout; return any other error unchanged.
    """
    if not isinstance(error, TimeoutExceededError):
        return error
    return TimeoutExceededError(f"{error} (kafka.request.timeout.ms is {milliseconds(seconds)})")


def delivery_timeout_error(queue: PartitionQueue, seconds: float) -> TimeoutExceededError:
    """
    Return the error for a partition whose oldest batch was not acknowledged within ``seconds``.
    """
    batches = list(queue.unacknowledged())
    count = sum(batch.count for batch in batches)
    state = "sent but not acknowledged" if queue.in_flight else "waiting to be sent"
    return TimeoutExceededError(
        f"{count} records for {queue.tp} were not acknowledged within {milliseconds(seconds)} ms "
        f"(kafka.delivery.timeout.ms); the oldest were {state}, after {batches[0].attempts} tries"
        f"{_because(queue.last_error)}"
    )


def invalid_record_error(tp: TopicPartition, key: bytes | None, reason: str | None) -> RecordError:
    """
    Return the error for a record that the broker rejects, with the broker's reason if it sent one.
    """
    where = row_errors.describe_row(tp.topic, key, tp.partition)
    cause = f"the broker's message: {reason}" if reason else "the broker rejects it as invalid"
    return RecordError("INVALID_RECORD", f"{where} cannot be written; {cause}")


def milliseconds(seconds: float) -> int:
    """
    Return seconds as whole milliseconds, the unit of Kafka's settings.
    """
    return round(seconds * 1000)


def _because(last_error: PykafkaError | None) -> str:
    return "" if last_error is None else f"; the last error: {last_error}"
