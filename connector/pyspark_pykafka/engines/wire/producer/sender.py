"""
Sending record batches to the leaders of their partitions until each is acknowledged.

One thread does it all: what can be sent goes out, what has been answered is taken in, and only when
the buffer is full, or nothing is left to encode, is anything waited for.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.engines import row_errors
from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.network.connection import readable
from pyspark_pykafka.engines.wire.producer import delivery_errors
from pyspark_pykafka.engines.wire.producer.in_flight import InFlight
from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
from pyspark_pykafka.engines.wire.producer.retries import ProducerRetryPolicy
from pyspark_pykafka.engines.wire.protocol.produce import PRODUCE, produce_request
from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.producer.in_flight import Batches
    from pyspark_pykafka.engines.wire.producer.session import ProducerSession
    from pyspark_pykafka.engines.wire.protocol.produce import (
        PartitionProduceResponse,
        ProduceResponse,
    )
    from pyspark_pykafka.engines.wire.records._encoder import Payload
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import ProducerConfig

_MAX_WAIT_SECONDS = 1.0

# What is left of an answer that has begun to arrive may take so long, even after its time.
_REST_SECONDS = 1.0


class _Stopwatch:
    """
    Counts the seconds that are spent in its context.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = 0.0
        self._before = 0.0

    def __enter__(self) -> None:
        self._since = self._now()

    def __exit__(self, *_: object) -> None:
        self._before = self.seconds()

    def seconds(self) -> float:
        """
        Return how many they are, within the context.
        """
        return self._before + self._now() - self._since


