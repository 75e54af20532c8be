"""
The state of a log's producers: sequences, epochs and transactions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.kafka.codes import Code, RequestError

if TYPE_CHECKING:
    from tests.simulation.kafka.batches import StoredBatch

#: How many batches of a producer a broker remembers, to recognise their duplicates.
REMEMBERED_BATCHES = 5
_MAX_SEQUENCE = 2**31 - 1
_NO_EPOCH = -1


@dataclass
class ProducerEntry:
    """
    The last batches of one producer, and the first offset of its open transaction.
    """

    epoch: int = _NO_EPOCH
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    open_since: int | None = None
    #: The epoch in the last marker: a coordinator that was replaced may still send markers.
    coordinator_epoch: int = -1


class EndedTransaction(NamedTuple):
    """
    A transaction in one log: its first offset, and the offset of its marker.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


@dataclass
class ProducerStates:
    """
    The producers of one log, derived from its batches in order.
    """

    entries: dict[int, ProducerEntry] = field(default_factory=dict)
    ended: list[EndedTransaction] = field(default_factory=list)

    def duplicate_of(self, batch: StoredBatch) -> StoredBatch | None:
        """
        Return the batch in the log that ``batch`` repeats, or None if it repeats none.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        sequences = (batch.base_sequence, batch.last_sequence)
        duplicates = (b for b in entry.batches if (b.base_sequence, b.last_sequence) == sequences)
        return next(duplicates, None)

    def check(self, batch: StoredBatch) -> None:
        """
        Raise :class:`RequestError` if the batch does not follow its producer's last one.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch == _NO_EPOCH:
            return
        if batch.producer_epoch < entry.epoch:
            raise RequestError(Code.INVALID_PRODUCER_EPOCH)
        last = -1
        if batch.producer_epoch == entry.epoch and entry.batches:
            last = entry.batches[-1].last_sequence
        expected = 0 if last == _MAX_SEQUENCE else last + 1
        if batch.base_sequence != expected:
            raise RequestError(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{batch.base_sequence} instead of {expected}"
            )

    def is_open(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.open_since is not None and entry.epoch == epoch

    def append(self, batch: StoredBatch) -> None:
        if batch.producer_id < 0:
            return
        entry = self.entries.setdefault(batch.producer_id, ProducerEntry())
        if batch.producer_epoch != entry.epoch:
            entry.epoch = batch.producer_epoch
            entry.batches.clear()
        if batch.control:
            entry.coordinator_epoch = batch.coordinator_epoch
            self._end(entry, batch)
            return
        entry.batches.append(batch)
        if batch.transactional and entry.open_since is None:
            entry.open_since = batch.base_offset

    def _end(self, entry: ProducerEntry, marker: StoredBatch) -> None:
        if entry.open_since is not None:
            ended = EndedTransaction(
                marker.producer_id, entry.open_since, marker.base_offset, not marker.commits
            )
            self.ended.append(ended)
            entry.open_since = None

    def first_unstable(self, high_watermark: int) -> int | None:
        """
        Return the first offset of the first transaction that is open, or whose marker is not below
        the high watermark; None if there is no such transaction.
        """
        first_offsets = [
            entry.open_since for entry in self.entries.values() if entry.open_since is not None
        ]
        # In the order of their markers.
        for ended in reversed(self.ended):
            if ended.marker_offset < high_watermark:
                break
            first_offsets.append(ended.first_offset)
        return min(first_offsets, default=None)

    def aborted(self, start: int, end: int) -> list[EndedTransaction]:
        """
        Return the aborted transactions of a fetch of these offsets.
        """
        return [
            ended
            for ended in self.ended
            if ended.aborted and ended.marker_offset >= start and ended.first_offset < end
        ]
