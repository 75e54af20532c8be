"""
The driver's questions over connections of our own: one message to each broker that is asked.

librdkafka makes an object of each partition, in C and again in Python, which was most of the time
that it took to plan a query of thousands of partitions.
"""

from __future__ import annotations

import logging
import time
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_pykafka.client import api_timeout_ms, map_error_code
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.offsets import LATEST, LogEnds, Offsets, TopicPartition
from pyspark_pykafka.questions import Topic
from pyspark_pykafka.retry import Backoff, Deadline
from pyspark_pykafka.wire.cluster import borrowed_cluster
from pyspark_pykafka.wire.leaders import EPOCH_ENDS, ask_leaders, log_offsets, silent, told
from pyspark_pykafka.wire.list_offsets import ISOLATION, WantedOffset
from pyspark_pykafka.wire.offset_for_leader_epoch import WantedEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.wire.cluster import Cluster
    from pyspark_pykafka.wire.leaders import LeaderQuestion, Wanted
    from pyspark_pykafka.wire.metadata import Metadata, PartitionMetadata, TopicMetadata

    Kind = type[WantedOffset | WantedEpoch]

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_LEAST_PAUSE, _MOST_PAUSE = 0.1, 1.0

# One broker that says nothing must not take all the time there is; each try has twice as much.
_PATIENCE_SECONDS = 2.0

# Brokers learn of a new topic one after another; a leader that has not by then never will.
_MISSING_SECONDS = 2.0

_UNKNOWN_TOPIC_OR_PARTITION = 3
_LEADER_NOT_AVAILABLE = 5


class _Sorted(NamedTuple):
    """
    What to ask which broker, and the partitions that have no leader, or do not exist.
    """

    wanted: dict[int, dict[str, list[WantedOffset | WantedEpoch]]]
    leaderless: list[TopicPartition]
    unknown: list[TopicPartition]


