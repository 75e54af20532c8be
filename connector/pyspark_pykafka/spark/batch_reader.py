"""
Spark's reader of a batch query: plans ranges on the driver, reads them on the executors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.engines.selection import check_topic, fetch
from pyspark_pykafka.formats.read_format import make_read_format
from pyspark_pykafka.formats.record_decoder import decode_records
from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.source.added_partitions import ranges_of, with_last_range
from pyspark_pykafka.source.factory import (
    fetch_settings,
    metadata_client,
    task_metadata_client,
)
from pyspark_pykafka.source.filter_pushdown import FilterPushdown
from pyspark_pykafka.source.latest_per_key import latest_records
from pyspark_pykafka.source.offset_limits import (
    resolve_end,
    resolve_sentinels,
    resolve_start,
    specified_offsets,
)
from pyspark_pykafka.source.plan_log import log_plan
from pyspark_pykafka.source.planner import SplitPolicy, plan_batch
from pyspark_pykafka.spark.compat import supported_filters
from pyspark_pykafka.spark.error_report import reports_errors
from pyspark_pykafka.spark.worker import freeze_loaded_modules, micro_batch_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.engines.metadata import MetadataClient
    from pyspark_pykafka.formats.read_format import ReadFormat
    from pyspark_pykafka.offsets import Assignment, OffsetRange
    from pyspark_pykafka.options import SourceOptions


# Invariant R3 (values only): pickled to the executors.
@reports_errors
class KafkaBatchReader(DataSourceReader):
    """
    Plans on the driver and reads on executors. Spark pickles it in between, so it holds values
    only.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._format = make_read_format(
            options.formats, schema, include_headers=options.include_headers
        )
        self._options = options
        self._settings = fetch_settings(options, self._format.record_schema)
        self._filters = FilterPushdown()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._options.strategy}, {self._filters!r})"

    def partitions(self) -> list[InputPartition]:
        """
        Plan one input partition for each offset range, on the driver.

        Spark 4.0 calls this once per query, and keeps the plan if a DataFrame is collected again.
        Later versions keep the plan for all queries on the same DataFrame or view, and plan again
        only to push filters down.
        """
        check_dead_letter_topic(self._format, self._settings)
        client = metadata_client(self._options)
        with shared_api_timeout(self._options.kafka):
            # The topic ids come first: if a topic is recreated meanwhile, its new offsets do not
            # belong to the planned id, and are not read.
            assigned = client.assignment(self._options.strategy)
            ranges = self._plan(assigned, client)
        log_plan(ranges, str(self._filters))
        values = with_last_range(ranges, assigned, self._options)
        return [InputPartition(value) for value in values]

    def _plan(self, assigned: Assignment, client: MetadataClient) -> list[OffsetRange]:
        options = self._options
        tps = assigned.partitions
        starts = resolve_start(
            options.starting_offsets, tps, client, options.starting_offsets_fallback
        )
        ends = resolve_end(options.ending_offsets, tps, client, starts=starts)
        matching = self._filters.partitions(tps)
        starts, ends = (
            {tp: offsets[tp] for tp in matching if tp in offsets} for offsets in (starts, ends)
        )
        starts, ends = self._filters.narrow(starts, ends, client)
        policy = SplitPolicy(options.min_partitions, options.max_records_per_partition)
        log_starts = resolve_sentinels(starts, client) if policy.splits_ranges else starts
        log_ends = resolve_sentinels(ends, client) if policy.splits_ranges else ends
        named_ends = specified_offsets(options.ending_offsets)
        from_earliest = [
            tp
            for tp, start in starts.items()
            if start == EARLIEST and ends.get(tp, LATEST) not in {LATEST, named_ends.get(tp)}
        ]
        return plan_batch(
            *(starts, ends, log_starts, log_ends, policy),
            topic_ids=assigned.topic_ids,
            log_starts_at_planning=client.log_start_offsets(from_earliest),
        )

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of one offset range, on an executor; the task of the last range also reads
        partitions that were added since the plan.
        """
        value = None if partition is None else partition.value
        read = latest_records if self._options.latest_per_key else fetch
        ranges = ranges_of(value, self._options, partial(task_metadata_client, self._options))
        return chain.from_iterable(
            read_range(InputPartition(r), self._settings, self._format, read) for r in ranges
        )


@reports_errors
class FilteringBatchReader(KafkaBatchReader):
    """
    The batch reader that narrows its plan by filters. It is used if ``pushDownFilters`` is true and
    Spark pushes filters down (Spark 4.1+).

    Spark keeps the reader and its plan for the other scans of the same DataFrame or view, which may
    have other filters, or no filters. Only the user knows that there are no other scans.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """
        Narrow the offset ranges by the filters, and return all of them for Spark to apply again.
        """
        comparisons = tuple(
            replace(comparison, column=column)
            for comparison in supported_filters(filters)
            if (column := self._format.record_column(comparison.column)) is not None
        )
        if self._options.latest_per_key:
            # The latest record of a key depends on all records of its partition.
            comparisons = tuple(c for c in comparisons if c.column in TopicPartition._fields)
        self._filters = FilterPushdown(comparisons, self._options.max_timestamp_delay_ms)
        return filters


def check_dead_letter_topic(read_format: ReadFormat, settings: FetchSettings) -> None:
    """
    Raise an error, on the driver, if the topic for bad records cannot be found.
    """
    if read_format.dead_letter_topic is not None:
        check_topic(settings.kafka, read_format.dead_letter_topic, settings.engine)


def read_range(
    partition: InputPartition | None,
    settings: FetchSettings,
    read_format: ReadFormat,
    read: Callable[[OffsetRange, FetchSettings], Iterator[pa.RecordBatch]] = fetch,
) -> Iterator[pa.RecordBatch]:
    """
    Yield the rows of an input partition, whose value is an :class:`OffsetRange`.

    For an empty plan Spark creates an input partition without a value; before 4.2 it passes None.
    """
    if partition is None or partition.value is None:
        return iter(())
    freeze_loaded_modules()
    requested: OffsetRange = partition.value
    batches = read(requested, settings)
    batch_id = -1 if read_format.dead_letter_topic is None else micro_batch_id()
    return decode_records(batches, requested.tp, read_format, settings, batch_id)
