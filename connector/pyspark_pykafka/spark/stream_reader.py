"""
Reading a stream: Spark's adapter between its calls and the query's micro-batches.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_pykafka.engines.selection import bytes_per_offset
from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.progress.factory import make_progress_sink
from pyspark_pykafka.schema import check_source_schema
from pyspark_pykafka.source.driver_read import DriverRead, NoPrefetch, Prefetch, fail_fast
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.spark.batch_reader import read_range
from pyspark_pykafka.spark.compat import (
    PASSES_START_OFFSET,
    PrefetchedReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    supports_prefetched_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.offsets import Document
    from pyspark_pykafka.options import SourceOptions

logger = logging.getLogger("pyspark_pykafka")

# Which of Spark's limits is the default says only that there is one; the options say which.
_SOME_LIMIT = ReadMaxRows(2**63 - 1)


class _Reader(PrefetchedReader, DataSourceStreamReader):
    """
    Lives in one process on the driver as long as the query; a copy of it reads on executors.

    A tiny batch is read in that process and goes to Spark along with its plan. What differs between
    Spark's versions is who knows the start when the latest is asked for.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        check_source_schema(schema, include_headers=options.include_headers)
        self._settings = fetch_settings(options, schema)
        quick = fail_fast(self._settings)
        sizes = partial(bytes_per_offset, settings=quick)
        progress = make_progress_sink(options)
        self._stream = MicroBatchStream(options, metadata_client(options), sizes, progress)
        self._prefetch = self._make_prefetch(quick)

    def initialOffset(self) -> Document:
        """
        Return where a new query starts; a query whose first batch failed asks again.
        """
        return self._stream.initial_offset()

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """
        Plan the micro-batch between two offsets, as Spark has them in its checkpoint.
        """
        ranges = self._stream.plan(start, end).ranges
        # A batch that is run again must have the tasks that it had, since a sink may have committed
        # some of them (replay.py); whether it can be read here hangs on the clock.
        if not self._prefetch.admits(ranges):
            return [InputPartition(each) for each in ranges]
        records = self._prefetch.records(ranges)
        if records is not None:
            self.attach(records)
        return [InputPartition(ranges)]

    def commit(self, end: Document) -> None:
        """
        Hand the offsets of a completed batch to the progress store, where it does not have them.
        """
        self._stream.commit(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of one range, on an executor; of several for a tiny batch that was not
        read with its plan, or of which Spark lost what was carried.
        """
        ranges = partition.value if isinstance(partition.value, tuple) else (partition.value,)
        parts = (read_range(InputPartition(wanted), self._settings) for wanted in ranges)
        return chain.from_iterable(parts)

    def __getstate__(self) -> dict[str, Any]:
        """
        Leave behind what only the driver needs when the reader goes to the executors.
        """
        return {**self.__dict__, "_stream": None, "_prefetch": NoPrefetch()}

    def _make_prefetch(self, quick: FetchSettings) -> Prefetch:
        """
        Return how tiny batches are read; a user who wants them split over tasks gets them so.
        """
        if self._stream.has_split_options or not supports_prefetched_records(self._settings.schema):
            return NoPrefetch()
        return DriverRead(lambda wanted: read_range(InputPartition(wanted), quick))


class _LegacyStreamReader(_Reader):
    """
    For Spark 4.0 and 4.1, which ask for the latest offsets without telling the start.

    A restarted query first plans an empty or a replayed batch, which tells it; a new query does
    not. Only where spark.sql.streaming.triggerAvailableNowWrapper.enabled is set does a restarted
    one ask before it tells. So without limits a query that has not told is given all there is,
    unless its start would move with the log's end; with limits it is taken for a new one.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._position: Document | None = None
        self._guessed = False
        self._warned = False

    def latestOffset(self) -> Document:  # type: ignore[override] # the older signature
        """
        Return where the next micro-batch may end.
        """
        if self._position is None and not (
            self._stream.has_limits or self._stream.start_follows_latest
        ):
            return self._stream.latest_without_start()
        self._guessed = self._position is None and self._stream.has_limits
        end = self._stream.latest_offset(self._position or self._stream.initial_offset())
        if self._stream.was_limited and not self._warned:
            self._warned = True
            logger.warning(
                "a limit cuts this batch; Spark before 4.2 runs availableNow and once as a single "
                "batch for Python sources, which then leaves the rest for the next run"
            )
        return end

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """
        Plan as the other versions do, and remember where the query stands.
        """
        if self._guessed and start != self._stream.initial_offset():
            msg = (
                "this query was started before, and Spark asked for its end without telling where "
                "it stands, so the limits of a batch cannot be applied; set "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled to false, or leave "
                "maxOffsetsPerTrigger and its kin out"
            )
            raise OffsetsError("UNKNOWN_START_OFFSET", msg)
        self._guessed = False
        planned = super().partitions(start, end)
        self._position = end
        return planned


class _AdmissionStreamReader(_Reader, SupportsTriggerAvailableNow):
    """
    For Spark 4.2 and later, which tell the start and how much a batch may read.
    """

    def getDefaultReadLimit(self) -> ReadLimit:
        """
        Return whether a batch may read all there is; Spark lifts a limit for Trigger.Once.
        """
        return _SOME_LIMIT if self._stream.has_limits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """
        Fix the end of the run to what is there now.
        """
        self._stream.prepare_for_available_now()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        """
        Return where the micro-batch after ``start`` ends.
        """
        return self._stream.latest_offset(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Document | None:
        """
        Return the latest offsets for the query's progress, as the last plan saw them.
        """
        return self._stream.report_latest_offset()


KafkaStreamReader: type[_Reader] = (
    _AdmissionStreamReader if PASSES_START_OFFSET else _LegacyStreamReader
)
