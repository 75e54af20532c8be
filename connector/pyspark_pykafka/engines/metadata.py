"""
The driver's view of Kafka: which partitions a query reads, and which offsets they hold.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

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
    Every request has a deadline and is retried.

    ``committed`` reads the offsets of the progress store for some topics, given a function that
    returns the present ids of topics: :func:`pyspark_pykafka.progress.factory.committed_offsets`.

    Partitions that vanish between two questions are left out of an answer, for the caller to
    judge. Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    def __init__(
        self,
        backend: MetadataBackend,
        retry: RetryPolicy,
        committed: Committed | None = None,
    ) -> None:
        self._backend = backend
        self._retry = retry
        self._committed = committed

    def assignment(self, strategy: Strategy) -> Assignment:
        """
        Return the existing partitions that a strategy selects, in order.
        """
        return self._retrying(lambda: self._select(strategy))

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the first offset that each partition still holds.
        """
        return self._offsets(dict.fromkeys(tps, EARLIEST))

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offset of each partition's next record, as the isolation level sees it.
        """
        return self._offsets(dict.fromkeys(tps, LATEST))

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return what :meth:`end_offsets` does, with the leader epochs that the brokers tell.
        """
        wanted = list(tps)
        if not wanted:
            return LogEnds({}, {})
        return self._retrying(lambda: self._backend.log_ends(wanted))

    def offsets_for_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        """
        Return the offset behind the last record up to each leader epoch, -1 where nobody knows.
        """
        return self._retrying(lambda: self._backend.offsets_for_leader_epochs(epochs))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """
        Return the first offset whose record is as young as the time (epoch ms), or None.
        """
        found = self._offsets(times)
        return {tp: None if offset < 0 else offset for tp, offset in found.items()}

    def committed_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the offsets of a progress store, where it has any.

        Raises :class:`ProgressError` if they are about a topic that has been made again since.
        """
        wanted = set(tps)
        read = self._committed
        if read is None:
            return {}
        topics = {tp.topic for tp in wanted}
        offsets = self._retrying(lambda: read(topics, self._topic_ids))
        return {tp: offset for tp, offset in offsets.items() if tp in wanted}

    def partitions_for(self, topics: Iterable[str]) -> list[TopicPartition]:
        """
        Return the existing partitions of those of the topics that exist, in order.
        """
        names = set(topics)
        return _partitions(self._retrying(lambda: self._topics(names)))

    def leader_addresses(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[str, int]]:
        """
        Return host and port of each partition's leader, where it has one.
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
        # Found anywhere in the name, as the JVM connector matches; not the whole name.
        return _assignment(
            self._backend.describe_matching_topics(re.compile(strategy.pattern).search)
        )

    def _require(self, names: set[str]) -> Assignment:
        found = _assignment(self._topics(names))
        missing = names - {tp.topic for tp in found.partitions}
        if missing:
            shown = ", ".join(f"'{name}'" for name in sorted(missing))
            msg = f"the brokers do not have the topic {shown}; create it, or correct the name"
            raise UnknownTopicError(msg)
        return found

    def _topics(self, names: set[str]) -> dict[str, Topic]:
        return self._backend.describe_topics(names) if names else {}

    def _offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        if not times:
            return {}
        return self._retrying(lambda: self._backend.list_offsets(times))

    def _retrying(self, ask: Callable[[], T]) -> T:
        """
        Ask again after errors that pass, all in the time that one question may take.
        """
        return retry(ask, self._retry, deadline=Deadline.after(self._backend.timeout_seconds))


def _assignment(topics: Mapping[str, Topic]) -> Assignment:
    told = {name: topic for name, topic in topics.items() if not topic.is_internal}
    ids = {name: topic.id for name, topic in told.items() if topic.id is not None}
    return Assignment(tuple(_partitions(told)), ids)


def _partitions(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [
        TopicPartition(name, partition)
        for name in sorted(topics)
        for partition in topics[name].partitions
    ]
