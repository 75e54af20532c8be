"""
What a streaming query reads next: where it starts, how far a micro-batch goes, and its plan.

Knows nothing of Spark, and asks the brokers through a protocol.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.log_truncation import epochs_at
from pyspark_pykafka.errors import OffsetsError
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
from pyspark_pykafka.progress.contract import NO_PROGRESS_SINK, ProgressSink
from pyspark_pykafka.source.admission import Admission, AdmissionPolicy, Sizes
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
    starting_new_partitions_at,
)
from pyspark_pykafka.source.subscription import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_pykafka.options import SourceOptions

#: Where progress shows how many offsets were lost, beside the latest ones.
LOST = "@lost"

logger = logging.getLogger("pyspark_pykafka")

_SHOWN = 20


class MicroBatchStream:
    """
    One streaming query, as the process on the driver sees it that plans its micro-batches.

    Offsets come and go as the documents of Spark's checkpoint. Raises the errors of
    :mod:`pyspark_pykafka.errors`.
    """

    def __init__(
        self,
        options: SourceOptions,
        brokers: PartitionLookup,
        sizes: Sizes,
        progress: ProgressSink = NO_PROGRESS_SINK,
        *,
        now: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._options = options
        self._brokers = brokers
        self._ends = EndOffsets(options, brokers)
        self._losses = DataLossReporter(options, brokers)
        self._progress = progress
        self._new_id = new_id
        self._asked = False
        self._policy = AdmissionPolicy(
            options.max_offsets_per_trigger,
            options.max_offsets_per_partition_per_trigger,
            options.max_bytes_per_trigger,
            options.min_offsets_per_trigger,
            options.max_trigger_delay_ms / 1000,
        )
        self._admission = Admission(self._policy, sizes, now)
        self._split = SplitPolicy(options.min_partitions, options.max_records_per_partition)
        self._initial: StreamOffset | None = None
        self._frozen: StreamOffset | None = None
        self._mark: QueryIdentity | None = None
        self._latest: StreamOffset | None = None
        #: Whether a limit left something for the batch after the last one that was planned.
        self.was_limited = False

    @property
    def has_limits(self) -> bool:
        """
        Whether the options let a batch end before all there is.
        """
        return self._policy.has_limits

    @property
    def has_split_options(self) -> bool:
        """
        Whether the options say how a batch is split over tasks.
        """
        return self._split.splits_ranges

    @property
    def start_follows_latest(self) -> bool:
        """
        Whether the start of a new query, asked for again later, can be a later one.
        """
        return may_start_at_latest(self._options.starting_offsets)

    def initial_offset(self) -> Document:
        """
        Return where a new query starts; a query whose first batch failed asks again.
        """
        if self._initial is None:
            self._initial = self._start() if self._frozen is None else self._start_at(self._frozen)
        return self._initial.to_json()

    def prepare_for_available_now(self) -> None:
        """
        Fix the end of the run to what is there now.
        """
        self._frozen = self._ends.latest(StreamOffset({}))

    def latest_without_start(self) -> Document:
        """
        Return the end of all there is, for a query of which the start is not known.
        """
        self._asked = True
        unknown = self._marked(StreamOffset({}))
        end = self._ends.limit_to_options(unknown, self._ends.latest(unknown))
        return replace(end, initial=self._start_if_new(), query=_following(unknown)).to_json()

    def _start_if_new(self) -> StreamOffset | None:
        """
        Return where the query starts if it is new; None where that is a mistake.
        """
        try:
            return StreamOffset.from_json(self.initial_offset())
        except OffsetsError:
            # A new query is told of it when Spark asks for its start; any other has no use for it.
            return None

    def latest_offset(self, start: Document, *, limited: bool = True) -> Document:
        """
        Return where the batch after ``start`` ends: ``start`` itself if it has to wait.

        Spark compares documents to find new data, so equal offsets must be the same document.
        """
        self._asked = True
        stands = self._marked(StreamOffset.from_json(start))
        is_initial = self._is_initial(start)
        if not is_initial:
            # A batch that fails ends this process, so the one before has not.
            self._progress.record_completed(stands)
        self._latest = self._frozen or self._ends.latest(stands)
        self._losses.check_truncation(stands, self._latest)
        latest = self._ends.limit_to_options(stands, self._latest)
        ends = self._admitted(stands, latest) if limited and self.has_limits else latest.offsets
        if ends is None:
            return start
        self.was_limited = ends != latest.offsets
        epochs = epochs_at(ends, stands, self._latest)
        end = replace(latest, offsets=ends, query=_following(stands), epochs=epochs)
        if not self._options.fail_on_data_loss:
            self._losses.count(stands, end)
        if is_initial:
            # Kept at once, new data or not: only so the start outlives this process.
            return replace(end, initial=replace(stands, query=None)).to_json()
        if ends != stands.offsets or end.recreated_topics(stands):
            return end.to_json()
        if self._frozen is not None:
            self._progress.finish()
        return start

    def commit(self, end: Document) -> None:
        """
        Take note that Spark has committed the micro-batch that ends here.

        It does so when it has planned the next one with data, and most often the question for that
        one has shown it before; who keeps the progress sees to it that nothing is written twice.
        """
        if self._progress is not NO_PROGRESS_SINK:
            self._progress.record_completed(self._marked(StreamOffset.from_json(end)))

    def report_latest_offset(self) -> Document | None:
        """
        Return the latest offsets as they were when the last batch was planned.

        Where records were lost with the user's leave, their number so far stands by partition under
        the key ``@lost``.
        """
        if self._latest is None:
            return None
        lost = {LOST: offsets_to_json(self._losses.counted)} if self._losses.counted else {}
        return {**offsets_to_json(self._latest.offsets), **lost}

    def plan(self, start: Document, end: Document) -> StreamPlan:
        """
        Plan the micro-batch between two offsets, as Spark has them in its checkpoint.

        Raises :class:`DataLossError` if records of it are known to be gone, unless that is
        allowed; then the loss is logged.
        """
        if start == end:
            return StreamPlan((), ())
        until = StreamOffset.from_json(end)
        begin = StreamOffset.from_json(start)
        if self._is_initial(start) and until.initial is not None:
            begin = until.initial
        if self._frozen is not None:
            self._ends.check_end_exists(until)
        begin = starting_new_partitions_at(begin, until, self._options.new_partition_offsets)
        first = self._brokers.log_start_offsets(sorted(new_partitions(begin, until)))
        asked_for = partial(matches, self._options.strategy)
        plan = plan_stream(begin, until, first, self._split, asked_for)
        # Where Spark did not tell the start with the question for the end, nobody has looked yet.
        self._losses.check_truncation(begin, until)
        self._losses.report(plan)
        if not self._asked and plan.ranges:
            self._tell_replay(begin, until, plan)
        return plan

    def _tell_replay(self, begin: StreamOffset, until: StreamOffset, plan: StreamPlan) -> None:
        """
        Tell of a batch that an earlier process planned: it failed, or that process died in it.
        """
        shown = ", ".join(map(str, plan.ranges[:_SHOWN]))
        more = f" and {len(plan.ranges) - _SHOWN} more" if len(plan.ranges) > _SHOWN else ""
        logger.warning("a micro-batch that did not finish is read again: %s%s", shown, more)
        if until.query is not None:
            self._progress.record_replay(begin, until)

    def _marked(self, stands: StreamOffset) -> StreamOffset:
        """
        Return where the query stands with its mark; one that never had any gets it now.
        """
        store = self._options.progress_store
        if stands.query is not None:
            return replace(stands, query=replace(stands.query, store=store.name))
        if isinstance(store, NoStore):
            return stands
        if self._mark is None:
            self._mark = QueryIdentity(self._new_id(), -1, store.name)
        return replace(stands, query=self._mark)

    def _start(self) -> StreamOffset:
        assigned = self._brokers.assignment(self._options.strategy)
        return StreamOffset(self._starts_of(assigned.partitions), assigned.topic_ids)

    def _start_at(self, frozen: StreamOffset) -> StreamOffset:
        """
        Return the start of a run whose end is fixed already: what came since is not its business.
        """
        starts = self._starts_of(sorted(frozen.offsets))
        if self.start_follows_latest:
            starts = {tp: min(start, frozen.offsets[tp]) for tp, start in starts.items()}
        return replace(frozen, offsets=starts, epochs={})

    def _starts_of(self, tps: Sequence[TopicPartition]) -> Offsets:
        fallback = self._options.starting_offsets_fallback
        border = resolve_start(self._options.starting_offsets, tps, self._brokers, fallback)
        starts = resolve_sentinels(border, self._brokers)
        # A partition that has vanished meanwhile starts nowhere; its word would stand in the
        # checkpoint, and mean another offset whenever it is read.
        return {tp: start for tp, start in starts.items() if start not in {EARLIEST, LATEST}}

    def _is_initial(self, start: Document) -> bool:
        # The end of a batch is never like it: that of the first one carries its start.
        return self._initial is not None and start == self._initial.to_json()

    def _admitted(self, stands: StreamOffset, latest: StreamOffset) -> Offsets | None:
        late = starting_new_partitions_at(stands, latest, self._options.new_partition_offsets)
        first = self._brokers.log_start_offsets(sorted(new_partitions(late, latest)))
        begin = {**latest.offsets, **late.offsets, **first}
        if self._frozen is not None:
            return self._admission.admit_all(begin, latest.offsets)
        return self._admission.admit(begin, latest.offsets)


def _following(stands: StreamOffset) -> QueryIdentity | None:
    query = stands.query
    return None if query is None else replace(query, batch=query.batch + 1)
