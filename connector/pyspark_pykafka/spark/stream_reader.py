"""
Spark's readers of a streaming query: adapters to :class:`MicroBatchStream`, by Spark version.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.selection import sample_byte_densities
from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.formats.read_format import make_read_format
from pyspark_pykafka.progress.factory import make_progress_recorder
from pyspark_pykafka.source.admission import FaultTolerantSampling
from pyspark_pykafka.source.driver_read import (
    BoundedDriverReader,
    DisabledDriverReader,
    DriverReader,
    fail_fast_settings,
)
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.source.plan_log import log_plan
from pyspark_pykafka.spark.batch_reader import check_dead_letter_topic, read_range
from pyspark_pykafka.spark.compat import (
    PASSES_START_OFFSET,
    PrefetchedReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    supports_prefetched_records,
)
from pyspark_pykafka.spark.error_report import reports_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.errors import PykafkaError
    from pyspark_pykafka.offsets import Document
    from pyspark_pykafka.options import SourceOptions

logger = logging.getLogger("pyspark_pykafka")

# Signals Spark that the options set a limit; MicroBatchStream applies it.
_ANY_LIMIT = ReadMaxRows(2**63 - 1)


@reports_errors
class _Reader(PrefetchedReader, DataSourceStreamReader):
    """
    The driver process has one instance for the lifetime of the query; pickled copies read on the
    executors.

    Small batches are read in the driver process, and passed to Spark together with their plan. The
    subclasses differ because only newer Spark versions pass the start offset to ``latestOffset``.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._format = make_read_format(
            options.formats, schema, include_headers=options.include_headers
        )
        self._settings = fetch_settings(options, self._format.record_schema)
        quick = fail_fast_settings(self._settings)
        sampling = FaultTolerantSampling(partial(sample_byte_densities, settings=quick))
        progress = make_progress_recorder(options)
        self._stream = MicroBatchStream(options, metadata_client(options), sampling, progress)
        self._driver_reader = self._make_driver_reader(quick)

    def initialOffset(self) -> Document:
        """
        Return the start of a new query; Spark calls this again after a failed first batch.
        """
        with self._one_timeout():
            return self._stream.initial_offset()

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """
        Plan the micro-batch between two offsets of Spark's checkpoint.
        """
        self._record_contact()
        check_dead_letter_topic(self._format, self._settings)
        with self._one_timeout():
            ranges = self._stream.plan(start, end).ranges
        log_plan(ranges)
        # A replayed batch must have the same tasks, since a sink may have committed some of them
        # (sink/replay.py). So the number of tasks depends on the ranges, but not on whether the
        # driver can read them.
        if not self._driver_reader.admits(ranges):
            return [InputPartition(r) for r in ranges]
        records = self._driver_reader.read(ranges)
        if records is not None:
            self.attach(records)
        return [InputPartition(ranges)]

    def _one_timeout(self) -> AbstractContextManager[None]:
        """
        Limit the total time of all requests that one call by Spark makes.
        """
        return first_contact.shared_api_timeout(self._settings.kafka)

    def _record_contact(self) -> None:
        """
        Allow the full timeouts from now on: offsets of a batch show that brokers have responded
        before.
        """
        first_contact.record_contact(self._settings.kafka)

    def commit(self, end: Document) -> None:
        """
        Record the offsets of a completed batch in the progress store, unless they are recorded
        already.
        """
        self._stream.commit(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of an input partition, on an executor.

        Its value is one offset range, or all ranges of a small batch that the driver did not read
        or whose attached records Spark has lost.
        """
        ranges = partition.value if isinstance(partition.value, tuple) else (partition.value,)
        parts = (read_range(InputPartition(r), self._settings, self._format) for r in ranges)
        return chain.from_iterable(parts)

    def __getstate__(self) -> dict[str, Any]:
        """
        Pickle without the driver's state, for the executors.
        """
        return {**self.__dict__, "_stream": None, "_driver_reader": DisabledDriverReader()}

    def __repr__(self) -> str:
        # __getstate__ leaves the stream on the driver.
        return f"{type(self).__name__}({self.__dict__.get('_stream') or 'on an executor'})"

    def _make_driver_reader(self, quick: FetchSettings) -> DriverReader:
        """
        Return the reader of small batches. If the user sets how batches are split, only tasks read.
        """
        if self._stream.has_split_options or not supports_prefetched_records(self._format.schema):
            return DisabledDriverReader()
        quick_format = self._format.failing_fast(quick.poll_timeout_ms)
        return BoundedDriverReader(lambda r: read_range(InputPartition(r), quick, quick_format))


@reports_errors
class _LegacyStreamReader(_Reader):
    """
    For Spark 4.0 and 4.1, which call ``latestOffset`` without the start offset.

    The start offset is the end of the last planned batch. Spark plans an empty or a replayed batch
    before it calls ``latestOffset`` for a restarted query, but not for a new one. With
    spark.sql.streaming.triggerAvailableNowWrapper.enabled it calls ``latestOffset`` first for both.

    While the start offset is unknown, a query reads up to the latest offsets, which do not depend
    on the start. But the query is treated as new if it has limits or an end (``endingOffsets`` and
    the like), or if the start of a new query would move with the log's end.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._position: Document | None = None
        self._assumed_new = False
        self._end_of_new_query: Document | None = None
        self._has_warned = False

    def latestOffset(self) -> Document:  # type: ignore[override] # the older signature
        """
        Return the end of the next micro-batch.
        """
        with self._one_timeout():
            return self._latest_offset()

    def _latest_offset(self) -> Document:
        stream = self._stream
        if self._position is None and not (stream.has_limits or stream.start_follows_latest):
            self._end_of_new_query = stream.latest_without_start()
            return self._end_of_new_query
        self._assumed_new = self._position is None and stream.has_limits
        end = stream.latest_offset(self._position or stream.initial_offset())
        self._end_of_new_query = end if self._position is None else None
        if stream.was_limited and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a limit ends this batch before the latest offsets. For Python sources, Spark "
                "before 4.2 runs the triggers availableNow and once as a single batch; with them, "
                "the next run reads the rest"
            )
        return end

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """
        Plan the micro-batch, and remember its end as the query's position.
        """
        if self._assumed_new and start != self._stream.initial_offset():
            raise _unknown_start_error("the limits", "maxOffsetsPerTrigger and the other limits")
        self._assumed_new = False
        self._check_end(start, end)
        planned = super().partitions(start, end)
        self._position = end
        return planned

    def _check_end(self, start: Document, position: Document) -> None:
        """
        Raise :class:`OffsetsError` if the end of a restarted query differs from that of a new one.

        The first plan shows the difference, before Spark writes the end into the checkpoint.
        """
        end, self._end_of_new_query = self._end_of_new_query, None
        if end is None or self._stream.is_initial(start):
            return
        if not self._stream.is_end_after(position, end):
            raise _unknown_start_error("the stream's end", "endingOffsets and the options like it")


