"""
The end offsets of a stream's partitions, bounded by the end that its options set.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.engines.log_truncation import partitions_with_older_epochs
from pyspark_pykafka.errors import BrokerUnavailableError, OffsetsError
from pyspark_pykafka.offsets import (
    LATEST,
    NO_EPOCH,
    Assignment,
    LogEnds,
    Offsets,
    StreamOffset,
    TopicPartition,
    format_partitions,
)
from pyspark_pykafka.options import Latest, SpecificOffsets, SpecificTimestamps
from pyspark_pykafka.source.data_loss import OffsetLookup
from pyspark_pykafka.source.offset_limits import end_times, resolve_end, with_names
from pyspark_pykafka.source.planner import partitions_behind_start
from pyspark_pykafka.source.subscription import selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_pykafka.options import OffsetLimit, SourceOptions, Strategy

logger = logging.getLogger("pyspark_pykafka")


class PartitionLookup(OffsetLookup, Protocol):
    """
    An :class:`OffsetLookup` that also knows which partitions exist: :class:`MetadataClient`.
    """

    def assignment(self, strategy: Strategy) -> Assignment:
        """
        Return the existing partitions that a strategy selects.
        """

    def log_ends(self, tps: Iterable[TopicPartition]) -> LogEnds:
        """
        Return the offsets that ``end_offsets`` returns, with the leader epochs of the partitions.
        """


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """
    Reads the end offsets of all partitions that the options select.
    """

    options: SourceOptions
    lookup: PartitionLookup
    sleep: Callable[[float], None] = time.sleep
    _waiting: dict[TopicPartition, int] = field(default_factory=dict)

    def latest(self, start: StreamOffset) -> StreamOffset:
        """
        Return the latest offsets; retry if some are older than known ones (KAFKA-7703).

        Missing partitions and recreated topics are retried as well, and accepted only after the
        last attempt. A partition whose start lies beyond its last stable offset ends at the start,
        or at its high watermark if that is lower.
        """
        policy = self.options.fetch_offset_retry
        for _ in range(policy.attempts - 1):
            try:
                return self._latest_beyond(start)
            except (_StaleOffsetsError, _StaleEpochError):
                # The metadata client has already retried all other errors.
                self.sleep(policy.interval_seconds)
        try:
            return self._latest_beyond(start)
        except _StaleOffsetsError as stale:
            return stale.latest

    def confirm(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """
        Return the given latest offsets; if some are older than known ones, request them again.
        """
        try:
            self._require_newer(start, end)
        except (_StaleOffsetsError, _StaleEpochError):
            return self.latest(start)
        return end

    def _latest_beyond(self, start: StreamOffset) -> StreamOffset:
        assigned = self.lookup.assignment(self.options.strategy)
        offsets, epochs = self.lookup.log_ends(assigned.partitions)
        latest = StreamOffset(offsets, assigned.topic_ids, epochs=epochs)
        latest = self._with_uncommitted(start, latest)
        self._require_newer(start, latest)
        return latest

    def _with_uncommitted(self, start: StreamOffset, latest: StreamOffset) -> StreamOffset:
        """
        Return the latest offsets; an offset before the start is replaced by the start, or by the
        high watermark if that is lower.

        With ``read_committed``, the start of a batch can lie beyond the last stable offset if the
        query used ``read_uncommitted`` before, or if the user took its starting offsets from a
        reader with ``read_uncommitted``.
        """
        # Invariant R9 (last stable offset).
        if self.options.isolation_level == "read_uncommitted":
            return latest
        older = partitions_behind_start(start, latest)
        offsets, epochs = self.lookup.high_watermarks(sorted(older))
        ends = {
            tp: max(min(start.offsets[tp], end), latest.offsets[tp])
            for tp, end in offsets.items()
            # An older leader epoch than that of the latest offsets means stale metadata.
            if epochs.get(tp, NO_EPOCH) >= latest.epochs.get(tp, NO_EPOCH)
        }
        self._log_waiting({tp: latest.offsets[tp] for tp in older}, ends)
        changed_epochs = {tp: epochs[tp] for tp in ends if tp in epochs}
        return replace(
            latest,
            offsets={**latest.offsets, **ends},
            epochs={**latest.epochs, **changed_epochs},
        )

    def _log_waiting(self, stable: Offsets, positions: Offsets) -> None:
        """
        Log each wait for a transaction once.
        """
        waiting = {tp: stable[tp] for tp in positions}
        new = {tp: end for tp, end in waiting.items() if self._waiting.get(tp) != end}
        self._waiting.clear()
        self._waiting.update(waiting)
        if new:
            tp = min(new)
            logger.warning(
                "%s: the position lies beyond the last stable offset; %s waits at offset %d for "
                "the end of a transaction that has been open since offset %d or earlier",
                *(format_partitions(new), tp, positions[tp], new[tp]),
            )

    def _require_newer(self, start: StreamOffset, latest: StreamOffset) -> None:
        """
        Raise an error if some latest offsets are older than known ones.
        """
        stale = partitions_with_older_epochs(start, latest)
        if stale:
            raise _stale_epoch_error(stale, start, latest)
        if partitions_behind_start(start, latest):
            raise _StaleOffsetsError(latest)
        recreated = latest.recreated_topics(start)
        is_selected = selector(self.options.strategy)
        for tp in start.offsets:
            # The broker may have stale metadata: the next attempt goes to another one.
            is_missing = tp not in latest.offsets and is_selected(tp)
            if is_missing or tp.topic in recreated:
                raise _StaleOffsetsError(latest)

    def limit_to_options(
        self, start: StreamOffset, latest: StreamOffset, *, is_new: bool = False
    ) -> StreamOffset:
        """
        Return the latest offsets up to the end that the options set for the stream.

        The returned ``end_times`` are the times that a batch up to these offsets reaches. Raises
        :class:`OffsetsError` if the options set no end for a partition of the start. If the query
        ``is_new``, it is also an error if the options name a partition that does not exist. In an
        older query the partition may have been deleted.
        """
        limit = self.options.ending_offsets
        if isinstance(limit, Latest):
            return latest
        limit = _without_deleted(limit, start, latest, is_new=is_new)
        tps = sorted(latest.offsets)
        if isinstance(limit, SpecificOffsets | SpecificTimestamps):
            # The options set no end for partitions added later, so these are not read.
            named = _named(limit)
            tps = [tp for tp in tps if tp in named or tp.topic in named or tp in start.offsets]
        resolved = resolve_end(limit, tps, self.lookup, latest.offsets)
        ends = {
            tp: latest.offsets[tp] if end == LATEST else min(latest.offsets[tp], end)
            for tp, end in resolved.items()
        }
        floors = _floors(start, latest)
        ends = {tp: max(end, floors.get(tp, end)) for tp, end in ends.items()}
        # Invariant R22 (final ends).
        times = end_times(limit, ends)
        reached = _reached_end_times(start, floors)
        final = {tp: floors[tp] for tp, time in times.items() if reached.get(tp, -1) >= time}
        # An end before the log's end is the offset of a record at or after the time.
        newly_reached = {
            tp: time
            for tp, time in times.items()
            if tp not in final and resolved[tp] < latest.offsets[tp]
        }
        return replace(latest, offsets={**ends, **final}, end_times={**reached, **newly_reached})

    def check_end_exists(self, end: StreamOffset) -> None:
        """
        Raise :class:`OffsetsError` if the fixed end of an availableNow run no longer exists.

        As in the JVM connector this ignores failOnDataLoss: the run could never reach its end.
        """
        latest = self.lookup.end_offsets(sorted(end.offsets))
        lost = end.offsets.keys() - latest.keys()
        if lost:
            msg = (
                "partitions of the run's end offsets no longer exist: "
                f"{format_partitions(lost)}; the latest offsets are {_text(latest)}, the end "
                f"offsets are {_text(end.offsets)}. Start the query again"
            )
            raise OffsetsError("LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW", msg)
        latest |= self._high_watermarks_of(partitions_behind_start(end, StreamOffset(latest)))
        beyond = [tp for tp, offset in end.offsets.items() if offset > latest[tp]]
        if beyond:
            msg = (
                f"{format_partitions(beyond)}: the latest offset is less than the end offset that "
                f"was fixed when the run began; the latest offsets are {_text(latest)}, the end "
                f"offsets are {_text(end.offsets)}. Was the topic deleted and recreated? Start the "
                "query again"
            )
            raise OffsetsError(
                "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_"
                "TRIGGER_AVAILABLENOW",
                msg,
            )

    def _high_watermarks_of(self, tps: Iterable[TopicPartition]) -> Offsets:
        if self.options.isolation_level == "read_uncommitted":
            return {}
        return self.lookup.high_watermarks(sorted(tps)).offsets


def _floors(start: StreamOffset, latest: StreamOffset) -> Offsets:
    """
    Return the lowest end offset that a batch may have in each partition: the query's start offset.

    So an end option before the start does not move the query back. The floor is lower only if the
    log ends before the start, and there is none if the topic was recreated.
    """
    recreated = latest.recreated_topics(start)
    return {
        tp: min(offset, latest.offsets[tp])
        for tp, offset in start.offsets.items()
        if tp in latest.offsets and tp.topic not in recreated
    }


def _reached_end_times(start: StreamOffset, floors: Offsets) -> Mapping[TopicPartition, int]:
    """
    Return the end times that the query has reached, without partitions whose log ends before the
    query's position.
    """
    positions = start.offsets
    times = start.end_times.items()
    return {tp: time for tp, time in times if tp in floors and floors[tp] == positions[tp]}


class _StaleOffsetsError(BrokerUnavailableError):
    """
    The brokers returned older offsets than before; ``latest`` has the last response.
    """

    def __init__(self, latest: StreamOffset) -> None:
        self.latest = latest
        super().__init__("the latest offsets are older than known ones")


class _StaleEpochError(BrokerUnavailableError):
    """
    A broker returned an older leader epoch than another broker had returned before.
    """


def _stale_epoch_error(
    tps: list[TopicPartition], start: StreamOffset, latest: StreamOffset
) -> _StaleEpochError:
    tp = min(tps)
    msg = (
        f"{format_partitions(tps)}: a broker with stale metadata returned the latest offsets; the "
        f"leader epoch of {tp} was {start.epochs[tp]}, and is {latest.epochs[tp]} there. Is that "
        "broker cut off from the controllers?"
    )
    return _StaleEpochError(msg)


def _named(limit: SpecificOffsets | SpecificTimestamps) -> set[TopicPartition | str]:
    if isinstance(limit, SpecificTimestamps):
        return {tp for tp, _ in limit.timestamps}
    return {*dict(limit.offsets), *dict(limit.topics)}


def _without_deleted(
    limit: OffsetLimit, start: StreamOffset, latest: StreamOffset, *, is_new: bool
) -> OffsetLimit:
    """
    Return the limit without the topics and partitions that no longer exist.

    For a new query, only those that were in its start are left out: any other is a mistake in the
    options, which must be reported.
    """
    existing, started = _names(latest.offsets), _names(start.offsets)
    return with_names(limit, lambda name: name in existing or (is_new and name not in started))


def _names(tps: Iterable[TopicPartition]) -> set[TopicPartition | str]:
    partitions = set(tps)
    return {*partitions, *(tp.topic for tp in partitions)}


def _text(offsets: Offsets) -> str:
    pairs = ", ".join(f"{tp}: {offset}" for tp, offset in sorted(offsets.items())[:20])
    return f"{{{pairs}{', ...' if len(offsets) > 20 else ''}}}"
