"""
The partition leaders that the records in ZooKeeper contain, for human readers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_pykafka.offsets import TopicPartition

    #: Returns the leader (host, port) of each given partition.
    Leaders = Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, tuple[str, int]]]


_LEADERS_MAX_AGE_SECONDS = 60.0


class LeaderCache:
    """
    Caches partition leaders for a minute.
    """

    def __init__(self, fetch: Leaders, now: Callable[[], float]) -> None:
        self._fetch = fetch
        self._now = now
        self._known: dict[TopicPartition, tuple[str, int]] = {}
        self._expiry = Deadline.after(0.0, now)

    def get(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, tuple[str, int]]:
        """
        Return the leaders of these partitions, requested again after a minute.
        """
        requested = set(tps)
        if self._expiry.expired or not requested <= self._known.keys():
            self._known.update(self._fetch(requested))
            self._expiry = Deadline.after(_LEADERS_MAX_AGE_SECONDS, self._now)
        return self._known
