"""
What differs between Spark's versions, and the translation between Spark's types and Arrow's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import datasource_internal
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pykafka.engines.contract import BATCH_RECORDS
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES, TIMESTAMP, TYPE_NAME
from pyspark_pykafka.source.filter_pushdown import Comparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SPARK_VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

#: Streams take Arrow batches from 4.1 on (SPARK-51814 came to batch writers first).
ARROW_STREAM_WRITER = SPARK_VERSION >= (4, 1)

#: Streams are told the start when they are asked for the latest offsets, from 4.2 on.
PASSES_START_OFFSET = SPARK_VERSION >= (4, 2)

if PASSES_START_OFFSET:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:  # type: ignore[no-redef]
        """
        Stands in for the class that these versions of Spark do not have.
        """

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """
        Stands in for the class that these versions of Spark do not have.
        """

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """
        Stands in for the class that these versions of Spark do not have.
        """

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """
        Stands in for the class that these versions of Spark do not have.
        """


#: Spark's names of the filters that are comparisons; 4.0 has none of these classes.
_OPERATORS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
}


def filter_pushdown_active() -> bool:
    """
    Whether this process plans with filters (spark.sql.python.filterPushdown.enabled, from 4.1 on).

    A reader that takes filters is an error where Spark does not push them, so one has to know; that
    Spark runs another worker module for it is the only sign there is.
    """
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules


def supported_filters(filters: Iterable[Any]) -> list[Comparison]:
    """
    Return those of Spark's filters that compare a column with values.
    """
    return [
        Comparison(one.attribute[0], _OPERATORS[type(one).__name__], one.value)
        for one in filters
        if type(one).__name__ in _OPERATORS and len(one.attribute) == 1
    ]


_SimpleReader: Any = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)


class PrefetchedReader:
    """
    Lets a stream reader hand Spark the records of a micro-batch along with its only partition.

    Spark keeps them as a block, which the task reads instead of calling ``read``; where the block
    is lost, it calls ``read`` after all. Spark asks none but its own wrapper of simple readers for
    records. One cannot be that for good, since Spark takes no read limits and no latest offsets
    for its progress from a wrapper; so a reader passes for one just while it carries something.
    """

    _carried: list[pa.RecordBatch] | None = None

    def attach(self, records: list[pa.RecordBatch]) -> None:
        """
        Hand these over with the plan that is about to be returned.
        """
        self._carried = records

    def getCache(self, start: object, end: object) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """
        Give the records away; called once for each plan with records.
        """
        carried, self._carried = self._carried or [], None
        return iter(carried)

    @property  # type: ignore[misc] # assigning another class is not meant to work
    def __class__(self) -> type[Any]:
        return type(self) if self._carried is None else _SimpleReader


__all__ = [
    "ARROW_STREAM_WRITER",
    "PASSES_START_OFFSET",
    "SPARK_VERSION",
    "PrefetchedReader",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "filter_pushdown_active",
    "rows_to_batches",
    "source_schema",
    "supported_filters",
    "supports_prefetched_records",
]

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    TIMESTAMP: TimestampType(),
    HEADERS: _HEADERS,
}


# Marks an Arrow schema of which Spark makes the same one again that it was made from.
_SAME = b"same"


def source_schema(*, include_headers: bool) -> StructType:
    """
    Return the columns of the source as Spark's types.
    """
    names = [name for name in SOURCE_TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, _SPARK_TYPES[SOURCE_TYPES[name]]) for name in names])


def arrow_schema(schema: StructType) -> pa.Schema:
    """
    Return the Arrow schema that Spark expects of batches for this schema.

    From 4.2 on Spark refuses a batch whose schema differs in the least, nullability included;
    types that a record cannot have become ``null``, which no check of columns lets pass.
    """
    arrow = pa.schema([_arrow_field(field) for field in schema.fields])
    same = from_arrow_schema(arrow) == schema
    return arrow.with_metadata({_SAME: b"true"}) if same else arrow


def supports_prefetched_records(schema: pa.Schema) -> bool:
    """
    Whether Spark takes records of this schema together with the plan of a micro-batch.

    It refuses them where the schema made of Arrow's is another than the query's, as where a column
    has a comment or a collation.
    """
    return hasattr(_SimpleReader, "getCache") and _SAME in (schema.metadata or {})


def _arrow_field(field: StructField) -> pa.Field:
    # The name of Spark's type rides along for messages; schemas compare without metadata.
    name = {TYPE_NAME: field.dataType.simpleString().upper()}
    kind = _arrow_type(field.dataType)
    return pa.field(field.name, kind, field.nullable or kind == pa.null(), name)


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if isinstance(kind, StringType):
        return pa.string()
    simple = {type(spark): arrow for arrow, spark in _SPARK_TYPES.items()}
    return simple.get(type(kind), pa.null())


def rows_to_batches(
    rows: Iterator[Any], schema: StructType, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """
    Gather Spark's rows into Arrow batches, for the one writer (streams on 4.0) that gets rows.
    """
    wanted = arrow_schema(StructType([field for field in schema.fields if field.name in names]))
    while chunk := [_plain(row, wanted.names) for row in islice(rows, BATCH_RECORDS)]:
        yield pa.RecordBatch.from_pylist(chunk, schema=wanted)


def _plain(row: Any, names: list[str]) -> dict[str, Any]:
    values = row.asDict(recursive=True)
    plain = {name: values[name] for name in names}
    if plain.get("timestamp") is not None:
        # Spark 4.0 hands timestamps over without a zone, in the zone of the worker process.
        plain["timestamp"] = plain["timestamp"].astimezone(timezone.utc)
    return plain
