"""
Reads the driver's metadata and offsets with the wire engine: one request per broker.

librdkafka creates an object for each partition, in C and again in Python, which took most of the
time of planning a query with thousands of partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_pykafka.engines.first_contact import request_seconds
from pyspark_pykafka.engines.wire.consumer.leader_requests import (
    LEADER_EPOCH_API,
    list_offsets_api,
    no_leader_error,
    read_offsets,
    request_from_leaders,
)
from pyspark_pykafka.engines.wire.consumer.leaders import PartitionLeaders
from pyspark_pykafka.engines.wire.consumer.topics import existing_topics, to_topic
from pyspark_pykafka.engines.wire.network.api_timeout import retry_within_api_timeout
from pyspark_pykafka.engines.wire.network.topic_configs import fetch_topic_settings
from pyspark_pykafka.engines.wire.protocol.list_offsets import ISOLATION, ListOffsetsPartition
from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import OffsetForLeaderPartition
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.offsets import LATEST, LogEnds, Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_pykafka.engines.metadata_contract import Topic
    from pyspark_pykafka.engines.wire.consumer.leader_requests import LeaderApi, LeaderResponse
    from pyspark_pykafka.engines.wire.consumer.leaders import PartitionsByLeader
    from pyspark_pykafka.engines.wire.network.api_timeout import Attempt
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse, TopicMetadata
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings import KafkaSettings

T = TypeVar("T")
P = TypeVar("P", ListOffsetsPartition, OffsetForLeaderPartition)


class _Progress(NamedTuple):
    """
    The partitions without an offset yet, and the offsets that leaders have returned.
    """

    missing: dict[TopicPartition, int]
    ends: LogEnds


class WireMetadata:
    """
    Implements :class:`~pyspark_pykafka.engines.metadata_contract.MetadataBackend`.

    No later response corrects a plan, so two brokers describe each topic that this process has not
    planned before (invariant R18); with ``confirms_known_topics`` they describe all other topics,
    too.

    Caches the leaders of the topics that were described last, for the offset requests that follow.
    """

    def __init__(
        self, kafka: KafkaSettings, isolation_level: str, *, confirms_known_topics: bool = False
    ) -> None:
        self._kafka = kafka
        self._confirms_known_topics = confirms_known_topics
        self._isolation = ISOLATION[isolation_level]
        self._matched: frozenset[str] = frozenset()
        self._described: set[str] = set()
        self._leaders = PartitionLeaders()

    @property
    def timeout_seconds(self) -> float:
        """
        The time limit of the next request, retries included.
        """
        return request_seconds(self._kafka)

    def describe_topics(self, names: Collection[str]) -> dict[str, Topic]:
        """
        Return the topics with these names; creates none.
        """
        _, topics = self._describe(names)
        return {name: to_topic(topic) for name, topic in topics.items()}

    def describe_matching_topics(self, matches: Callable[[str], object]) -> dict[str, Topic]:
        """
        Return the topics with matching names among all that the user may describe.
        """
        action = "listing topics"
        response = self._retry(
            lambda cluster, attempt: _with_action(
                lambda: cluster.metadata(
                    None,
                    attempt.limit,
                    is_relevant=matches,
                    expected_topics=self._matched,
                ),
                action,
            )
        )
        topics = existing_topics(response, action, matches)
        self._matched = frozenset(topics)
        self._leaders.update(topics)
        return {name: to_topic(topic) for name, topic in topics.items()}

    def topic_settings(self, topics: Collection[str], name: str) -> dict[str, str | PykafkaError]:
        """
        Return the value of a setting of each topic, empty if it has none, or the topic's error.
        """

        def request(cluster: Cluster, attempt: Attempt) -> dict[str, str | PykafkaError]:
            described = fetch_topic_settings(cluster, topics, [name], attempt.deadline)
            values: dict[str, str | PykafkaError] = {}
            for topic, settings in described.items():
                if not isinstance(settings, PykafkaError):
                    values[topic] = settings[name]
                    continue
                # An unknown topic is not retried: it may have been deleted.
                if settings.retriable and not isinstance(settings, UnknownTopicError):
                    raise settings
                values[topic] = settings
            return values

        return self._retry(request)

    def leader_addresses(self, names: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return the (host, port) of the leader of each partition of these topics that has one.
        """
        response, topics = self._describe(names)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return {
            TopicPartition(name, partition.partition_index): addresses[partition.leader_id]
            for name, topic in topics.items()
            for partition in topic.partitions
            if partition.leader_id in addresses
        }

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the offsets once every partition's leader has responded; retries until the timeout.
        """
        api = list_offsets_api(self._isolation)
        return self._request_from_leaders(times, ListOffsetsPartition, api).offsets

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return end offsets and leader epochs; retries as :meth:`list_offsets` does.
        """
        return self._log_ends(tps, self._isolation)

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return high watermarks and leader epochs; retries as :meth:`list_offsets` does.
        """
        return self._log_ends(tps, ISOLATION["read_uncommitted"])

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the end offset of each epoch; retries as :meth:`list_offsets` does.

        Partitions on brokers before 2.3 are left out.
        """
        return self._request_from_leaders(
            epochs, OffsetForLeaderPartition, LEADER_EPOCH_API
        ).offsets

    def _log_ends(self, tps: Iterable[TopicPartition], isolation: int) -> LogEnds:
        latest = dict.fromkeys(tps, LATEST)
        return self._request_from_leaders(latest, ListOffsetsPartition, list_offsets_api(isolation))

    def _request_from_leaders(
        self,
        requested: Mapping[TopicPartition, int],
        partition_type: Callable[[int, int, int], P],
        leader_api: LeaderApi[P, LeaderResponse],
    ) -> LogEnds:
        progress = _Progress(dict(requested), LogEnds({}, {}))

        def request(cluster: Cluster, attempt: Attempt) -> LogEnds:
            try:
                by_leader = self._existing_by_leader(
                    cluster, progress.missing, partition_type, attempt
                )
                _request_missing(cluster, by_leader, leader_api, progress, attempt.deadline)
            except PykafkaError:
                self._leaders.clear()
                raise
            # Opened only now: before the requests, it could become a second connection to a leader.
            cluster.open_spare_connection()
            return progress.ends

        return self._retry(request)

    def _retry(self, request: Callable[[Cluster, Attempt], T]) -> T:
        """
        Retry a request after retriable errors, at another broker, until the timeout.
        """

        def attempt_once(cluster: Cluster, attempt: Attempt) -> T:
            try:
                return request(cluster, attempt)
            except PykafkaError as error:
                if error.retriable:
                    cluster.demote_metadata_source()
                raise

        return retry_within_api_timeout(self._kafka, attempt_once)

    def _describe(
        self, names: Collection[str]
    ) -> tuple[MetadataResponse, dict[str, TopicMetadata]]:
        action = _reading_partitions(names)
        response = self._retry(
            lambda cluster, attempt: _with_action(
                lambda: cluster.metadata(
                    names,
                    attempt.limit,
                    expected_topics=self._described.intersection(names),
                    confirms_known_topics=self._confirms_known_topics,
                ),
                action,
            )
        )
        topics = existing_topics(response, action)
        self._described |= topics.keys()
        self._leaders.update(topics)
        return response, topics

    def _existing_by_leader(
        self,
        cluster: Cluster,
        missing: dict[TopicPartition, int],
        partition_type: Callable[[int, int, int], P],
        attempt: Attempt,
    ) -> PartitionsByLeader[P]:
        """
        Return the missing partitions by leader; remove those that do not exist from ``missing``.
        """
        by_leader = self._leaders.group(cluster, missing, partition_type)
        if by_leader.leaderless or by_leader.unknown:
            # The cached leaders may be out of date.
            partition_counts: dict[str, int] = {}
            for tp in missing:
                count = max(partition_counts.get(tp.topic, 0), tp.partition + 1)
                partition_counts[tp.topic] = count
            action = _reading_partitions(partition_counts)
            names = partition_counts.keys()
            metadata = _with_action(
                lambda: cluster.metadata(
                    names,
                    attempt.limit,
                    min_partitions=partition_counts,
                    confirms_known_topics=self._confirms_known_topics,
                ),
                action,
            )
            self._leaders.update(existing_topics(metadata, action))
            by_leader = self._leaders.group(cluster, missing, partition_type)
        for tp in by_leader.unknown:
            del missing[tp]
        return by_leader


