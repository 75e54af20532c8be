"""
One Kafka cluster as a worker process sees it: connections that stay open, and who leads what.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_pykafka.client import direct_config, map_error_code
from pyspark_pykafka.client.direct import Address
from pyspark_pykafka.errors import BrokerUnavailableError, TimeoutExceededError, UnknownTopicError
from pyspark_pykafka.pool import ClientPool
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.wire.connection import Connection
from pyspark_pykafka.wire.metadata import METADATA, metadata_request

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager
    from uuid import UUID

    from pyspark_pykafka.client.direct import DirectConfig
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.wire.metadata import Metadata

T = TypeVar("T")

_UNKNOWN_TOPIC_OR_PARTITION = 3
_LEADER_NOT_AVAILABLE = 5
_TOPIC_ERRORS_FOR_ALL = frozenset({0, _LEADER_NOT_AVAILABLE})


class Leader(NamedTuple):
    """
    The broker that leads a partition; the topic's id is None on brokers before 2.8.
    """

    node: int
    epoch: int
    topic_id: UUID | None


@dataclass(slots=True)
class Cluster:
    """
    The brokers of one configuration; what it knows may be old, so :meth:`forget` after an error.
    """

    config: DirectConfig
    #: Whether a topic that is missing may be made, as brokers do for writers if they are so set.
    creates_topics: bool = False
    #: How long what is known of a topic's partitions may be taken for true, in seconds.
    metadata_seconds: float = float("inf")
    _addresses: dict[int, Address] = field(init=False, default_factory=dict)
    _connections: dict[Address, Connection] = field(init=False, default_factory=dict)
    _leaders: dict[str, dict[int, Leader]] = field(init=False, default_factory=dict)
    _learned: dict[str, float] = field(init=False, default_factory=dict)

    def leader(self, tp: TopicPartition, deadline: Deadline) -> Leader:
        """
        Return who leads a partition, asking if that is not known.

        Raises :class:`UnknownTopicError` if the brokers do not have it, and
        :class:`BrokerUnavailableError` if it has no leader, or nobody answers.
        """
        if tp.topic not in self._leaders:
            self._learn(tp.topic, deadline)
        leader = self._leaders[tp.topic].get(tp.partition)
        if leader is None:
            msg = f"the brokers do not have the partition {tp}"
            raise UnknownTopicError(msg)
        if leader.node not in self._addresses:
            msg = f"{tp} has no leader at the moment; are all brokers up?"
            raise BrokerUnavailableError(msg)
        return leader

    def knows(self, topic: str) -> bool:
        """
        Return whether the next question about the topic's partitions asks no broker.
        """
        return topic in self._leaders

    def partitions(self, topic: str, deadline: Deadline) -> tuple[int, list[int]]:
        """
        Return how many partitions a topic has, and which of them have a leader.

        Raises as :meth:`leader` does.
        """
        if time.monotonic() - self._learned.get(topic, 0.0) >= self.metadata_seconds:
            self.forget(topic)
        if topic not in self._leaders:
            self._learn(topic, deadline)
        leaders = self._leaders[topic]
        if not leaders:
            self.forget(topic)
            msg = f"the topic {topic} has no partitions yet; is it being made?"
            raise BrokerUnavailableError(msg)
        return len(leaders), [at for at, it in leaders.items() if it.node in self._addresses]

    def addresses(self, deadline: Deadline) -> list[Address]:
        """
        Return where all brokers of the cluster are, asking anew.
        """
        self.metadata((), deadline)
        return list(self._addresses.values())

    def metadata(self, topics: Collection[str] | None, deadline: Deadline) -> Metadata:
        """
        Return what some broker says of these topics, or of all of them (None).
        """
        found = self._first(lambda at, share: self._ask_metadata(at, topics, share), deadline)
        self._addresses = {b.node_id: Address(b.host, b.port) for b in found.brokers}
        return found

    def names(self, node: int) -> bool:
        """
        Return whether there is a broker of this number, as far as is known.
        """
        return node in self._addresses

    def connection_at(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker that another one has named.
        """
        return self._connect(address, deadline)

    def any_connection(self, deadline: Deadline) -> Connection:
        """
        Return a connection to whichever broker can be reached.
        """
        return self._first(self._connect, deadline)

    def forget(self, topic: str) -> None:
        """
        Ask again who leads the topic's partitions before they are used.
        """
        self._leaders.pop(topic, None)

    def connection(self, node: int, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker, made now if there is none.
        """
        if node not in self._addresses:
            msg = f"the cluster does not name a broker {node} at the moment"
            raise BrokerUnavailableError(msg)
        return self._connect(self._addresses[node], deadline)

    def request(self, connection: Connection, request: Any, deadline: Deadline) -> Any:
        """
        Return the answer of one broker; a connection that fails is given up.
        """
        try:
            return connection.request(request, deadline)
        except BaseException:
            self.drop(connection)
            raise

    def drop(self, connection: Connection) -> None:
        """
        Close a connection that failed, or that has an answer under way which nobody wants.
        """
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        connection.close()

    def close(self) -> None:
        """
        Close every connection.
        """
        for connection in list(self._connections.values()):
            self.drop(connection)

    def _connect(self, address: Address, deadline: Deadline) -> Connection:
        known = self._connections.get(address)
        if known is not None:
            if known.usable:
                return known
            self.drop(known)
        made = Connection.open(address, self.config, deadline)
        self._connections[address] = made
        return made

    def _learn(self, topic: str, deadline: Deadline) -> None:
        found = self.metadata((topic,), deadline)
        answer = next((t for t in found.topics if t.name == topic), None)
        if answer is None or answer.error_code == _UNKNOWN_TOPIC_OR_PARTITION:
            msg = f"the brokers do not have the topic {topic}"
            raise UnknownTopicError(msg)
        if answer.error_code not in _TOPIC_ERRORS_FOR_ALL:
            raise map_error_code(answer.error_code, f"asking who leads the topic {topic}")
        self._learned[topic] = time.monotonic()
        self._leaders[topic] = {
            p.partition_index: Leader(p.leader_id, p.leader_epoch, answer.topic_id)
            for p in answer.partitions
        }

    def _first(self, ask: Callable[[Address, Deadline], T], deadline: Deadline) -> T:
        """
        Ask the first broker that answers; authentication and TLS errors are final at once.

        One that says nothing leaves the others their share of the time.
        """
        reasons = []
        candidates = list(self._candidates())
        for at, address in enumerate(candidates):
            share = deadline.remaining() / (len(candidates) - at)
            try:
                return ask(address, Deadline.after(share))
            except (BrokerUnavailableError, TimeoutExceededError) as error:
                reasons.append(str(error))
        msg = f"no broker answers: {'; '.join(reasons)}"
        raise BrokerUnavailableError(msg)

    def _candidates(self) -> Iterator[Address]:
        """
        Yield where to ask: open connections, brokers heard of, and those of the settings.
        """
        known = [*self._connections, *self._addresses.values(), *self.config.bootstrap]
        yield from dict.fromkeys(known)

    def _ask_metadata(
        self, address: Address, topics: Collection[str] | None, deadline: Deadline
    ) -> Metadata:
        connection = self._idle(address, deadline)
        version = connection.version(METADATA)
        request = metadata_request(version, topics, creates=self.creates_topics)
        answer: Metadata = self.request(connection, request, deadline)
        if connection is not self._connections.get(address):
            connection.close()
        return answer

    def _idle(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return a connection without answers under way: a new one if the usual one is busy.
        """
        connection = self._connect(address, deadline)
        if connection.in_flight:
            return Connection.open(address, self.config, deadline)
        return connection


_pool: ClientPool[Cluster] = ClientPool(Cluster.close)


def borrowed_cluster(kafka: KafkaSettings) -> AbstractContextManager[Cluster]:
    """
    Lend the cluster of these settings, with its connections, which stay open afterwards.
    """
    config = _config(kafka)
    return _pool.borrow(config, lambda: Cluster(config))


# A task would spend up to half a millisecond on the translation, which is always the same.
@lru_cache(maxsize=16)
def _config(kafka: KafkaSettings) -> DirectConfig:
    return direct_config(kafka)
