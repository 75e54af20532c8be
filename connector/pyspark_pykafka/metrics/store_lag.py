"""
The lag of a query by its progress store, in offsets and in seconds.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_pykafka.errors import AuthorizationError
from pyspark_pykafka.metrics.end_offset_history import EndOffsetHistory
from pyspark_pykafka.metrics.lag import lag_in_offsets
from pyspark_pykafka.offsets import OffsetRange
from pyspark_pykafka.progress.store import position_in_log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark_pykafka.metrics.unread_records import FirstRecord
    from pyspark_pykafka.offsets import Assignment, Offsets, TopicPartition
    from pyspark_pykafka.progress.store import Records

logger = logging.getLogger("pyspark_pykafka")


class PartitionLag(NamedTuple):
    """
    The lag of a partition. Values that are not recorded or not known are None.

    ``lag`` counts from the recorded ``offset``, or from the log's start if the topic was deleted
    and recreated since; it is not negative. ``seconds`` is the age of the first record that the
    query has not read.
    """

    topic: str
    partition: int
    offset: int | None
    end: int
    lag: int | None
    seconds: float | None


class LogLookup(Protocol):
    """
    Which partitions exist, and where their logs begin and end: :class:`MetadataClient`.
    """

    def existing(self, topics: Iterable[str]) -> Assignment:
        """
        Return the partitions and ids of the topics, without topics that do not exist.
        """

    def log_start_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the log start offset of each partition.
        """

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Offsets:
        """
        Return the end offset of each partition.
        """


class RecordReader(Protocol):
    """
    Reads the first records of ranges: :class:`UnreadRecords`.
    """

    def first(self, unread: Collection[OffsetRange]) -> Mapping[OffsetRange, FirstRecord]:
        """
        Return the first record of each range that has one.
        """


@dataclass(slots=True)
class _Log:
    """
    What is known of a partition's log, until its topic is recreated or the log is truncated.

    ``first`` is the result of the last read of the first unread record.
    """

    topic_id: str | None
    end: int = 0
    position: int | None = None
    first: FirstRecord | None = None
    history: EndOffsetHistory = field(default_factory=EndOffsetHistory)
    #: Whether the arrival of the first unread record is derived from the history.
    uses_history: bool = False

    def observe(self, unread: OffsetRange, now: float) -> bool:
        """
        Record what is unread now; return whether the first unread record must be read.
        """
        self.history.observe(unread.end, now)
        self.history.forget_before(unread.start)
        has_moved = self.position not in {None, unread.start}
        self.position = unread.start
        self.uses_history = has_moved and not self.history.needs_arrival(unread.start)
        is_known = self.first is not None and self.first.offset >= unread.start
        return unread.size > 0 and not self.uses_history and not is_known


class LagReader:
    """
    Computes the lag from the records of one store, at each call of :meth:`read`.

    The first unread record of a partition is read only if its arrival is unknown: at the first
    call, while the query reads records older than that call, and while the query makes no progress.
    Otherwise the arrival is derived from the end offsets of earlier calls, without a request. So a
    query that follows the log costs as few requests as one that has read everything.
    """

    def __init__(
        self, lookup: LogLookup, unread: RecordReader, now: Callable[[], float] = time.time
    ) -> None:
        self._lookup = lookup
        self._unread: RecordReader | None = unread
        self._now = now
        self._logs: dict[TopicPartition, _Log] = {}

    def read(self, records: Records) -> list[PartitionLag]:
        """
        Return the lag of each partition of the topics in the records, in order.

        Without the permission to read records the seconds are left out, with a warning. All other
        errors of the brokers are raised.
        """
        # Requested after the records were read: no recorded offset is beyond its log's end.
        existing = self._lookup.existing({tp.topic for tp in records})
        ends = self._lookup.end_offsets(existing.partitions)
        log_starts = self._lookup.log_start_offsets([tp for tp in sorted(ends) if tp in records])
        now = self._now()
        self._logs = {
            tp: self._log(tp, existing.topic_ids.get(tp.topic), ends[tp]) for tp in log_starts
        }
        positions = {
            tp: position_in_log(records[tp], log.topic_id, log_starts[tp])
            for tp, log in self._logs.items()
        }
        unread = {
            tp: OffsetRange(tp, max(position, log_starts[tp]), ends[tp])
            for tp, position in positions.items()
        }
        self._read_first({tp: r for tp, r in unread.items() if self._logs[tp].observe(r, now)})
        return [
            PartitionLag(
                *tp,
                records[tp].offset if tp in records else None,
                end,
                lag_in_offsets(positions[tp], end) if tp in positions else None,
                self._seconds(self._logs[tp], unread[tp], now) if tp in unread else None,
            )
            for tp, end in sorted(ends.items())
        ]

    def _log(self, tp: TopicPartition, topic_id: str | None, end: int) -> _Log:
        log = self._logs.get(tp)
        if log is None or log.topic_id != topic_id or end < log.end:
            log = _Log(topic_id)
        log.end = end
        return log

    def _read_first(self, unread: Mapping[TopicPartition, OffsetRange]) -> None:
        """
        Read the first unread records of these partitions, all of them at once.
        """
        if self._unread is None or not unread:
            return
        try:
            first = self._unread.first(unread.values())
        except AuthorizationError as error:
            logger.warning("The lag is shown without seconds: %s", error)
            self._unread = None
            return
        for tp, offset_range in unread.items():
            self._logs[tp].first = first.get(offset_range)

    def _seconds(self, log: _Log, unread: OffsetRange, now: float) -> float | None:
        if unread.size <= 0:
            return 0.0
        if log.uses_history:
            arrival = log.history.arrival(unread.start)
            return None if arrival is None else max(now - arrival, 0.0)
        if self._unread is None:
            return None
        if log.first is None:
            # All unread offsets are those of control records, or of records removed by compaction.
            return 0.0
        return None if log.first.seconds is None else max(now - log.first.seconds, 0.0)
