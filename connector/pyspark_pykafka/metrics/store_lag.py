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
    from collections.abc import Callable, Iterable

    from pyspark_pykafka.metrics.unread_records import FirstRecord
    from pyspark_pykafka.offsets import Assignment, Offsets, TopicPartition
    from pyspark_pykafka.progress.record import Record
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
    Reads the first record of a range: :class:`UnreadRecords`.
    """

    def first(self, unread: OffsetRange) -> FirstRecord | None:
        """
        Return the record; None if there is none.
        """


@dataclass(slots=True)
class _Log:
    """
    What is known of a partition's log, until its topic is recreated or the log is truncated.

    ``first`` is the first unread record that was read last.
    """

    topic_id: str | None
    end: int = 0
    position: int | None = None
    first: FirstRecord | None = None
    history: EndOffsetHistory = field(default_factory=EndOffsetHistory)


class LagReader:
    """
    Reads the lag by the records of one store, repeatedly.

    The first unread record of a partition is read if it is not known when it arrived: at the first
    call, while the query reads records older than that call, and while the query stands still.
    Otherwise its arrival is derived from the end offsets of the calls, without a request: a query
    that follows the log costs as few requests as one that has read everything.
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

        Errors of the brokers are raised, but a missing permission to read records only leaves out
        the seconds, with a warning.
        """
        # Requested after the records were read: no recorded offset is beyond its log's end.
        existing = self._lookup.existing({tp.topic for tp in records})
        ends = self._lookup.end_offsets(existing.partitions)
        log_starts = self._lookup.log_start_offsets([tp for tp in sorted(ends) if tp in records])
        now = self._now()
        self._logs = {
            tp: self._log(tp, existing.topic_ids.get(tp.topic), ends[tp]) for tp in log_starts
        }
        return [
            self._lag(tp, end, records.get(tp), log_starts.get(tp), now)
            for tp, end in sorted(ends.items())
        ]

    def _log(self, tp: TopicPartition, topic_id: str | None, end: int) -> _Log:
        log = self._logs.get(tp)
        if log is None or log.topic_id != topic_id or end < log.end:
            log = _Log(topic_id)
        log.end = end
        return log

    def _lag(
        self,
        tp: TopicPartition,
        end: int,
        record: Record | None,
        log_start: int | None,
        now: float,
    ) -> PartitionLag:
        if record is None or log_start is None:
            return PartitionLag(*tp, None if record is None else record.offset, end, None, None)
        log = self._logs[tp]
        position = position_in_log(record, log.topic_id, log_start)
        unread = OffsetRange(tp, max(position, log_start), end)
        lag = lag_in_offsets(position, end)
        return PartitionLag(*tp, record.offset, end, lag, self._seconds(log, unread, now))

    def _seconds(self, log: _Log, unread: OffsetRange, now: float) -> float | None:
        log.history.observe(unread.end, now)
        log.history.forget_before(unread.start)
        has_moved = log.position not in {None, unread.start}
        log.position = unread.start
        if unread.size <= 0:
            return 0.0
        if has_moved and not log.history.needs_date(unread.start):
            arrival = log.history.arrival(unread.start)
            return None if arrival is None else max(now - arrival, 0.0)
        if log.first is None or log.first.offset < unread.start:
            log.first = self._first(unread)
        if self._unread is None:
            return None
        if log.first is None:
            # Only gaps are left: control records, or records that compaction has removed.
            return 0.0
        return None if log.first.seconds is None else max(now - log.first.seconds, 0.0)

    def _first(self, unread: OffsetRange) -> FirstRecord | None:
        if self._unread is None:
            return None
        try:
            return self._unread.first(unread)
        except AuthorizationError as error:
            logger.warning("The lag is shown without seconds: %s", error)
            self._unread = None
            return None