class WireQuestions:
    """
    Implements :class:`~pyspark_pykafka.questions.Questions`.

    Remembers who led the topics that it was last asked about, for the offsets asked for next.
    """

    def __init__(self, kafka: KafkaSettings, isolation_level: str) -> None:
        self._kafka = kafka
        self._isolation = ISOLATION[isolation_level]
        self._seconds = api_timeout_ms(kafka) / 1000
        self._leaders: dict[str, dict[int, PartitionMetadata]] = {}

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """
        Return the topics of these names; none is made by asking.
        """
        _, found = self._described(names)
        return {name: _topic(topic) for name, topic in found.items()}

    def matching(self, chosen: Callable[[str], object]) -> dict[str, Topic]:
        """
        Return the topics whose names are chosen, of all that we may see.
        """
        answer = self._asked(
            lambda cluster, deadline: _metadata(cluster, None, deadline, "listing topics")
        )
        found = _existing(answer, "listing topics", chosen)
        self._remember(found)
        return {name: _topic(topic) for name, topic in found.items()}

    def leaders(self, names: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
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

    def offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """
        Ask until every partition's leader has answered, or the time for a question is over.
        """
        return self._asked_leaders(times, WantedOffset, log_offsets(self._isolation)).offsets

    def ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Ask as :meth:`offsets` does.
        """
        latest = dict.fromkeys(tps, LATEST)
        return self._asked_leaders(latest, WantedOffset, log_offsets(self._isolation))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Ask as :meth:`offsets` does; brokers before 2.3 are not asked.
        """
        return self._asked_leaders(epochs, WantedEpoch, EPOCH_ENDS).offsets

    def _asked_leaders(
        self, asked: Mapping[TopicPartition, int], kind: Kind, question: LeaderQuestion
    ) -> LogEnds:
        missing_until = Deadline.after(_MISSING_SECONDS)

        def ask(cluster: Cluster, deadline: Deadline) -> LogEnds:
            try:
                wanted = self._wanted(cluster, asked, kind, deadline)
                return _ask_all(cluster, wanted, question, deadline, missing_until)
            except PykafkaError:
                self._leaders.clear()
                raise

        return self._asked(ask)

    def _asked(self, ask: Callable[[Cluster, Deadline], T]) -> T:
        """
        Ask again after errors that pass, until the time for a question is over.
        """
        limit = Deadline.after(self._seconds)
        backoff, patience = Backoff(_LEAST_PAUSE, _MOST_PAUSE), _PATIENCE_SECONDS
        trouble: PykafkaError | None = None
        with borrowed_cluster(self._kafka) as cluster:
            while True:
                try:
                    return ask(cluster, Deadline.after(limit.remaining(at_most=patience)))
                except PykafkaError as error:
                    if not error.retriable:
                        raise
                    # The last try is often cut off by its own limit, which says nothing of causes.
                    if trouble is None or not limit.expired:
                        trouble = error
                    if limit.expired:
                        raise trouble from error.__cause__
                logger.info("%s; asking again", trouble)
                time.sleep(limit.remaining(at_most=backoff.next_pause()))
                patience *= 2

    def _described(self, names: Collection[str]) -> tuple[Metadata, dict[str, TopicMetadata]]:
        doing = _asking_for(names)
        answer = self._asked(lambda cluster, deadline: _metadata(cluster, names, deadline, doing))
        found = _existing(answer, doing)
        self._remember(found)
        return answer, found

    def _remember(self, topics: Mapping[str, TopicMetadata]) -> None:
        self._leaders = {
            name: {partition.partition_index: partition for partition in topic.partitions}
            for name, topic in topics.items()
        }

    def _wanted(
        self,
        cluster: Cluster,
        asked: Mapping[TopicPartition, int],
        kind: Kind,
        deadline: Deadline,
    ) -> Mapping[int, Wanted]:
        given = self._by_leader(cluster, asked, kind)
        if given.leaderless or given.unknown:
            # What is remembered may be old.
            names = sorted({tp.topic for tp in asked})
            doing = _asking_for(names)
            self._remember(_existing(_metadata(cluster, names, deadline, doing), doing))
            given = self._by_leader(cluster, asked, kind)
        if given.leaderless:
            raise silent(given.leaderless)
        return given.wanted

    def _by_leader(
        self, cluster: Cluster, asked: Mapping[TopicPartition, int], kind: Kind
    ) -> _Sorted:
        given = _Sorted({}, [], [])
        for tp, at in asked.items():
            topic, index = tp
            leader = self._leaders.get(topic, {}).get(index)
            if leader is None:
                given.unknown.append(tp)
            elif not cluster.names(leader.leader_id):
                given.leaderless.append(tp)
            else:
                of_node = given.wanted.setdefault(leader.leader_id, {})
                one = kind(index, leader.leader_epoch, at)
                of_node.setdefault(topic, []).append(one)
        return given


def _ask_all(
    cluster: Cluster,
    wanted: Mapping[int, Wanted],
    question: LeaderQuestion,
    deadline: Deadline,
    missing_until: Deadline,
) -> LogEnds:
    found = LogEnds({}, {})
    for node, answer in ask_leaders(cluster, wanted, question, deadline).items():
        offsets, epochs = told(answer, wanted[node], missing_until)
        found.offsets.update(offsets)
        found.epochs.update(epochs)
    return found


def _metadata(
    cluster: Cluster, names: Collection[str] | None, deadline: Deadline, doing: str
) -> Metadata:
    try:
        return cluster.metadata(names, deadline)
    except (BrokerUnavailableError, TimeoutExceededError) as error:
        msg = f"{doing}: no broker answered in time: {error}"
        raise TimeoutExceededError(msg) from error


def _existing(
    answer: Metadata, doing: str, chosen: Callable[[str], object] = lambda _: True
) -> dict[str, TopicMetadata]:
    found = {}
    for topic in answer.topics:
        error = topic.error_code
        if error == _UNKNOWN_TOPIC_OR_PARTITION or topic.name is None or not chosen(topic.name):
            continue
        # Its partitions are told all the same, where it has any.
        if error not in {0, _LEADER_NOT_AVAILABLE}:
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
    return f"asking for the partitions of {', '.join(sorted(names)[:20])}"
