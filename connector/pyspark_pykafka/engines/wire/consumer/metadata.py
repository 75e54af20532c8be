"""
The driver's questions over connections of our own: one message to each broker that is asked.

librdkafka makes an object of each partition, in C and again in Python, which was most of the time
that it took to plan a query of thousands of partitions.
"""

from __future__ import annotations

import logging
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.error_mapping import map_error_code
from pyspark_pykafka.engines.metadata_contract import Topic
from pyspark_pykafka.engines.wire.consumer.list_offsets import (
    EPOCH_ENDS,
    ask_leaders,
    log_offsets,
    no_leader_error,
    read_offsets,
)
from pyspark_pykafka.engines.wire.network.cluster import borrowed_cluster
from pyspark_pykafka.engines.wire.network.racing import LONG_WAIT_SECONDS
from pyspark_pykafka.engines.wire.protocol.list_offsets import ISOLATION, ListOffsetsPartition
from pyspark_pykafka.engines.wire.protocol.offset_for_leader_epoch import OffsetForLeaderPartition
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.offsets import LATEST, LogEnds, Offsets, TopicPartition
from pyspark_pykafka.retry import NEVER, Backoff, Deadline
from pyspark_pykafka.settings.librdkafka_config import api_timeout_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from pyspark_pykafka.engines.wire.consumer.list_offsets import LeaderQuestion
    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.protocol.metadata import (
        MetadataResponse,
        PartitionMetadata,
        TopicMetadata,
    )
    from pyspark_pykafka.settings import KafkaSettings

    Kind = type[ListOffsetsPartition | OffsetForLeaderPartition]

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_LEAST_PAUSE, _MOST_PAUSE = 0.1, 1.0

# A leader that says nothing may be none any more; each try has twice as much time.
_PATIENCE_SECONDS = 2.0


class _Sorted(NamedTuple):
    """
    What to ask which broker, and the partitions that have no leader, or do not exist.
    """

    wanted: dict[int, dict[str, list[ListOffsetsPartition | OffsetForLeaderPartition]]]
    leaderless: list[TopicPartition]
    unknown: list[TopicPartition]


class _Answers(NamedTuple):
    """
    What was asked and is not answered yet, and what leaders have told.
    """

    left: dict[TopicPartition, int]
    found: LogEnds


class _Attempt(NamedTuple):
    """
    One try of a question: until when it makes sense at all, and how long leaders have to answer.
    """

    limit: Deadline
    patience: float

    @property
    def deadline(self) -> Deadline:
        """
        Return until when leaders that are asked now have to answer.
        """
        return Deadline.after(self.limit.remaining(max_seconds=self.patience), self.limit.now)


