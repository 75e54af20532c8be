"""
When Spark takes prefetched records from a stream reader, and for which schemas.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource_internal
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_pykafka.spark.compat import (
    PrefetchedReader,
    arrow_schema,
    source_schema,
    supports_prefetched_records,
)

#: Spark takes records only from instances of this class.
SPARK_WRAPPER: Any = datasource_internal._SimpleStreamReaderWrapper


def test_reader_is_a_wrapper_only_while_records_are_attached() -> None:
    """
    A reader is an instance of Spark's wrapper from attach() until getCache(), and at no other time.
    """
    reader = PrefetchedReader()
    records = [pa.record_batch([pa.array([1])], ["offset"])]
    before = isinstance(reader, SPARK_WRAPPER)

    reader.attach(records)

    assert (before, isinstance(reader, SPARK_WRAPPER)) == (False, True)
    assert list(reader.getCache({}, {})) == records
    assert not isinstance(reader, SPARK_WRAPPER)
    assert isinstance(reader, PrefetchedReader)


def test_empty_batch_can_be_attached() -> None:
    """
    An empty list of records is attached too, unlike a batch that was not prefetched.
    """
    reader = PrefetchedReader()
    reader.attach([])

    assert isinstance(reader, SPARK_WRAPPER)
    assert list(reader.getCache({}, {})) == []


@pytest.mark.parametrize("include_headers", [True, False])
def test_full_schema_supports_prefetched_records(*, include_headers: bool) -> None:
    """
    Records of the default schema can be attached, headers included.
    """
    assert supports_prefetched_records(arrow_schema(source_schema(include_headers=include_headers)))


@pytest.mark.parametrize(
    ("field", "supported"),
    [
        (StructField("value", BinaryType()), True),
        (StructField("offset", LongType(), nullable=False), True),
        (StructField("value", BinaryType(), metadata={"comment": "sent"}), False),
        (StructField("key", StringType("UTF8_LCASE")), False),
    ],
    ids=["plain", "not null", "comment", "collation"],
)
def test_schemas_that_do_not_round_trip_are_not_supported(
    field: StructField, *, supported: bool
) -> None:
    """
    An Arrow schema keeps neither comments nor collations, and Spark compares schemas exactly.
    """
    schema = StructType([StructField("timestampType", IntegerType()), field])

    assert supports_prefetched_records(arrow_schema(schema)) is supported