def _unknown_start_error(what: str, options: str) -> OffsetsError:
    msg = (
        "this query was started before, and Spark called latestOffset without its start offset, so "
        f"{what} cannot be applied; set spark.sql.streaming.triggerAvailableNowWrapper.enabled to "
        f"false, or remove {options}"
    )
    return OffsetsError("UNKNOWN_START_OFFSET", msg)


@reports_errors
class _AdmissionStreamReader(_Reader, SupportsTriggerAvailableNow):
    """
    For Spark 4.2 and later, which pass the start offset and a read limit.
    """

    def getDefaultReadLimit(self) -> ReadLimit:
        """
        Return a limit if the options set one; Spark lifts it for Trigger.Once.
        """
        return _ANY_LIMIT if self._stream.has_limits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """
        Fix the end of an availableNow run at the current latest offsets.
        """
        with self._one_timeout():
            self._stream.prepare_for_available_now()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        """
        Return the end of the micro-batch after ``start``.
        """
        self._record_contact()
        limited = not isinstance(limit, ReadAllAvailable)
        with self._one_timeout():
            return self._stream.latest_offset(start, limited=limited)

    def reportLatestOffset(self) -> Document | None:
        """
        Return the latest offsets at the last planning, for the query's progress.
        """
        return self._stream.report_latest_offset()


@reports_errors
class InvalidStreamReader(DataSourceStreamReader):
    """
    Raises the error that prevented the creation of a stream's reader.

    Spark's runner fails with an UnboundLocalError if ``streamReader()`` itself raises.
    """

    def __init__(self, error: PykafkaError) -> None:
        self._error = error

    def initialOffset(self) -> Document:
        """
        Raise the error.
        """
        raise self._error

    def latestOffset(self) -> Document:  # type: ignore[override] # as in Spark before 4.2
        """
        Raise the error.
        """
        raise self._error

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:  # noqa: ARG002
        """
        Raise the error; a restarted query on Spark 4.0 and 4.1 begins here.
        """
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """
        Raise the error.
        """
        raise self._error


KafkaStreamReader: type[_Reader] = (
    _AdmissionStreamReader if PASSES_START_OFFSET else _LegacyStreamReader
)
