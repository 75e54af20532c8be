"""
The offsets and plans of one streaming query: its start, the end of each micro-batch, its ranges.

Does not import Spark; reads offsets through a protocol (:class:`PartitionLookup`).
"""

from __future__ import annotations

import logging
import reprlib
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.log_truncation import epochs_at
from pyspark_pykafka.errors import OffsetsError, PykafkaError
from pyspark_pykafka.offsets import (
    EARLIEST,
    LATEST,
    Document,
    Offsets,
    QueryIdentity,
    StreamOffset,
    TopicPartition,
    offsets_to_json,
)
from pyspark_pykafka.options import NoStore
from pyspark_pykafka.progress.contract import NO_PROGRESS_RECORDER, ProgressRecorder
from pyspark_pykafka.source.admission import Admission, AdmissionPolicy, BytesPerOffset
from pyspark_pykafka.source.data_loss import DataLossReporter
from pyspark_pykafka.source.end_offsets import EndOffsets, PartitionLookup
from pyspark_pykafka.source.offset_limits import (
    may_start_at_latest,
    resolve_sentinels,
    resolve_start,
)
from pyspark_pykafka.source.planner import (
    SplitPolicy,
    StreamPlan,
    new_partitions,
    plan_stream,
    with_added_partitions,
)
from pyspark_pykafka.source.subscription import selector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_pykafka.options import SourceOptions

#: The key of the lost offsets in the query's progress, beside the latest offsets.
LOST_OFFSETS_KEY = "@lost"
#: The key beside it for the number of data losses by condition.
LOSS_COUNTS_KEY = "@losses"

logger = logging.getLogger("pyspark_pykafka")

_MAX_LOGGED_RANGES = 20


