"""
Detects stale metadata, such as a broker returns while it is cut off from its controllers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.wire.network import last_seen_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping
    from typing import TypedDict
    from uuid import UUID

    from pyspark_pykafka.engines.wire.network.last_seen_epochs import LastSeenEpochs
    from pyspark_pykafka.engines.wire.protocol.metadata import (
        BrokerMetadata,
        MetadataResponse,
        TopicMetadata,
    )
    from pyspark_pykafka.settings.wire_config import Address

    class MetadataChecks(TypedDict, total=False):
        """
        A caller's knowledge of the topics, as fields of :class:`FreshnessCheck`.
        """

        expected_topics: Collection[str]
        min_partitions: Mapping[str, int]
        is_relevant: Callable[[str], object]
        confirms_known_topics: bool


# Invariant R18 (no single broker).
#: How many brokers must report that a topic does not exist, unless fewer respond.
MIN_CONFIRMATIONS = 3

# How many brokers must agree that a topic was recreated if others still return the old one.
_MIN_AGREEING = 2


@dataclass(slots=True)
class FreshnessCheck:
    """
    Collects the metadata of several brokers until each topic's metadata is known to be fresh.

    ``requested`` are the topics of the request, None for all; topics that are not ``is_relevant``
    are ignored. ``expected_topics`` existed before, and topics had at least ``min_partitions``.
    ``cluster`` identifies the cluster: a clone has the same topic ids.
    """

    cluster: Hashable
    requested: Collection[str] | None
    seen: LastSeenEpochs = field(default_factory=lambda: last_seen_epochs.LAST_SEEN_EPOCHS)
    expected_topics: Collection[str] = ()
    min_partitions: Mapping[str, int] = field(default_factory=dict)
    is_relevant: Callable[[str], object] = lambda _: True
    #: Whether topics that this process has not confirmed need a second broker's response.
    confirms_new_topics: bool = True
    #: Whether topics that this process has confirmed need a second response, too.
    confirms_known_topics: bool = False
    responses: int = field(init=False, default=0)
    #: Brokers with older leader epochs, or fewer partitions, than others.
    behind: set[Address] = field(init=False, default_factory=set)
    _sources: dict[str, Address] = field(init=False, default_factory=dict)
    _brokers: dict[int, BrokerMetadata] = field(init=False, default_factory=dict)
    _confirmations: int = field(init=False, default=0)
    _best: MetadataResponse | None = field(init=False, default=None)
    _accepted: dict[str, TopicMetadata] = field(init=False, default_factory=dict)
    #: Topics with a new id or fewer partitions than before, until other brokers confirm them.
    _changed: dict[str, TopicMetadata] = field(init=False, default_factory=dict)
    _stale_reasons: dict[str, str] = field(init=False, default_factory=dict)
    #: How many brokers returned the same new topic id for a name.
    _agreed: Counter[str] = field(init=False, default_factory=Counter)
    #: The topic ids of each name for which brokers return several ids, all new to this process.
    _competing_ids: dict[str, set[UUID | None]] = field(init=False, default_factory=dict)
    #: How many brokers returned a topic id for a name.
    _votes: Counter[tuple[str, UUID | None]] = field(init=False, default_factory=Counter)

    def add(self, address: Address, response: MetadataResponse) -> bool:
        """
        Add a broker's response, and return whether it is fresh.
        """
        self.responses += 1
        brokers = {(broker.host, broker.port) for broker in response.brokers}
        # A bootstrap address that no broker advertises may belong to any broker.
        is_broker = (address.host, address.port) in brokers
        self._confirmations += is_broker
        is_fresh = True
        for topic in response.topics:
            if topic.name is None or not self.is_relevant(topic.name):
                continue
            # A broker that does not know a topic yet confirms no other broker's metadata.
            is_known = topic.error_code != KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._votes[topic.name, topic.topic_id] += is_broker and is_known
            is_fresh = self._add(topic.name, topic, address) and is_fresh
        is_fresh = is_fresh and address not in self.behind
        if self._best is None or is_fresh:
            self._best = response
        # A broker that is behind may lack the leaders that others return.
        nodes = {broker.node_id: broker for broker in response.brokers}
        self._brokers = {**self._brokers, **nodes} if is_fresh else {**nodes, **self._brokers}
        return is_fresh

    @property
    def is_settled(self) -> bool:
        """
        Whether no further broker needs to be queried.
        """
        if self._stale or self.needs_second_response:
            return False
        return self.responses >= MIN_CONFIRMATIONS or self.is_complete

    @property
    def is_complete(self) -> bool:
        """
        Whether all topics are known, so that another response could only confirm them.
        """
        return not self._stale and not self._unconfirmed

    @property
    def is_confirmed(self) -> bool:
        """
        Whether a topic that is missing in all responses is reported as missing by several brokers.

        A single broker may be cut off from its controllers, or have just started. In a cluster of
        only one broker, its report is enough.
        """
        has_one_broker = len(self._brokers) == 1
        return has_one_broker or max(self._confirmations, self.responses - 1) >= _MIN_AGREEING

    @property
    def lost_topics(self) -> set[str]:
        """
        The topics that existed before and are missing, smaller or recreated in all responses.
        """
        return {*self.expected_topics, *self.min_partitions} - self._accepted.keys()

    def stale_reason(self) -> str | None:
        """
        Return why a topic's metadata is stale in all responses so far; None if no topic's metadata
        is stale.
        """
        return next((self._stale_reasons[name] for name in self._stale), None)

    def result(self) -> MetadataResponse:
        """
        Return the fresh metadata, without topics that do not exist.
        """
        if self._best is None:
            msg = "no metadata was added"
            raise RuntimeError(msg)
        topics = {**self._changed, **self._accepted}
        for topic in topics.values():
            self.seen.record(self.cluster, topic)
            if self.confirms_new_topics:
                self.seen.confirm(self.cluster, topic)
        return self._best._replace(
            brokers=list(self._brokers.values()), topics=list(topics.values())
        )

    def _add(self, name: str, topic: TopicMetadata, address: Address) -> bool:
        if topic.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return True
        reason = self.seen.staleness(self.cluster, topic)
        if reason is not None:
            self._stale_reasons[name] = f"{address}: {reason}"
            return False
        last_id = self.seen.topic_id(self.cluster, name)
        is_recreated = topic.topic_id is not None and last_id not in {None, topic.topic_id}
        is_smaller = len(topic.partitions) < self.min_partitions.get(name, 0)
        if is_recreated or is_smaller:
            first = self._changed.setdefault(name, topic)
            if is_recreated and first.topic_id == topic.topic_id:
                self._agreed[name] += 1
        else:
            self._merge(name, topic, address)
        return True

    def _merge(self, name: str, topic: TopicMetadata, address: Address) -> None:
        """
        Keep each partition's metadata with the highest leader epoch (KIP-320).
        """
        known = self._accepted.get(name)
        if known is None or (known.error_code and not topic.error_code):
            self._accepted[name], self._sources[name] = topic, address
            return
        if topic.error_code:
            return
        if None not in {topic.topic_id, known.topic_id} and topic.topic_id != known.topic_id:
            self._vote(name, topic, known, address)
            return
        newest = {partition.partition_index: partition for partition in known.partitions}
        for partition in topic.partitions:
            earlier = newest.get(partition.partition_index)
            epoch = partition.leader_epoch
            known_epoch = -1 if earlier is None else earlier.leader_epoch
            if earlier is None or epoch > known_epoch:
                newest[partition.partition_index] = partition
                if earlier is None or known_epoch >= 0:
                    self.behind.add(self._sources[name])
            elif 0 <= epoch < known_epoch:
                self.behind.add(address)
        if len(topic.partitions) < len(newest):
            self.behind.add(address)
        self._accepted[name] = known._replace(
            partitions=list(newest.values()), topic_id=known.topic_id or topic.topic_id
        )

    def _vote(
        self, name: str, topic: TopicMetadata, known: TopicMetadata, address: Address
    ) -> None:
        """
        Keep the topic that more brokers return for a name, since topic ids have no order.
        """
        self._competing_ids.setdefault(name, set()).update({topic.topic_id, known.topic_id})
        if self._votes[name, topic.topic_id] > self._votes[name, known.topic_id]:
            self._accepted[name], self._sources[name] = topic, address

    @property
    def needs_second_response(self) -> bool:
        """
        Whether new topics, or a first list of all topics, rest on one broker's response alone.

        Nothing shows whether that broker is cut off from its controllers. If two topic ids have
        equal votes, a third broker decides.
        """
        if self._confirmations >= _MIN_AGREEING:
            return self._confirmations < MIN_CONFIRMATIONS and self.rests_on_one_broker
        is_first_list = self.requested is None and not self.expected_topics
        return self.rests_on_one_broker or (is_first_list and self._needs_confirmation)

    @property
    def rests_on_one_broker(self) -> bool:
        """
        Whether one broker's response alone shows a new topic, or two topics of one name have equal
        votes.

        This may remain so after three responses: a broker that has just started knows no topics.
        """
        if not self._needs_confirmation:
            return False
        lacks_votes = any(
            not self._is_confirmed(topic) and self._votes[name, topic.topic_id] < _MIN_AGREEING
            for name, topic in self._accepted.items()
            if name not in self._competing_ids
        )
        return lacks_votes or any(map(self._is_tied, self._competing_ids))

    @property
    def _needs_confirmation(self) -> bool:
        return self.confirms_new_topics and len(self._brokers) != 1

    def _is_confirmed(self, topic: TopicMetadata) -> bool:
        """
        Return whether a topic needs no second response; brokers without epochs cannot be compared.
        """
        if self.confirms_known_topics and any(p.leader_epoch >= 0 for p in topic.partitions):
            return False
        return self.seen.is_confirmed(self.cluster, topic)

    def _is_tied(self, name: str) -> bool:
        """
        Return whether two topic ids of a name share the highest number of votes.
        """
        votes = [self._votes[name, topic_id] for topic_id in self._competing_ids[name]]
        first, second, *_ = sorted(votes, reverse=True)
        return first == second

    @property
    def _stale(self) -> list[str]:
        """
        The topics with only stale metadata, unless several brokers agree on a new topic id.
        """
        return [
            name
            for name in self._stale_reasons
            if name not in self._accepted and self._agreed[name] < _MIN_AGREEING
        ]

    @property
    def _unconfirmed(self) -> set[str]:
        """
        The topics that are missing or changed in all responses so far.
        """
        topics = {*(self.requested or ()), *self.expected_topics, *self._changed}
        return topics - self._accepted.keys()
