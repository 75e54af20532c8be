"""
Asking the leaders of many partitions for offsets: all at once, each with one request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.network.connection import readable
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

    #: What to ask a broker, by topic.
    Wanted = Mapping[str, Sequence[ListOffsetsPartition | OffsetForLeaderPartition]]

_REST_SECONDS = 1.0


class Listed(NamedTuple):
    """
    What the brokers have answered in time, by node, and the errors of the others.
    """

    answers: dict[int, ListOffsetsResponse | OffsetForLeaderEpochResponse]
    troubles: list[PykafkaError]


class LeaderQuestion(NamedTuple):
    """
    What leaders are asked: an API, and how a request of it is made for a version.

    Brokers that do not have an ``optional`` one are left out.
    """

    api: ApiSpec[Any]
    request: Callable[[int, Any], Request[Any]]
    optional: bool = False


def log_offsets(isolation: int) -> LeaderQuestion:
    """
    Return the question for offsets by time, and for the ends of logs.
    """
    return LeaderQuestion(LIST_OFFSETS, partial(list_offsets_request, isolation_level=isolation))


#: Where the records of leader epochs end.
EPOCH_ENDS = LeaderQuestion(OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch_request, optional=True)


def ask_leaders(
    cluster: Cluster, wanted: Mapping[int, Wanted], question: LeaderQuestion, deadline: Deadline
) -> Listed:
    """
    Return the brokers' answers; all are connected to at once, and asked before one is awaited.

    Who does not answer in time keeps its connection. Raises errors that would not pass.
    """
    asked = _Asked(cluster, wanted, Listed({}, []))
    try:
        asked.send(question, deadline)
        asked.receive(deadline)
    finally:
        asked.leave()
    return asked.found


@dataclass(slots=True)
class _Asked:
    cluster: Cluster
    wanted: Mapping[int, Wanted]
    found: Listed
    pending: dict[Connection, int] = field(init=False, default_factory=dict)

    def send(self, question: LeaderQuestion, deadline: Deadline) -> None:
        for node, one in self.cluster.connections(self.wanted, deadline):
            if isinstance(one, PykafkaError):
                self._failed(node, one)
                continue
            try:
                connection = self._idle(node, one, deadline)
                if question.optional and not connection.supports(question.api):
                    continue
                version = connection.version(question.api)
                connection.send(question.request(version, self.wanted[node]), deadline)
            except PykafkaError as error:
                self._failed(node, error)
            else:
                self.pending[connection] = node

    def receive(self, deadline: Deadline) -> None:
        while self.pending and not deadline.expired:
            for connection in readable(list(self.pending), deadline.remaining()):
                node = self.pending.pop(connection)
                # What has begun to arrive is taken in, however late it began.
                rest = Deadline.after(max(deadline.remaining(), _REST_SECONDS), deadline.now)
                try:
                    self.found.answers[node] = connection.receive(rest)
                except PykafkaError as error:
                    self.cluster.drop(connection)
                    self._failed(node, error)

    def leave(self) -> None:
        for connection, node in self.pending.items():
            self.cluster.drain(connection)
            msg = f"{connection.address}: no answer yet; is the broker up, and not overloaded?"
            self.found.troubles.append(_naming(TimeoutExceededError(msg), self.wanted[node]))

    def _idle(self, node: int, connection: Connection, deadline: Deadline) -> Connection:
        if connection.in_flight:
            self.cluster.drop(connection)
            return self.cluster.connection(node, deadline)
        return connection

    def _failed(self, node: int, error: PykafkaError) -> None:
        if not error.retriable:
            raise error
        self.found.troubles.append(_naming(error, self.wanted[node]))


def read_offsets(
    answer: ListOffsetsResponse | OffsetForLeaderEpochResponse, wanted: Wanted
) -> LogEnds:
    """
    Return the offsets of one broker's answer.

    Not to know a partition is an error that passes: a broker may learn of a new one after others
    have, and of one that is gone metadata do not tell any more.
    """
    found = LogEnds({}, {})
    for topic, partitions in answer.topics:
        for index, error, offset, epoch in partitions:
            tp = TopicPartition(topic or "", index)
            if not error:
                found.offsets[tp] = offset
                if epoch != NO_EPOCH:
                    found.epochs[tp] = epoch
            elif error == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                msg = f"{tp}: not known to its leader; is the topic being made, or deleted?"
                raise UnknownTopicError(msg)
            else:
                raise map_error_code(error, f"reading the offsets of {tp}")
    is_short = len(found.offsets) < sum(map(len, wanted.values()))
    if is_short or _lacks_ends(found.offsets, wanted):
        raise no_leader_error(tp for tp in _named(wanted) if found.offsets.get(tp, -1) < 0)
    return found


def _lacks_ends(offsets: Mapping[TopicPartition, int], wanted: Wanted) -> bool:
    """
    Whether an end of a log was told as -1, which is an answer to times and epochs only.
    """
    return min(offsets.values(), default=0) < 0 and any(
        isinstance(one, ListOffsetsPartition)
        and one.timestamp < 0
        and offsets.get(TopicPartition(topic, one.partition_index), 0) < 0
        for topic, partitions in wanted.items()
        for one in partitions
    )


def no_leader_error(tps: Iterable[TopicPartition]) -> BrokerUnavailableError:
    """
    Return the error for partitions of which no leader answers.
    """
    msg = f"{format_partitions(tps)}: no leader returned the offsets; are all brokers up?"
    return BrokerUnavailableError(msg)


def _naming(error: PykafkaError, topics: Wanted) -> PykafkaError:
    """
    Return the error with the partitions that it is about.
    """
    if not isinstance(error, (BrokerUnavailableError, TimeoutExceededError)):
        return error
    named = type(error)(
        f"{format_partitions(_named(topics))}: no leader returned the offsets: {error}"
    )
    named.__cause__ = error
    return named


def _named(wanted: Wanted) -> Iterator[TopicPartition]:
    for topic, partitions in wanted.items():
        for one in partitions:
            yield TopicPartition(topic, one.partition_index)