class MicroBatchStream:
    """
    Plans the micro-batches of one streaming query, in one process on the driver.

    The methods are those of Spark's MicroBatchStream; offsets are the JSON documents of Spark's
    checkpoint. Raises the errors of :mod:`pyspark_pykafka.errors`.
    """

    def __init__(
        self,
        options: SourceOptions,
        lookup: PartitionLookup,
        bytes_per_offset: BytesPerOffset,
        progress: ProgressRecorder = NO_PROGRESS_RECORDER,
        *,
        now: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._options = options
        self._lookup = lookup
        self._ends = EndOffsets(options, lookup)
        self._data_loss = DataLossReporter(options, lookup)
        self._progress = progress
        self._new_id = new_id
        self._has_planned_end = False
        self._policy = AdmissionPolicy(
            options.max_offsets_per_trigger,
            options.max_offsets_per_partition_per_trigger,
            options.max_bytes_per_trigger,
            options.min_offsets_per_trigger,
            options.max_trigger_delay_ms / 1000,
        )
        self._admission = Admission(self._policy, bytes_per_offset, now)
        self._split = SplitPolicy(options.min_partitions, options.max_records_per_partition)
        self._initial: StreamOffset | None = None
        #: Why the start of a new query cannot be resolved; a restarted query needs no start.
        self._start_error: PykafkaError | None = None
        self._fixed_end: StreamOffset | None = None
        self._identity: QueryIdentity | None = None
        self._latest: StreamOffset | None = None
        #: Whether a limit ended the last planned batch before the latest offsets.
        self.was_limited = False

    def __repr__(self) -> str:
        offsets = None if self._latest is None else offsets_to_json(self._latest.offsets)
        # Abbreviated, since a query can read thousands of partitions.
        latest = "unknown" if offsets is None else reprlib.repr(offsets)
        fixed = "" if self._fixed_end is None else ", availableNow"
        return f"MicroBatchStream({self._options.strategy}, latest offsets: {latest}{fixed})"

    @property
    def has_limits(self) -> bool:
        """
        Whether the options let a batch end before the latest offsets, or delay it.
        """
        return self._policy.has_limits

    @property
    def has_split_options(self) -> bool:
        """
        Whether the options set how a batch is split over tasks.
        """
        return self._split.splits_ranges

    @property
    def start_follows_latest(self) -> bool:
        """
        Whether the start of a new query can move when it is resolved again later.
        """
        return may_start_at_latest(self._options.starting_offsets)

    def initial_offset(self) -> Document:
        """
        Return the start of a new query; Spark calls this again after a failed first batch.

        A failed first batch has its start in the checkpoint, but the options may no longer match
        the partitions. So an error in the start is raised only if the start is needed.
        """
        if self._initial is None:
            try:
                self._initial = self._resolve_start()
            except PykafkaError as error:
                if error.retriable:
                    raise
                self._initial, self._start_error = StreamOffset({}), error
        return self._initial.to_json()

    def is_initial(self, start: Document) -> bool:
        """
        Whether ``start`` is the start of this process's new query, not an offset of a checkpoint.
        """
        # No batch ends with this document: the end of the first batch also contains its start.
        return self._initial is not None and start == self._initial.to_json()

    def _resolve_start(self) -> StreamOffset:
        fixed = self._fixed_end
        return self._start() if fixed is None else self._start_limited_to(fixed)

    def prepare_for_available_now(self) -> None:
        """
        Fix the end of an availableNow run at the current latest offsets.
        """
        # Invariant R20 (one end).
        self._fixed_end = self._ends.latest(StreamOffset({}))

    def latest_without_start(self) -> Document:
        """
        Return the latest offsets when Spark has not passed the start offset (Spark 4.0 and 4.1).
        """
        self._has_planned_end = True
        start = self._with_identity(StreamOffset({}))
        initial = self._start_if_new()
        # If the query is new, its end must not be before its start.
        self._latest = self._ends.latest(initial or start)
        end = self._ends.limit_to_options(initial or start, self._latest, is_new=True)
        return replace(end, initial=initial, query=_next_batch(start)).to_json()

    def is_end_after(self, start: Document, end: Document) -> bool:
        """
        Whether ``end``, resolved when the start was not known, also ends the batch after ``start``.

        Spark 4.0 and 4.1 do not pass the start offset, so ``end`` may be that of a new query.
        """
        if self._latest is None:
            return True
        current_end = self._ends.limit_to_options(StreamOffset.from_json(start), self._latest)
        return current_end.offsets == StreamOffset.from_json(end).offsets

    def _start_if_new(self) -> StreamOffset | None:
        """
        Return the start that the query has if it is new; None if the start cannot be resolved.
        """
        initial = StreamOffset.from_json(self.initial_offset())
        return initial if self._start_error is None else None

    def latest_offset(self, start: Document, *, limited: bool = True) -> Document:
        """
        Return the end of the micro-batch after ``start``; ``start`` itself if none is due.

        Unless ``limited``, the limits of the options are ignored. Spark compares documents to
        detect new data, so equal offsets must give equal documents.
        """
        start_offset = self._with_identity(StreamOffset.from_json(start))
        is_initial = self.is_initial(start)
        if is_initial:
            self._check_start()
        else:
            self._data_loss.check_topics(start_offset)
            # A failed batch ends this process, so the previous batch has succeeded.
            self._progress.record_completed(start_offset)
        self._latest = self._latest_after(start_offset)
        self._has_planned_end = True
        self._data_loss.check_truncation(start_offset, self._latest)
        self._data_loss.check_positions(start_offset, self._latest)
        latest = self._ends.limit_to_options(start_offset, self._latest, is_new=is_initial)
        ends = self._admit(start_offset, latest) if limited and self.has_limits else latest.offsets
        if ends is None:
            return start
        self.was_limited = ends != latest.offsets
        epochs = epochs_at(ends, start_offset, self._latest)
        end = replace(
            latest,
            offsets=ends,
            query=_next_batch(start_offset),
            epochs=epochs,
            # A partition that a limit ends earlier has not reached its end time.
            end_times={
                tp: ms for tp, ms in latest.end_times.items() if ends[tp] >= latest.offsets[tp]
            },
        )
        if not self._options.fail_on_data_loss:
            self._data_loss.count_aged_out(start_offset, end)
        if is_initial:
            # A new end even without new data: the start survives a restart only as a part of an end
            # in the checkpoint.
            return replace(end, initial=replace(start_offset, query=None)).to_json()
        if ends != start_offset.offsets or end.recreated_topics(start_offset):
            return end.to_json()
        if end.end_times.items() - start_offset.end_times.items():
            # A new end even without new data: without its end times in the checkpoint, a restart
            # would resolve a later end if the record at the end had been deleted.
            return end.to_json()
        if self._fixed_end is not None:
            self._progress.finish()
        return start

    def _latest_after(self, start: StreamOffset) -> StreamOffset:
        """
        Return the latest offsets, or the fixed end of an availableNow run.
        """
        if self._fixed_end is None:
            return self._ends.latest(start)
        if not self._has_planned_end:
            # The start is known only now: a broker with stale metadata may have returned an end
            # before it.
            self._fixed_end = self._ends.confirm(start, self._fixed_end)
        return self._fixed_end

    def commit(self, end: Document) -> None:
        """
        Record that Spark has committed the micro-batch that ends at ``end``.

        Spark commits a batch after it has planned the next one with data, so
        :meth:`latest_offset` has usually recorded it; the progress recorder ignores repetitions.
        """
        if self._progress is not NO_PROGRESS_RECORDER:
            self._progress.record_completed(self._with_identity(StreamOffset.from_json(end)))

    def report_latest_offset(self) -> Document | None:
        """
        Return the latest offsets at the last planning, for the query's progress.

        If ``failOnDataLoss`` is false, the number of offsets lost so far is added under the key
        ``@lost``, as ``{"@lost": {"topic": {"0": 23}}}``, and the number of other losses, such as
        deleted partitions, under ``@losses``:
        ``{"@losses": {"KAFKA_DATA_LOSS.PARTITIONS_DELETED": 1}}``.
        """
        if self._latest is None:
            return None
        lost_offsets = self._data_loss.lost_offsets
        lost = {LOST_OFFSETS_KEY: offsets_to_json(lost_offsets)} if lost_offsets else {}
        losses = {LOSS_COUNTS_KEY: dict(self._data_loss.losses)} if self._data_loss.losses else {}
        return {**offsets_to_json(self._latest.offsets), **lost, **losses}

    def plan(self, start: Document, end: Document) -> StreamPlan:
        """
        Plan the micro-batch between two offsets of Spark's checkpoint.

        Raises :class:`DataLossError` if records are known to be lost and ``failOnDataLoss`` is
        true; otherwise the loss is logged. Raises :class:`OffsetsError` for a first batch whose
        start is unknown, and for a checkpoint of other topics.
        """
        end_offset = StreamOffset.from_json(end)
        if start == end:
            self._data_loss.check_topics(end_offset)
            return StreamPlan((), ())
        start_offset = StreamOffset.from_json(start)
        if self.is_initial(start):
            _check_has_start(end_offset)
            if end_offset.initial is None:
                self._check_start()
            start_offset = end_offset.initial or start_offset
        self._data_loss.check_topics(start_offset)
        # A batch that an earlier run planned is not checked: it had another end, and its tasks
        # report partitions and offsets that no longer exist.
        if self._fixed_end is not None and self._has_planned_end:
            self._ends.check_end_exists(end_offset)
        sentinel = self._options.new_partition_offsets
        start_offset = with_added_partitions(start_offset, end_offset, sentinel)
        new = sorted(new_partitions(start_offset, end_offset))
        new_starts = self._lookup.log_start_offsets(new)
        is_subscribed = selector(self._options.strategy)
        plan = plan_stream(start_offset, end_offset, new_starts, self._split, is_subscribed)
        # If Spark has not passed the start offset, latest_offset has not checked truncation.
        self._data_loss.check_truncation(start_offset, end_offset)
        self._data_loss.report_plan(plan)
        if not self._has_planned_end and plan.ranges:
            self._report_replay(start_offset, end_offset, plan)
        return plan

    def _report_replay(self, start: StreamOffset, end: StreamOffset, plan: StreamPlan) -> None:
        """
        Log and record a batch that an earlier process planned and did not finish.
        """
        ranges = ", ".join(map(str, plan.ranges[:_MAX_LOGGED_RANGES]))
        rest = len(plan.ranges) - _MAX_LOGGED_RANGES
        suffix = f" and {rest} more" if rest > 0 else ""
        logger.warning("a micro-batch that did not finish is read again: %s%s", ranges, suffix)
        if end.query is not None:
            self._progress.record_replay(start, end)

    def _with_identity(self, offset: StreamOffset) -> StreamOffset:
        """
        Return the offset with the query's identity; a query without one gets it now.
        """
        store = self._options.progress_store
        if offset.query is not None:
            return replace(offset, query=replace(offset.query, store=store.name))
        if isinstance(store, NoStore):
            return offset
        if self._identity is None:
            self._identity = QueryIdentity(self._new_id(), -1, store.name)
        return replace(offset, query=self._identity)

    def _start(self) -> StreamOffset:
        assigned = self._lookup.assignment(self._options.strategy)
        return StreamOffset(self._starts_of(assigned.partitions), assigned.topic_ids)

    def _start_limited_to(self, fixed_end: StreamOffset) -> StreamOffset:
        """
        Return the start of a run with a fixed end, at most that end: later records are for the next
        run.
        """
        starts = self._starts_of(sorted(fixed_end.offsets))
        if self.start_follows_latest:
            starts = {tp: min(start, fixed_end.offsets[tp]) for tp, start in starts.items()}
        return replace(fixed_end, offsets=starts, epochs={})

    def _starts_of(self, tps: Sequence[TopicPartition]) -> Offsets:
        fallback = self._options.starting_offsets_fallback
        starts = resolve_start(self._options.starting_offsets, tps, self._lookup, fallback)
        resolved = resolve_sentinels(starts, self._lookup)
        # A partition that was deleted meanwhile gets no start: EARLIEST or LATEST in the checkpoint
        # would resolve to another offset at each restart.
        return {tp: start for tp, start in resolved.items() if start not in {EARLIEST, LATEST}}

    def _check_start(self) -> None:
        """
        Raise the error of a start that could not be resolved.
        """
        if self._start_error is not None:
            raise self._start_error

    def _admit(self, start: StreamOffset, latest: StreamOffset) -> Offsets | None:
        sentinel = self._options.new_partition_offsets
        with_new_starts = with_added_partitions(start, latest, sentinel)
        new = self._lookup.log_start_offsets(sorted(new_partitions(with_new_starts, latest)))
        starts = {**latest.offsets, **with_new_starts.offsets, **new}
        if self._fixed_end is not None:
            return self._admission.admit_all(starts, latest.offsets)
        return self._admission.admit(starts, latest.offsets)


def _check_has_start(end: StreamOffset) -> None:
    """
    Raise :class:`OffsetsError` for the end of a first batch that the JVM connector has planned.

    That connector keeps the batch's start where Python sources cannot read it. If pykafka resolved
    the start again, it could lie after records of the batch. An end with topic ids is from pykafka.
    """
    if end.initial is None and not end.topic_ids:
        msg = (
            "the first batch of this query was planned by Spark's JVM connector and has not "
            "finished, and its start is not in the checkpoint's offsets; let it finish with the "
            "JVM connector first, or start with a new checkpoint"
        )
        raise OffsetsError("FIRST_BATCH_NOT_FINISHED", msg)


def _next_batch(start: StreamOffset) -> QueryIdentity | None:
    query = start.query
    return None if query is None else replace(query, batch=query.batch + 1)
