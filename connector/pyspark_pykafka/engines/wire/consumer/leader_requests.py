"""
Requests for many partitions (ListOffsets, OffsetForLeaderEpoch, Fetch): one to each leader, all
sent before a response is awaited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_read_error_code
from pyspark_pykafka.engines.wire.network.connection_opener import not_connected_error
from pyspark_pykafka.engines.wire.protocol.api_versions import MAX_VERSION
from pyspark_pykafka.engines.wire.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    list_offsets_request,
)
from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    offset_for_leader_epoch_request,
)
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.offsets import NO_EPOCH, LogEnds, TopicPartition, format_partitions
from pyspark_pykafka.retry import Deadline

P = TypeVar("P", bound="ListOffsetsPartition | OffsetForLeaderPartition | FetchPartition")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.connection_opener import ConnectionOpener
    from pyspark_pykafka.engines.wire.protocol.list_offsets import ListOffsetsResponse
    from pyspark_pykafka.engines.wire.protocol.multi_fetch import FetchPartition
    from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import (
        OffsetForLeaderEpochResponse,
        OffsetForLeaderPartition,
    )
    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request
    from pyspark_pykafka.settings.wire_config import Address

    #: The partitions to request from one broker, by topic.
    RequestedPartitions = Mapping[str, Sequence[P]]
    LeaderResponse = ListOffsetsResponse | OffsetForLeaderEpochResponse

# The minimum time for the rest of a response that is arriving.
_REST_SECONDS = 1.0


class LeaderResponses(NamedTuple):
    """
    The responses that arrived in time, by broker id, and the errors of the other brokers.
    """

    responses: dict[int, LeaderResponse]
    errors: list[PykafkaError]


class LeaderApi(NamedTuple, Generic[P, R]):
    """
    An API that partition leaders answer; ``request`` takes a version and the partitions.

    If the API is ``optional``, brokers that do not support it are skipped.
    """

    api: ApiSpec[R]
    request: Callable[[int, RequestedPartitions[P]], Request[R]]
    optional: bool = False
    max_version: int = MAX_VERSION


def list_offsets_api(isolation: int) -> LeaderApi[ListOffsetsPartition, LeaderResponse]:
    """
    Return the API that lists offsets by timestamp, and log start and end offsets.
    """
    return LeaderApi(LIST_OFFSETS, partial(list_offsets_request, isolation_level=isolation))


#: The API that returns the end offsets of leader epochs.
LEADER_EPOCH_API: LeaderApi[OffsetForLeaderPartition, LeaderResponse] = LeaderApi(
    OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch_request, optional=True
)


def request_from_leaders(
    cluster: Cluster,
    requested: Mapping[int, RequestedPartitions[P]],
    leader_api: LeaderApi[P, LeaderResponse],
    deadline: Deadline,
) -> LeaderResponses:
    """
    Return the leaders' responses; each request is sent as soon as its connection is open.

    A leader that cannot be reached, or is silent during the login, delays no other leader. A
    connection whose response is late is kept. Raises errors that are not retriable.
    """
    errors: list[PykafkaError] = []
    responses = dict(receive_from_leaders(cluster, requested, leader_api, deadline, errors))
    return LeaderResponses(responses, errors)


def receive_from_leaders(
    cluster: Cluster,
    requested: Mapping[int, RequestedPartitions[P]],
    leader_api: LeaderApi[P, R],
    deadline: Deadline,
    errors: list[PykafkaError],
) -> Iterator[tuple[int, R]]:
    """
    Yield each leader's response as it arrives, with the broker id; ``errors`` receives the errors
    of the other brokers.

    Sends and raises as :func:`request_from_leaders` does.
    """
    by_address, shared = cluster.broker_addresses(requested)
    with cluster.connect_all(by_address, deadline) as opener:
        requests = _LeaderRequests(cluster, requested, by_address, leader_api, opener, errors)
        try:
            for node, error in shared.items():
                requests.on_error(node, error)
            yield from requests.run(deadline)
        finally:
            requests.discard_responses()


@dataclass(slots=True)
class _LeaderRequests(Generic[P, R]):
    cluster: Cluster
    requested: Mapping[int, RequestedPartitions[P]]
    by_address: Mapping[Address, int]
    leader_api: LeaderApi[P, R]
    opener: ConnectionOpener
    errors: list[PykafkaError]
    pending: dict[Connection, int] = field(init=False, default_factory=dict)
    # The connections that wait for the end of the broker's throttle time.
    throttled: dict[Connection, int] = field(init=False, default_factory=dict)

    def run(self, deadline: Deadline) -> Iterator[tuple[int, R]]:
        """
        Send each request when its connection is open, and yield the responses until the deadline.
        """
        while True:
            for address, connection_or_error in self.opener.take():
                self._send(self.by_address[address], connection_or_error, deadline)
            for connection in [c for c in self.throttled if self._throttle_seconds(c) <= 0]:
                self._send(self.throttled.pop(connection), connection, deadline)
            if deadline.expired or not (self.pending or self.throttled or self.opener.pending):
                return
            pause = min(map(self._throttle_seconds, self.throttled), default=deadline.remaining())
            for connection in self.opener.readable(list(self.pending), pause):
                yield from self._receive(connection, deadline)

    def on_error(self, node: int, error: PykafkaError) -> None:
        if not error.retriable:
            raise error
        self.errors.append(_with_partitions(error, self.requested[node]))

    def _send(self, node: int, opened: Connection | PykafkaError, deadline: Deadline) -> None:
        if isinstance(opened, PykafkaError):
            self.on_error(node, opened)
            return
        if opened.in_flight:
            # The requests in flight are those of a caller that failed.
            self.cluster.drop(opened)
            self.opener.start(opened.address)
            return
        # If the throttle time ends after the deadline, send() raises an error at once.
        if 0 < self._throttle_seconds(opened) <= deadline.remaining():
            self.throttled[opened] = node
            return
        api = self.leader_api
        try:
            if api.optional and not opened.supports(api.api):
                return
            version = opened.version(api.api, api.max_version)
            opened.send(api.request(version, self.requested[node]), deadline)
        except PykafkaError as error:
            self.on_error(node, error)
        else:
            self.pending[opened] = node

    def _throttle_seconds(self, connection: Connection) -> float:
        return connection.throttled_until - self.cluster.now()

    def _receive(self, connection: Connection, deadline: Deadline) -> Iterator[tuple[int, R]]:
        node = self.pending.pop(connection)
        # A response that is arriving is read, even shortly before the deadline.
        rest = Deadline.after(max(deadline.remaining(), _REST_SECONDS), deadline.now)
        try:
            response = connection.receive(self.leader_api.api, rest)
        except PykafkaError as error:
            self.cluster.drop(connection)
            self.on_error(node, error)
        else:
            yield node, response

    def discard_responses(self) -> None:
        for connection, node in self.pending.items():
            self.cluster.discard_responses(connection)
            msg = f"{connection.address}: no response yet; is the broker up, and not overloaded?"
            error = TimeoutExceededError(msg)
            self.errors.append(_with_partitions(error, self.requested[node]))
        for address in self.opener.pending:
            node = self.by_address[address]
            late_error = not_connected_error(address)
            self.errors.append(_with_partitions(late_error, self.requested[node]))


def read_offsets(response: LeaderResponse, requested: RequestedPartitions[P]) -> LogEnds:
    """
    Return the offsets and leader epochs of one broker's response.

    An unknown partition is a retriable error: brokers learn of a new partition one after the other,
    and a deleted one soon leaves the metadata.
    """
    ends = LogEnds({}, {})
    for topic, partitions in response.topics:
        for index, error, offset, epoch in partitions:
            tp = TopicPartition(topic or "", index)
            if not error:
                ends.offsets[tp] = offset
                if epoch != NO_EPOCH:
                    ends.epochs[tp] = epoch
            elif error == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                msg = f"{tp}: not known to its leader; is the topic being created, or deleted?"
                raise UnknownTopicError(msg)
            else:
                raise map_read_error_code(error, f"reading the offsets of {tp}")
    is_short = len(ends.offsets) < sum(map(len, requested.values()))
    if is_short or _lacks_log_ends(ends.offsets, requested):
        raise no_leader_error(tp for tp in _partitions(requested) if ends.offsets.get(tp, -1) < 0)
    return ends


def _lacks_log_ends(
    offsets: Mapping[TopicPartition, int], requested: RequestedPartitions[P]
) -> bool:
    """
    Return whether a log start or end offset is -1, which is valid for timestamps and epochs only.
    """
    return min(offsets.values(), default=0) < 0 and any(
        isinstance(partition, ListOffsetsPartition)
        and partition.timestamp < 0
        and offsets.get(TopicPartition(topic, partition.partition_index), 0) < 0
        for topic, partitions in requested.items()
        for partition in partitions
    )


def no_leader_error(tps: Iterable[TopicPartition]) -> BrokerUnavailableError:
    """
    Return the error for partitions without a leader that responds.
    """
    msg = f"{format_partitions(tps)}: no leader returned the offsets; are all brokers up?"
    return BrokerUnavailableError(msg)


def _with_partitions(error: PykafkaError, requested: RequestedPartitions[P]) -> PykafkaError:
    """
    Return the error with the names of the partitions that it concerns.
    """
    if not isinstance(error, (BrokerUnavailableError, TimeoutExceededError)):
        return error
    names = format_partitions(_partitions(requested))
    if not names:
        # A request for the ids of topics names no partitions.
        return error
    detailed = type(error)(f"{names}: no leader returned the offsets: {error}")
    detailed.__cause__ = error
    return detailed


def _partitions(requested: RequestedPartitions[P]) -> Iterator[TopicPartition]:
    for topic, partitions in requested.items():
        for partition in partitions:
            yield TopicPartition(topic, partition.partition_index)
