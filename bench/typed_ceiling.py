"""
The ceiling of typed reads: a Python data source that yields the decoded values of a topic from
memory. The time that Spark takes to receive columns from Python limits every decoder in a worker.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.documents import FIELDS, TEXT_LENGTHS, records
from pyspark_pykafka.spark.worker import freeze_loaded_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPED_CEILING_FORMAT = "bench_typed_ceiling"
PARTITIONS = 2
#: The limits of a batch in rows and in bytes: those of the connector's batches.
ROWS, BYTES = 10_000, 1024 * 1024
ARROW_TYPES = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "STRING": pa.string()}


class TypedCeiling(DataSource):
    """
    The data source; its options are `records`, `format` (that of the topic's values) and `fields`
    (names, separated by commas).
    """

    @classmethod
    def name(cls) -> str:
        """
        Return the name for ``.format(...)``.
        """
        return TYPED_CEILING_FORMAT

    def schema(self) -> str:
        """
        Return the Spark types of the fields.
        """
        return ", ".join(f"{name} {FIELDS[name]}" for name in self.options["fields"].split(","))

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        """
        Return the reader of a batch query.
        """
        return _Reader(
            int(self.options["records"]),
            self.options["format"],
            tuple(self.options["fields"].split(",")),
        )


class _Reader(DataSourceReader):
    def __init__(self, count: int, kind: str, names: tuple[str, ...]) -> None:
        self._count = count
        self._kind = kind
        self._names = names

    def partitions(self) -> list[InputPartition]:
        limits = [self._count * number // PARTITIONS for number in range(PARTITIONS + 1)]
        return [InputPartition(pair) for pair in pairwise(limits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows of the records ``[start, end)``; the values repeat as in the topic.
        """
        freeze_loaded_modules()
        position, end = partition.value
        batch = rows(self._kind, self._names)
        while position < end:
            offset = position % batch.num_rows
            part = batch.slice(offset, min(batch.num_rows - offset, end - position))
            position += part.num_rows
            yield part


@cache
def rows(kind: str, names: tuple[str, ...]) -> pa.RecordBatch:
    """
    Return the fields of all different records, repeated as often as they fit into a batch.
    """
    documents = records(TEXT_LENGTHS[kind])
    schema = pa.schema([(name, ARROW_TYPES[FIELDS[name]]) for name in names])
    once = pa.RecordBatch.from_pylist(
        [{name: record.get(name) for name in names} for record in documents], schema
    )
    copies = max(1, min(ROWS // once.num_rows, BYTES // once.nbytes))
    table = pa.Table.from_batches([once] * copies).combine_chunks()
    return table.to_batches()[0]
