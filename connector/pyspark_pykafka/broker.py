"""
The driver's questions to Kafka: which partitions there are, and which offsets they hold.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, OffsetSpec

from pyspark_pykafka.client import (
    FatalErrors,
    admin_config,
    api_timeout_ms,
    map_kafka_error,
    translating_errors,
)
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    TimeoutExceededError,
    UnknownTopicError,
)
from pyspark_pykafka.offsets import Assignment, Offsets, TopicPartition, describe
from pyspark_pykafka.options import Assign, Subscribe, SubscribePattern
from pyspark_pykafka.retry import Backoff, Deadline, RetryPolicy, retrying

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from pyspark_pykafka.settings import KafkaSettings

    Strategy = Assign | Subscribe | SubscribePattern

_SLICE_SECONDS = 0.1
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 1.0

# librdkafka's OFFSET_INVALID. It stands, without any error, for a partition whose leader was lost
# while it was asked (seen with 2.16 and a broker killed); -1 is "no record of that time".
_UNANSWERED = -1001

# A zero UUID, as Kafka prints it: the topic's on brokers before 2.8.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001


class Broker:
    """
    Asks through one lazily made admin client; every question has a deadline and is tried again.

    Partitions that vanish between two questions are left out of an answer, for the caller to
    judge. Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    def __init__(self, kafka: KafkaSettings, isolation_level: str, retry: RetryPolicy) -> None:
        self._kafka = kafka
        self._isolation = IsolationLevel[isolation_level.upper()]
        self._retry = retry
        self._fatal = FatalErrors()
        self._admin: AdminClient | None = None

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
        Return what the consumer group ``group.id`` of the settings committed, where it has.
        """
        wanted = list(tps)
        return retrying(lambda: self._committed(wanted), self._retry) if wanted else {}

    def _committed(self, tps: list[TopicPartition]) -> Offsets:
        group = self._kafka.get("group.id", "")
        asked = ConsumerGroupTopicPartitions(group, [Position(*tp) for tp in tps])
        futures = self._client().list_consumer_group_offsets(
            [asked], request_timeout=self._seconds()
        )
        doing = f"asking for the offsets of the consumer group {group}"
        answers = self._wait(futures, doing)[group].topic_partitions
        failed = next((p.error for p in answers if p.error is not None), None)
        if failed is not None:
            raise map_kafka_error(failed, doing)
        # _UNANSWERED where nothing was committed.
        return {TopicPartition(p.topic, p.partition): p.offset for p in answers if p.offset >= 0}

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
            self._wait({"cluster": self._client().describe_cluster()}, "connecting")
            found = self._client().list_topics(timeout=self._seconds())
        return [name for name in found.topics if expression.search(name)]

    def _describe(self, topics: Iterable[str]) -> Assignment:
        names = sorted(set(topics))
        if not names:
            return Assignment((), {})
        futures = self._client().describe_topics(
            TopicCollection(names), request_timeout=self._seconds()
        )
        answers = self._wait(futures, f"asking for the partitions of {', '.join(names[:20])}")
        described = {name: topic for name, topic in answers.items() if not topic.is_internal}
        tps = sorted(
            TopicPartition(name, partition.id)
            for name, topic in described.items()
            for partition in topic.partitions
        )
        ids = {name: str(topic.topic_id) for name, topic in described.items()}
        return Assignment(tuple(tps), {name: it for name, it in ids.items() if it != _NO_ID})

    def _offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        if not specs:
            return {}
        return retrying(lambda: self._list_offsets(specs), self._retry)

    def _list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        """
        Ask until every partition's leader has answered, or the time for a question is over.
        """
        deadline = Deadline.after(self._seconds())
        backoff = Backoff(_LEAST_PAUSE, _MOST_PAUSE)
        while True:
            found = self._ask_offsets(specs)
            silent = [tp for tp, offset in found.items() if offset == _UNANSWERED]
            if not silent:
                return found
            if deadline.expired:
                msg = f"{describe(silent)}: no leader told the offsets; are all brokers up?"
                raise BrokerUnavailableError(msg)
            time.sleep(deadline.remaining(at_most=backoff.next_pause()))

    def _ask_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        futures = self._client().list_offsets(
            {Position(tp.topic, tp.partition): spec for tp, spec in specs.items()},
            isolation_level=self._isolation,
            request_timeout=self._seconds(),
        )
        answers = self._wait(futures, f"asking for the offsets of {describe(specs)}")
        return {TopicPartition(p.topic, p.partition): a.offset for p, a in answers.items()}

    def _wait(self, futures: Mapping[Any, Future[Any]], doing: str) -> dict[Any, Any]:
        """
        Collect the answers of all futures but those about things that do not exist.
        """
        deadline = Deadline.after(self._seconds() + 5.0)
        answers = {}
        for subject, future in futures.items():
            try:
                answers[subject] = self._result(future, deadline, doing)
            except KafkaException as error:
                if error.args[0].code() not in _MISSING:
                    raise map_kafka_error(error.args[0], doing) from error
        return answers

    def _result(self, future: Future[Any], deadline: Deadline, doing: str) -> Any:
        while True:
            # Authentication errors never reach the future, only the client's error callback.
            self._fatal.raise_any(doing)
            try:
                return future.result(timeout=deadline.remaining(at_most=_SLICE_SECONDS))
            except NotYet as error:
                if deadline.expired:
                    msg = f"{doing}: no broker answered within {api_timeout_ms(self._kafka)} ms"
                    raise TimeoutExceededError(msg) from error
                self._client().poll(0)

    def _seconds(self) -> float:
        return api_timeout_ms(self._kafka) / 1000

    def _client(self) -> AdminClient:
        if self._admin is None:
            config = admin_config(self._kafka)
            self._admin = AdminClient({**config, "error_cb": self._fatal.note})
        return self._admin
