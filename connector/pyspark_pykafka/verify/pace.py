"""
The pace of a run: its longest pause and its maximum lag.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.verify.checker import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from pyspark_pykafka.verify.records import WrittenRecords


class Arrivals:
    """
    Which acknowledged records a consumer has seen, by partition.

    ``waiting`` has the numbers of the records that it has not seen, and ``arrived`` counts the
    others. Each update looks only at records that are new or waiting. ``seen`` holds a partition
    and a number for each record seen; other threads add to ``seen`` and to ``written``.
    """

    def __init__(self, written: WrittenRecords, seen: AbstractSet[tuple[int, int]]) -> None:
        self.waiting: dict[int, set[int]] = {n: set() for n in range(written.partitions)}
        self.arrived: dict[int, int] = dict.fromkeys(self.waiting, 0)
        self._written, self._seen = written, seen
        self._known = dict.fromkeys(self.waiting, 0)

    def update(self) -> None:
        """
        Count the records that were acknowledged or seen since the last update.
        """
        for (_, partition), records in self._written.records.items():
            new = records[self._known[partition] :]
            self._known[partition] += len(new)
            numbers = self.waiting[partition]
            numbers |= {record.offset for record in new if record.state == COMMITTED}
            arrived = {number for number in numbers if (partition, number) in self._seen}
            numbers -= arrived
            self.arrived[partition] += len(arrived)

    @property
    def lag(self) -> int:
        """
        The number of acknowledged records that have not been seen.
        """
        return sum(map(len, self.waiting.values()))


@dataclass
class Pace:
    """
    Samples of the records that have arrived and of those that have not arrived yet.

    ``max_lag`` is in records of all partitions, ``longest_pause`` in seconds. A pause is a period
    in which no record of a partition arrives although some are outstanding. The time until the very
    first record arrives is not counted: Spark is starting then.
    """

    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    max_lag: int = 0
    longest_pause: float = 0.0
    _arrived: dict[int, int] = field(default_factory=dict)
    #: When each partition last had a new record, or had no outstanding record.
    _since: dict[int, float] = field(default_factory=dict)

    def sample(self, arrivals: Arrivals) -> None:
        """
        Add one sample.
        """
        now = self.now()
        self.max_lag = max(self.max_lag, arrivals.lag)
        if not any(arrivals.arrived.values()):
            return
        for partition, arrived in arrivals.arrived.items():
            since = self._since.setdefault(partition, now)
            if arrivals.waiting[partition] and arrived == self._arrived.get(partition, 0):
                self.longest_pause = max(self.longest_pause, now - since)
            else:
                self._arrived[partition], self._since[partition] = arrived, now
