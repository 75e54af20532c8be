"""
Asking the leaders of many partitions for offsets: all at once, each with one request.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_pykafka.client import map_error_code
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.offsets import Offsets, TopicPartition, describe
from pyspark_pykafka.wire.list_offsets import LIST_OFFSETS, WantedOffset, list_offsets_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.wire.cluster import Cluster
    from pyspark_pykafka.wire.connection import Connection
    from pyspark_pykafka.wire.list_offsets import ListedOffsets

    #: What to ask a broker, by topic.
    Wanted = dict[str, list[WantedOffset]]

_UNKNOWN_TOPIC_OR_PARTITION = 3


def ask_leaders(
    cluster: Cluster, wanted: dict[int, Wanted], isolation: int, deadline: Deadline
) -> dict[int, ListedOffsets]:
    """
    Return each broker's answer; all are asked before the first answer is read.

    After an error no connection is left with an answer under way.
    """
    asked: dict[int, Connection] = {}
    answers = {}
    try:
        for node, topics in wanted.items():
            with _naming(topics):
                asked[node] = _idle(cluster, node, deadline)
                version = asked[node].version(LIST_OFFSETS)
                asked[node].send(list_offsets_request(version, topics, isolation), deadline)
        for node, connection in asked.items():
            with _naming(wanted[node]):
                answers[node] = connection.receive(deadline)
    except PykafkaError:
        for connection in asked.values():
            cluster.drop(connection)
        raise
    return answers


def told(answer: ListedOffsets, wanted: Wanted, missing_until: Deadline) -> Offsets:
    """
    Return the offsets of one broker's answer, without the partitions that it does not know.

    A broker may learn of a new partition after others have: until a time, not to know it is an
    error that passes.
    """
    found: Offsets = {}
    unknown = set()
    for topic, partitions in answer.topics:
        for index, error, offset in partitions:
            tp = TopicPartition(topic or "", index)
            if not error:
                found[tp] = offset
            elif error == _UNKNOWN_TOPIC_OR_PARTITION:
                unknown.add(tp)
            else:
                raise map_error_code(error, f"asking for the offsets of {tp}")
    if unknown and not missing_until.expired:
        msg = f"{describe(unknown)}: not known to its leader; is the topic being made, or deleted?"
        raise UnknownTopicError(msg)
    if len(found) + len(unknown) < sum(map(len, wanted.values())):
        raise silent(tp for tp in _named(wanted) if tp not in found and tp not in unknown)
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
