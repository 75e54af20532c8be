"""
Sends Fetch and ListOffsets requests for one partition to its leader or a replica. No retries.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.contract import RecreatedTopicError, Watermarks
from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import (
    describe_permission,
    map_error_code,
    map_read_error_code,
)
from pyspark_pykafka.engines.wire.consumer.truncation_check import TruncationCheck
from pyspark_pykafka.engines.wire.network.racing import TRANSIENT_ERRORS
from pyspark_pykafka.engines.wire.protocol.fetch_request import (
    FETCH,
    MAX_FETCH_VERSION,
    MAX_FETCH_VERSION_BY_NAME,
    FetchRequest,
    fetch_request,
)
from pyspark_pykafka.engines.wire.protocol.fetch_response import FetchResponse, read_fetch_response
from pyspark_pykafka.engines.wire.protocol.list_offsets import (
    ISOLATION,
    LIST_OFFSETS,
    ListOffsetsPartition,
    list_offsets_request,
)
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, SlowResponseError
from pyspark_pykafka.offsets import EARLIEST, LATEST, NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pyspark_pykafka.engines.wire.network.cluster import Cluster, Leader
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.retry import Deadline

logger = logging.getLogger("pyspark_pykafka")

_NO_REPLICA = -1
_WHOLE_RESPONSE = -1

# How long a reader stays with the replica that the leader named: the default of the Java client's
# metadata.max.age.ms.
_REPLICA_SECONDS = 300.0
# How long a reader stays with the leader after an error, or after a replica lacked the requested
# records.
_LEADER_ONLY_SECONDS = 10.0


class OutOfRangeError(Exception):
    """
    The log does not have the requested offset.
    """


class ThrottledError(Exception):
    """
    The broker throttles this client for ``seconds`` (KIP-219), so there are no records yet.
    """

    def __init__(self, node: int, seconds: float) -> None:
        self.node = node
        self.seconds = seconds
        super().__init__(node, seconds)


class FetchResult(NamedTuple):
    """
    The response of broker ``node``.

    ``records`` holds record batches, the last one possibly cut off; it is a view of the frame,
    whose memory is reused once no view exists. ``visible_end`` is the offset before which the
    isolation level makes records visible. ``aborted_transactions`` holds pairs of (first offset,
    producer id). ``preferred_replica`` is the replica that the leader names (KIP-392), or -1.
    """

    records: memoryview
    aborted_transactions: tuple[tuple[int, int], ...]
    high_watermark: int
    visible_end: int
    node: int
    from_leader: bool
    preferred_replica: int

    @property
    def is_redirect(self) -> bool:
        """
        Whether the leader named a replica instead of returning records.
        """
        return self.preferred_replica != _NO_REPLICA

    @property
    def is_authoritative(self) -> bool:
        """
        Whether the response has the true end of the log: a replica may be behind.
        """
        return self.from_leader and not self.is_redirect


class _InFlightFetch(NamedTuple):
    connection: Connection
    offset: int
    node: int
    leader: Leader
    #: Whether the request has the topic's name instead of its id.
    by_name: bool

    @property
    def to_leader(self) -> bool:
        """
        Whether the request went to the leader.
        """
        return self.node == self.leader.node


@dataclass(slots=True)
class PartitionFetcher:
    """
    Fetches from the partition's leader, or from the replica near the client that the leader names.

    At most one fetch is in flight: :meth:`send_fetch` sends it, :meth:`receive_fetch` waits for its
    response. Without a ``topic_id``, the first response fixes the topic id: a topic that is
    recreated under the same name is a different topic.

    ListOffsets requests have the topic's name instead of its id, and so have Fetch requests before
    Kafka 3.1. Then the metadata must be fresh before the first fetch, and :meth:`confirm_topic`
    shows after the last fetch whether all responses were of one topic.
    """

    cluster: Cluster
    tp: TopicPartition
    isolation_level: str
    topic_id: UUID | None = None
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    #: The leader epoch in which the end of the log was last listed.
    epoch: int = field(init=False, default=NO_EPOCH)
    truncation_check: TruncationCheck = field(init=False)
    #: Whether records of a topic that has an id were fetched by its name.
    reads_by_name: bool = field(init=False, default=False)
    #: The brokers that returned records or offsets of the topic by its name, and the id that each
    #: has returned for that name afterwards.
    _ids_at_servers: dict[int, UUID | None] = field(init=False, default_factory=dict)
    _has_fresh_metadata: bool = field(init=False)
    _in_flight: _InFlightFetch | None = field(init=False, default=None)
    _replica: int = field(init=False, default=_NO_REPLICA)
    _replica_until: float = field(init=False, default=0.0)
    _leader_only_until: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.truncation_check = TruncationCheck(self.tp, 0)
        self._has_fresh_metadata = not self.cluster.has_metadata(self.tp.topic)

    @property
    def in_flight_offset(self) -> int | None:
        """
        The offset of the fetch in flight.
        """
        return None if self._in_flight is None else self._in_flight.offset

    @property
    def in_flight_node(self) -> int | None:
        """
        The broker of the fetch in flight.
        """
        return None if self._in_flight is None else self._in_flight.node

    def send_fetch(self, offset: int, max_bytes: int, max_wait_ms: int, deadline: Deadline) -> None:
        """
        Request the records from ``offset`` on; the broker waits ``max_wait_ms`` for the first one.

        Raises :class:`LogTruncatedError` if the log was truncated since the range was planned, and
        :class:`ThrottledError`.
        """
        if self._in_flight is not None:
            self.reset()
        leader = self._leader(deadline)
        if not self._has_fresh_metadata:
            leader = self._fresh_leader(leader, deadline)
        self.truncation_check.run(self.cluster, leader, deadline)
        node = self._replica if self._uses_replica() else leader.node
        with self._recording_failure(node, leader):
            connection = self.cluster.connection(node, self._limit(node, leader, deadline))
            throttled_seconds = connection.throttled_until - self.now()
            if throttled_seconds > 0:
                raise ThrottledError(node, throttled_seconds)
            request = self._fetch_request(connection, leader, offset, max_bytes, max_wait_ms)
            by_name = request.version <= MAX_FETCH_VERSION_BY_NAME
            self._in_flight = _InFlightFetch(connection, offset, node, leader, by_name)
            connection.send(request, self._limit(node, leader, deadline))

    def receive_fetch(self, deadline: Deadline) -> FetchResult:
        """
        Return the response to the fetch in flight.

        Raises :class:`OutOfRangeError`, :class:`ThrottledError`, or the connector's error for any
        other error code.
        """
        fetch = self._in_flight
        if fetch is None:
            msg = "no fetch is in flight"
            raise RuntimeError(msg)
        limit = self._limit(fetch.node, fetch.leader, deadline)
        with self._recording_failure(fetch.node, fetch.leader):
            frame = fetch.connection.receive_frame(limit)
        response = read_fetch_response(frame)
        self._in_flight = None
        if response.is_only_throttled:
            raise ThrottledError(fetch.node, response.throttle_time_ms / 1000)
        self._check_partition(response, fetch)
        return self._to_result(response, fetch)

    def _uses_replica(self) -> bool:
        if self._replica == _NO_REPLICA or self.now() >= self._replica_until:
            return False
        return self._check_replica(self._replica)

    def _check_replica(self, node: int) -> bool:
        """
        Return whether a replica is usable; if not, use the leader until the replica is tried again.
        """
        replicas = self.cluster.preferred_read_replicas
        if replicas.is_usable(node):
            return True
        self._stay_with_leader_until(
            min(replicas.retry_at(node), self.now() + _LEADER_ONLY_SECONDS)
        )
        return False

    def _stay_with_leader_until(self, until: float) -> None:
        self._replica = _NO_REPLICA
        self._leader_only_until = max(self._leader_only_until, until)

    def _limit(self, node: int, leader: Leader, deadline: Deadline) -> Deadline:
        """
        Return the deadline of a request: a replica gets only half of the time, so that the leader
        can be tried if the replica fails.
        """
        return deadline if node == leader.node else deadline.within(deadline.remaining() / 2)

    @contextmanager
    def _recording_failure(self, node: int, leader: Leader) -> Iterator[None]:
        """
        Record that a replica could not be reached, or did not answer.
        """
        try:
            yield
        except TRANSIENT_ERRORS as error:
            # A slow replica has begun to answer, so it has not failed.
            if node != leader.node and not isinstance(error, SlowResponseError):
                address = self.cluster.describe_address(node)
                self.cluster.preferred_read_replicas.record_failure(node, address, error)
            raise

    def _check_partition(self, response: FetchResponse, fetch: _InFlightFetch) -> None:
        if response.partition_index in {self.tp.partition, _WHOLE_RESPONSE}:
            return
        self.cluster.drop(fetch.connection)
        msg = (
            f"{fetch.connection.address} answered a Fetch of {self.tp} with partition "
            f"{response.partition_index}: requests and responses are out of order, so the "
            "connection was closed"
        )
        raise BrokerUnavailableError(msg)

    def reset(self) -> None:
        """
        Recover from an error: refresh the metadata, and drop the connection of a fetch in flight.
        """
        self.clear_preferred_read_replica()
        self.cluster.invalidate_metadata(self.tp.topic)
        if self._in_flight is not None:
            self.cluster.drop(self._in_flight.connection)
            self._in_flight = None

    def confirm_topic(self, deadline: Deadline) -> None:
        """
        Check that the topic's id is unchanged: all responses were of one topic.

        Raises :class:`RecreatedTopicError`, and :class:`UnknownTopicError` for a deleted topic.
        """
        # Invariant R15 (topic id): no other topic ever has the same id.
        if self.topic_id is None:
            return
        if self._in_flight is not None:
            self.reset()
        # A broker that falls silent does not take back the id that it has returned before.
        self._ids_at_servers = ids = {
            node: self._topic_id_at(node, deadline) or earlier_id
            for node, earlier_id in self._ids_at_servers.items()
        }
        for topic_id in ids.values():
            self._check_id(topic_id)
        if None in ids.values():
            self._check_id(self.cluster.confirm_metadata(self.tp.topic, deadline))

    def _topic_id_at(self, node: int, deadline: Deadline) -> UUID | None:
        """
        Return the topic's id according to a broker that has answered requests with its name; None
        if the broker does not respond, or does not know the topic any more.

        Another broker's metadata would not do: that broker may not know yet that the topic was
        recreated.
        """
        limit = deadline.within(deadline.remaining() / 2)
        try:
            ids = self.cluster.topic_ids_at(node, (self.tp.topic,), limit)
        except PykafkaError as error:
            if not error.retriable:
                raise
            logger.info("%s; other brokers are asked for the id of %s", error, self.tp.topic)
            return None
        return ids.get(self.tp.topic)

    def clear_preferred_read_replica(self) -> None:
        """
        Use no replica for a while: after an error, or because a replica lacked the requested
        records.
        """
        self._stay_with_leader_until(self.now() + _LEADER_ONLY_SECONDS)

    def watermarks(self, deadline: Deadline) -> Watermarks:
        """
        Return the log start, and the end of the records that the isolation level makes visible.

        Raises :class:`RecreatedTopicError`.
        """
        self._leader(deadline)
        return self._list_watermarks(ISOLATION[self.isolation_level], deadline)

    def confirmed_watermarks(self, deadline: Deadline) -> Watermarks:
        """
        Return as :meth:`watermarks` does, from a leader that two brokers confirm.
        """
        # Invariant R18 (no single broker): a worker that has read the topic before knows a leader,
        # which answers even after another one has replaced it.
        self.cluster.confirm_metadata(self.tp.topic, deadline)
        return self.watermarks(deadline)

    def uncommitted_watermarks(self, deadline: Deadline) -> Watermarks:
        """
        Return the log start and the high watermark, at any isolation level.
        """
        return self._list_watermarks(ISOLATION["read_uncommitted"], deadline)

    def _leader(self, deadline: Deadline) -> Leader:
        """
        Return the leader; raise :class:`RecreatedTopicError` if it leads another topic.
        """
        leader = self.cluster.leader(self.tp, deadline)
        self._check_id(leader.topic_id)
        return leader

    def _check_id(self, topic_id: UUID | None) -> None:
        # Brokers before 2.8 have no topic ids, so any topic with this name is accepted.
        if None not in {self.topic_id, topic_id} and self.topic_id != topic_id:
            msg = f"the topic of {self.tp} was deleted and recreated"
            raise RecreatedTopicError(msg)

    def _fresh_leader(self, leader: Leader, deadline: Deadline) -> Leader:
        """
        Return the leader, from new metadata if Fetch requests to its broker have the topic's name:
        such a broker returns the records of any topic with that name.
        """
        connection = self.cluster.connection(leader.node, deadline)
        takes_ids = connection.version(FETCH, MAX_FETCH_VERSION) > MAX_FETCH_VERSION_BY_NAME
        if not takes_ids and leader.topic_id is not None:
            self.cluster.invalidate_metadata(self.tp.topic)
            leader = self._leader(deadline)
        self._has_fresh_metadata = True
        return leader

    def _fetch_request(
        self, connection: Connection, leader: Leader, offset: int, max_bytes: int, max_wait_ms: int
    ) -> Request[FetchResponse]:
        max_version = MAX_FETCH_VERSION_BY_NAME if leader.topic_id is None else MAX_FETCH_VERSION
        fields = FetchRequest(
            tp=self.tp,
            topic_id=leader.topic_id,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            isolation_level=ISOLATION[self.isolation_level],
            # Without a rack id the leader names no replica.
            rack_id=self.cluster.config.client_rack if self._may_use_replica() else "",
        )
        return fetch_request(connection.version(FETCH, max_version), fields)

    def _to_result(self, response: FetchResponse, fetch: _InFlightFetch) -> FetchResult:
        if response.error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(fetch)
        if response.error_code:
            action = f"reading {self.tp} at offset {fetch.offset}"
            permission = f"Read on the topic {self.tp.topic}"
            raise map_read_error_code(response.error_code, action, permission)
        # The id is fixed only by a response: the worker's metadata may be that of an earlier topic
        # with this name.
        self.topic_id = fetch.leader.topic_id or self.topic_id
        if response.records and fetch.by_name and self.topic_id is not None:
            self.reads_by_name = True
            self._ids_at_servers[fetch.node] = None
        if fetch.to_leader:
            self.truncation_check.record_end(response.high_watermark, fetch.leader.epoch)
        if response.preferred_read_replica != _NO_REPLICA:
            if self._check_replica(response.preferred_read_replica):
                self._replica = response.preferred_read_replica
                self._replica_until = self.now() + _REPLICA_SECONDS
        elif not fetch.to_leader:
            if response.records:
                self.cluster.preferred_read_replicas.record_success(fetch.node)
            else:
                self.clear_preferred_read_replica()
        committed = self.isolation_level == "read_committed"
        return FetchResult(
            records=response.records,
            aborted_transactions=response.aborted_transactions,
            high_watermark=response.high_watermark,
            visible_end=response.last_stable_offset if committed else response.high_watermark,
            node=fetch.node,
            from_leader=fetch.to_leader,
            preferred_replica=response.preferred_read_replica,
        )

    def _on_out_of_range(self, fetch: _InFlightFetch) -> None:
        """
        Raise :class:`OutOfRangeError` only for the leader's response: a replica may be behind.
        """
        if not fetch.to_leader:
            self.clear_preferred_read_replica()
            # This error is retriable, so the leader is tried next.
            action = f"reading {self.tp} from the replica on broker {fetch.node}"
            raise map_error_code(KafkaErrorCode.OFFSET_NOT_AVAILABLE.value, action)
        raise OutOfRangeError

    def _may_use_replica(self) -> bool:
        return self.now() >= self._leader_only_until

    def _list_watermarks(self, isolation: int, deadline: Deadline) -> Watermarks:
        log_start = self._list_offset(EARLIEST, deadline, isolation)
        return Watermarks(log_start, self._list_offset(LATEST, deadline, isolation))

    def _list_offset(self, timestamp: int, deadline: Deadline, isolation: int) -> int:
        leader = self.cluster.leader(self.tp, deadline)
        connection = self.cluster.connection(leader.node, deadline)
        version = connection.version(LIST_OFFSETS)
        partition = ListOffsetsPartition(self.tp.partition, leader.epoch, timestamp)
        request = list_offsets_request(version, {self.tp.topic: [partition]}, isolation)
        result = connection.request(request, deadline).single()
        if result.error_code:
            action = f"reading the offsets of {self.tp}"
            permission = describe_permission(self.tp.topic)
            raise map_read_error_code(result.error_code, action, permission)
        if result.offset < 0:
            bound = "start" if timestamp == EARLIEST else "end"
            msg = f"the leader of {self.tp} returned {result.offset} for the {bound} of its log"
            raise BrokerUnavailableError(msg)
        self._ids_at_servers[leader.node] = None
        self.epoch = result.leader_epoch if timestamp == LATEST else self.epoch
        return result.offset
