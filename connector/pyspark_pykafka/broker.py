"""
The driver's questions to Kafka: which partitions there are, and which offsets they hold.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import OffsetSpec

from pyspark_pykafka.admin import Admin
from pyspark_pykafka.client import translating_errors
from pyspark_pykafka.errors import BrokerUnavailableError, UnknownTopicError
from pyspark_pykafka.offsets import Assignment, Offsets, TopicPartition, describe
from pyspark_pykafka.options import Assign, Subscribe, SubscribePattern
from pyspark_pykafka.progress.store import check_topic_ids
from pyspark_pykafka.retry import Backoff, Deadline, RetryPolicy, retrying, retrying_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, TopicDescription

    from pyspark_pykafka.progress.store import Records
    from pyspark_pykafka.settings import KafkaSettings

    Strategy = Assign | Subscribe | SubscribePattern

_LEAST_PAUSE, _MOST_PAUSE = 0.1, 1.0

# librdkafka's OFFSET_INVALID. It stands, without any error, for a partition whose leader was lost
# while it was asked (seen with 2.16 and a broker killed); -1 is "no record of that time".
_UNANSWERED = -1001

# A zero UUID, as Kafka prints it: the topic's on brokers before 2.8.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Broker:
    """
    Every question has a deadline and is tried again; ``recorded`` asks the progress store.

    Partitions that vanish between two questions are left out of an answer, for the caller to
    judge. Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        isolation_level: str,
        retry: RetryPolicy,
        recorded: Callable[[Iterable[str]], Records] = lambda _: {},
    ) -> None:
        self._recorded = recorded
        self._admin = Admin(kafka)
        self._isolation = IsolationLevel[isolation_level.upper()]
        self._retry = retry

    def assigned(self, strategy: Strategy) -> Assignment:
        """
        Return the existing partitions that a strategy selects, in order.
        """
        return retrying(lambda: self._select(strategy), self._retry)

    def earliest(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the first offset that each partition still holds.
        """
        return self._offsets(dict.fromkeys(tps, OffsetSpec.earliest()))

    def latest(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offset of each partition's next record, as the isolation level sees it.
        """
        return self._offsets(dict.fromkeys(tps, OffsetSpec.latest()))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """
        Return the first offset whose record is as young as the time (epoch ms), or None.
        """
        found = self._offsets({tp: OffsetSpec.for_timestamp(ms) for tp, ms in times.items()})
        return {tp: None if offset < 0 else offset for tp, offset in found.items()}

    def committed(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offsets of a progress store, where it has any.

        Raises :class:`ProgressError` if they are about a topic that has been made again since.
        """
        wanted = set(tps)
        topics = {tp.topic for tp in wanted}
        records = retrying(lambda: self._recorded(topics), self._retry)
        named = sorted({tp.topic for tp in records})
        check_topic_ids(records, self.assigned(Subscribe(tuple(named))).topic_ids)
        return {tp: record.offset for tp, record in records.items() if tp in wanted}

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """
        Return the existing partitions of those of the topics that exist, in order.
        """
        return _partitions(retrying(lambda: self._describe_topics(topics), self._retry))

    def leaders(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return host and port of each partition's leader, where it has one.
        """
        topics = {tp.topic for tp in tps}
        described = retrying(lambda: self._describe_topics(topics), self._retry)
        return {
            TopicPartition(name, partition.id): (partition.leader.host, partition.leader.port)
            for name, topic in described.items()
            for partition in topic.partitions
            if partition.leader is not None
        }

    def _select(self, strategy: Strategy) -> Assignment:
        if isinstance(strategy, Assign):
            existing = self._require({tp.topic for tp in strategy.partitions})
            tps = sorted(set(existing.partitions) & set(strategy.partitions))
            return replace(existing, partitions=tuple(tps))
        if isinstance(strategy, Subscribe):
            return self._require(strategy.topics)
        return self._describe(self._matching(strategy.pattern))

    def _require(self, topics: Iterable[str]) -> Assignment:
        found = self._describe(topics)
        missing = set(topics) - {tp.topic for tp in found.partitions}
        if missing:
            names = ", ".join(f"'{name}'" for name in sorted(missing))
            msg = f"the brokers do not have the topic {names}; create it, or correct the name"
            raise UnknownTopicError(msg)
        return found

    def _matching(self, pattern: str) -> list[str]:
        # Found anywhere in the name, as the JVM connector matches; not the whole name.
        expression = re.compile(pattern)
        with translating_errors("listing topics"):
            self._admin.ask(_connecting, "connecting")
            found = self._admin.client().list_topics(timeout=self._admin.seconds)
        return [name for name in found.topics if expression.search(name)]

    def _describe(self, topics: Iterable[str]) -> Assignment:
        answers = self._describe_topics(topics)
        described = {name: topic for name, topic in answers.items() if not topic.is_internal}
        ids = {name: str(topic.topic_id) for name, topic in described.items()}
        tps = tuple(_partitions(described))
        return Assignment(tps, {name: it for name, it in ids.items() if it != _NO_ID})

    def _describe_topics(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        names = sorted(set(topics))
        if not names:
            return {}
        return self._admin.ask(
            lambda client, seconds: client.describe_topics(
                TopicCollection(names), request_timeout=seconds
            ),
            f"asking for the partitions of {', '.join(names[:20])}",
        )

    def _offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        if not specs:
            return {}
        return retrying(lambda: self._list_offsets(specs), self._retry)

    def _list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        """
        Ask until every partition's leader has answered, or the time for a question is over.
        """
        deadline = Deadline.after(self._admin.seconds)
        return retrying_until(
            lambda: self._all_offsets(specs), deadline, Backoff(_LEAST_PAUSE, _MOST_PAUSE)
        )

    def _all_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        found = self._ask_offsets(specs)
        silent = [tp for tp, offset in found.items() if offset == _UNANSWERED]
        if silent:
            msg = f"{describe(silent)}: no leader told the offsets; are all brokers up?"
            raise BrokerUnavailableError(msg)
        return found

    def _ask_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        positions = {Position(tp.topic, tp.partition): spec for tp, spec in specs.items()}
        answers = self._admin.ask(
            lambda client, seconds: client.list_offsets(
                positions, isolation_level=self._isolation, request_timeout=seconds
            ),
            f"asking for the offsets of {describe(specs)}",
        )
        return {TopicPartition(p.topic, p.partition): a.offset for p, a in answers.items()}


def _connecting(client: AdminClient, seconds: float) -> dict[str, Future[object]]:
    return {"cluster": client.describe_cluster(request_timeout=seconds)}


def _partitions(described: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(name, partition.id)
        for name, topic in described.items()
        for partition in topic.partitions
    )
