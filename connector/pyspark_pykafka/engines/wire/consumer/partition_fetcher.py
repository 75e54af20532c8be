"""
The conversation about one partition with the broker that serves it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.contract import Watermarks
from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.consumer.truncation_check import LogCheck
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
from pyspark_pykafka.errors import BrokerUnavailableError, UnknownTopicError
from pyspark_pykafka.offsets import EARLIEST, LATEST, NO_EPOCH

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_pykafka.engines.wire.network.cluster import Cluster, Leader
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.retry import Deadline

_NO_REPLICA = -1
_WHOLE_RESPONSE = -1

# How long a reader stays with the replica that its leader named; the Java client's metadata age.
_REPLICA_SECONDS = 300.0
# How long it stays away from replicas after one did not have what was asked for.
_SHUN_SECONDS = 10.0


class OutOfRangeError(Exception):
    """
    The log does not have the offset that was asked for.
    """


class ThrottledError(Exception):
    """
    The broker has said that nothing may be sent to it for so long: nothing was.
    """

    def __init__(self, node: int, seconds: float) -> None:
        self.node = node
        self.seconds = seconds
        super().__init__(node, seconds)


class FetchResult(NamedTuple):
    """
    What broker ``node`` answered: whole record batches, the last one perhaps cut off, until the
    next.

    ``visible_end`` is the offset before which the isolation level lets records be read.
    ``aborted`` holds (first offset, producer id). ``preferred`` is the replica that the leader
    names, or -1.
    """

    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    high_watermark: int
    visible_end: int
    throttle_ms: int
    node: int
    of_leader: bool
    preferred: int

    @property
    def throttled(self) -> bool:
        """
        Whether a quota may have held records back.
        """
        return self.throttle_ms > 0

    @property
    def redirected(self) -> bool:
        """
        Whether the leader only named a replica.
        """
        return self.preferred != _NO_REPLICA

    @property
    def is_authoritative(self) -> bool:
        """
        Whether the answer says where the log ends: a replica may be behind.
        """
        return self.of_leader and not self.throttled and not self.redirected


class _Asked(NamedTuple):
    connection: Connection
    offset: int
    node: int
    leader: Leader

    @property
    def of_leader(self) -> bool:
        """
        Whether the leader itself was asked.
        """
        return self.node == self.leader.node


@dataclass(slots=True)
class PartitionFetcher:
    """
    Fetches from the partition's leader, or from the replica near the client that it names.

    At most one request is in flight: :meth:`send_fetch` sends it, :meth:`receive_fetch` waits for
    its response. Without a ``topic_id``, the first response fixes the topic: a topic recreated
    under the same name is another one.
    """

    cluster: Cluster
    tp: TopicPartition
    isolation_level: str
    topic_id: UUID | None = None
    #: The leader epoch that the end of the log was told in last.
    epoch: int = field(init=False, default=NO_EPOCH)
    log: LogCheck = field(init=False)
    _asked: _Asked | None = field(init=False, default=None)
    _replica: int = field(init=False, default=_NO_REPLICA)
    _replica_until: float = field(init=False, default=0.0)
    _shun_until: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.log = LogCheck(self.tp, 0)

    @property
    def asked(self) -> int | None:
        """
        The offset that an answer is under way for.
        """
        return None if self._asked is None else self._asked.offset

    @property
    def node(self) -> int | None:
        """
        The broker that an answer is under way from.
        """
        return None if self._asked is None else self._asked.node

    def send_fetch(self, offset: int, size: int, wait_ms: int, deadline: Deadline) -> None:
        """
        Send for the records from ``offset`` on; the broker waits so long for the first one.

        Raises :class:`LogTruncatedError` where the leader has another log than that in
        which the range was planned, and :class:`ThrottledError`.
        """
        if self._asked is not None:
            self.forget()
        leader = self.cluster.leader(self.tp, deadline)
        # Who tells no id, as brokers before 2.8, says nothing of which topic it is.
        if None not in {self.topic_id, leader.topic_id} and self.topic_id != leader.topic_id:
            msg = f"the topic of {self.tp} was deleted and made again"
            raise UnknownTopicError(msg)
        self.log.run(self.cluster, leader, deadline)
        roams = self._replica != _NO_REPLICA and time.monotonic() < self._replica_until
        node = self._replica if roams else leader.node
        connection = self.cluster.connection(node, deadline)
        throttled = connection.throttled_until - time.monotonic()
        if throttled > 0:
            raise ThrottledError(node, throttled)
        request = self._fetch_request(connection, leader, offset, size, wait_ms)
        self._asked = _Asked(connection, offset, node, leader)
        connection.send(request, deadline)

    def receive_fetch(self, deadline: Deadline) -> FetchResult:
        """
        Wait for what was asked for.

        Raises :class:`OutOfRangeError`, or the connector's error for any other that Kafka gives.
        """
        asked = self._asked
        if asked is None:
            msg = "nothing was asked for"
            raise RuntimeError(msg)
        answer = read_fetch_response(asked.connection.receive_frame(deadline))
        self._asked = None
        self._check_partition(answer, asked)
        return self._fetched(answer, asked)

    def _check_partition(self, answer: FetchResponse, asked: _Asked) -> None:
        if answer.partition_index in {self.tp.partition, _WHOLE_RESPONSE}:
            return
        self.cluster.drop(asked.connection)
        msg = (
            f"{asked.connection.address} answered a Fetch of {self.tp} with partition "
            f"{answer.partition_index}: the connection is out of step, and closed"
        )
        raise BrokerUnavailableError(msg)

    def forget(self) -> None:
        """
        Start afresh after trouble: ask who leads, and drop the connection if it owes an answer.
        """
        self.stay_with_leader()
        self.cluster.invalidate_metadata(self.tp.topic)
        if self._asked is not None:
            self.cluster.drop(self._asked.connection)
            self._asked = None

    def stay_with_leader(self) -> None:
        """
        Go to no replica for a while, since one did not have what was asked for.
        """
        self._replica = _NO_REPLICA
        self._shun_until = time.monotonic() + _SHUN_SECONDS

    def watermarks(self, deadline: Deadline) -> Watermarks:
        """
        Return the log start, and the end of the records that the isolation level makes visible.
        """
        return self._list_watermarks(ISOLATION[self.isolation_level], deadline)

    def uncommitted_watermarks(self, deadline: Deadline) -> Watermarks:
        """
        Return the log start and the high watermark, at any isolation level.
        """
        return self._list_watermarks(ISOLATION["read_uncommitted"], deadline)

    def _fetch_request(
        self, connection: Connection, leader: Leader, offset: int, size: int, wait_ms: int
    ) -> Request[FetchResponse]:
        newest = MAX_FETCH_VERSION_BY_NAME if leader.topic_id is None else MAX_FETCH_VERSION
        wish = FetchRequest(
            tp=self.tp,
            topic_id=leader.topic_id,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            max_bytes=size,
            max_wait_ms=wait_ms,
            isolation_level=ISOLATION[self.isolation_level],
            # Without a rack the leader serves by itself.
            rack_id=self.cluster.config.client_rack if self._may_roam() else "",
        )
        return fetch_request(connection.version(FETCH, newest), wish)

    def _fetched(self, answer: FetchResponse, asked: _Asked) -> FetchResult:
        if answer.error_code == KafkaErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(asked)
        if answer.error_code:
            doing = f"reading {self.tp} at offset {asked.offset}"
            raise map_error_code(answer.error_code, doing)
        # Only now: what the worker knew of the topic may have been of one before.
        self.topic_id = asked.leader.topic_id or self.topic_id
        if asked.of_leader:
            self.log.saw(answer.high_watermark, asked.leader.epoch)
        if answer.preferred_read_replica != _NO_REPLICA:
            self._replica = answer.preferred_read_replica
            self._replica_until = time.monotonic() + _REPLICA_SECONDS
        elif not asked.of_leader and not answer.records:
            self.stay_with_leader()
        committed = self.isolation_level == "read_committed"
        return FetchResult(
            records=answer.records,
            aborted=answer.aborted_transactions,
            high_watermark=answer.high_watermark,
            visible_end=answer.last_stable_offset if committed else answer.high_watermark,
            throttle_ms=answer.throttle_time_ms,
            node=asked.node,
            of_leader=asked.of_leader,
            preferred=answer.preferred_read_replica,
        )

    def _on_out_of_range(self, asked: _Asked) -> None:
        """
        Believe only the leader: a replica may be behind.
        """
        if not asked.of_leader:
            self.stay_with_leader()
            # A retriable error.
            action = f"reading {self.tp} from the replica on broker {asked.node}"
            raise map_error_code(KafkaErrorCode.OFFSET_NOT_AVAILABLE.value, action)
        raise OutOfRangeError

    def _may_roam(self) -> bool:
        return time.monotonic() >= self._shun_until

    def _list_watermarks(self, isolation: int, deadline: Deadline) -> Watermarks:
        log_start = self._list_offset(EARLIEST, deadline, isolation)
        return Watermarks(log_start, self._list_offset(LATEST, deadline, isolation))

    def _list_offset(self, what: int, deadline: Deadline, isolation: int) -> int:
        leader = self.cluster.leader(self.tp, deadline)
        connection = self.cluster.connection(leader.node, deadline)
        version = connection.version(LIST_OFFSETS)
        wanted = {self.tp.topic: [ListOffsetsPartition(self.tp.partition, leader.epoch, what)]}
        request = list_offsets_request(version, wanted, isolation)
        listed = connection.request(request, deadline)
        answer = listed.single()
        if answer.error_code:
            raise map_error_code(answer.error_code, f"reading the offsets of {self.tp}")
        if answer.offset < 0:
            msg = f"the leader of {self.tp} told {answer.offset} for an end of its log"
            raise BrokerUnavailableError(msg)
        self.epoch = answer.leader_epoch if what == LATEST else self.epoch
        return answer.offset
