"""
The driver's questions through librdkafka's admin client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import OffsetSpec

from pyspark_pykafka.engines.error_mapping import translating_errors
from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.engines.metadata_contract import Topic
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    LogEnds,
    Offsets,
    TopicPartition,
    format_partitions,
)
from pyspark_pykafka.retry import Backoff, Deadline, retry_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, TopicDescription

    from pyspark_pykafka.settings import KafkaSettings

_LEAST_PAUSE, _MOST_PAUSE = 0.1, 1.0

# librdkafka's OFFSET_INVALID. It stands, without any error, for a partition whose leader was lost
# while it was asked (seen with 2.16 and a broker killed); -1 is "no record of that time".
_UNANSWERED = -1001

# A zero UUID, as Kafka prints it: the topic's on brokers before 2.8.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class AdminMetadata:
    """
    Implements :class:`~pyspark_pykafka.engines.metadata_contract.MetadataBackend`.
    """

    def __init__(self, kafka: KafkaSettings, isolation_level: str) -> None:
        self._admin = RetryingAdmin(kafka)
        self.timeout_seconds = self._admin.timeout_seconds
        self._isolation = IsolationLevel[isolation_level.upper()]

    def describe_topics(self, names: Collection[str]) -> dict[str, Topic]:
        """
        Return the topics of these names; none is made by asking.
        """
        return {name: _topic(told) for name, told in self._described(names).items()}

    def describe_matching_topics(self, chosen: Callable[[str], object]) -> dict[str, Topic]:
        """
        Return the topics whose names are chosen, of all that we may see.
        """
        with translating_errors("listing topics"):
            self._admin.call(_connecting, "connecting")
            found = self._admin.client().list_topics(timeout=self._admin.timeout_seconds)
        return self.describe_topics([name for name in found.topics if chosen(name)])

    def leader_addresses(self, names: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return host and port of the leader of each partition of these topics, where it has one.
        """
        return {
            TopicPartition(name, partition.id): (partition.leader.host, partition.leader.port)
            for name, topic in self._described(names).items()
            for partition in topic.partitions
            if partition.leader is not None
        }

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """
        Ask until every partition's leader has answered, or the time for a question is over.
        """
        return self._asked(times).offsets

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Ask as :meth:`list_offsets` does.
        """
        return self._asked(dict.fromkeys(tps, LATEST))

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:  # noqa: ARG002
        """
        Return nothing: librdkafka asks brokers that only when it begins to read.
        """
        return {}

    def _described(self, names: Collection[str]) -> dict[str, TopicDescription]:
        if not names:
            return {}
        shown = sorted(names)
        return self._admin.call(
            lambda client, seconds: client.describe_topics(
                TopicCollection(shown), request_timeout=seconds
            ),
            f"asking for the partitions of {', '.join(shown[:20])}",
        )

    def _asked(self, times: Mapping[TopicPartition, int]) -> LogEnds:
        if not times:
            return LogEnds({}, {})
        deadline = Deadline.after(self._admin.timeout_seconds)
        backoff = Backoff(_LEAST_PAUSE, _MOST_PAUSE)
        return retry_until(lambda: self._all_offsets(times, deadline), deadline, backoff)

    def _all_offsets(self, times: Mapping[TopicPartition, int], deadline: Deadline) -> LogEnds:
        found = self._ask_offsets(times, deadline)
        silent = [tp for tp, offset in found.offsets.items() if offset == _UNANSWERED]
        if silent:
            # librdkafka 2.16 goes on asking the leader that it knew, thousands of times a second.
            self._admin.reset()
            msg = f"{format_partitions(silent)}: no leader told the offsets; are all brokers up?"
            raise BrokerUnavailableError(msg)
        return found

    def _ask_offsets(self, times: Mapping[TopicPartition, int], deadline: Deadline) -> LogEnds:
        positions = {Position(tp.topic, tp.partition): _spec(at) for tp, at in times.items()}
        answers = self._admin.call(
            lambda client, seconds: client.list_offsets(
                positions, isolation_level=self._isolation, request_timeout=seconds
            ),
            f"asking for the offsets of {format_partitions(times)}",
            deadline,
        )
        found = LogEnds({}, {})
        for position, answer in answers.items():
            tp = TopicPartition(position.topic, position.partition)
            found.offsets[tp] = answer.offset
            if answer.leader_epoch is not None:
                found.epochs[tp] = answer.leader_epoch
        return found


def _topic(told: TopicDescription) -> Topic:
    topic_id = str(told.topic_id)
    partitions = sorted(partition.id for partition in told.partitions)
    return Topic(None if topic_id == _NO_ID else topic_id, told.is_internal, partitions)


def _spec(time: int) -> OffsetSpec:
    if time == EARLIEST:
        return OffsetSpec.earliest()
    return OffsetSpec.latest() if time == LATEST else OffsetSpec.for_timestamp(time)


def _connecting(client: AdminClient, seconds: float) -> dict[str, Future[object]]:
    return {"cluster": client.describe_cluster(request_timeout=seconds)}
