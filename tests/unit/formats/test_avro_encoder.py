"""
The Avro encoder: it agrees with fastavro for any schema, derives Spark's schemas, and names errors.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.arrow_forms import any_form
from tests.support.avro_columns import arrow_type
from tests.unit.formats.test_avro_column import decoded, encoded, expected, random_record, record

from pyspark_pykafka.formats.avro_encoder_plan import avro_encoder_plan
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.derived_schemas import avro_schema
from pyspark_pykafka.formats.encoded_column import EncodedColumn, EncodingError
from pyspark_pykafka.formats.write_format import WrittenColumn

ROOM = 1 << 24
UTC_TIME = pa.timestamp("us", tz="UTC")
TIMES = pa.field("element", pa.struct([("t", UTC_TIME)]), nullable=False)


def written(values: pa.Array, schema: Any, prefix: bytes = b"") -> list[bytes | None]:
    """
    Return the encoded values of an array.
    """
    column = WrittenColumn("value", "avro", values.type, json.dumps(schema), prefix)
    texts = EncodedColumn(column).encode(values, 0, len(values), ROOM)
    texts.validate(full=True)
    payloads: list[bytes | None] = texts.to_pylist()
    return payloads


def field_error(kind: pa.DataType, value: Any, schema: Any) -> str:
    """
    Return the error's text for a field that does not fit.
    """
    values = pa.array([{"f": value}], pa.struct([("f", kind)]))
    whole = record(("f", schema))
    column = EncodedColumn(WrittenColumn("value", "avro", values.type, json.dumps(whole)))
    with pytest.raises(EncodingError) as caught:
        column.encode(values, 0, 1, ROOM)
    assert caught.value.row == 0
    return column.describe(caught.value)


def mistakes(kind: pa.DataType, schema: Any) -> list[str]:
    return avro_encoder_plan("value", kind, parse_avro(json.dumps(schema)))[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.data())
def test_equal_to_fastavro(seed: int, data: st.DataObject) -> None:
    """
    Records of any schema, from arrays of any layout in memory, are encoded as by fastavro.
    """
    generator = random.Random(seed)
    schema, _, values = random_record(generator, 0)
    kind = arrow_type(parse_avro(json.dumps(schema)))
    rows = data.draw(st.lists(values, min_size=1, max_size=4))
    form = any_form(pa.array([expected(row, kind) for row in rows], kind), generator)

    form.validate(full=True)
    column = EncodedColumn(WrittenColumn("value", "avro", kind, json.dumps(schema)))
    assert column.encode(form, 0, len(form), ROOM).to_pylist() == encoded(schema, *rows)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.data())
def test_derived_schemas_are_read_back(seed: int, data: st.DataObject) -> None:
    """
    Values that were written with the schema derived from their type are read back unchanged.
    """
    _, kind, values = random_record(random.Random(seed), 0)
    rows = data.draw(st.lists(values, max_size=3))
    array = pa.array([None, *(expected(row, kind) for row in rows)], kind)
    schema = json.loads(avro_schema(kind))

    texts = written(array, schema)

    actual, bad = decoded(schema, kind, *texts)
    assert (actual, bad) == (array.to_pylist(), [])


def test_derived_schema_is_that_of_spark() -> None:
    """
    Names, namespaces, sizes and the order of unions are those of Spark's SchemaConverters.
    """
    kind = pa.struct(
        [
            pa.field("id", pa.int16(), nullable=False),
            pa.field("price", pa.decimal128(9, 2)),
            pa.field("at", pa.list_(TIMES)),
            pa.field("m", pa.map_(pa.string(), pa.timestamp("us"))),
        ]
    )
    price = {
        "type": "fixed",
        "name": "fixed",
        "namespace": "topLevelRecord.price",
        "size": 4,
        "logicalType": "decimal",
        "precision": 9,
        "scale": 2,
    }
    time = {"type": "long", "logicalType": "timestamp-micros"}
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    inner = {
        "type": "record",
        "name": "at",
        "namespace": "topLevelRecord",
        "fields": [{"name": "t", "type": [time, "null"]}],
    }

    assert json.loads(avro_schema(kind)) == {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "price", "type": [price, "null"]},
            {"name": "at", "type": [{"type": "array", "items": inner}, "null"]},
            {"name": "m", "type": [{"type": "map", "values": [local, "null"]}, "null"]},
        ],
    }
    named = json.loads(avro_schema(kind, "com.shop.Order"))
    assert (named["namespace"], named["name"]) == ("com.shop", "Order")
    assert named["fields"][1]["type"][0]["namespace"] == "com.shop.Order.price"


@pytest.mark.parametrize(
    ("kind", "value", "schema", "text"),
    [
        (pa.int32(), None, "int", "value.f is null, but int in the schema is not nullable"),
        (
            *(pa.decimal128(9, 2), Decimal("1234567.89")),
            {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
            "value.f has more than 8 digits",
        ),
        (
            *(pa.decimal128(10, 2), Decimal("12345678.90")),
            {"type": "fixed", "name": "x", "size": 4, "logicalType": "decimal", "precision": 9}
            | {"scale": 2},
            "value.f has more than 9 digits, or more than fit the schema's type",
        ),
        (
            *(pa.string(), "C", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            "value.f is not a symbol of the enum",
        ),
        (
            *(pa.binary(), b"abc", {"type": "fixed", "name": "X", "size": 2}),
            "value.f does not have the 2 bytes",
        ),
        (
            *(UTC_TIME, datetime(9999, 1, 1, tzinfo=UTC)),
            {"type": "long", "logicalType": "timestamp-nanos"},
            "value.f is out of range for timestamp-nanos",
        ),
    ],
)
def test_values_that_do_not_fit(kind: pa.DataType, value: Any, schema: Any, text: str) -> None:
    """
    A value that the schema cannot hold is an error that names the field and the reason.
    """
    assert field_error(kind, value, schema).startswith(text)


def test_strings_must_be_utf8() -> None:
    """
    A string that is not UTF-8 is an error that names the column.
    """
    content = pa.py_buffer(b"ok\xff")
    ends = pa.py_buffer(b"\x00\x00\x00\x00\x03\x00\x00\x00")
    text = pa.StringArray.from_buffers(1, ends, content)
    column = EncodedColumn(WrittenColumn("key", "avro", pa.string(), '"string"'))

    with pytest.raises(EncodingError) as caught:
        column.encode(text, 0, 1, ROOM)

    assert column.describe(caught.value) == "key is a string that is not UTF-8; make it BINARY"


def test_schemas_of_the_user() -> None:
    """
    Fields are matched by name; missing ones have their default or null, and types may be wider.
    """
    schema = record(
        ("new", "string"),
        ("id", "long"),
        ("kind", ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]),
        ("free", ["null", "string"]),
        ("ratio", "double"),
        ("day", {"type": "int", "logicalType": "date"}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    )
    schema["fields"][0]["default"] = "none"
    kind = pa.struct(
        [
            *(("id", pa.int8()), ("kind", pa.string()), ("ratio", pa.float32())),
            *(("at", UTC_TIME), ("day", pa.date32())),
        ]
    )
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    row = {"id": -1, "kind": "B", "ratio": 0.5, "at": moment, "day": date(1970, 1, 2)}

    (text,) = written(pa.array([row], kind), schema)

    assert [text] == encoded(
        schema,
        {**row, "new": "none", "free": None, "at": moment.replace(microsecond=999_000)},
    )


def test_unions_of_several_types() -> None:
    """
    A struct with from_avro's fields is written as the branch that is not null in it, and a value of
    another type as the branch that it fits.
    """
    schema = record(("u", ["null", "string", "long", "boolean"]))
    members = pa.struct([("member0", pa.string()), ("member1", pa.int64())])
    rows = [{"member0": "a"}, {"member1": 5}, {}, None]
    array = pa.array([{"u": row} for row in rows], pa.struct([("u", members)]))
    flags = pa.array([{"u": True}], pa.struct([("u", pa.bool_())]))

    texts = written(array, schema) + written(flags, schema)

    assert texts == encoded(schema, *({"u": v} for v in ("a", 5, None, None, True)))


@pytest.mark.parametrize(
    "member",
    [
        pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
        pa.struct([("member0", pa.struct([("member0", pa.int32())]))]),
    ],
)
def test_unions_of_a_read_with_a_derived_schema(member: pa.DataType) -> None:
    """
    A column that was read from a union is written as the record of its derived schema, and is read
    back equal.
    """
    kind = pa.struct([("id", pa.int64()), ("u", member), ("all", pa.list_(member))])
    schema = json.loads(avro_schema(kind))
    assert mistakes(kind, schema) == []
    one = pa.array([{}, None], member).to_pylist()
    values = pa.array([{"id": 1, "u": u, "all": one} for u in one], kind)

    actual, bad = decoded(schema, kind, *written(values, schema))

    assert (actual, bad) == (values.to_pylist(), [])


def test_record_with_the_fields_of_members_in_a_union() -> None:
    """
    A struct is written as the record of a branch with the same fields, unless it has a member of
    the type of each branch.
    """
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "member0", "type": "int"}, {"name": "member1", "type": "string"}],
    }
    schema = record(("u", ["null", inner, "boolean"]))
    pair = pa.struct([("member0", pa.int32()), ("member1", pa.string())])
    members = pa.struct([("member0", pair), ("member1", pa.bool_())])
    value = {"member0": 1, "member1": "x"}
    for kind, field in ((pair, value), (members, {"member0": value})):
        array = pa.array([{"u": field}], pa.struct([("u", kind)]))
        assert written(array, schema) == encoded(schema, {"u": value})


@pytest.mark.parametrize(
    ("kind", "branches", "values"),
    [
        (
            pa.string(),
            ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string"],
            ["A", "zz", "B", "", None],
        ),
        (
            pa.string(),
            [
                {"type": "enum", "name": "E", "symbols": ["A"]},
                {"type": "enum", "name": "F", "symbols": ["B"]},
            ],
            ["B", "A"],
        ),
        (
            pa.binary(),
            [{"type": "fixed", "name": "F", "size": 2}, "null", "bytes"],
            [b"ab", b"a", b"", None],
        ),
    ],
)
def test_branch_that_can_hold_a_value(kind: pa.DataType, branches: Any, values: Any) -> None:
    """
    Each value is written as the first branch of the column's type that can hold it, as by fastavro.
    """
    schema = record(("u", branches))
    array = pa.array([{"u": value} for value in values], pa.struct([("u", kind)]))

    assert written(array, schema) == encoded(schema, *({"u": value} for value in values))


def test_decimals_in_a_union() -> None:
    """
    A decimal is written as the first branch with enough digits.
    """
    branches = [
        {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2},
        {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9}
        | {"scale": 2},
    ]
    values = [Decimal("1.23"), Decimal("1234567.89"), Decimal("-9.99")]
    kind = pa.struct([("u", pa.decimal128(9, 2))])

    assert written(pa.array([{"u": value} for value in values], kind), record(("u", branches))) == [
        *(b"\x00\x02\x7b", b"\x02\x07\x5b\xcd\x15", b"\x00\x04\xfc\x19")
    ]


def test_value_that_no_branch_can_hold() -> None:
    """
    The error of a value that no branch can hold has the reason of the last branch.
    """
    fixed = [{"type": "fixed", "name": f"F{size}", "size": size} for size in (2, 4)]
    assert field_error(pa.binary(), b"abc", fixed) == (
        "value.f does not have the 4 bytes of the schema's fixed type"
    )


@pytest.mark.parametrize("null", [[], ["null"]])
def test_two_members_of_a_union(null: list[str]) -> None:
    """
    A union has one value, so a second member that is not NULL is an error and not left out.
    """
    kind = pa.struct([("member0", pa.int32()), ("member1", pa.string()), ("member2", pa.bool_())])
    schema = [*null, "int", "string", "boolean"]
    for value, path in (
        ({"member0": 1, "member1": "x"}, "member1"),
        ({"member1": "x", "member2": False}, "member2"),
        ({"member0": 0, "member1": "", "member2": False}, "member1"),
    ):
        assert field_error(kind, value, schema) == (
            f"value.f.{path} is set, and so is another member of its union; at most one of them "
            "may be non-null"
        )


@pytest.mark.parametrize(
    ("kind", "schema", "text"),
    [
        ([("idd", pa.int32())], record(("id", "int")), "did you mean 'id'?"),
        ([], record(("id", "int")), "'value.id' is missing; add it"),
        ([("id", pa.int64())], record(("id", "int")), "'value.id' is BIGINT, but Avro's int"),
        (
            [("id", pa.decimal128(4, 1))],
            record(("id", {"type": "bytes", "logicalType": "decimal", "precision": 4})),
            "has the scale 0",
        ),
        ([("id", pa.int32())], record(("id", ["null", "string", "bytes"])), "no branch of its"),
        (
            [("id", pa.string())],
            record(("id", {"type": "enum", "name": "E", "symbols": ["A", ""]})),
            "the enum of 'value.id' has an empty symbol; remove it",
        ),
    ],
)
def test_columns_without_a_place_in_the_schema(kind: Any, schema: Any, text: str) -> None:
    """
    Before anything is written, each field that cannot be encoded is named.
    """
    assert text in "\n".join(mistakes(pa.struct(kind), schema))


def test_a_long_string_and_many_rows() -> None:
    """
    Thousands of rows with long strings are encoded as by fastavro, each with its prefix.
    """
    values = pa.array(
        [{"s": "é" * (i % 700)} for i in range(3000)], pa.struct([("s", pa.string())])
    )
    schema = record(("s", "string"))

    assert written(values[7:], schema, b"\x00\x00\x00\x00\x01") == [
        b"\x00\x00\x00\x00\x01" + text for text in encoded(schema, *values.to_pylist()[7:])
    ]
