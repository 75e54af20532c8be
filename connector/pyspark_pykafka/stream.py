"""
Reading a stream: offsets as Spark's checkpoint keeps them, and the plan of each micro-batch.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_pykafka.borders import follows_the_end, resolve_words, starting_border
from pyspark_pykafka.columns import check_source_schema
from pyspark_pykafka.compat import (
    TELLS_START,
    ReadAllAvailable,
    ReadLimit,
    RecordCarrier,
    SupportsTriggerAvailableNow,
    takes_records,
)
from pyspark_pykafka.errors import BrokerUnavailableError, DataLossError
from pyspark_pykafka.offsets import Offsets, from_document, to_document
from pyspark_pykafka.planner import SplitPolicy, StreamPlan, added_partitions, plan_stream
from pyspark_pykafka.prefetch import NoPrefetch, Prefetch, TinyBatches, strict
from pyspark_pykafka.reading import fetch_settings, make_broker, read_range
from pyspark_pykafka.retry import RetryPolicy, retrying

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_pykafka.broker import Broker
    from pyspark_pykafka.engine import FetchSettings
    from pyspark_pykafka.options import SourceOptions

logger = logging.getLogger("pyspark_pykafka")

#: Where the first batch started, kept inside its end offset. Spark stores no initial offset for
#: a Python source: a query whose first batch failed would ask for it again, and "latest" would
#: by then lie behind records that were never read.
INITIAL = "@initial"

Document = dict[str, Any]


class _Reader(RecordCarrier, DataSourceStreamReader):
    """
    Lives in one process on the driver as long as the query; a copy of it reads on executors.

    A tiny batch is read in that process and goes to Spark along with its plan. What differs between
    Spark's versions is who knows the start when the latest is asked for.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        check_source_schema(schema, include_headers=options.include_headers)
        self._options = options
        self._settings = fetch_settings(options, schema)
        self._split = SplitPolicy(options.min_partitions, options.max_records_per_partition)
        self._prefetch = _prefetch(self._split, self._settings)
        self._asked: Broker | None = None
        self._initial: Offsets | None = None

    def initialOffset(self) -> Document:
        """
        Return where a new query starts; a query whose first batch failed asks again.
        """
        return to_document(self._start_of_new_query())

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """
        Plan the micro-batch between two offsets, as Spark has them in its checkpoint.
        """
        plan = StreamPlan((), ()) if start == end else self._plan(start, end)
        self._report(plan)
        records = self._prefetch.records(plan.ranges)
        if records is None:
            return [InputPartition(r) for r in plan.ranges]
        self.carry(records)
        return [InputPartition(plan.ranges)]

    def commit(self, end: Document) -> None:
        """
        Do nothing: the checkpoint is where progress is kept.
        """

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of one range, on an executor; of several if Spark lost what was carried.
        """
        ranges = partition.value if isinstance(partition.value, tuple) else (partition.value,)
        parts = (read_range(InputPartition(wanted), self._settings) for wanted in ranges)
        return chain.from_iterable(parts)

    def __getstate__(self) -> dict[str, Any]:
        """
        Leave behind what only the driver needs when the reader goes to the executors.
        """
        return {**self.__dict__, "_asked": None, "_prefetch": NoPrefetch()}

    @property
    def _broker(self) -> Broker:
        if self._asked is None:
            self._asked = make_broker(self._options)
        return self._asked

    def _start_of_new_query(self) -> Offsets:
        if self._initial is None:
            tps = self._broker.partitions(self._options.strategy)
            border = starting_border(self._options.starting, tps, self._broker)
            self._initial = resolve_words(border, self._broker)
        return self._initial

    def _is_initial(self, start: Document) -> bool:
        # The end of a batch is never like it: that of the first one carries INITIAL.
        return self._initial is not None and start == to_document(self._initial)

    def _next(self, start: Document) -> Document:
        """
        Return the latest offsets; the start itself if they are the same.

        Spark compares documents to find new data, so equal offsets must be the same document.
        """
        latest = to_document(self._latest(from_document(start)))
        if self._is_initial(start):
            return {**latest, INITIAL: start}
        return start if latest == to_document(from_document(start)) else latest

    def _latest(self, known: Offsets) -> Offsets:
        """
        Ask for the latest offsets, again if some lie before known ones (KAFKA-7703).
        """
        policy = RetryPolicy(
            max(self._options.fetch_offset_num_retries, 1),
            self._options.fetch_offset_retry_interval_ms / 1000,
        )
        try:
            return retrying(lambda: self._latest_beyond(known), policy)
        except _StaleOffsetsError as stale:
            return stale.offsets

    def _latest_beyond(self, known: Offsets) -> Offsets:
        latest = self._broker.latest(self._broker.partitions(self._options.strategy))
        if any(latest.get(tp, offset) < offset for tp, offset in known.items()):
            raise _StaleOffsetsError(latest)
        return latest

    def _plan(self, start: Document, end: Document) -> StreamPlan:
        first = self._is_initial(start)
        begin = from_document(end.get(INITIAL, start) if first else start)
        until = from_document(end)
        earliest = self._broker.earliest(added_partitions(begin, until))
        return plan_stream(begin, until, earliest, self._split)

    def _report(self, plan: StreamPlan) -> None:
        for loss in plan.losses:
            if self._options.fail_on_data_loss:
                text = f"{loss.explanation}. Set failOnDataLoss to false to go on without them"
                raise DataLossError(loss.condition, text)
            logger.warning("[%s] %s; going on", loss.condition, loss.explanation)


def _prefetch(split: SplitPolicy, settings: FetchSettings) -> Prefetch:
    """
    Return how tiny batches are read; a user who wants them split over tasks gets them so.
    """
    if split.splits or not takes_records(settings.schema):
        return NoPrefetch()
    return TinyBatches(lambda wanted: read_range(InputPartition(wanted), strict(settings)))


class _StaleOffsetsError(BrokerUnavailableError):
    """
    The brokers gave offsets older than some they gave before; the last answer is inside.
    """

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = offsets
        super().__init__("the latest offsets lie before known ones")


class _UntoldReader(_Reader):
    """
    For Spark 4.0 and 4.1, which ask for the latest offsets without telling the start.

    A restarted query first plans an empty or a replayed batch, which tells it; a new query does
    not. With AvailableNow Spark asks before either, so whether a query is new is not known then:
    it is taken for one only where the start would move with the log's end.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._position: Document | None = None

    def latestOffset(self) -> Document:  # type: ignore[override] # the older signature
        """
        Return where the next micro-batch may end.
        """
        if self._position is not None:
            return self._next(self._position)
        if follows_the_end(self._options.starting):
            return self._next(to_document(self._start_of_new_query()))
        return to_document(self._latest({}))

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """
        Plan as the other versions do, and remember where the query stands.
        """
        planned = super().partitions(start, end)
        self._position = end
        return planned


class _ToldReader(_Reader, SupportsTriggerAvailableNow):
    """
    For Spark 4.2 and later, which tell the start and how much a batch may read.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._frozen: Offsets | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """
        Return that a batch may read all there is.
        """
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """
        Fix the end of the run to what is there now.
        """
        self._frozen = self._latest({})

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: ARG002
        """
        Return where the micro-batch after ``start`` ends.
        """
        return self._next(start)

    def _latest(self, known: Offsets) -> Offsets:
        return super()._latest(known) if self._frozen is None else self._frozen


KafkaStreamReader: type[_Reader] = _ToldReader if TELLS_START else _UntoldReader
