"""
The checks of schemas, without Spark.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES, check_sink_schema, check_source_schema


def schema(**types: pa.DataType) -> pa.Schema:
    """
    Return a schema of these columns.
    """
    return pa.schema(list(types.items()))


def not_null(**types: pa.DataType) -> pa.Schema:
    """
    Return a schema of these columns, which are not nullable.
    """
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def test_valid_source_schemas() -> None:
    """
    The full schema, and a subset in any order with STRING for BINARY, are accepted.
    """
    check_source_schema(pa.schema(list(SOURCE_TYPES.items())), include_headers=True)
    check_source_schema(schema(offset=pa.int64(), value=pa.string()), include_headers=False)


def test_columns_that_each_record_has_may_be_not_null() -> None:
    """
    Each record has a topic, a partition, an offset and a timestamp, and each header has a key.
    """
    nullable = {"key", "value", "headers"}
    always = {name: kind for name, kind in SOURCE_TYPES.items() if name not in nullable}
    header = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
    headers = pa.field("headers", pa.list_(pa.field("element", header, nullable=False)))

    check_source_schema(pa.schema([*not_null(**always), headers]), include_headers=True)


@pytest.mark.parametrize(
    ("field", "path"),
    [
        (pa.field("headers", HEADERS, nullable=False), "'headers'"),
        (
            pa.field(
                "headers",
                pa.list_(
                    pa.struct(
                        [("key", pa.string()), pa.field("value", pa.binary(), nullable=False)]
                    )
                ),
            ),
            "'headers.element.value'",
        ),
    ],
)
def test_headers_may_be_missing(field: pa.Field, path: str) -> None:
    """
    A record may have no headers, and a header no value.
    """
    with pytest.raises(OptionsError, match=f"{path} is NOT NULL"):
        check_source_schema(pa.schema([field]), include_headers=True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (schema(vlaue=pa.binary()), "'vlaue' is not a column.*did you mean 'value'"),
        (schema(offset=pa.int32()), "'offset' has type int32; it must be int64"),
        (schema(value=pa.int64()), "'value' has type int64; it must be binary or string"),
        (schema(headers=HEADERS), "set includeHeaders to true"),
        (schema(), "the schema is empty"),
        (not_null(key=pa.binary()), "'key' is NOT NULL; it must be nullable, since a record may"),
        (not_null(value=pa.string()), "'value' is NOT NULL; it must be nullable"),
    ],
)
def test_invalid_source_schemas(columns: pa.Schema, message: str) -> None:
    """
    An unknown column, or a wrong type, is rejected by the name of the column.
    """
    with pytest.raises(OptionsError, match=message):
        check_source_schema(columns, include_headers=False)


def test_all_schema_mistakes_are_in_one_error() -> None:
    """
    One error lists the mistakes of every column.
    """
    with pytest.raises(OptionsError) as caught:
        check_source_schema(schema(a=pa.int32(), offset=pa.int32()), include_headers=False)
    assert len(caught.value.mistakes) == 2


@pytest.mark.parametrize("text", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_sink_accepts_text_and_bytes(text: pa.DataType) -> None:
    """
    Keys and values can be text or bytes, with 32 or 64 bit lengths.
    """
    check_sink_schema(schema(key=text, value=text, other=pa.float64()), topic_option=True)


def test_sink_ignores_nullability_of_headers() -> None:
    """
    Nullability inside the headers does not matter to the sink.
    """
    strict = pa.struct(
        [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    )
    listed = pa.list_(pa.field("element", strict, nullable=False))

    check_sink_schema(schema(value=pa.string(), headers=listed), topic_option=True)


@pytest.mark.parametrize(
    ("columns", "topic_option", "message"),
    [
        (schema(key=pa.string()), True, "'value' is missing"),
        (schema(value=pa.string()), False, "no topic is given"),
        (schema(value=pa.string(), topic=pa.int32()), False, "unsupported type of column 'topic'"),
        (schema(value=pa.string(), headers=pa.string()), True, "'headers': string; it must be ARR"),
    ],
)
def test_invalid_sink_schemas(columns: pa.Schema, message: str, *, topic_option: bool) -> None:
    """
    Rows that cannot become records are rejected by the name of the column.
    """
    with pytest.raises(OptionsError, match=message):
        check_sink_schema(columns, topic_option=topic_option)
