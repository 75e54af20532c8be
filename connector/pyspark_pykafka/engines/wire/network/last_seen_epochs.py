"""
The newest metadata that this process has seen of each topic, so that it recognises older metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable
    from uuid import UUID

    from pyspark_pykafka.engines.wire.protocol.metadata import TopicMetadata

K = TypeVar("K")
V = TypeVar("V")

# The most topics that are remembered; a process reads far fewer.
_MAX_TOPICS = 10_000


class LastSeenEpochs:
    """
    The highest leader epoch seen for each partition, by the topic's id (KIP-320, KIP-516).

    No epochs are remembered for brokers before 2.8, which have no topic ids: the epochs of a
    recreated topic start again there. Threads may share it; a lost update is repeated later.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[Hashable, UUID], dict[int, int]] = {}
        self._ids: dict[tuple[Hashable, str], UUID] = {}
        self._confirmed: dict[tuple[Hashable, UUID], None] = {}

    def topic_id(self, cluster: Hashable, name: str) -> UUID | None:
        """
        Return the topic id that was last seen for a name.
        """
        return self._ids.get((cluster, name))

    def is_confirmed(self, cluster: Hashable, topic: TopicMetadata) -> bool:
        """
        Return whether a topic has been confirmed; true for brokers before 2.1, without epochs.

        A topic of brokers from 2.1 to 2.7 is never confirmed: since no epochs are remembered for
        it, later metadata of one broker alone could be stale.
        """
        if topic.error_code:
            return False
        if topic.topic_id is None:
            return all(partition.leader_epoch < 0 for partition in topic.partitions)
        return (cluster, topic.topic_id) in self._confirmed

    def confirm(self, cluster: Hashable, topic: TopicMetadata) -> None:
        """
        Record that a second broker has described a topic with an id.
        """
        if not topic.error_code and topic.topic_id is not None:
            self._confirmed[cluster, topic.topic_id] = None
            _evict_oldest(self._confirmed)

    def staleness(self, cluster: Hashable, topic: TopicMetadata) -> str | None:
        """
        Return why metadata is older than the metadata seen before, or None if it is not.
        """
        if topic.error_code or topic.topic_id is None:
            return None
        seen = self._epochs.get((cluster, topic.topic_id), {})
        epochs = {index: epoch for index, _, epoch in topic.partitions}
        if epochs == seen:
            return None
        for index, epoch in seen.items():
            if index not in epochs:
                return f"it does not have the partition {topic.name}-{index}"
            if 0 <= epochs[index] < epoch:
                return f"it has leader epoch {epochs[index]} for {topic.name}-{index}, not {epoch}"
        return None

    def record(self, cluster: Hashable, topic: TopicMetadata) -> None:
        """
        Record the leader epochs and the id of a topic.
        """
        if topic.error_code or topic.topic_id is None or topic.name is None:
            return
        epochs = {index: epoch for index, _, epoch in topic.partitions}
        key = (cluster, topic.topic_id)
        seen = self._epochs.get(key)
        if epochs != seen:
            for index, epoch in (seen or {}).items():
                epochs[index] = max(epochs.get(index, epoch), epoch)
            self._epochs.pop(key, None)
            self._epochs[key] = epochs
        self._ids[cluster, topic.name] = topic.topic_id
        _evict_oldest(self._epochs)
        _evict_oldest(self._ids)


def _evict_oldest(entries: dict[K, V]) -> None:
    if len(entries) > _MAX_TOPICS:
        del entries[next(iter(entries))]


#: Shared by all connections of this process.
LAST_SEEN_EPOCHS = LastSeenEpochs()
