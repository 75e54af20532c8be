"""
Which metadata to believe: a broker that is cut off from its controllers tells what it knew once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.engines.error_codes import KafkaErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping
    from uuid import UUID

    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse, TopicMetadata
    from pyspark_pykafka.settings.wire_config import Address

# Invariant R18 (no single broker).
#: That a topic does not exist is believed when so many brokers say it, or all that answer.
MIN_CONFIRMATIONS = 3

# That a topic was made again is believed against older metadata of it when so many brokers agree.
_AGREEING = 2

# Of so many topics the epochs are remembered; a process reads far fewer.
_MOST_TOPICS = 10_000


class LastSeenEpochs:
    """
    The highest leader epoch that was seen of each partition, by the topic's id (KIP-320, KIP-516).

    Brokers before 2.8 tell no ids: a topic made again under its name begins with low epochs, so of
    those nothing is remembered. Threads may share it; a change that is lost is seen once more.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[Hashable, UUID], dict[int, int]] = {}
        self._ids: dict[tuple[Hashable, str], UUID] = {}

    def topic_id(self, cluster: Hashable, name: str) -> UUID | None:
        """
        Return the id under which a topic of a cluster was seen last.
        """
        return self._ids.get((cluster, name))

    def staleness(self, cluster: Hashable, topic: TopicMetadata) -> str | None:
        """
        Return what shows that metadata is older than what was seen before, or None.
        """
        if topic.error_code or topic.topic_id is None:
            return None
        seen = self._epochs.get((cluster, topic.topic_id), {})
        told = {index: epoch for index, _, epoch in topic.partitions}
        if told == seen:
            return None
        for index, epoch in seen.items():
            if index not in told:
                return f"it does not know of {topic.name}-{index}"
            if 0 <= told[index] < epoch:
                return f"it has leader epoch {told[index]} for {topic.name}-{index}, not {epoch}"
        return None

    def record(self, cluster: Hashable, topic: TopicMetadata) -> None:
        """
        Remember what metadata tells of a topic.
        """
        if topic.error_code or topic.topic_id is None or topic.name is None:
            return
        told = {index: epoch for index, _, epoch in topic.partitions}
        key = (cluster, topic.topic_id)
        seen = self._epochs.get(key)
        if told != seen:
            for index, epoch in (seen or {}).items():
                told[index] = max(told.get(index, epoch), epoch)
            self._epochs.pop(key, None)
            self._epochs[key] = told
        self._ids[cluster, topic.name] = topic.topic_id
        _shorten(self._epochs)
        _shorten(self._ids)


def _shorten(known: dict[Any, Any]) -> None:
    if len(known) > _MOST_TOPICS:
        del known[next(iter(known))]


#: What all connections of this process share. A clone of a cluster has the same ids.
LAST_SEEN_EPOCHS = LastSeenEpochs()


@dataclass(slots=True)
class FreshnessCheck:
    """
    Takes the answers of one broker after another, until there is one to believe of each topic.

    ``names`` were asked for, None for all topics; of those only the ``chosen`` ones are looked at.
    The ``expected`` ones were there before, and others with ``at_least`` so many partitions.
    ``cluster`` is whatever tells it from others.
    """

    cluster: Hashable
    requested: Collection[str] | None
    seen: LastSeenEpochs = field(default_factory=lambda: LAST_SEEN_EPOCHS)
    expected_topics: Collection[str] = ()
    min_partitions: Mapping[str, int] = field(default_factory=dict)
    is_relevant: Callable[[str], object] = lambda _: True
    answers: int = field(init=False, default=0)
    _best: MetadataResponse | None = field(init=False, default=None)
    _found: dict[str, TopicMetadata] = field(init=False, default_factory=dict)
    #: Other topics of a known name, or such with fewer partitions, until other brokers say so, too.
    _changed: dict[str, TopicMetadata] = field(init=False, default_factory=dict)
    _older: dict[str, str] = field(init=False, default_factory=dict)
    #: How many brokers told the same other topic of a known name.
    _agreed: Counter[str] = field(init=False, default_factory=Counter)

    def add(self, address: Address, answer: MetadataResponse) -> bool:
        """
        Take an answer, and return whether it is to be believed.
        """
        self.answers += 1
        is_fresh = True
        for topic in answer.topics:
            if topic.name is None or not self.is_relevant(topic.name):
                continue
            is_fresh = self._add(topic.name, topic, address) and is_fresh
        if self._best is None or is_fresh:
            self._best = answer
        return is_fresh

    @property
    def is_settled(self) -> bool:
        """
        Whether no further broker need be asked.
        """
        if self._stale:
            return False
        return self.answers >= MIN_CONFIRMATIONS or not self._unconfirmed

    def stale_reason(self) -> str | None:
        """
        Return what is wrong with all answers there are, or None where they can be believed.
        """
        return next((self._older[name] for name in self._stale), None)

    def result(self) -> MetadataResponse:
        """
        Return what is to be believed; topics that do not exist are not in it.
        """
        if self._best is None:
            msg = "no broker was asked"
            raise RuntimeError(msg)
        found = {**self._changed, **self._found}
        for topic in found.values():
            self.seen.record(self.cluster, topic)
        return self._best._replace(topics=list(found.values()))

    def _add(self, name: str, topic: TopicMetadata, address: Address) -> bool:
        if topic.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return True
        older = self.seen.staleness(self.cluster, topic)
        if older is not None:
            self._older[name] = f"{address}: {older}"
            return False
        known = self.seen.topic_id(self.cluster, name)
        is_other = topic.topic_id is not None and known not in {None, topic.topic_id}
        is_smaller = len(topic.partitions) < self.min_partitions.get(name, 0)
        if is_other or is_smaller:
            told = self._changed.setdefault(name, topic)
            if is_other and told.topic_id == topic.topic_id:
                self._agreed[name] += 1
        else:
            self._found.setdefault(name, topic)
        return True

    @property
    def _stale(self) -> list[str]:
        """
        The topics of which only older metadata was told, and not another topic by several brokers.
        """
        return [
            name
            for name in self._older
            if name not in self._found and self._agreed[name] < _AGREEING
        ]

    @property
    def _unconfirmed(self) -> set[str]:
        """
        The topics of which one broker alone says that they are gone, or others now.
        """
        wanted = {*(self.requested or ()), *self.expected_topics, *self._changed}
        return wanted - self._found.keys()