def _request_missing(
    cluster: Cluster,
    by_leader: PartitionsByLeader[P],
    leader_api: LeaderApi[P, LeaderResponse],
    progress: _Progress,
    deadline: Deadline,
) -> None:
    """
    Add the offsets that leaders return to ``progress``; raise if any are still missing.
    """
    leaders = request_from_leaders(cluster, by_leader.requests, leader_api, deadline)
    errors = leaders.errors
    for node, response in leaders.responses.items():
        try:
            offsets, epochs = read_offsets(response, by_leader.requests[node])
        except PykafkaError as error:
            if not error.retriable:
                raise
            errors.append(error)
            continue
        progress.ends.offsets.update(offsets)
        progress.ends.epochs.update(epochs)
        for tp in offsets:
            progress.missing.pop(tp, None)
    if by_leader.leaderless:
        errors.append(no_leader_error(by_leader.leaderless))
    if errors:
        raise errors[0]


def _with_action(request: Callable[[], MetadataResponse], action: str) -> MetadataResponse:
    """
    Return the response, or raise a timeout that names the action.
    """
    try:
        return request()
    except (BrokerUnavailableError, TimeoutExceededError) as error:
        msg = f"{action}: {error}"
        raise TimeoutExceededError(msg) from error


def _reading_partitions(names: Collection[str]) -> str:
    if not names:
        return "connecting"
    return f"reading the partitions of {', '.join(sorted(names)[:20])}"
