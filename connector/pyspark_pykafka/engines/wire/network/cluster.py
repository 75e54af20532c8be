"""
One Kafka cluster as a worker process sees it: connections that stay open, and who leads what.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.wire.network.broker_selector import BrokerSelector
from pyspark_pykafka.engines.wire.network.metadata_freshness import FreshnessCheck
from pyspark_pykafka.engines.wire.network.racing import TRANSIENT_ERRORS
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, UnknownTopicError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.wire_config import Address, wire_config

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager
    from uuid import UUID

    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.settings.wire_config import WireConfig

T = TypeVar("T")

# So long one more opinion is waited for where there is an answer already.
_OPINION_SECONDS = 5.0

_TOPIC_ERRORS_FOR_ALL = frozenset({KafkaErrorCode.NONE, KafkaErrorCode.LEADER_NOT_AVAILABLE})


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
    The brokers of one configuration, and their metadata.

    Metadata may be stale: call :meth:`invalidate_metadata` after an error. No single broker is
    trusted: metadata requests rotate over the brokers, another broker is tried after each failure
    and before a topic is reported as missing, and metadata with leader epochs older than those
    seen before is rejected.
    """

    config: WireConfig
    #: Whether a topic that is missing may be made, as brokers do for writers if they are so set.
    creates_topics: bool = False
    #: How long what is known of a topic's partitions may be taken for true, in seconds.
    metadata_seconds: float = float("inf")
    chance: Callable[[], float] = field(default=random.random, repr=False)
    _addresses: dict[int, Address] = field(init=False, default_factory=dict)
    _brokers: BrokerSelector = field(init=False)
    _leaders: dict[str, dict[int, Leader]] = field(init=False, default_factory=dict)
    _learned: dict[str, float] = field(init=False, default_factory=dict)
    _told_by: dict[str, Address] = field(init=False, default_factory=dict)
    _told_last: Address | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._brokers = BrokerSelector(self.config, self.chance)

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

    def has_metadata(self, topic: str) -> bool:
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
            self.invalidate_metadata(topic)
        if topic not in self._leaders:
            self._learn(topic, deadline)
        leaders = self._leaders[topic]
        if not leaders:
            self.invalidate_metadata(topic)
            msg = f"the topic {topic} has no partitions yet; is it being made?"
            raise BrokerUnavailableError(msg)
        return len(leaders), [at for at, it in leaders.items() if it.node in self._addresses]

    def addresses(self, deadline: Deadline) -> list[Address]:
        """
        Return where all brokers of the cluster are, asking anew.
        """
        self.metadata((), deadline)
        return list(self._addresses.values())

    def metadata(
        self,
        topics: Collection[str] | None,
        deadline: Deadline,
        **more: Any,
    ) -> MetadataResponse:
        """
        Return what the brokers say of these topics, or of all of them (None).

        Topics that do not exist are left out, once several brokers have said so. What ``more`` is
        known of them is for :class:`FreshnessCheck`.
        """
        review = FreshnessCheck(self.config.bootstrap, topics, **more)
        asked: set[Address] = set()
        request = partial(self._metadata_request, topics)
        while True:
            limit = deadline if not review.answers else self._of_another(deadline)
            try:
                address, answer = self._brokers.request_from_any(request, asked, limit)
            except TRANSIENT_ERRORS as error:
                # All that answer have been asked.
                if not review.answers:
                    raise
                self._refuse_older(review, error)
                break
            asked.add(address)
            self._brokers.update_known_brokers(Address(b.host, b.port) for b in answer.brokers)
            if review.add(address, answer):
                self._told_last = address
            else:
                self._brokers.demote(address)
            if review.is_settled:
                break
        found = review.result()
        self._addresses = {b.node_id: Address(b.host, b.port) for b in found.brokers}
        self._brokers.update_known_brokers(self._addresses.values())
        return found

    def has_broker(self, node: int) -> bool:
        """
        Return whether there is a broker of this number, as far as is known.
        """
        return node in self._addresses

    def connection_at(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker that another one has named.
        """
        return self._brokers.connection(address, deadline)

    def any_connection(self, deadline: Deadline) -> Connection:
        """
        Return a connection to whichever broker can be reached, each time to another one.
        """
        return self._brokers.any_connection(deadline)

    def demote(self, address: Address) -> None:
        """
        Ask other brokers before this one for a while, since it did not do what it was asked for.
        """
        self._brokers.demote(address)

    def demote_metadata_source(self) -> None:
        """
        The same with the broker that gave the last metadata, which led nowhere.
        """
        if self._told_last is not None:
            self.demote(self._told_last)

    def open_spare_connection(self) -> None:
        """
        Connect to one more broker now and then, without waiting for it, so that it is asked, too.
        """
        self._brokers.open_spare_connection()

    def invalidate_metadata(self, topic: str) -> None:
        """
        Ask again who leads the topic's partitions before they are used, and another broker.
        """
        self._leaders.pop(topic, None)
        told_by = self._told_by.pop(topic, None)
        if told_by is not None:
            self.demote(told_by)

    def connection(self, node: int, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker, made now if there is none.
        """
        return self._brokers.connection(self._address(node), deadline)

    def connections(
        self, nodes: Collection[int], deadline: Deadline
    ) -> Iterator[tuple[int, Connection | PykafkaError]]:
        """
        Yield the connection to each of several brokers, or the error that there was.

        All are connected to at once; those that are open already come first.
        """
        found: dict[Address, int] = {}
        for node in nodes:
            other = found.setdefault(self._address(node), node)
            if other != node:
                yield node, _one_address(self._address(node), other, node)
        for address, one in self._brokers.each(found, deadline):
            yield found[address], one

    def request(self, connection: Connection, request: Request[T], deadline: Deadline) -> T:
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
        self._brokers.connections.drop(connection)

    def drain(self, connection: Connection) -> None:
        """
        Keep a connection whose answers nobody waits for any more, once they have come.
        """
        self._brokers.connections.drain(connection)

    def close(self) -> None:
        """
        Close every connection.
        """
        self._brokers.connections.close()

    def _address(self, node: int) -> Address:
        if node not in self._addresses:
            msg = f"the cluster does not name a broker {node} at the moment"
            raise BrokerUnavailableError(msg)
        return self._addresses[node]

    def _metadata_request(
        self, topics: Collection[str] | None, connection: Connection
    ) -> Request[MetadataResponse]:
        version = connection.version(METADATA)
        return metadata_request(version, topics, creates=self.creates_topics)

    def _learn(self, topic: str, deadline: Deadline) -> None:
        found = self.metadata((topic,), deadline)
        answer = next((t for t in found.topics if t.name == topic), None)
        if answer is None:
            self.demote_metadata_source()
            msg = f"the brokers do not have the topic {topic}"
            raise UnknownTopicError(msg)
        if answer.error_code not in _TOPIC_ERRORS_FOR_ALL:
            raise map_error_code(answer.error_code, f"asking who leads the topic {topic}")
        self._learned[topic] = time.monotonic()
        if self._told_last is not None:
            self._told_by[topic] = self._told_last
        self._leaders[topic] = {
            p.partition_index: Leader(p.leader_id, p.leader_epoch, answer.topic_id)
            for p in answer.partitions
        }

    def _of_another(self, deadline: Deadline) -> Deadline:
        """
        Return until when to wait for one more opinion: there is an answer already.
        """
        return Deadline.after(deadline.remaining(_OPINION_SECONDS), deadline.now)

    def _refuse_older(self, review: FreshnessCheck, error: PykafkaError) -> None:
        older = review.stale_reason()
        if older is not None:
            msg = (
                f"no broker answers that is up to date: {older}; are brokers cut off from their "
                f"controllers? ({error})"
            )
            raise BrokerUnavailableError(msg)


def _one_address(address: Address, one: int, other: int) -> PykafkaError:
    """
    Return the error for two brokers of which only one can be reached.
    """
    msg = (
        f"the brokers {one} and {other} are both named at {address}; the advertised.listeners of "
        "each must be its own"
    )
    return BrokerUnavailableError(msg)


_pool: ClientPool[Cluster] = ClientPool(Cluster.close)


def borrowed_cluster(kafka: KafkaSettings) -> AbstractContextManager[Cluster]:
    """
    Lend the cluster of these settings, with its connections, which stay open afterwards.
    """
    config = _config(kafka)
    return _pool.borrow(config, lambda: Cluster(config))


# A task would spend up to half a millisecond on the translation, which is always the same.
@lru_cache(maxsize=16)
def _config(kafka: KafkaSettings) -> WireConfig:
    return wire_config(kafka)
