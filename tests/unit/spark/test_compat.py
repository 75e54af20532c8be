"""
What a stream reader lets Spark believe, and of which schemas Spark takes records from it.
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

#: What Spark looks for before it asks a reader for records.
SPARKS_OWN: Any = datasource_internal._SimpleStreamReaderWrapper


def test_a_reader_passes_for_sparks_own_just_while_it_carries() -> None:
    """
    With records on hand Spark asks for them, once; at other times the reader is what it is.
    """
    reader = PrefetchedReader()
    records = [pa.record_batch([pa.array([1])], ["offset"])]
    before = isinstance(reader, SPARKS_OWN)

    reader.attach(records)

    assert (before, isinstance(reader, SPARKS_OWN)) == (False, True)
    assert list(reader.getCache({}, {})) == records
    assert not isinstance(reader, SPARKS_OWN)
    assert isinstance(reader, PrefetchedReader)


def test_a_batch_without_records_is_carried_too() -> None:
    """
    No records are an answer, different from none having been read.
    """
    reader = PrefetchedReader()
    reader.attach([])

    assert isinstance(reader, SPARKS_OWN)
    assert list(reader.getCache({}, {})) == []


@pytest.mark.parametrize("include_headers", [True, False])
def test_records_of_the_full_schema_are_taken(*, include_headers: bool) -> None:
    """
    What a user gets without a schema can be carried, headers included.
    """
    assert supports_prefetched_records(arrow_schema(source_schema(include_headers=include_headers)))


@pytest.mark.parametrize(
    ("field", "taken"),
    [
        (StructField("value", BinaryType()), True),
        (StructField("offset", LongType(), nullable=False), True),
        (StructField("value", BinaryType(), metadata={"comment": "sent"}), False),
        (StructField("key", StringType("UTF8_LCASE")), False),
    ],
    ids=["plain", "not null", "comment", "collation"],
)
def test_schemas_that_arrow_cannot_tell_are_not_taken(field: StructField, *, taken: bool) -> None:
    """
    Spark compares schemas to the letter, and Arrow's keeps neither comments nor collations.
    """
    schema = StructType([StructField("timestampType", IntegerType()), field])

    assert supports_prefetched_records(arrow_schema(schema)) is taken
