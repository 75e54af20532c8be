"""
Handles Produce responses: a batch is acknowledged, sent again or split, or it fails the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines import row_errors
from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.producer import delivery_errors
from pyspark_pykafka.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.producer.accumulator import Accumulator
    from pyspark_pykafka.engines.wire.producer.in_flight import Batches
    from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
    from pyspark_pykafka.engines.wire.producer.retries import ProducerRetryPolicy
    from pyspark_pykafka.engines.wire.protocol.produce import (
        PartitionProduceResponse,
        ProduceResponse,
    )
    from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import ProducerConfig

# The batch is in the log; a duplicate was written by an earlier attempt without a response.
_WRITTEN = frozenset({KafkaErrorCode.NONE, KafkaErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class ResponseHandler:
    """
    Decides what happens to each batch of a request, by the response or the error.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        retry_policy: ProducerRetryPolicy,
        now: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._retry_policy = retry_policy
        self._now = now
        #: The base offset of each partition's last acknowledged batch, as the broker returned it.
        self.offsets: dict[TopicPartition, int] = {}

    def on_response(self, batches: Batches, response: ProduceResponse) -> None:
        """
        Handle the response to a request with these batches.
        """
        for tp, batch in batches.items():
            queue, result = self._accumulator.queue(tp), response.partitions.get(tp)
            if result is None:
                msg = f"the broker returned no result for the batch for {tp}"
                self.retry(queue, batch, BrokerUnavailableError(msg))
            elif result.error_code in _WRITTEN:
                self._acknowledge(queue, batch)
                self.offsets[tp] = result.base_offset
            else:
                self._on_rejected(queue, batch, result)

    def retry(self, queue: PartitionQueue, batch: ProducerBatch, error: PykafkaError) -> None:
        """
        Schedule a batch to be sent again after a backoff, or raise if its retries are used up.
        """
        self._retry_policy.raise_if_exhausted(queue.tp, batch, error)
        queue.requeue(batch, self._retry_policy.next_retry_at(queue.tp), error)

    def _acknowledge(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._accumulator.acknowledge(queue, batch)
        self._retry_policy.on_success(queue.tp)

    def _on_rejected(
        self, queue: PartitionQueue, batch: ProducerBatch, result: PartitionProduceResponse
    ) -> None:
        code = result.error_code
        if code in {KafkaErrorCode.MESSAGE_TOO_LARGE, KafkaErrorCode.RECORD_LIST_TOO_LARGE}:
            self._split(queue, batch)
            return
        if code in {KafkaErrorCode.INVALID_RECORD, KafkaErrorCode.INVALID_TIMESTAMP}:
            first = next(iter(result.record_errors), None)
            key = self._key(batch, first.batch_index if first else 0)
            reason = (first and first.message) or result.error_message
            raise delivery_errors.invalid_record_error(queue.tp, key, reason)
        error = delivery_errors.name_timeout_setting(
            map_error_code(code, f"writing to {queue.tp}", f"Write on the topic {queue.tp.topic}"),
            self._config.request_seconds,
        )
        out_of_order = code == KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if out_of_order and queue.is_behind_failed_batch(batch):
            # Not counted as an attempt: the batch is sent again right after the missing one.
            batch.attempts -= 1
            queue.requeue(batch, self._now(), queue.last_error or error)
            return
        if error.retriable:
            # The broker may be a former leader, for example one that cannot reach its replicas.
            self._cluster.invalidate_metadata(queue.tp.topic)
        self._retry_policy.raise_if_fatal(error, queue.tp)
        self.retry(queue, batch, error)

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.count == 1:
            where = row_errors.describe_row(queue.tp.topic, self._key(batch, 0), queue.tp.partition)
            raise row_errors.too_large_error(
                where, f"the broker rejects a batch of {batch.size_bytes} bytes"
            )
        halves = batch.split(self._config.level, self._max_decompressed_bytes(batch))
        self._accumulator.replace(queue, batch, halves)

    def _key(self, batch: ProducerBatch, index: int) -> bytes | None:
        return batch.record_key(index, self._max_decompressed_bytes(batch))

    def _max_decompressed_bytes(self, batch: ProducerBatch) -> int:
        return max(self._config.batch_bytes, self._config.request_bytes, batch.size_bytes)
