"""
Fetches from many partitions: one request to each leader, all sent before a response is awaited.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.consumer.leader_requests import LeaderApi, receive_from_leaders
from pyspark_pykafka.engines.wire.consumer.leaders import PartitionLeaders
from pyspark_pykafka.engines.wire.consumer.topics import existing_topics
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster
from pyspark_pykafka.engines.wire.protocol.api_versions import MAX_VERSION
from pyspark_pykafka.engines.wire.protocol.fetch_request import MAX_FETCH_VERSION_BY_NAME
from pyspark_pykafka.engines.wire.protocol.list_offsets import ISOLATION
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.engines.wire.protocol.multi_fetch import (
    MULTI_FETCH,
    FetchLimits,
    FetchPartition,
    multi_fetch_request,
)
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.retry import Backoff, retry_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.wire.consumer.leaders import PartitionsByLeader
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.protocol.fetch_response import FetchResponse
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse
    from pyspark_pykafka.engines.wire.protocol.multi_fetch import MultiFetchResponse
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.retry import Deadline

    Partitions = Mapping[str, Sequence[FetchPartition]]

logger = logging.getLogger("pyspark_pykafka")

# The maximum bytes of a response. Responses are decoded one at a time, and each connection keeps
# the memory of its last response.
_RESPONSE_BYTES = 1024 * 1024
# The maximum number of partitions in a request: the response names each of them, even those for
# which no bytes are left.
_MAX_PARTITIONS = 500
# The factor by which ``partition_bytes`` grows if a response is less than half full because the
# remaining record batches are larger than ``partition_bytes``.
_GROWTH = 4


def _topic_ids_request(version: int, topics: Partitions) -> Request[MetadataResponse]:
    return metadata_request(version, topics, allow_auto_topic_creation=False)


_TOPIC_IDS = LeaderApi(METADATA, _topic_ids_request)


@dataclass(slots=True)
class LeaderFetches:
    """
    Fetches from the partitions' leaders. No retries: the caller reads a partition in ``failed``
    individually, or requests it again.

    ``partition_bytes`` limits the records of one partition in a response. With ``fills_response``
    this limit is higher if few partitions are requested. Partitions requested first are served
    first.

    ``topic_ids`` are the ids of the planned topics. The first response fixes the id of any other
    topic: if a topic is recreated under the same name, its partitions are in ``failed``. Before
    Kafka 3.1, Fetch requests have the topic's name instead of its id. With such brokers, call
    :meth:`recreated_topics` after the last response to find the topics that were recreated since
    the first one.
    """

    settings: FetchSettings
    partition_bytes: int
    fills_response: bool = False
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    #: The partitions without a usable response to the last request.
    failed: set[TopicPartition] = field(init=False, default_factory=set)
    _response_bytes: int = field(init=False, default=_RESPONSE_BYTES)
    _leaders: PartitionLeaders = field(init=False, default_factory=PartitionLeaders)
    #: The ids in the last metadata.
    _current_ids: dict[str, UUID | None] = field(init=False, default_factory=dict)
    #: The topics that have an id, and were fetched by their name, with the brokers that answered.
    _read_by_name: dict[str, set[int]] = field(init=False, default_factory=dict)

    def fetch(
        self, positions: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, FetchResponse]]:
        """
        Send one request to each leader, and yield the responses that have records.

        A partition that gets no response and is not in ``failed`` did not fit into this request or
        its response. Raises errors that are not retriable, except for errors of single partitions.
        """
        self.failed = set()
        with borrowed_cluster(self.settings.kafka) as cluster:
            deadline = cluster.new_deadline(self.settings.poll_timeout_ms / 1000)
            self._response_bytes = min(_RESPONSE_BYTES, cluster.config.max_fetch_bytes)
            try:
                by_leader = self._by_leader(cluster, positions, deadline)
            except PykafkaError as error:
                if not error.retriable:
                    raise
                self.failed = set(positions)
                return
            yield from self._request(cluster, by_leader, deadline)
        if self.failed:
            self._leaders.clear()

    @property
    def suspected_topics(self) -> set[str]:
        """
        The topics whose id in the last metadata differs from that in ``topic_ids``.
        """
        return {name for name in self._current_ids if self._is_recreated(name)}

    def recreated_topics(self) -> set[str]:
        """
        Return the topics that were recreated: the responses for such a name may be of two topics.

        The brokers decide that have returned records by name; if they leave doubt, two brokers do.

        A topic that does not exist now has not been recreated.
        """
        # Invariant R15 (topic id): no other topic ever has the same id.
        names = set(self._read_by_name) | self.suspected_topics
        if not names:
            return set()
        with borrowed_cluster(self.settings.kafka) as cluster:
            deadline = cluster.new_deadline(self.settings.poll_timeout_ms / 1000)
            backoff = Backoff(
                cluster.config.retry_backoff_seconds, cluster.config.retry_backoff_max_seconds
            )
            if not all(map(cluster.has_broker, chain(*self._read_by_name.values()))):
                # This may be another cluster object than that of the last request.
                retry_until(partial(cluster.addresses, deadline), deadline, backoff)
            recreated, names = self._compare_with_servers(cluster, names, deadline)
            if not names:
                return recreated
            topics = retry_until(
                lambda: existing_topics(
                    cluster.metadata(names, deadline, confirms_known_topics=True),
                    "comparing the ids of topics",
                ),
                deadline,
                backoff,
            )
        return recreated | {
            name
            for name, topic in topics.items()
            if topic.topic_id not in {None, self.topic_ids[name]}
        }

    def _compare_with_servers(
        self, cluster: Cluster, names: set[str], deadline: Deadline
    ) -> tuple[set[str], set[str]]:
        """
        Return the topics that were recreated according to brokers that have returned their records
        by name, and those about which these brokers leave doubt.

        Other brokers may not know yet that a topic was recreated.
        """
        asked: dict[int, dict[str, Sequence[FetchPartition]]] = {}
        for name, nodes in self._read_by_name.items():
            # A broker may have left the cluster since.
            for node in filter(cluster.has_broker, nodes):
                asked.setdefault(node, {})[name] = ()
        recreated: set[str] = set()
        answered: dict[int, set[str]] = {}
        errors: list[PykafkaError] = []
        limit = deadline.within(deadline.remaining() / 2)
        for node, response in receive_from_leaders(cluster, asked, _TOPIC_IDS, limit, errors):
            ids = response.topic_ids()
            answered[node] = ids.keys() & asked[node].keys()
            recreated |= {name for name in answered[node] if ids[name] != self.topic_ids[name]}
        for error in errors:
            logger.info("%s; other brokers are asked for the ids of topics", error)
        doubtful = names & self.suspected_topics
        for name, nodes in self._read_by_name.items():
            if not all(name in answered.get(node, ()) for node in nodes):
                doubtful.add(name)
        return recreated, doubtful - recreated

    def _by_leader(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], deadline: Deadline
    ) -> PartitionsByLeader[FetchPartition]:
        by_leader = self._leaders.group(cluster, positions, FetchPartition)
        if by_leader.leaderless or by_leader.unknown:
            names = {tp.topic for tp in positions}
            metadata = cluster.metadata(names, deadline)
            topics = existing_topics(metadata, "reading the leaders of partitions")
            self._leaders.update(topics)
            self._current_ids = {name: topic.topic_id for name, topic in topics.items()}
        of_same_topic = {
            tp: offset for tp, offset in positions.items() if not self._is_recreated(tp.topic)
        }
        by_leader = self._leaders.group(cluster, of_same_topic, FetchPartition)
        self.failed.update(by_leader.leaderless, by_leader.unknown)
        self.failed.update(positions.keys() - of_same_topic.keys())
        return by_leader

    def _is_recreated(self, topic: str) -> bool:
        ids = {self.topic_ids.get(topic), self._current_ids.get(topic)}
        return None not in ids and len(ids) > 1

    def _request(
        self, cluster: Cluster, by_leader: PartitionsByLeader[FetchPartition], deadline: Deadline
    ) -> Iterator[tuple[TopicPartition, FetchResponse]]:
        requested = {node: _first(topics) for node, topics in by_leader.requests.items()}
        by_name = None in self._current_ids.values()
        api = LeaderApi(
            MULTI_FETCH,
            self._make_request,
            max_version=MAX_FETCH_VERSION_BY_NAME if by_name else MAX_VERSION,
        )
        unanswered = set(requested)
        for node, response in receive_from_leaders(cluster, requested, api, deadline, []):
            unanswered.discard(node)
            yield from self._with_records(response, requested[node], node)
        for node in unanswered:
            self.failed.update(_partitions(requested[node]))

    def _make_request(self, version: int, partitions: Partitions) -> Request[MultiFetchResponse]:
        max_bytes = self._response_bytes
        share = max_bytes // sum(map(len, partitions.values())) if self.fills_response else 0
        partition_bytes = max(share, min(self.partition_bytes, max_bytes))
        isolation = ISOLATION[self.settings.isolation_level]
        limits = FetchLimits(max_bytes, partition_bytes, isolation)
        return multi_fetch_request(version, partitions, self._current_ids, limits)

    def _with_records(
        self, response: MultiFetchResponse, requested: Partitions, node: int
    ) -> Iterator[tuple[TopicPartition, FetchResponse]]:
        names = {topic_id: name for name, topic_id in self._current_ids.items()}
        without_records = set(_partitions(requested))
        size_bytes = 0
        for topic, partitions in response.topics:
            name = topic if isinstance(topic, str) else names.get(topic, "")
            for partition in partitions:
                tp = TopicPartition(name, partition.partition_index)
                if tp not in without_records:
                    continue
                if partition.error_code:
                    self.failed.add(tp)
                elif partition.records:
                    size_bytes += len(partition.records)
                    without_records.discard(tp)
                    self._record_topic(name, node if isinstance(topic, str) else None)
                    yield tp, partition
        without_records -= self.failed
        if not size_bytes:
            self.failed |= without_records
        elif without_records and size_bytes < self._response_bytes // 2:
            self.partition_bytes = min(self.partition_bytes * _GROWTH, self._response_bytes)

    def _record_topic(self, name: str, node_by_name: int | None) -> None:
        """
        Record the id of a topic with records; ``node_by_name`` is the broker that was asked for
        them by the topic's name.
        """
        topic_id = self._current_ids.get(name)
        if topic_id is not None:
            self.topic_ids.setdefault(name, topic_id)
        if node_by_name is not None and name in self.topic_ids:
            self._read_by_name.setdefault(name, set()).add(node_by_name)


def _first(topics: Partitions) -> dict[str, Sequence[FetchPartition]]:
    """
    Return as many partitions as one request may have.
    """
    first: dict[str, Sequence[FetchPartition]] = {}
    left = _MAX_PARTITIONS
    for topic, partitions in topics.items():
        if left > 0:
            first[topic] = list(islice(partitions, left))
            left -= len(first[topic])
    return first


def _partitions(requested: Partitions) -> Iterator[TopicPartition]:
    return chain.from_iterable(
        (TopicPartition(topic, partition.partition_index) for partition in partitions)
        for topic, partitions in requested.items()
    )
