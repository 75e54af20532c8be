"""
Reading a batch: Spark's adapter between the options and the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.schema import check_source_schema
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.source.filter_pushdown import FilterPushdown
from pyspark_pykafka.source.offset_limits import resolve_end, resolve_sentinels, resolve_start
from pyspark_pykafka.source.planner import SplitPolicy, plan_batch
from pyspark_pykafka.spark.compat import supported_filters
from pyspark_pykafka.spark.worker import freeze_loaded_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.offsets import OffsetRange
    from pyspark_pykafka.options import SourceOptions


# Invariant R3 (values only): pickled to the executors.
class KafkaBatchReader(DataSourceReader):
    """
    Plans on the driver and reads on executors; pickled in between, so it holds values only.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        check_source_schema(schema, include_headers=options.include_headers)
        self._options = options
        self._settings = fetch_settings(options, schema)
        self._filters = FilterPushdown()

    def partitions(self) -> list[InputPartition]:
        """
        Ask the brokers and plan one partition per range; called once per query, on the driver.
        """
        return [InputPartition(r) for r in self._plan()]

    def _plan(self) -> list[OffsetRange]:
        options = self._options
        broker = metadata_client(options)
        tps = broker.assignment(options.strategy).partitions
        starting = resolve_start(
            options.starting_offsets, tps, broker, options.starting_offsets_fallback
        )
        ending = resolve_end(options.ending_offsets, tps, broker)
        wanted = self._filters.partitions(tps)
        starting, ending = (
            {tp: border[tp] for tp in wanted if tp in border} for border in (starting, ending)
        )
        starting, ending = self._filters.narrow(starting, ending, broker)
        policy = SplitPolicy(options.min_partitions, options.max_records_per_partition)
        earliest = resolve_sentinels(starting, broker) if policy.splits_ranges else starting
        latest = resolve_sentinels(ending, broker) if policy.splits_ranges else ending
        return plan_batch(starting, ending, earliest, latest, policy)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """
        Yield the records of one range, on an executor.
        """
        return read_range(partition, self._settings)


class FilteringBatchReader(KafkaBatchReader):
    """
    The reader of a query of which Spark tells the filters.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """
        Note what the filters say of where records lie, and leave all of them to Spark as well.
        """
        self._filters = FilterPushdown(
            tuple(supported_filters(filters)), self._options.max_timestamp_delay_ms
        )
        return filters


def read_range(
    partition: InputPartition | None, settings: FetchSettings
) -> Iterator[pa.RecordBatch]:
    """
    Yield the records of a planned partition.

    Where none is planned Spark makes one without a value, and before 4.2 it gives None for it.
    """
    if partition is None or partition.value is None:
        return iter(())
    freeze_loaded_modules()
    return fetch(partition.value, settings)