class Sender:
    """
    Takes batches in the order of each partition, and lets go of them when the broker has them.

    Not acknowledged batches take at most ``config.buffer_bytes``. Raises the errors of
    :mod:`pyspark_pykafka.errors`; after one, nothing is known of what was not acknowledged, and the
    sender must not be used again.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        session: ProducerSession,
        queues: dict[TopicPartition, PartitionQueue],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._session = session
        self._now = now
        # Batches grow old by this one: while the caller waits for rows, nobody can send.
        self._active_time = _Stopwatch(now)
        self._queues = queues
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight = InFlight(config.request_seconds)
        self._retry_policy = ProducerRetryPolicy(config, now)
        # When the first broker whose quota is used up takes requests again.
        self._throttled_until = math.inf
        self._bytes = 0
        self._bytes_since_poll = 0
        #: Where the last acknowledged batch of each partition begins, as far as brokers have said.
        self.offsets: dict[TopicPartition, int] = {}

    def put(self, tp: TopicPartition, payload: Payload) -> None:
        """
        Take a batch, once there is room for it.
        """
        config = self._config
        with self._active_time:
            created = self._active_time.seconds()
            batch = ProducerBatch.of(payload, config.codec, config.level, created)
            self._make_room(tp, batch.size_bytes)
            queue = self._queues.get(tp)
            if queue is None:
                queue = self._queues[tp] = PartitionQueue(tp, config.in_flight)
            queue.add(batch)
            self._active[tp] = queue
            self._bytes += batch.size_bytes
            self._bytes_since_poll += batch.size_bytes
            # Not for each batch, since a turn looks at every partition.
            if self._bytes_since_poll >= config.request_bytes:
                self._poll(0.0)

    def poll(self) -> None:
        """
        Take in what has been answered, and send what that lets go, without waiting.
        """
        with self._active_time:
            self._poll(0.0)

    def flush(self) -> None:
        """
        Return when everything is acknowledged.
        """
        with self._active_time:
            while self._active:
                self._poll(_MAX_WAIT_SECONDS)

    def _make_room(self, tp: TopicPartition, size: int) -> None:
        deadline = Deadline.after(self._config.block_seconds, self._now)
        while self._bytes and self._bytes + size > self._config.buffer_bytes:
            if deadline.expired:
                active = self._active.values()
                raise delivery_errors.buffer_full_error(tp, self._config.block_seconds, active)
            self._poll(deadline.remaining(max_seconds=_MAX_WAIT_SECONDS))

    def _poll(self, seconds: float) -> None:
        """
        Send what can be sent, then take in answers, waiting at most so long for the first one.
        """
        self._bytes_since_poll = 0
        # An answer that is here is in time, however long we were away.
        self._receive(0.0)
        self._expire()
        self._send()
        if seconds > 0:
            self._receive(min(seconds, self._seconds_until_due()))

    # --- Out --------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._throttled_until = math.inf
        for node, queues in self._ready().items():
            connection = self._connection(node, queues)
            while connection is not None and queues and self._has_room(connection):
                if not self._send_one(connection, queues):
                    break

    def _has_room(self, connection: Connection) -> bool:
        """
        Whether a broker takes one more request now.
        """
        if connection.throttled_until > self._now():
            self._throttled_until = min(self._throttled_until, connection.throttled_until)
            return False
        under_way = self._in_flight.count(connection)
        if under_way and connection.is_login_due:
            # A connection logs in again only when all has been answered, and is cut if it does not.
            return False
        return under_way < self._config.in_flight

    def _ready(self) -> dict[int, list[PartitionQueue]]:
        """
        Return what can be sent, by the broker that leads.
        """
        now = self._now()
        ready: dict[int, list[PartitionQueue]] = {}
        asked: dict[str, PykafkaError] = {}
        for queue in self._active.values():
            if queue.is_sendable(now):
                node = self._leader(queue, asked)
                if node is not None:
                    ready.setdefault(node, []).append(queue)
        for topic in asked:
            self._cluster.invalidate_metadata(topic)
        return ready

    def _leader(self, queue: PartitionQueue, asked: dict[str, PykafkaError]) -> int | None:
        """
        Return who leads, or None for the time being.

        ``asked`` has the topics that had trouble in this turn: nobody is asked of them once more,
        since a broker that hangs would take its time for each partition.
        """
        topic = queue.tp.topic
        try:
            if topic in asked and not self._cluster.has_metadata(topic):
                raise asked[topic]
            node = self._cluster.leader(queue.tp, self._request_deadline()).node
        except PykafkaError as error:
            self._retry_policy.raise_if_fatal(error, queue.tp)
            asked[topic] = error
            queue.back_off(self._retry_policy.retry_at(queue.tp), error)
            return None
        self._retry_policy.on_leader_found(queue.tp)
        return node

    def _connection(self, node: int, queues: list[PartitionQueue]) -> Connection | None:
        try:
            return self._cluster.connection(node, self._request_deadline())
        except PykafkaError as error:
            self._retry_policy.raise_if_fatal(error)
            for queue in queues:
                self._cluster.invalidate_metadata(queue.tp.topic)
                queue.back_off(self._retry_policy.retry_at(queue.tp), error)
            return None

    def _send_one(self, connection: Connection, queues: list[PartitionQueue]) -> bool:
        """
        Send one batch of each queue, as far as a request may grow; False if that failed.
        """
        batches = self._take(queues)
        if not batches:
            return False
        session = self._session
        session.add_partitions(batches)
        transactional = session.transactional_id is not None
        request = produce_request(
            connection.version(PRODUCE, session.max_version),
            {
                tp: batch.encode(session.identity, transactional=transactional)
                for tp, batch in batches.items()
            },
            delivery_errors.milliseconds(self._config.request_seconds),
            session.transactional_id,
        )
        self._in_flight.add(connection, batches, self._now())
        try:
            connection.send(request, self._request_deadline())
        except PykafkaError as error:
            self._disconnect(connection, self._name_timeout(error))
            return False
        return True

    def _take(self, queues: list[PartitionQueue]) -> dict[TopicPartition, ProducerBatch]:
        """
        Take a batch from each queue; those that have no more leave the list.
        """
        taken: dict[TopicPartition, ProducerBatch] = {}
        size, now = 0, self._now()
        for queue in list(queues):
            if not queue.is_sendable(now):
                queues.remove(queue)
                continue
            size += queue.waiting[0].size_bytes
            if taken and size > self._config.request_bytes:
                break
            taken[queue.tp] = queue.send()
        return taken

    # --- In ---------------------------------------------------------------------------------------

    def _receive(self, seconds: float) -> None:
        owing = self._in_flight.connections
        if not owing:
            if seconds > 0 and self._active:
                # Everything waits for its next try.
                time.sleep(seconds)
            return
        ready = readable(owing, seconds)
        while ready:
            for connection in ready:
                self._receive_from(connection)
            ready = readable(self._in_flight.connections, 0.0)

    def _receive_from(self, connection: Connection) -> None:
        until = max(self._in_flight.expires_at(connection), self._now() + _REST_SECONDS)
        try:
            answer = connection.receive(Deadline(until, self._now))
        except PykafkaError as error:
            self._disconnect(connection, self._name_timeout(error))
            return
        self._answered(self._in_flight.pop_oldest(connection), answer)

    def _answered(self, batches: Batches, answer: ProduceResponse) -> None:
        for tp, batch in batches.items():
            queue, told = self._queues[tp], answer.partitions.get(tp)
            if told is None:
                msg = f"the broker said nothing of the batch for {tp}"
                self._retry(queue, batch, BrokerUnavailableError(msg))
            elif told.error_code in {KafkaErrorCode.NONE, KafkaErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                self._acknowledge(queue, batch)
                self.offsets[tp] = told.base_offset
            else:
                self._refused(queue, batch, told)

    def _acknowledge(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.acknowledge(batch)
        self._bytes -= batch.size_bytes
        self._retry_policy.on_success(queue.tp)
        if queue.is_empty:
            del self._active[queue.tp]

    def _refused(
        self, queue: PartitionQueue, batch: ProducerBatch, told: PartitionProduceResponse
    ) -> None:
        code = told.error_code
        if code in {KafkaErrorCode.MESSAGE_TOO_LARGE, KafkaErrorCode.RECORD_LIST_TOO_LARGE}:
            self._split(queue, batch)
            return
        if code in {KafkaErrorCode.INVALID_RECORD, KafkaErrorCode.INVALID_TIMESTAMP}:
            first = next(iter(told.record_errors), None)
            key = self._key(batch, first.batch_index if first else 0)
            why = (first and first.message) or told.error_message
            raise delivery_errors.invalid_record_error(queue.tp, key, why)
        error = self._name_timeout(map_error_code(code, f"writing to {queue.tp}"))
        if code == KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.is_behind_failed_batch(
            batch
        ):
            # No try of its own: it goes again right behind the batch that is missing yet.
            batch.attempts -= 1
            queue.requeue(batch, self._now(), queue.last_error or error)
            return
        if error.retriable:
            # Whoever cannot reach its replicas, say, may be the leader in its own eyes only.
            self._cluster.invalidate_metadata(queue.tp.topic)
        self._retry_policy.raise_if_fatal(error, queue.tp)
        self._retry(queue, batch, error)

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.count == 1:
            where = row_errors.describe_row(queue.tp.topic, self._key(batch, 0), queue.tp.partition)
            raise row_errors.too_large(
                where, f"the broker takes no batch of {batch.size_bytes} bytes"
            )
        halves = batch.split(self._config.level, self._max_decompressed_bytes(batch))
        self._bytes += sum(half.size_bytes for half in halves) - batch.size_bytes
        queue.replace(batch, halves)

    def _key(self, batch: ProducerBatch, index: int) -> bytes | None:
        return batch.record_key(index, self._max_decompressed_bytes(batch))

    def _max_decompressed_bytes(self, batch: ProducerBatch) -> int:
        return max(self._config.batch_bytes, self._config.request_bytes, batch.size_bytes)

    # --- Trouble ----------------------------------------------------------------------------------

    def _name_timeout(self, error: PykafkaError) -> PykafkaError:
        return delivery_errors.name_timeout_setting(error, self._config.request_seconds)

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, error: PykafkaError) -> None:
        self._retry_policy.raise_if_exhausted(queue.tp, batch, error)
        queue.requeue(batch, self._retry_policy.retry_at(queue.tp), error)

    def _disconnect(self, connection: Connection, error: PykafkaError) -> None:
        """
        Give a connection up: nobody knows what of its requests has arrived.
        """
        self._cluster.drop(connection)
        self._retry_policy.raise_if_fatal(error)
        for batches in self._in_flight.pop_all(connection):
            for tp, batch in batches.items():
                self._cluster.invalidate_metadata(tp.topic)
                self._retry(self._queues[tp], batch, error)

    def _expire(self) -> None:
        for connection in self._in_flight.expired(self._now()):
            seconds = self._config.request_seconds
            self._disconnect(
                connection, delivery_errors.request_timeout_error(connection.address, seconds)
            )
        for queue in self._active.values():
            if self._seconds_left(queue) <= 0:
                raise delivery_errors.delivery_timeout_error(queue, self._config.delivery_seconds)

    def _seconds_left(self, queue: PartitionQueue) -> float:
        """
        Return the seconds that the oldest batch may take yet.
        """
        age = self._active_time.seconds() - next(queue.unacknowledged()).created
        return self._config.delivery_seconds - age

    def _seconds_until_due(self) -> float:
        """
        Return how long nothing will have to be done but to take in answers.
        """
        return max(min(self._due_times()) - self._now(), 0.0)

    def _due_times(self) -> Iterator[float]:
        now = self._now()
        yield self._throttled_until
        yield from map(self._in_flight.expires_at, self._in_flight.connections)
        for queue in self._active.values():
            yield now + self._seconds_left(queue)
            # One that may be sent already waits for its broker to answer.
            if queue.waiting and queue.not_before > now:
                yield queue.not_before

    def _request_deadline(self) -> Deadline:
        return Deadline.after(self._config.request_seconds, self._now)
