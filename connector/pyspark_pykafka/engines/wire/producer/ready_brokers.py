"""
Finds the brokers to send to: the leaders of the partitions with a sendable batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.producer.accumulator import Accumulator
    from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
    from pyspark_pykafka.engines.wire.producer.retries import ProducerRetryPolicy


class ReadyBrokers:
    """
    Groups the partition queues with a sendable batch by leader, and connects to the leaders.

    A queue whose leader is not known, or cannot be reached, backs off; fatal errors are raised.
    """

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        retry_policy: ProducerRetryPolicy,
        request_seconds: float,
        now: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._retry_policy = retry_policy
        self._request_seconds = request_seconds
        self._now = now

    def __repr__(self) -> str:
        return f"<ReadyBrokers of {self._accumulator}>"

    def queues(self) -> dict[int, list[PartitionQueue]]:
        """
        Return the queues with a sendable batch by leader (node id).
        """
        now = self._now()
        ready: dict[int, list[PartitionQueue]] = {}
        failed: dict[str, PykafkaError] = {}
        for queue in self._accumulator.active.values():
            if queue.is_sendable(now):
                node = self._leader(queue, failed)
                if node is not None:
                    ready.setdefault(node, []).append(queue)
        for topic in failed:
            self._cluster.invalidate_metadata(topic)
        return ready

    def connection(self, node: int, queues: list[PartitionQueue]) -> Connection | None:
        """
        Return the connection to a leader, or None if it is being opened or cannot be reached.
        """
        try:
            return self._cluster.connection_or_none(node)
        except PykafkaError as error:
            self._retry_policy.raise_if_fatal(error)
            for queue in queues:
                self._cluster.invalidate_metadata(queue.tp.topic)
                queue.back_off(self._retry_policy.next_retry_at(queue.tp), error)
            return None

    def _leader(self, queue: PartitionQueue, failed: dict[str, PykafkaError]) -> int | None:
        """
        Return the leader's node id, or None if it is not known at the moment.

        ``failed`` holds the topics whose metadata could not be read in this poll. Their metadata is
        not requested again: with a broker that hangs, each partition would wait for the timeout.
        """
        topic = queue.tp.topic
        try:
            if topic in failed and not self._cluster.has_metadata(topic):
                raise failed[topic]
            node = self._cluster.leader(queue.tp, self._request_deadline()).node
        except PykafkaError as error:
            self._retry_policy.raise_if_fatal(error, queue.tp)
            failed[topic] = error
            queue.back_off(self._retry_policy.next_retry_at(queue.tp), error)
            return None
        self._retry_policy.on_leader_found(queue.tp)
        return node

    def _request_deadline(self) -> Deadline:
        return Deadline.after(self._request_seconds, self._now)