class WireMetadata:
    """
    Implements :class:`~pyspark_pykafka.engines.metadata_contract.MetadataBackend`.

    Remembers who led the topics that it was last asked about, for the offsets asked for next.
    """

    def __init__(self, kafka: KafkaSettings, isolation_level: str) -> None:
        self._kafka = kafka
        self._isolation = ISOLATION[isolation_level]
        self.timeout_seconds = api_timeout_ms(kafka) / 1000
        self._matched: frozenset[str] = frozenset()
        self._leaders: dict[str, dict[int, PartitionMetadata]] = {}

    def describe_topics(self, names: Collection[str]) -> dict[str, Topic]:
        """
        Return the topics of these names; none is made by asking.
        """
        _, found = self._described(names)
        return {name: _topic(topic) for name, topic in found.items()}

    def describe_matching_topics(self, chosen: Callable[[str], object]) -> dict[str, Topic]:
        """
        Return the topics whose names are chosen, of all that we may see.
        """
        doing = "listing topics"
        answer = self._asked(
            lambda cluster, attempt: _metadata(
                cluster,
                None,
                attempt.limit,
                doing,
                is_relevant=chosen,
                expected_topics=self._matched,
            )
        )
        found = _existing(answer, doing, chosen)
        self._matched = frozenset(found)
        self._remember(found)
        return {name: _topic(topic) for name, topic in found.items()}

    def leader_addresses(self, names: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return host and port of the leader of each partition of these topics, where it has one.
        """
        answer, topics = self._described(names)
        places = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return {
            TopicPartition(name, partition.partition_index): places[partition.leader_id]
            for name, topic in topics.items()
            for partition in topic.partitions
            if partition.leader_id in places
        }

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """
        Ask until every partition's leader has answered, or the time for a question is over.
        """
        return self._asked_leaders(
            times, ListOffsetsPartition, log_offsets(self._isolation)
        ).offsets

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Ask as :meth:`list_offsets` does.
        """
        latest = dict.fromkeys(tps, LATEST)
        return self._asked_leaders(latest, ListOffsetsPartition, log_offsets(self._isolation))

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Ask as :meth:`list_offsets` does; brokers before 2.3 are not asked.
        """
        return self._asked_leaders(epochs, OffsetForLeaderPartition, EPOCH_ENDS).offsets

    def _asked_leaders(
        self, asked: Mapping[TopicPartition, int], kind: Kind, question: LeaderQuestion
    ) -> LogEnds:
        answers = _Answers(dict(asked), LogEnds({}, {}))

        def ask(cluster: Cluster, attempt: _Attempt) -> LogEnds:
            try:
                given = self._sorted(cluster, answers.left, kind, attempt)
                _ask_all(cluster, given, question, answers, attempt.deadline)
            except PykafkaError:
                self._leaders.clear()
                raise
            # Not sooner, or brokers would be connected to twice that are leaders anyway.
            cluster.open_spare_connection()
            return answers.found

        return self._asked(ask)

    def _asked(self, ask: Callable[[Cluster, _Attempt], T]) -> T:
        """
        Ask again after errors that pass, another broker, until the time for a question is over.
        """
        limit = Deadline.after(self.timeout_seconds)
        tell_at = Deadline.after(LONG_WAIT_SECONDS)
        backoff, patience = Backoff(_LEAST_PAUSE, _MOST_PAUSE), _PATIENCE_SECONDS
        trouble: PykafkaError | None = None
        with borrowed_cluster(self._kafka) as cluster:
            while True:
                try:
                    return ask(cluster, _Attempt(limit, patience))
                except PykafkaError as error:
                    if not error.retriable:
                        raise
                    # The last try is often cut off by its own limit, which says nothing of causes.
                    if trouble is None or not limit.expired:
                        trouble = error
                    if limit.expired:
                        raise trouble from error.__cause__
                    cluster.demote_metadata_source()
                pause = limit.remaining(max_seconds=backoff.next_pause())
                # Before the pause that it falls into, which may be the last.
                if tell_at.remaining() <= pause:
                    tell_at, seconds = NEVER, limit.remaining()
                    logger.warning("%s; retrying for %.0f s at most", trouble, seconds)
                logger.info("%s; asking again", trouble)
                time.sleep(pause)
                patience *= 2

    def _described(
        self, names: Collection[str]
    ) -> tuple[MetadataResponse, dict[str, TopicMetadata]]:
        doing = _asking_for(names)
        answer = self._asked(
            lambda cluster, attempt: _metadata(cluster, names, attempt.limit, doing)
        )
        found = _existing(answer, doing)
        self._remember(found)
        return answer, found

    def _remember(self, topics: Mapping[str, TopicMetadata]) -> None:
        self._leaders = {
            name: {partition.partition_index: partition for partition in topic.partitions}
            for name, topic in topics.items()
        }

    def _sorted(
        self,
        cluster: Cluster,
        left: dict[TopicPartition, int],
        kind: Kind,
        attempt: _Attempt,
    ) -> _Sorted:
        """
        Return whom to ask; what does not exist is taken out of ``left``.
        """
        given = self._by_leader(cluster, left, kind)
        if given.leaderless or given.unknown:
            # What is remembered may be old.
            sizes: dict[str, int] = {}
            for tp in left:
                sizes[tp.topic] = max(sizes.get(tp.topic, 0), tp.partition + 1)
            doing = _asking_for(sizes)
            metadata = _metadata(cluster, sizes.keys(), attempt.limit, doing, min_partitions=sizes)
            self._remember(_existing(metadata, doing))
            given = self._by_leader(cluster, left, kind)
        for tp in given.unknown:
            del left[tp]
        return given

    def _by_leader(
        self, cluster: Cluster, asked: Mapping[TopicPartition, int], kind: Kind
    ) -> _Sorted:
        given = _Sorted({}, [], [])
        for tp, at in asked.items():
            topic, index = tp
            leader = self._leaders.get(topic, {}).get(index)
            if leader is None:
                given.unknown.append(tp)
            elif not cluster.has_broker(leader.leader_id):
                given.leaderless.append(tp)
            else:
                of_node = given.wanted.setdefault(leader.leader_id, {})
                one = kind(index, leader.leader_epoch, at)
                of_node.setdefault(topic, []).append(one)
        return given


def _ask_all(
    cluster: Cluster,
    given: _Sorted,
    question: LeaderQuestion,
    answers: _Answers,
    deadline: Deadline,
) -> None:
    """
    Take in what leaders tell; raise for what was not told.
    """
    listed = ask_leaders(cluster, given.wanted, question, deadline)
    troubles = listed.troubles
    for node, answer in listed.answers.items():
        try:
            offsets, epochs = read_offsets(answer, given.wanted[node])
        except PykafkaError as error:
            if not error.retriable:
                raise
            troubles.append(error)
            continue
        answers.found.offsets.update(offsets)
        answers.found.epochs.update(epochs)
        for tp in offsets:
            answers.left.pop(tp, None)
    if given.leaderless:
        troubles.append(no_leader_error(given.leaderless))
    if troubles:
        raise troubles[0]


def _metadata(
    cluster: Cluster,
    names: Collection[str] | None,
    deadline: Deadline,
    doing: str,
    **more: Any,
) -> MetadataResponse:
    try:
        return cluster.metadata(names, deadline, **more)
    except (BrokerUnavailableError, TimeoutExceededError) as error:
        msg = f"{doing}: no broker answered in time: {error}"
        raise TimeoutExceededError(msg) from error


def _existing(
    answer: MetadataResponse, doing: str, chosen: Callable[[str], object] = lambda _: True
) -> dict[str, TopicMetadata]:
    found = {}
    for topic in answer.topics:
        error = topic.error_code
        if (
            error == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            or topic.name is None
            or not chosen(topic.name)
        ):
            continue
        # Its partitions are told all the same, where it has any.
        if error not in {KafkaErrorCode.NONE, KafkaErrorCode.LEADER_NOT_AVAILABLE}:
            raise map_error_code(error, doing)
        found[topic.name] = topic
    return found


def _topic(found: TopicMetadata) -> Topic:
    partitions = sorted([partition.partition_index for partition in found.partitions])
    topic_id = None if found.topic_id is None else id_text(found.topic_id)
    return Topic(topic_id, found.is_internal, partitions)


def id_text(topic_id: UUID) -> str:
    """
    Return the text of a topic id that offsets and progress are kept with.
    """
    # As librdkafka writes it, with + and /, since checkpoints and progress stores hold the text;
    # Kafka's own tools print - and _ there.
    return b64encode(topic_id.bytes).rstrip(b"=").decode()


def _asking_for(names: Collection[str]) -> str:
    return f"reading the partitions of {', '.join(sorted(names)[:20])}"
