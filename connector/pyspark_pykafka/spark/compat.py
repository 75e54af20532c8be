"""
The differences between Spark versions, and the conversion between Spark's types and Arrow's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import datasource_internal
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.session import SparkSession as ClassicSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_pykafka.engines.contract import BATCH_RECORDS
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES, TIMESTAMP, TYPE_NAME
from pyspark_pykafka.source.filter_pushdown import Comparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

SPARK_VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

#: Streaming writers get Arrow batches from 4.1 on; batch writers got them earlier (SPARK-51814).
ARROW_STREAM_WRITER = SPARK_VERSION >= (4, 1)

#: Spark passes the start offset to ``latestOffset`` from 4.2 on (SupportsAdmissionControl).
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
        Stands in for the class that Spark has from 4.2 on.
        """

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """
        Stands in for the class that Spark has from 4.2 on.
        """

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """
        Stands in for the class that Spark has from 4.2 on.
        """

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """
        Stands in for the class that Spark has from 4.2 on.
        """


# The operators of Spark's comparison filters, by class name: 4.0 does not have these classes.
_OPERATORS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
}


def activate_session(spark: SparkSession) -> None:
    """
    Make the session the active session of this thread. Spark Connect needs no call.

    Writers look for Python data sources in the thread's active session only (SPARK-45600), and only
    the thread that created the session has one.
    """
    if isinstance(spark, ClassicSession):
        # PySpark has no public call for this; createDataFrame() does the same.
        jvm_class = ClassicSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
        jvm_class.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def filter_pushdown_active() -> bool:
    """
    Whether Spark pushes filters in this process (spark.sql.python.filterPushdown.enabled, 4.1+).

    Spark rejects a reader with ``pushFilters`` if push-down is disabled. The only sign that it is
    enabled is the worker module in which Spark plans.
    """
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules


def supported_filters(filters: Iterable[Any]) -> list[Comparison]:
    """
    Return the filters that compare a top-level column with values; others are left out.
    """
    return [
        Comparison(candidate.attribute[0], _OPERATORS[type(candidate).__name__], candidate.value)
        for candidate in filters
        if type(candidate).__name__ in _OPERATORS and len(candidate.attribute) == 1
    ]


_SimpleReader: Any = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)


class PrefetchedReader:
    """
    Lets a stream reader attach a micro-batch's records to its only input partition.

    Spark stores them as a block, which the task reads instead of calling ``read``; if the block is
    lost, the task calls ``read``. Spark takes records only from an instance of its own
    ``_SimpleStreamReaderWrapper``, but takes neither read limits nor latest offsets from such an
    instance. So a reader claims to be of that class only while records are attached.
    """

    _attached: list[pa.RecordBatch] | None = None

    def attach(self, records: list[pa.RecordBatch]) -> None:
        """
        Attach the records to the plan that is about to be returned.
        """
        self._attached = records

    def getCache(self, start: object, end: object) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """
        Return the attached records and detach them; Spark calls this once for each such plan.
        """
        attached, self._attached = self._attached or [], None
        return iter(attached)

    @property  # type: ignore[misc] # assigning another class is not meant to work
    def __class__(self) -> type[Any]:
        return type(self) if self._attached is None else _SimpleReader


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

# Types of decoded keys and values only.
_DECODED_TYPES: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampNTZType: pa.timestamp("us"),
    DayTimeIntervalType: pa.duration("us"),
}


# The metadata key of an Arrow schema that Spark converts back to exactly the original schema.
_ROUND_TRIPS = b"roundTrips"


def source_schema(*, include_headers: bool) -> StructType:
    """
    Return the source's columns as a Spark schema.
    """
    names = [name for name in SOURCE_TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, _SPARK_TYPES[SOURCE_TYPES[name]]) for name in names])


def arrow_schema(schema: StructType) -> pa.Schema:
    """
    Return the Arrow schema that Spark expects of record batches for this schema.

    From 4.2 on Spark rejects a batch whose schema differs at all, nullability included. A type that
    is invalid for every column becomes ``null``, which the check of the columns rejects.
    """
    arrow = pa.schema([_arrow_field(field) for field in schema.fields])
    # Before 4.2 the default was to convert timestamps without a zone to TIMESTAMP.
    round_trips = from_arrow_schema(arrow, prefer_timestamp_ntz=True) == schema
    return arrow.with_metadata({_ROUND_TRIPS: b"true"}) if round_trips else arrow


def supports_prefetched_records(schema: pa.Schema) -> bool:
    """
    Whether Spark accepts records of this schema together with the plan of a micro-batch.

    Spark rejects them if the Arrow schema, converted back, is not the query's schema, for example
    because a column has a comment or a collation.
    """
    return hasattr(_SimpleReader, "getCache") and _ROUND_TRIPS in (schema.metadata or {})


def _arrow_field(field: StructField) -> pa.Field:
    # The metadata holds the name of Spark's type, for messages; comparisons ignore it.
    metadata = {TYPE_NAME: field.dataType.simpleString().upper()}
    arrow = _arrow_type(field.dataType)
    return pa.field(field.name, arrow, field.nullable or arrow == pa.null(), metadata)


def _arrow_type(spark_type: DataType) -> pa.DataType:
    if isinstance(spark_type, ArrayType):
        element = _arrow_type(spark_type.elementType)
        return pa.list_(pa.field("element", element, spark_type.containsNull))
    if isinstance(spark_type, StructType):
        return pa.struct([_arrow_field(field) for field in spark_type.fields])
    if isinstance(spark_type, StringType):
        return pa.string()
    if isinstance(spark_type, DecimalType):
        return pa.decimal128(spark_type.precision, spark_type.scale)
    if isinstance(spark_type, MapType):
        item = _arrow_type(spark_type.valueType)
        return pa.map_(
            pa.field("key", _arrow_type(spark_type.keyType), nullable=False),
            pa.field("value", item, spark_type.valueContainsNull),
        )
    simple = {type(spark): arrow for arrow, spark in _SPARK_TYPES.items()} | _DECODED_TYPES
    return simple.get(type(spark_type), pa.null())


def rows_to_batches(
    rows: Iterator[Any], schema: StructType, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """
    Yield the columns ``names`` of Spark's rows as Arrow batches, for Spark 4.0's stream writer.
    """
    written = arrow_schema(StructType([field for field in schema.fields if field.name in names]))
    while chunk := [_to_dict(row, written.names) for row in islice(rows, BATCH_RECORDS)]:
        yield pa.RecordBatch.from_pylist(chunk, schema=written)


def _to_dict(row: Any, names: list[str]) -> dict[str, Any]:
    values = row.asDict(recursive=True)
    selected = {name: values[name] for name in names}
    if selected.get("timestamp") is not None:
        # Spark 4.0 passes timestamps without a zone, in the local time of the worker process.
        selected["timestamp"] = selected["timestamp"].astimezone(UTC)
    return selected
