"""
A Kafka cluster as a worker process sees it: open connections, and partition leaders.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import describe_permission, map_read_error_code
from pyspark_pykafka.engines.wire.network.broker_selector import BrokerSelector
from pyspark_pykafka.engines.wire.network.metadata_reader import MetadataReader
from pyspark_pykafka.engines.wire.network.preferred_read_replicas import PreferredReadReplicas
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, UnknownTopicError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.wire_config import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Unpack
    from uuid import UUID

    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.connection_opener import ConnectionOpener
    from pyspark_pykafka.engines.wire.network.metadata_freshness import MetadataChecks
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import WireConfig

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_USABLE_TOPIC_ERRORS = frozenset({KafkaErrorCode.NONE, KafkaErrorCode.LEADER_NOT_AVAILABLE})


class Leader(NamedTuple):
    """
    The leader of a partition: its node id, leader epoch and topic id (None before Kafka 2.8).
    """

    node: int
    epoch: int
    topic_id: UUID | None


@dataclass(slots=True, repr=False)
class Cluster:
    """
    The brokers of one configuration, and their metadata.

    Metadata may be stale: call :meth:`invalidate_metadata` after an error. No single broker is
    trusted: metadata requests rotate over the brokers, another broker is tried after each failure
    and before a topic is reported as missing, and metadata with leader epochs older than those
    seen before is rejected.
    """

    config: WireConfig
    #: Whether brokers may create a missing topic (their setting auto.create.topics.enable).
    creates_topics: bool = False
    #: The maximum age of a topic's metadata in :meth:`partitions`, in seconds.
    metadata_max_age_seconds: float = float("inf")
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    #: The replicas near this client that failed.
    preferred_read_replicas: PreferredReadReplicas = field(init=False)
    _addresses: dict[int, Address] = field(init=False, default_factory=dict)
    _brokers: BrokerSelector = field(init=False)
    _metadata: MetadataReader = field(init=False)
    _leaders: dict[str, dict[int, Leader]] = field(init=False, default_factory=dict)
    _updated_at: dict[str, float] = field(init=False, default_factory=dict)
    _metadata_sources: dict[str, Address] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._brokers = BrokerSelector(self.config, self.jitter, self.now)
        self.preferred_read_replicas = PreferredReadReplicas(
            self.now, self._is_connected, self._connect_in_background, self.jitter
        )
        self._metadata = MetadataReader(self.config, self._brokers, self.creates_topics)

    def __repr__(self) -> str:
        servers = ",".join(map(str, self.config.bootstrap))
        counts = f"{len(self._addresses)} brokers, {len(self._leaders)} topics"
        return f"<Cluster {servers} {self.config.protocol}, {counts}, {self._brokers.connections}>"

    def new_deadline(self, seconds: float) -> Deadline:
        """
        Return a deadline this many seconds from now, by the cluster's clock.
        """
        return Deadline.after(seconds, self.now, self.sleep)

    def leader(self, tp: TopicPartition, deadline: Deadline) -> Leader:
        """
        Return the leader of a partition, reading metadata if it is not known.

        Raises :class:`UnknownTopicError` if the partition does not exist, and
        :class:`BrokerUnavailableError` if it has no leader or no broker responds.
        """
        if tp.topic not in self._leaders:
            self._update_topic(tp.topic, deadline)
        leader = self._leaders[tp.topic].get(tp.partition)
        if leader is None:
            msg = f"the brokers do not have the partition {tp}"
            raise UnknownTopicError(msg)
        if leader.node not in self._addresses:
            msg = f"{tp} has no leader at present; are all brokers up?"
            raise BrokerUnavailableError(msg)
        return leader

    def has_metadata(self, topic: str) -> bool:
        """
        Return whether the topic's metadata is known, so that no request is needed.
        """
        return topic in self._leaders

    def confirm_metadata(self, topic: str, deadline: Deadline) -> UUID | None:
        """
        Read the topic's metadata again, from two brokers, and return its id: known leaders may have
        been replaced, and a broker that is cut off from its controllers still believes that it
        leads.

        Raises as :meth:`leader` does, except for a partition without a leader.
        """
        return self._update_topic(topic, deadline, confirms_known_topics=True)

    def partitions(
        self, topic: str, deadline: Deadline, min_count: int = 0
    ) -> tuple[int, list[int]]:
        """
        Return the number of partitions of a topic, and the partitions that have a leader.

        If fewer than ``min_count`` partitions are known, the metadata is read again, from one
        broker after another, until one returns enough partitions or several return fewer. Raises as
        :meth:`leader` does.
        """
        if self.now() - self._updated_at.get(topic, 0.0) >= self.metadata_max_age_seconds:
            self.invalidate_metadata(topic)
        if 0 < len(self._leaders.get(topic, ())) < min_count:
            self.invalidate_metadata(topic)
        if topic not in self._leaders:
            min_partitions = {topic: min_count} if min_count else {}
            self._update_topic(topic, deadline, min_partitions=min_partitions)
        leaders = self._leaders[topic]
        if not leaders:
            self.invalidate_metadata(topic)
            msg = f"the topic {topic} has no partitions yet; is it being created?"
            raise BrokerUnavailableError(msg)
        has_leader = [
            partition for partition, leader in leaders.items() if leader.node in self._addresses
        ]
        return len(leaders), has_leader

    def addresses(self, deadline: Deadline) -> list[Address]:
        """
        Return the addresses of all brokers, from new metadata.
        """
        self.metadata((), deadline)
        return list(self._addresses.values())

    def metadata(
        self,
        topics: Collection[str] | None,
        deadline: Deadline,
        **checks: Unpack[MetadataChecks],
    ) -> MetadataResponse:
        """
        Return fresh metadata of these topics, or of all topics (None).

        Topics that several brokers report as missing are left out. Raises
        :class:`BrokerUnavailableError` if one broker alone reports the loss of a topic that existed
        before. A second broker confirms topics that are new to this process, except for a writer: a
        stale leader rejects its records, and the topic may not exist yet. ``checks`` is passed to
        :class:`FreshnessCheck`.
        """
        metadata = self._metadata.read(topics, deadline, **checks)
        self._addresses = {b.node_id: Address(b.host, b.port) for b in metadata.brokers}
        self._brokers.update_known_brokers(self._addresses.values())
        return metadata

    def topic_ids_at(
        self, node: int, topics: Collection[str], deadline: Deadline
    ) -> dict[str, UUID]:
        """
        Return the ids of topics that one broker knows. The known leaders stay as they are.
        """
        connection = self.connection(node, deadline)
        request = metadata_request(
            connection.version(METADATA), topics, allow_auto_topic_creation=False
        )
        return self.request(connection, request, deadline).topic_ids()

    def has_broker(self, node: int) -> bool:
        """
        Return whether the last metadata has a broker with this node id.
        """
        return node in self._addresses

    def describe_address(self, node: int) -> str:
        """
        Return a broker's address for a message.
        """
        return str(self._addresses.get(node, "an unknown address"))

    def connection_at(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker at an address from a response.
        """
        return self._brokers.connection(address, deadline)

    def any_connection(self, deadline: Deadline) -> Connection:
        """
        Return a connection to the next broker of the rotation that can be reached.
        """
        return self._brokers.any_connection(deadline)

    def demote(self, address: Address) -> None:
        """
        Try other brokers before this one for a while, after an unusable response.
        """
        self._brokers.demote(address)

    def demote_metadata_source(self) -> None:
        """
        Demote the broker of the last metadata, which turned out to be unusable.
        """
        if self._metadata.last_source is not None:
            self.demote(self._metadata.last_source)

    def open_spare_connection(self) -> None:
        """
        Open a connection to one more broker now and then, in the background, for rotation.
        """
        self._brokers.open_spare_connection()

    def invalidate_metadata(self, topic: str) -> None:
        """
        Read the topic's metadata again before its next use, preferably from another broker.
        """
        self._leaders.pop(topic, None)
        source = self._metadata_sources.pop(topic, None)
        if source is not None:
            self.demote(source)

    def partitions_led_by_others(
        self, address: Address, tps: Iterable[TopicPartition], deadline: Deadline
    ) -> list[TopicPartition]:
        """
        Return the partitions that a broker no longer leads, according to another broker's metadata.

        If no broker responds in time, or the topic is unknown, the leaders known so far are used.
        """
        partitions = list(tps)
        for topic in {tp.topic for tp in partitions}:
            source = self._metadata_sources.get(topic)
            if source is not None:
                self.demote(source)
            try:
                self._update_topic(topic, deadline)
            except PykafkaError as error:
                if not error.retriable:
                    raise
                logger.info("%s; keeping the known leaders of %s", error, topic)
        return [tp for tp in partitions if self._leader_address(tp) not in {None, address}]

    def _leader_address(self, tp: TopicPartition) -> Address | None:
        leader = self._leaders.get(tp.topic, {}).get(tp.partition)
        return None if leader is None else self._addresses.get(leader.node)

    def connection(self, node: int, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker, opened now if there is none.
        """
        return self._brokers.connection(self._address(node), deadline)

    def connection_or_none(self, node: int) -> Connection | None:
        """
        Return the connection to a broker, or None while it is opened in the background.

        If it cannot be opened, raises the error once; the next call tries again.
        """
        return self._brokers.connection_or_none(self._address(node))

    @property
    def is_connecting(self) -> bool:
        """
        Whether :meth:`connection_or_none` is opening a connection in the background.
        """
        return bool(self._brokers.background.pending)

    def readable(self, connections: Sequence[Connection], seconds: float) -> list[Connection]:
        """
        Return the connections that have input, waiting up to ``seconds`` for the first of them.

        The wait also ends when :meth:`connection_or_none` has a new result for one broker.
        """
        return self._brokers.readable(connections, seconds)

    def connect_all(self, addresses: Collection[Address], deadline: Deadline) -> ConnectionOpener:
        """
        Return the connections to brokers, which are opened in the background if there are several.
        """
        return self._brokers.connect_all(addresses, deadline)

    def broker_addresses(
        self, nodes: Iterable[int]
    ) -> tuple[dict[Address, int], dict[int, PykafkaError]]:
        """
        Return the brokers by address, and the errors of brokers that share an earlier broker's
        address.
        """
        by_address: dict[Address, int] = {}
        errors: dict[int, PykafkaError] = {}
        for node in nodes:
            first_node = by_address.setdefault(self._address(node), node)
            if first_node != node:
                errors[node] = _shared_address_error(self._address(node), first_node, node)
        return by_address, errors

    def request(self, connection: Connection, request: Request[T], deadline: Deadline) -> T:
        """
        Return a broker's response; the connection is closed if the request fails.
        """
        try:
            return connection.request(request, deadline)
        except BaseException:
            self.drop(connection)
            raise

    def drop(self, connection: Connection) -> None:
        """
        Close a connection that failed or whose responses are not needed.
        """
        self._brokers.connections.drop(connection)

    def discard_responses(self, connection: Connection) -> None:
        """
        Receive and discard a connection's remaining responses in the background, and keep it.
        """
        self._brokers.connections.discard_responses(connection)

    def close(self) -> None:
        """
        Close every connection.
        """
        self._brokers.close()

    def _is_connected(self, node: int) -> bool:
        address = self._addresses.get(node)
        return address is not None and self._brokers.connections.get_open(address) is not None

    def _connect_in_background(self, node: int) -> None:
        address = self._addresses.get(node)
        if address is not None:
            connections = self._brokers.connections
            connections.open_in_background(address, connections.setup_deadline())

    def _address(self, node: int) -> Address:
        if node not in self._addresses:
            msg = f"the cluster has no broker {node} at present"
            raise BrokerUnavailableError(msg)
        return self._addresses[node]

    def _update_topic(
        self, topic: str, deadline: Deadline, **checks: Unpack[MetadataChecks]
    ) -> UUID | None:
        """
        Read the topic's leaders from new metadata, and return its id.
        """
        metadata = self.metadata((topic,), deadline, **checks)
        topic_metadata = next(
            (candidate for candidate in metadata.topics if candidate.name == topic), None
        )
        if topic_metadata is None:
            self.demote_metadata_source()
            if not self._metadata.is_confirmed:
                raise self._metadata.unconfirmed_error({topic})
            msg = f"the brokers do not have the topic {topic}"
            raise UnknownTopicError(msg)
        if topic_metadata.error_code not in _USABLE_TOPIC_ERRORS:
            action = f"reading the leaders of the topic {topic}"
            permission = describe_permission(topic)
            raise map_read_error_code(topic_metadata.error_code, action, permission)
        self._updated_at[topic] = self.now()
        if self._metadata.last_source is not None:
            self._metadata_sources[topic] = self._metadata.last_source
        self._leaders[topic] = {
            p.partition_index: Leader(p.leader_id, p.leader_epoch, topic_metadata.topic_id)
            for p in topic_metadata.partitions
        }
        return topic_metadata.topic_id


def _shared_address_error(address: Address, first_node: int, second_node: int) -> PykafkaError:
    """
    Return the error for two brokers with the same address, one of which cannot be reached.
    """
    msg = (
        f"the brokers {first_node} and {second_node} are both advertised at {address}; each needs "
        "its own advertised.listeners"
    )
    return BrokerUnavailableError(msg)
