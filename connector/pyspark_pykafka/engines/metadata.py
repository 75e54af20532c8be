"""
Reads partitions and offsets for the driver, with retries.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.pattern_topics import PatternTopics
from pyspark_pykafka.errors import UnknownTopicError
from pyspark_pykafka.offsets import EARLIEST, LATEST, Assignment, LogEnds, Offsets, TopicPartition
from pyspark_pykafka.options import Assign, Subscribe, SubscribePattern
from pyspark_pykafka.retry import Deadline, RetryPolicy, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_pykafka.engines.metadata_contract import MetadataBackend, Topic

    Strategy = Assign | Subscribe | SubscribePattern
    TopicIds = Callable[[Iterable[str]], Mapping[str, str]]
    Committed = Callable[[Iterable[str], TopicIds], Offsets]

T = TypeVar("T")


class MetadataClient:
    """
    Reads partitions and offsets; ``retry`` says how often a request is retried within its timeout.

    ``committed`` returns the offsets that the progress store has for some topics, as
    :func:`pyspark_pykafka.progress.factory.committed_offsets` does. Its second argument is a
    function that returns the topics' current ids.

    Partitions that are deleted between two requests are missing from the result. Raises the errors
    of :mod:`pyspark_pykafka.errors`.
    """

    def __init__(
        self,
        backend: MetadataBackend,
        retry: RetryPolicy,
        committed: Committed | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backend = backend
        self._pattern_topics = PatternTopics(backend)
        self._retry = retry
        self._now = now
        self._sleep = sleep
        self._committed = committed

    def __repr__(self) -> str:
        return f"<MetadataClient {type(self._backend).__name__}, {self._retry.attempts} attempts>"

    def assignment(self, strategy: Strategy) -> Assignment:
        """
        Return the existing partitions that a strategy selects, in order, and their topic ids.
        """
        return self._retrying(lambda: self._select(strategy))

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the log start offset of each partition.
        """
        return self._offsets(dict.fromkeys(tps, EARLIEST))

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the end offset of each partition: the last stable offset under ``read_committed``.
        """
        return self._offsets(dict.fromkeys(tps, LATEST))

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return the end offsets as :meth:`end_offsets` does, with the leader epochs.
        """
        partitions = list(tps)
        if not partitions:
            return LogEnds({}, {})
        return self._retrying(lambda: self._backend.log_ends(partitions))

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return the high watermarks, at any isolation level, with the leader epochs.
        """
        partitions = list(tps)
        if not partitions:
            return LogEnds({}, {})
        return self._retrying(lambda: self._backend.high_watermarks(partitions))

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the end offset of each leader epoch; -1 if the leader does not know the epoch.
        """
        return self._retrying(lambda: self._backend.offsets_for_leader_epochs(epochs))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """
        Return the first offset with a timestamp at or after the time (epoch ms), or None.
        """
        offsets = self._offsets(times)
        return {tp: None if offset < 0 else offset for tp, offset in offsets.items()}

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offsets that the progress store has for these partitions.

        Raises :class:`ProgressError` if a topic was recreated since they were stored.
        """
        partitions = set(tps)
        read = self._committed
        if read is None:
            return {}
        topics = {tp.topic for tp in partitions}
        offsets = self._retrying(lambda: read(topics, self._topic_ids))
        return {tp: offset for tp, offset in offsets.items() if tp in partitions}

    def all_partitions(self) -> list[TopicPartition]:
        """
        Return the partitions of all topics that the user may describe, in order, without those of
        Kafka's internal topics.
        """
        topics = self._retrying(lambda: self._backend.describe_matching_topics(lambda _: True))
        return _partitions({n: topic for n, topic in topics.items() if not topic.is_internal})

    def partitions_for(self, topics: Iterable[str]) -> list[TopicPartition]:
        """
        Return the partitions of the topics, in order, without topics that do not exist.
        """
        return [*self.existing(topics).partitions]

    def existing(self, topics: Iterable[str]) -> Assignment:
        """
        Return the partitions and ids of the topics, without topics that do not exist.
        """
        names = set(topics)
        existing = self._retrying(lambda: self._topics(names))
        return Assignment(tuple(_partitions(existing)), _ids(existing))

    def leader_addresses(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return the (host, port) of each partition's leader, without partitions that have none.
        """
        names = {tp.topic for tp in tps}
        return self._retrying(lambda: self._backend.leader_addresses(names) if names else {})

    def _topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        return self._require(set(topics)).topic_ids

    def _select(self, strategy: Strategy) -> Assignment:
        if isinstance(strategy, Assign):
            existing = self._require({tp.topic for tp in strategy.partitions})
            tps = sorted(set(existing.partitions) & set(strategy.partitions))
            return replace(existing, partitions=tuple(tps))
        if isinstance(strategy, Subscribe):
            return self._require(set(strategy.topics))
        # As in the JVM connector, the pattern may match anywhere in the name.
        matching = self._backend.describe_matching_topics(re.compile(strategy.pattern).search)
        return _assignment(self._pattern_topics.select(matching))

    def _require(self, names: set[str]) -> Assignment:
        existing = _assignment(self._topics(names))
        missing = names - {tp.topic for tp in existing.partitions}
        if missing:
            listed = ", ".join(f"'{name}'" for name in sorted(missing))
            msg = f"the brokers do not have the topic {listed}; create it, or correct the name"
            raise UnknownTopicError(msg)
        return existing

    def _topics(self, names: set[str]) -> dict[str, Topic]:
        return self._backend.describe_topics(names) if names else {}

    def _offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        if not times:
            return {}
        return self._retrying(lambda: self._backend.list_offsets(times))

    def _retrying(self, request: Callable[[], T]) -> T:
        """
        Retry after retriable errors, within the timeout of one request.
        """
        deadline = Deadline.after(self._backend.timeout_seconds, self._now)
        return retry(request, self._retry, self._sleep, deadline)


def _assignment(topics: Mapping[str, Topic]) -> Assignment:
    return Assignment(tuple(_partitions(topics)), _ids(topics))


def _ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {name: topic.id for name, topic in topics.items() if topic.id is not None}


def _partitions(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [
        TopicPartition(name, partition)
        for name in sorted(topics)
        for partition in topics[name].partitions
    ]
