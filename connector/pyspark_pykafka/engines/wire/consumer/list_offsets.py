"""
Lists the offsets of many partitions: one request to each leader, all sent at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_read_error_code
from pyspark_pykafka.engines.wire.network.poll import readable
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

P = TypeVar("P", bound="ListOffsetsPartition | OffsetForLeaderPartition")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.list_offsets import ListOffsetsResponse
    from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import (
        OffsetForLeaderEpochResponse,
        OffsetForLeaderPartition,
    )
    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request

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


class LeaderApi(NamedTuple, Generic[P]):
    """
    An API that partition leaders answer; ``request`` takes a version and the partitions.

    If the API is ``optional``, brokers that do not support it are skipped.
    """

    api: ApiSpec[LeaderResponse]
    request: Callable[[int, RequestedPartitions[P]], Request[LeaderResponse]]
    optional: bool = False


def list_offsets_api(isolation: int) -> LeaderApi[ListOffsetsPartition]:
    """
    Return the API that lists offsets by timestamp, and log start and end offsets.
    """
    return LeaderApi(LIST_OFFSETS, partial(list_offsets_request, isolation_level=isolation))


#: The API that returns the end offsets of leader epochs.
LEADER_EPOCH_API: LeaderApi[OffsetForLeaderPartition] = LeaderApi(
    OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch_request, optional=True
)


def request_from_leaders(
    cluster: Cluster,
    requested: Mapping[int, RequestedPartitions[P]],
    leader_api: LeaderApi[P],
    deadline: Deadline,
) -> LeaderResponses:
    """
    Return the leaders' responses; all requests are sent before the first response is awaited.

    A connection without a response in time is kept. Raises errors that are not retriable.
    """
    requests = _LeaderRequests(cluster, requested, LeaderResponses({}, []))
    try:
        requests.send(leader_api, deadline)
        requests.receive(leader_api, deadline)
    finally:
        requests.drain()
    return requests.result


@dataclass(slots=True)
class _LeaderRequests(Generic[P]):
    cluster: Cluster
    requested: Mapping[int, RequestedPartitions[P]]
    result: LeaderResponses
    pending: dict[Connection, int] = field(init=False, default_factory=dict)

    def send(self, leader_api: LeaderApi[P], deadline: Deadline) -> None:
        for node, connection_or_error in self.cluster.connections(self.requested, deadline):
            if isinstance(connection_or_error, PykafkaError):
                self._on_error(node, connection_or_error)
                continue
            try:
                connection = self._idle_connection(node, connection_or_error, deadline)
                if leader_api.optional and not connection.supports(leader_api.api):
                    continue
                version = connection.version(leader_api.api)
                connection.send(leader_api.request(version, self.requested[node]), deadline)
            except PykafkaError as error:
                self._on_error(node, error)
            else:
                self.pending[connection] = node

    def receive(self, leader_api: LeaderApi[P], deadline: Deadline) -> None:
        while self.pending and not deadline.expired:
            for connection in readable(list(self.pending), deadline.remaining()):
                node = self.pending.pop(connection)
                # A response that is arriving is read, even shortly before the deadline.
                rest = Deadline.after(max(deadline.remaining(), _REST_SECONDS), deadline.now)
                try:
                    self.result.responses[node] = connection.receive(leader_api.api, rest)
                except PykafkaError as error:
                    self.cluster.drop(connection)
                    self._on_error(node, error)

    def drain(self) -> None:
        for connection, node in self.pending.items():
            self.cluster.drain(connection)
            msg = f"{connection.address}: no response yet; is the broker up, and not overloaded?"
            error = TimeoutExceededError(msg)
            self.result.errors.append(_with_partitions(error, self.requested[node]))

    def _idle_connection(self, node: int, connection: Connection, deadline: Deadline) -> Connection:
        if connection.in_flight:
            self.cluster.drop(connection)
            return self.cluster.connection(node, deadline)
        return connection

    def _on_error(self, node: int, error: PykafkaError) -> None:
        if not error.retriable:
            raise error
        self.result.errors.append(_with_partitions(error, self.requested[node]))


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
    Whether a log start or end offset is -1, which is valid for timestamps and epochs only.
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
    detailed = type(error)(f"{names}: no leader returned the offsets: {error}")
    detailed.__cause__ = error
    return detailed


def _partitions(requested: RequestedPartitions[P]) -> Iterator[TopicPartition]:
    for topic, partitions in requested.items():
        for partition in partitions:
            yield TopicPartition(topic, partition.partition_index)
