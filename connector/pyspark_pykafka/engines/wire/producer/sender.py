"""
Sends record batches to the leaders of their partitions until each batch is acknowledged.

The sender has no thread of its own: it sends and receives whenever the caller adds a batch or
polls, and waits for acknowledgements only when the buffer is full, or in :meth:`Sender.flush`.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.transaction_contract import never_stopped
from pyspark_pykafka.engines.wire.network.poll import readable
from pyspark_pykafka.engines.wire.producer import delivery_errors
from pyspark_pykafka.engines.wire.producer.accumulator import Accumulator
from pyspark_pykafka.engines.wire.producer.in_flight import InFlight
from pyspark_pykafka.engines.wire.producer.ready_brokers import ReadyBrokers
from pyspark_pykafka.engines.wire.producer.response_handler import ResponseHandler
from pyspark_pykafka.engines.wire.producer.retries import ProducerRetryPolicy
from pyspark_pykafka.engines.wire.producer.stopwatch import Stopwatch
from pyspark_pykafka.engines.wire.protocol.produce import PRODUCE, produce_request
from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
    from pyspark_pykafka.engines.wire.producer.session import ProducerSession
    from pyspark_pykafka.engines.wire.records._encoder import Payload
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import ProducerConfig

_MAX_WAIT_SECONDS = 1.0

# The timeout of a check whether a slow broker still leads its partitions.
_CHECK_SECONDS = 2.0

# The rest of a response that has begun to arrive may take this long, even after the timeout.
_REST_SECONDS = 1.0


class Sender:
    """
    Sends batches in per-partition order, and releases each once it is acknowledged.

    Unacknowledged batches take at most ``config.buffer_bytes``. Raises the errors of
    :mod:`pyspark_pykafka.errors`, and the error of ``check_not_stopped``, which is called at least
    every second while the sender waits for acknowledgements. After an error, unacknowledged batches
    may or may not be written, and the sender must not be used again.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        session: ProducerSession,
        queues: dict[TopicPartition, PartitionQueue],
        *,
        check_not_stopped: Callable[[], None] = never_stopped,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._check_not_stopped = check_not_stopped
        self._config = config
        self._session = session
        self._now = now
        self._sleep = sleep
        # The age of batches excludes the time that the caller waits for rows: nothing is sent then.
        self._active_time = Stopwatch(now)
        self._accumulator = Accumulator(config, queues)
        self._in_flight = InFlight(config.request_seconds)
        self._retry_policy = ProducerRetryPolicy(config, now)
        self._responses = ResponseHandler(
            cluster, config, self._accumulator, self._retry_policy, now
        )
        self._ready = ReadyBrokers(
            cluster, self._accumulator, self._retry_policy, config.request_seconds, now
        )
        # The earliest time at which a throttling broker accepts requests again.
        self._throttled_until = math.inf
        self._bytes_since_poll = 0

    def __repr__(self) -> str:
        return f"<Sender {self._accumulator}, {len(self._in_flight.connections)} brokers in flight>"

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """
        The base offset of each partition's last acknowledged batch, as the broker returned it.
        """
        return self._responses.offsets

    def put(self, tp: TopicPartition, payload: Payload) -> None:
        """
        Add a batch, once the buffer has room for it.
        """
        config = self._config
        with self._active_time:
            created = self._active_time.seconds()
            batch = ProducerBatch.of(payload, config.codec, config.level, created)
            self._make_room(tp, batch.size_bytes)
            self._accumulator.add(tp, batch)
            self._bytes_since_poll += batch.size_bytes
            # Not polled for each batch, since a poll checks every partition.
            if self._bytes_since_poll >= config.request_bytes:
                self._poll(0.0)

    def poll(self) -> None:
        """
        Handle the responses that have arrived, and send the ready batches; do not wait for further
        responses.
        """
        with self._active_time:
            self._poll(0.0)

    def flush(self) -> None:
        """
        Return once every batch is acknowledged.
        """
        with self._active_time:
            while self._accumulator.active:
                self._poll(_MAX_WAIT_SECONDS)
                self._check_not_stopped()

    def drop_connections(self) -> None:
        """
        Close the connections with requests in flight, after an error, so that the responses are not
        taken for responses to later requests.
        """
        for connection in self._in_flight.connections:
            self._cluster.drop(connection)

    def _make_room(self, tp: TopicPartition, size_bytes: int) -> None:
        deadline = Deadline.after(self._config.block_seconds, self._now)
        while not self._accumulator.has_room(size_bytes):
            if deadline.expired:
                active = self._accumulator.active.values()
                raise delivery_errors.buffer_full_error(tp, self._config.block_seconds, active)
            self._poll(deadline.remaining(max_seconds=_MAX_WAIT_SECONDS))
            self._check_not_stopped()

    def _poll(self, seconds: float) -> None:
        """
        Receive, expire and send without waiting for acknowledgements; then wait up to ``seconds``
        for a response.
        """
        self._bytes_since_poll = 0
        # A response that has arrived is in time, however long ago the last poll was.
        self._receive(0.0)
        self._expire()
        self._check_leaders()
        self._send()
        if seconds > 0:
            self._receive(min(seconds, self._seconds_until_due()))

    # --- Requests ---------------------------------------------------------------------------------

    def _send(self) -> None:
        self._throttled_until = math.inf
        for node, queues in self._ready.queues().items():
            connection = self._ready.connection(node, queues)
            while connection is not None and queues and self._has_room(connection):
                if not self._send_one(connection, queues):
                    break

    def _has_room(self, connection: Connection) -> bool:
        """
        Return whether a broker accepts one more request now.
        """
        if connection.throttled_until > self._now():
            self._throttled_until = min(self._throttled_until, connection.throttled_until)
            return False
        in_flight = self._in_flight.count(connection)
        if in_flight and connection.is_login_due:
            # A connection re-authenticates (KIP-368) only with nothing in flight; if it does not,
            # the broker closes it.
            return False
        return in_flight < self._config.in_flight

    def _send_one(self, connection: Connection, queues: list[PartitionQueue]) -> bool:
        """
        Send one batch of each queue, up to the request's size limit; return False on failure.
        """
        batches = self._accumulator.drain(queues, self._now())
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

    # --- Responses --------------------------------------------------------------------------------

    def _receive(self, seconds: float) -> None:
        connections = self._in_flight.connections
        if not connections and not self._cluster.is_connecting:
            if seconds > 0 and self._accumulator.active:
                # Every batch is backing off.
                self._sleep(seconds)
            return
        # A leader that cannot be reached delays no other leader.
        ready = self._cluster.readable(connections, seconds)
        while ready:
            for connection in ready:
                self._receive_from(connection)
            ready = readable(self._in_flight.connections, 0.0)

    def _receive_from(self, connection: Connection) -> None:
        expires_at = max(self._in_flight.expires_at(connection), self._now() + _REST_SECONDS)
        try:
            response = connection.receive(PRODUCE, Deadline(expires_at, self._now))
        except PykafkaError as error:
            self._disconnect(connection, self._name_timeout(error))
            return
        self._responses.on_response(self._in_flight.pop_oldest(connection), response)

    # --- Failures and timeouts -------------------------------------------------------------------

    def _name_timeout(self, error: PykafkaError) -> PykafkaError:
        return delivery_errors.name_timeout_setting(error, self._config.request_seconds)

    def _disconnect(self, connection: Connection, error: PykafkaError) -> None:
        """
        Drop a connection and retry its batches, which may or may not have been written.
        """
        for tp in self._retry_all(connection, error):
            self._cluster.invalidate_metadata(tp.topic)

    def _retry_all(self, connection: Connection, error: PykafkaError) -> set[TopicPartition]:
        self._cluster.drop(connection)
        self._retry_policy.raise_if_fatal(error)
        retried: set[TopicPartition] = set()
        for batches in self._in_flight.pop_all(connection):
            for tp, batch in batches.items():
                self._responses.retry(self._accumulator.queue(tp), batch, error)
            retried.update(batches)
        return retried

    def _check_leaders(self) -> None:
        """
        Drop connections to brokers that do not answer, if another broker names a different leader.
        """
        # Invariant R18 (no single broker).
        for connection, batches in self._in_flight.due_checks(self._now()).items():
            deadline = Deadline.after(_CHECK_SECONDS, self._now)
            deposed = self._cluster.partitions_led_by_others(connection.address, batches, deadline)
            if deposed:
                error = delivery_errors.deposed_leader_error(connection.address, deposed)
                self._retry_all(connection, error)

    def _expire(self) -> None:
        for connection in self._in_flight.expired(self._now()):
            seconds = self._config.request_seconds
            self._disconnect(
                connection, delivery_errors.request_timeout_error(connection.address, seconds)
            )
        for queue in self._accumulator.active.values():
            if self._seconds_left(queue) <= 0:
                raise delivery_errors.delivery_timeout_error(queue, self._config.delivery_seconds)

    def _seconds_left(self, queue: PartitionQueue) -> float:
        """
        Return the seconds until the oldest batch exceeds ``kafka.delivery.timeout.ms``.
        """
        age = self._active_time.seconds() - next(queue.unacknowledged()).created
        return self._config.delivery_seconds - age

    def _seconds_until_due(self) -> float:
        """
        Return the seconds until the next retry, timeout or end of a throttle time.
        """
        return max(min(self._due_times()) - self._now(), 0.0)

    def _due_times(self) -> Iterator[float]:
        now = self._now()
        yield self._throttled_until
        yield from map(self._in_flight.expires_at, self._in_flight.connections)
        yield from map(self._in_flight.check_at, self._in_flight.connections)
        for queue in self._accumulator.active.values():
            yield now + self._seconds_left(queue)
            # A queue without a backoff waits for a response from its broker.
            if queue.waiting and queue.not_before > now:
                yield queue.not_before

    def _request_deadline(self) -> Deadline:
        return Deadline.after(self._config.request_seconds, self._now)
