"""
The log of one replica: batches, leader epochs, retention, compaction and truncation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.kafka.producer_state import ProducerStates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.kafka.batches import StoredBatch, StoredRecord

UNDEFINED = (-1, -1)

_base_offset, _last_offset = attrgetter("base_offset"), attrgetter("last_offset")


class EpochStart(NamedTuple):
    """
    The first offset of a leader epoch.
    """

    epoch: int
    offset: int


@dataclass
class ReplicaLog:
    """
    ``appended`` holds every batch since the log's creation, ``batches`` those that can be read.

    Producers' states outlive the records that retention or compaction has removed, as in Kafka.
    """

    start: int = 0
    appended: list[StoredBatch] = field(default_factory=list)
    batches: list[StoredBatch] = field(default_factory=list)
    epochs: list[EpochStart] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    end: int = 0

    def append(self, batch: StoredBatch) -> None:
        """
        Append a batch that has its offset and epoch.
        """
        assert batch.base_offset == self.end
        self.assign_epoch(batch.leader_epoch, batch.base_offset)
        self.appended.append(batch)
        self.batches.append(batch)
        self.producers.append(batch)
        self.end = batch.next_offset

    def assign_epoch(self, epoch: int, offset: int) -> None:
        """
        Record that an epoch starts here, unless it is known.
        """
        if not self.epochs or self.epochs[-1].epoch < epoch:
            self.epochs = [start for start in self.epochs if start.offset < offset]
            self.epochs.append(EpochStart(epoch, offset))

    def read_from(self, offset: int, limit: int) -> Iterator[StoredBatch]:
        """
        Yield the batches that end before ``limit``, starting with the one that contains ``offset``.
        """
        index = bisect_left(self.batches, offset, key=_last_offset)
        for batch in self.batches[index:]:
            if batch.last_offset >= limit:
                return
            yield batch

    def appended_from(self, offset: int) -> list[StoredBatch]:
        """
        Return the batches from an offset on, for a follower.
        """
        if offset >= self.end:
            return []
        index = bisect_left(self.appended, offset, key=_base_offset)
        return self.appended[index:]

    def contains(self, batch: StoredBatch) -> bool:
        """
        Return whether this log has had this batch, appended by the same leader.
        """
        index = bisect_left(self.appended, batch.base_offset, key=_base_offset)
        return index < len(self.appended) and (
            self.appended[index].base_offset == batch.base_offset
            and self.appended[index].leader_epoch == batch.leader_epoch
        )

    def truncate_to(self, end: int) -> None:
        """
        Remove the batches from an offset on, and rebuild the producers' states without them.
        """
        if end >= self.end:
            return
        self.appended = [batch for batch in self.appended if batch.next_offset <= end]
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.epochs = [epoch for epoch in self.epochs if epoch.offset < end]
        self.end = self.appended[-1].next_offset if self.appended else 0
        self.start = min(self.start, self.end)
        self.producers = ProducerStates()
        for batch in self.appended:
            self.producers.append(batch)

    def delete_before(self, offset: int) -> None:
        """
        Raise the log start offset, as retention and DeleteRecords do.
        """
        if offset <= self.start:
            return
        self.start = offset
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]
        index = max(bisect_right(self.epochs, offset, key=lambda epoch: epoch.offset) - 1, 0)
        self.epochs = [
            EpochStart(epoch_start.epoch, max(epoch_start.offset, offset))
            for epoch_start in self.epochs[index:]
        ]

    def compact(self, limit: int) -> None:
        """
        Keep the last record of each key below ``limit``, all markers, and the headers of empty
        batches.

        Records of open transactions are above the last stable offset, the cleaner's ``limit``.
        """
        aborted = self._aborted_offsets()
        last: dict[bytes | None, int] = {}
        for batch in self.read_from(self.start, limit):
            if not batch.control:
                last.update({r.key: r.offset for r in batch.records() if r.offset not in aborted})
        latest_offsets = set(last.values())
        self.batches = [
            batch
            if batch.control or batch.last_offset >= limit
            else batch.retaining({r.offset for r in batch.records() if r.offset in latest_offsets})
            for batch in self.batches
        ]

    def _aborted_offsets(self) -> set[int]:
        return {
            offset
            for batch in self.batches
            if self.is_aborted(batch)
            for offset in range(batch.base_offset, batch.next_offset)
        }

    def is_aborted(self, batch: StoredBatch) -> bool:
        return batch.transactional and any(
            ended.aborted
            and ended.producer_id == batch.producer_id
            and ended.first_offset <= batch.base_offset < ended.marker_offset
            for ended in self.producers.ended
        )

    def is_open(self, batch: StoredBatch) -> bool:
        entry = self.producers.entries.get(batch.producer_id)
        return (
            batch.transactional
            and entry is not None
            and entry.open_since is not None
            and batch.base_offset >= entry.open_since
        )

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """
        Return the largest epoch up to ``epoch`` and its end offset (Kafka's LeaderEpochFileCache).
        """
        if not self.epochs or epoch < 0 or epoch > self.epochs[-1].epoch:
            return UNDEFINED
        if epoch == self.epochs[-1].epoch:
            return epoch, self.end
        higher = next(start for start in self.epochs if start.epoch > epoch)
        lower = [start.epoch for start in self.epochs if start.epoch <= epoch]
        return (lower[-1] if lower else epoch), higher.offset

    def epoch_at(self, offset: int) -> int:
        """
        Return the epoch of an offset, -1 if none is known.
        """
        index = bisect_right(self.epochs, offset, key=lambda epoch: epoch.offset) - 1
        return self.epochs[index].epoch if index >= 0 else -1

    def find_time(self, timestamp: int) -> StoredRecord | None:
        """
        Return the first record whose timestamp is not before this one, or None.
        """
        for batch in self.batches:
            if batch.max_timestamp >= timestamp and not batch.control:
                for record in batch.records():
                    if record.offset >= self.start and record.timestamp >= timestamp:
                        return record
        return None

    def newest(self, limit: int) -> StoredRecord | None:
        """
        Return the record before ``limit`` with the highest timestamp, the first of equal ones
        (KIP-734), or None.
        """
        records = [
            record
            for batch in self.read_from(self.start, limit)
            if not batch.control
            for record in batch.records()
        ]
        return max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
