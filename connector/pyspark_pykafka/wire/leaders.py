"""
Asking the leaders of many partitions for offsets: all at once, each with one request.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.client import map_error_code
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.offsets import NO_EPOCH, LogEnds, TopicPartition, describe
from pyspark_pykafka.wire.list_offsets import LIST_OFFSETS, list_offsets_request
from pyspark_pykafka.wire.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH, epoch_ends_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.wire.cluster import Cluster
    from pyspark_pykafka.wire.connection import Connection
    from pyspark_pykafka.wire.list_offsets import ListedOffsets, WantedOffset
    from pyspark_pykafka.wire.messages import Api, Request
    from pyspark_pykafka.wire.offset_for_leader_epoch import EpochEnds, WantedEpoch

    #: What to ask a broker, by topic.
    Wanted = Mapping[str, Sequence[WantedOffset | WantedEpoch]]

_UNKNOWN_TOPIC_OR_PARTITION = 3


class LeaderQuestion(NamedTuple):
    """
    What leaders are asked: an API, and how a request of it is made for a version.

    Brokers that do not have an ``optional`` one are left out.
    """

    api: Api
    request: Callable[[int, Any], Request]
    optional: bool = False


def log_offsets(isolation: int) -> LeaderQuestion:
    """
    Return the question for offsets by time, and for the ends of logs.
    """
    return LeaderQuestion(LIST_OFFSETS, partial(list_offsets_request, isolation=isolation))


#: Where the records of leader epochs end.
EPOCH_ENDS = LeaderQuestion(OFFSET_FOR_LEADER_EPOCH, epoch_ends_request, optional=True)


def ask_leaders(
    cluster: Cluster, wanted: Mapping[int, Wanted], question: LeaderQuestion, deadline: Deadline
) -> dict[int, ListedOffsets | EpochEnds]:
    """
    Return each broker's answer; all are asked before the first answer is read.

    After an error no connection is left with an answer under way.
    """
    asked: dict[int, Connection] = {}
    answers = {}
    try:
        for node, topics in wanted.items():
            with _naming(topics):
                connection = _idle(cluster, node, deadline)
                if question.optional and not connection.speaks(question.api):
                    continue
                asked[node] = connection
                version = connection.version(question.api)
                connection.send(question.request(version, topics), deadline)
        for node, connection in asked.items():
            with _naming(wanted[node]):
                answers[node] = connection.receive(deadline)
    except PykafkaError:
        for connection in asked.values():
            cluster.drop(connection)
        raise
    return answers


def told(answer: ListedOffsets | EpochEnds, wanted: Wanted, missing_until: Deadline) -> LogEnds:
    """
    Return the offsets of one broker's answer, without the partitions that it does not know.

    A broker may learn of a new partition after others have: until a time, not to know it is an
    error that passes.
    """
    found = LogEnds({}, {})
    unknown = set()
    for topic, partitions in answer.topics:
        for index, error, offset, epoch in partitions:
            tp = TopicPartition(topic or "", index)
            if not error:
                found.offsets[tp] = offset
                if epoch != NO_EPOCH:
                    found.epochs[tp] = epoch
            elif error == _UNKNOWN_TOPIC_OR_PARTITION:
                unknown.add(tp)
            else:
                raise map_error_code(error, f"asking for the offsets of {tp}")
    if unknown and not missing_until.expired:
        msg = f"{describe(unknown)}: not known to its leader; is the topic being made, or deleted?"
        raise UnknownTopicError(msg)
    if len(found.offsets) + len(unknown) < sum(map(len, wanted.values())):
        raise silent(tp for tp in _named(wanted) if tp not in found.offsets and tp not in unknown)
    return found


def silent(tps: Iterable[TopicPartition]) -> BrokerUnavailableError:
    """
    Return the error for partitions of which no leader answers.
    """
    msg = f"{describe(tps)}: no leader told the offsets; are all brokers up?"
    return BrokerUnavailableError(msg)


@contextmanager
def _naming(topics: Wanted) -> Iterator[None]:
    """
    Say in errors of the connection which partitions they are about.
    """
    try:
        yield
    except (BrokerUnavailableError, TimeoutExceededError) as error:
        msg = f"{describe(_named(topics))}: no leader told the offsets: {error}"
        raise type(error)(msg) from error


def _named(wanted: Wanted) -> Iterator[TopicPartition]:
    for topic, partitions in wanted.items():
        for one in partitions:
            yield TopicPartition(topic, one.partition_index)


def _idle(cluster: Cluster, node: int, deadline: Deadline) -> Connection:
    connection = cluster.connection(node, deadline)
    if connection.in_flight:
        cluster.drop(connection)
        return cluster.connection(node, deadline)
    return connection
