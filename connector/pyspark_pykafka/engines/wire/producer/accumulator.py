"""
The unacknowledged batches of all partitions, and the memory that they take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import ProducerConfig


class Accumulator:
    """
    Holds batches by partition until they are acknowledged: at most ``config.buffer_bytes``.

    ``queues`` outlive one write, since they hold the partitions' sequence numbers. ``active`` holds
    the queues of this write with unacknowledged batches.
    """

    def __init__(
        self, config: ProducerConfig, queues: dict[TopicPartition, PartitionQueue]
    ) -> None:
        self._config = config
        self._queues = queues
        self._bytes = 0
        self.active: dict[TopicPartition, PartitionQueue] = {}

    def __repr__(self) -> str:
        size = f"{self._bytes} of {self._config.buffer_bytes} bytes"
        return f"<Accumulator {size} in {len(self.active)} partitions>"

    def has_room(self, size_bytes: int) -> bool:
        """
        Return whether a batch of this size fits; an empty buffer takes a batch of any size.
        """
        return not self._bytes or self._bytes + size_bytes <= self._config.buffer_bytes

    def add(self, tp: TopicPartition, batch: ProducerBatch) -> None:
        """
        Append a batch to its partition's queue.
        """
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp, self._config.in_flight)
        queue.add(batch)
        self.active[tp] = queue
        self._bytes += batch.size_bytes

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """
        Return the queue of a partition that has had a batch.
        """
        return self._queues[tp]

    def drain(
        self, queues: list[PartitionQueue], now: float
    ) -> dict[TopicPartition, ProducerBatch]:
        """
        Take a batch from each queue, up to the request's size limit.

        Removes the queues without a sendable batch from the list.
        """
        batches: dict[TopicPartition, ProducerBatch] = {}
        size = 0
        for queue in list(queues):
            if not queue.is_sendable(now):
                queues.remove(queue)
                continue
            size += queue.waiting[0].size_bytes
            if batches and size > self._config.request_bytes:
                break
            batches[queue.tp] = queue.send()
        return batches

    def acknowledge(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """
        Release an acknowledged batch.
        """
        queue.acknowledge(batch)
        self._bytes -= batch.size_bytes
        if queue.is_empty:
            del self.active[queue.tp]

    def replace(
        self, queue: PartitionQueue, batch: ProducerBatch, parts: tuple[ProducerBatch, ...]
    ) -> None:
        """
        Replace a batch that was too large with its parts.
        """
        self._bytes += sum(part.size_bytes for part in parts) - batch.size_bytes
        queue.replace(batch, parts)
