"""
The columns of typed topics that Spark gets at load(), and the readers made for them.
"""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_pykafka import DefaultSource
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.spark.compat import arrow_schema, supports_prefetched_records

READ = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
JSON = {**READ, "valueformat": "json"}
EVERYTHING = StructType(
    [
        StructField(f"f{index}", kind)
        for index, kind in enumerate(
            [
                *(BooleanType(), ByteType(), ShortType(), FloatType(), DoubleType(), DateType()),
                *(TimestampType(), TimestampNTZType(), DecimalType(9, 2), LongType()),
                MapType(StringType(), ArrayType(StructType([StructField("x", LongType())]))),
            ]
        )
    ]
)


@pytest.mark.parametrize(
    ("options", "ddl"),
    [
        (
            {"valueschema": "a INT", "keyformat": "text"},
            (
                "STRUCT<key STRING, value STRUCT<a INT>, topic STRING, partition INT, "
                "offset BIGINT, timestamp TIMESTAMP, timestampType INT>"
            ),
        ),
        (
            {"valueschema": " STRUCT<a: INT> ", "flatten": "true", "onbadrecord": "rescue"},
            (
                "STRUCT<a: INT, _topic STRING, _partition INT, _offset BIGINT, "
                "_timestamp TIMESTAMP, _raw BINARY, _error STRING>"
            ),
        ),
        (
            {
                "valueformat": "avro",
                "flatten": "true",
                "valueschema": '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
            },
            (
                "STRUCT<`a`: INT, _topic STRING, _partition INT, _offset BIGINT, "
                "_timestamp TIMESTAMP>"
            ),
        ),
        (
            {"valueschema": EVERYTHING["f10"].dataType.json()},
            (
                "STRUCT<key BINARY, value MAP<string, ARRAY<STRUCT<`x`: long>>>, topic STRING, "
                "partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT>"
            ),
        ),
    ],
)
def test_columns_without_a_user_schema(options: dict[str, str], ddl: str) -> None:
    """
    If the user gives load() no schema, Spark gets the decoded columns and the record's other
    columns as DDL.
    """
    assert DefaultSource({**JSON, **options}).schema() == ddl


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set valueSchema, such as"),
        (
            {"valueschema": "a INT", "keyformat": "json"},
            "keyFormat is 'json', but its type is miss",
        ),
        ({"valueschema": '{"type":"x"}'}, "valueSchema is .* must be: a type as DDL"),
        ({"valueschema": "ARRAY<INT>", "flatten": "true"}, "must be: a STRUCT"),
        ({"valueschema": "a INT", "maxbadrecords": "3"}, "must be: null, rescue or deadletter"),
        ({"valueformat": "text", "flatten": "true"}, "is 'text'; set it to json, avro, protobuf"),
        ({"valueformat": "raw", "onbadrecord": "null"}, "nothing is decoded"),
        ({"valueformat": "raw", "keyschema": "INT"}, "is 'raw'; set it to json, avro or protobuf"),
        (
            {"valueschema": "a INT", "debeziumrows": "true"},
            "debeziumRows is set, but",
        ),
        ({"valueformat": "avro"}, "valueFormat is 'avro', but its schema is missing"),
        ({"valueformat": "protobuf"}, "valueFormat is 'protobuf', but its schema is missing"),
        ({"valueformat": "protobuf", "valueschema": "/x.desc"}, "'/x.desc' cannot be read on the"),
        ({"valueformat": "json", "valuemessagename": "M"}, "is 'json'; set it to protobuf"),
        (
            {"valueformat": "avro", "valueschema": "a INT"},
            "valueSchema is not a usable Avro schema.* not JSON",
        ),
        (
            {"valueformat": "avro", "valueschema": '"string"', "flatten": "true"},
            "the type of value is STRING; it must be: a STRUCT",
        ),
        ({"valueformat": "xml"}, "must be: one of: raw, text, json, avro, protobuf"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    """
    The error at load() names the options, and says what to do.
    """
    with pytest.raises(OptionsError, match=message):
        DefaultSource({**JSON, **options}).schema()


def test_every_type_goes_to_arrow_and_back() -> None:
    """
    Every type survives the conversion to Arrow and back, so that Spark accepts batches from the
    driver and from tasks.
    """
    schema = StructType([StructField("value", EVERYTHING), StructField("offset", LongType())])

    assert supports_prefetched_records(arrow_schema(schema))


def test_readers_are_pickled_with_their_format() -> None:
    """
    Readers of typed columns are pickled with their format and settings.
    """
    source = DefaultSource({**JSON, "valueschema": "a INT"})
    schema = StructType([StructField("value", EVERYTHING)])

    reader = pickle.loads(pickle.dumps(source.reader(schema)))  # noqa: S301
    stream = pickle.loads(pickle.dumps(source.streamReader(schema)))  # noqa: S301

    assert reader._format.schema == stream._format.schema == arrow_schema(schema)
    assert reader._settings.schema == pa.schema([("value", pa.binary()), ("offset", pa.int64())])


def test_intervals_are_durations() -> None:
    """
    An interval of days to seconds, as Protobuf has it, is Arrow's duration in microseconds.
    """
    schema = arrow_schema(StructType([StructField("span", DayTimeIntervalType())]))
    assert schema.field("span").type == pa.duration("us")
    assert supports_prefetched_records(schema)
