"""
The Avro decoder: it agrees with fastavro for any schema, and names the errors of bad values.
"""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fuzz.avro_mutations import decode_any, values
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.random_choices import RandomChoices

from pyspark_pykafka.formats.avro_decoder import AvroColumn
from pyspark_pykafka.formats.avro_decoder_plan import writer_plan
from pyspark_pykafka.formats.avro_schema import AvroSchemaError, parse_avro
from pyspark_pykafka.formats.avro_types import avro_ddl
from pyspark_pykafka.formats.bad_records import BadRecordPolicy, BadValue
from pyspark_pykafka.formats.ddl_types import arrow_type

LENIENT = BadRecordPolicy("null")
ROOM = 1 << 20
UTC_TIME = pa.timestamp("us", tz="UTC")


def encoded(schema: Any, *values: Any) -> list[bytes]:
    """
    Return values as fastavro writes them.
    """
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    payloads = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        payloads.append(out.getvalue())
    return payloads


def decoded(
    schema: Any, kind: pa.DataType, *payloads: bytes | None, room: int = ROOM
) -> tuple[list[Any], list[BadValue]]:
    """
    Return the decoded values, and the bad ones with their reasons.
    """
    column = AvroColumn("value", kind, json.dumps(schema), room, LENIENT)
    assert column.decode(pa.array(payloads, pa.binary()), 0, len(payloads)) == len(payloads)
    values = column.take()
    values.validate(full=True)
    assert values.type == kind
    return values.to_pylist(), column.take_bad()


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    documents = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "Order", "fields": documents}


def has_fewest_bytes(value: Decimal) -> bool:
    """
    Return whether fastavro writes a decimal without a needless byte, as Java and our encoder do.
    """
    unscaled = int(value.scaleb(-int(value.as_tuple().exponent)))
    return -unscaled not in {1 << (8 * count - 1) for count in range(1, 17)}


# Schemas with their Arrow types and their values.
SIMPLE: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    ("boolean", pa.bool_(), st.booleans()),
    ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("int", pa.int64(), st.integers(-(2**31), 2**31 - 1)),
    ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("float", pa.float64(), st.floats(width=32, allow_nan=False)),
    ("double", pa.float64(), st.floats(allow_nan=False)),
    ("bytes", pa.binary(), st.binary(max_size=20)),
    ("string", pa.string(), st.text(max_size=20)),
    ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        UTC_TIME,
        st.datetimes(timezones=st.just(UTC)),
    ),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        UTC_TIME,
        st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=5000)),
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        pa.timestamp("us"),
        st.datetimes(),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        pa.decimal128(20, 3),
        st.decimals(-(10**16), 10**16, places=3).filter(has_fewest_bytes),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
        pa.decimal128(38, 0),
        st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal).filter(has_fewest_bytes),
    ),
]
Typed = tuple[Any, pa.DataType, st.SearchStrategy[Any]]


def random_schema(generator: random.Random, depth: int = 0) -> Typed:
    """
    Return a schema of any shape, its Arrow type, and its values.
    """
    kind = generator.randrange(6 if depth < 3 else 1)
    if kind == 1:
        inner, arrow, values = random_schema(generator, depth + 1)
        return {"type": "array", "items": inner}, pa.list_(arrow), st.lists(values, max_size=3)
    if kind == 2:
        inner, arrow, values = random_schema(generator, depth + 1)
        pairs = st.dictionaries(st.text(max_size=3), values, max_size=3)
        return {"type": "map", "values": inner}, pa.map_(pa.string(), arrow), pairs
    if kind == 3:
        inner, arrow, values = random_schema(generator, depth + 1)
        if isinstance(inner, list):
            return inner, arrow, values
        nullable = ["null", inner] if generator.randrange(2) else [inner, "null"]
        return nullable, arrow, st.none() | values
    if kind >= 4:
        return random_record(generator, depth)
    return SIMPLE[generator.randrange(len(SIMPLE))]


def random_record(generator: random.Random, depth: int) -> Typed:
    parts = {f"f{i}": random_schema(generator, depth + 1) for i in range(generator.randrange(1, 5))}
    schema = record(*((name, part[0]) for name, part in parts.items()))
    schema["name"] = f"R{generator.randrange(10**12)}"
    kind = pa.struct([(name, part[1]) for name, part in parts.items()])
    return schema, kind, st.fixed_dictionaries({name: part[2] for name, part in parts.items()})


def expected(value: Any, kind: pa.DataType) -> Any:
    """
    Return a value as Arrow would return it.
    """
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(name, expected(item, kind.item_type)) for name, item in value.items()]
    if pa.types.is_list(kind):
        return [expected(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {f.name: expected(value[f.name], f.type) for f in kind}
    return value


def narrowed(kind: pa.DataType, generator: random.Random) -> pa.DataType:
    """
    Return a type without some of its fields, and with the others in another order.
    """
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), narrowed(kind.item_type, generator))
    if pa.types.is_list(kind):
        return pa.list_(narrowed(kind.value_type, generator))
    if not pa.types.is_struct(kind):
        return kind
    fields = [(f.name, narrowed(f.type, generator)) for f in kind]
    return pa.struct(generator.sample(fields, generator.randrange(1, len(fields) + 1)))


@settings(max_examples=300)
@given(st.integers(0, 10**9), st.data())
def test_equals_fastavro(seed: int, data: st.DataObject) -> None:
    """
    Values of any schema are decoded as they were written, whichever of their fields are requested.
    """
    generator = random.Random(seed)
    schema, whole, values = random_schema(generator)
    written = data.draw(st.lists(values, min_size=1, max_size=4))
    kind = narrowed(whole, generator)

    actual, bad = decoded(schema, kind, *encoded(schema, *written))

    assert bad == []
    assert actual == [expected(value, kind) for value in written]


ORDER = record(
    ("id", "long"),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    ("code", {"type": "fixed", "name": "Code", "size": 3}),
    ("price", ["null", "int", "long"]),
    ("who", ["null", "string", "long"]),
    ("at", {"type": "long", "logicalType": "timestamp-nanos"}),
)
ORDER_KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("state", pa.string()),
        ("code", pa.binary()),
        ("price", pa.int64()),
        ("who", pa.struct([("member0", pa.string()), ("member1", pa.int64())])),
        ("at", UTC_TIME),
    ]
)


def test_enums_fixed_and_unions() -> None:
    """
    An enum becomes its symbol, a union of numbers the wider type, and any other union a struct of
    its branches.
    """
    nanos = {**ORDER, "fields": [*ORDER["fields"][:-1], {"name": "at", "type": "long"}]}
    base = {"id": 1, "state": "PAID", "code": b"abc", "price": 5, "at": -1}
    payloads = encoded(nanos, {**base, "who": "x"}, {**base, "who": 7}, {**base, "who": None})

    values, bad = decoded(ORDER, ORDER_KIND, *payloads)

    assert bad == []
    assert [value["who"] for value in values] == [
        {"member0": "x", "member1": None},
        {"member0": None, "member1": 7},
        None,
    ]
    before = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
    assert values[0] == {
        "id": 1,
        "state": "PAID",
        "code": b"abc",
        "price": 5,
        "at": before,
        "who": {"member0": "x", "member1": None},
    }


def test_ddl_is_that_of_from_avro() -> None:
    """
    The type of a schema is the one that Spark's guide gives for from_avro.
    """
    assert avro_ddl(parse_avro(json.dumps(ORDER))) == (
        "STRUCT<`id`: BIGINT, `state`: STRING, `code`: BINARY, `price`: BIGINT, "
        "`who`: STRUCT<`member0`: STRING, `member1`: BIGINT>, `at`: TIMESTAMP>"
    )


MARKER = {"type": "record", "name": "Marker", "fields": []}
EMPTY_PARTS = record(
    ("id", "int"),
    ("marker", MARKER),
    ("nothing", "null"),
    ("alone", ["null", "Marker"]),
    ("listed", {"type": "array", "items": "null"}),
    ("mapped", {"type": "map", "values": ["null", "Marker"]}),
    (
        "wrapped",
        {"type": "record", "name": "Outer", "fields": [{"name": "marker", "type": "Marker"}]},
    ),
    ("event", ["null", "Marker", "long", "string"]),
    ("note", "string"),
)


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"type": "bytes", "precision": True, "scale": False}, "BINARY"),
        ({"type": "bytes", "precision": 39}, "BINARY"),
        ({"type": "bytes", "precision": 2, "scale": 3}, "BINARY"),
        ({"type": "fixed", "name": "f", "size": 1, "precision": 3}, "BINARY"),
        ({"type": "fixed", "name": "f", "size": 1, "precision": 2}, "DECIMAL(2, 0)"),
        ({"type": "fixed", "name": "f", "size": 8, "precision": 19}, "BINARY"),
        ({"type": "fixed", "name": "f", "size": 8, "precision": 18}, "DECIMAL(18, 0)"),
        ({"type": "fixed", "name": "f", "size": 16, "precision": 38}, "DECIMAL(38, 0)"),
        ({"type": "fixed", "name": "f", "size": 0, "precision": 1}, "BINARY"),
    ],
)
def test_invalid_decimals_are_bytes(schema: dict[str, Any], ddl: str) -> None:
    """
    An invalid decimal, such as one with more digits than its ``fixed`` can hold, has the type that
    it annotates, as in Avro's Java library.
    """
    text = json.dumps({**schema, "logicalType": "decimal"})

    assert avro_ddl(parse_avro(text)) == ddl


def test_types_without_values_have_no_column() -> None:
    """
    Records without fields and the type null have no column, and neither do lists, maps and unions
    of them. The other fields are decoded, and the members of a union keep their numbers.
    """
    ddl = avro_ddl(parse_avro(json.dumps(EMPTY_PARTS)))
    assert ddl == (
        "STRUCT<`id`: INT, `event`: STRUCT<`member1`: BIGINT, `member2`: STRING>, `note`: STRING>"
    )
    start = {"id": 1, "marker": {}, "nothing": None, "wrapped": {"marker": {}}, "note": "end"}
    payloads = encoded(
        EMPTY_PARTS,
        {**start, "alone": None, "listed": [], "mapped": {}, "event": ("Marker", {})},
        {**start, "alone": {}, "listed": [None], "mapped": {"a": None, "b": {}}, "event": 7},
        {**start, "alone": {}, "listed": [], "mapped": {}, "event": "x"},
        {**start, "alone": {}, "listed": [], "mapped": {}, "event": None},
    )

    values, bad = decoded(EMPTY_PARTS, arrow_type(str(ddl)), *payloads)

    assert bad == []
    assert values == [
        {"id": 1, "event": event, "note": "end"}
        for event in (
            {"member1": None, "member2": None},
            {"member1": 7, "member2": None},
            {"member1": None, "member2": "x"},
            None,
        )
    ]


def test_a_column_that_avro_has_no_value_for() -> None:
    """
    A column for a record without fields is a mistake, and the error names the remedy. A column for
    the type null is always NULL.
    """
    kind = pa.struct([("marker", pa.int32()), ("nothing", pa.int32())])

    _, mistakes = writer_plan(parse_avro(json.dumps(EMPTY_PARTS)), kind, "value")

    (mistake,) = mistakes
    assert mistake.startswith("'value.marker' is INT in the schema, but Avro's record in the rec")
    assert mistake.endswith("it must be: left out, since the records have no values for it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "value is not valid Avro: the value ends too early, at byte 0"),
        (b"\x02", "ends too early, at byte 1"),
        (b"\x02\x04", "a branch, a symbol or a boolean that the schema does not have, at byte 1"),
        (b"\x02\x00ab", "ends too early, at byte 4"),
        (b"\xff" * 11, "a number that is not a valid varint of its type"),
        (b"\x02\x00abc\x00\x02\x01", "a number that is not a valid varint of its type, at byte 7"),
        (b"\x02\x00abc\x00\x02\x04\xc3x\x00", "value.who.member0 must be STRING, but is a string"),
        (b"\x02\x00abc\x00\x00\x00\x00", "extra bytes after its end, at byte 8"),
    ],
)
def test_bad_values_are_named(text: bytes, message: str) -> None:
    """
    The reason for a bad value names the byte, or the field if only that field does not fit.
    """
    if message.startswith("value is not valid Avro: the value ends too early, at byte 0"):
        assert message in decoded(ORDER, ORDER_KIND, text)[1][0].reason
        return
    (value,), (bad,) = decoded(ORDER, ORDER_KIND, text)

    assert message in bad.reason
    assert value["price"] is None


def test_an_empty_symbol_is_a_bad_value() -> None:
    """
    A value whose symbol is empty, which Avro does not allow, is bad; other values are decoded.
    """
    schema = {"type": "enum", "name": "State", "symbols": ["", "NEW"]}

    values, (bad,) = decoded(schema, pa.string(), b"\x02", b"\x00")

    assert values == ["NEW", None]
    assert bad.reason == "value must be STRING, but is an enum's symbol that is empty, at byte 0"


def test_numbers_that_do_not_fit() -> None:
    """
    A decimal of too many digits, or a timestamp beyond Spark's range, is out of range.
    """
    schema = record(
        ("d", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}),
        ("t", {"type": "long", "logicalType": "timestamp-millis"}),
        ("x", "int"),
    )
    kind = pa.struct([("d", pa.decimal128(3, 1)), ("t", UTC_TIME), ("x", pa.int32())])
    raw = record(("d", "bytes"), ("t", "long"), ("x", "int"))
    wide = (1 << 140).to_bytes(20, "big", signed=True)
    payloads = encoded(
        raw,
        {"d": (1000).to_bytes(2, "big"), "t": 0, "x": 1},
        {"d": wide, "t": 2**62, "x": 1},
        {"d": (-999).to_bytes(30, "big", signed=True), "t": 0, "x": 1},
        {"d": b"", "t": 0, "x": 1},
    )

    values, bad = decoded(schema, kind, *payloads)

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert values == [
        {"d": None, "t": epoch, "x": 1},
        {"d": None, "t": None, "x": 1},
        {"d": Decimal("-99.9"), "t": epoch, "x": 1},
        {"d": Decimal("0.0"), "t": epoch, "x": 1},
    ]
    assert [b.reason.split(",")[0] for b in bad] == ["value.d must be DECIMAL(3"] * 2


@pytest.mark.parametrize("requested", [True, False])
def test_hostile_arrays_end(*, requested: bool) -> None:
    """
    An array with more items than bytes is refused at once, whether it is requested or skipped.
    """
    schema = record(("a", {"type": "array", "items": "null"}), ("x", "int"))
    kind = pa.struct([("a", pa.list_(pa.int32()))] if requested else [("x", pa.int32())])
    count = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"

    _, (bad,) = decoded(schema, kind, count)

    assert "more items than bytes" in bad.reason


def test_blocks_with_sizes() -> None:
    """
    An array may be written in blocks with sizes; the decoder uses the sizes to skip blocks.
    """
    schema = record(("a", {"type": "array", "items": "int"}), ("x", "int"))
    text = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00" + b"\x0e"
    both = pa.struct([("a", pa.list_(pa.int32())), ("x", pa.int32())])

    assert decoded(schema, both, text)[0] == [{"a": [1, 2, 3], "x": 7}]
    assert decoded(schema, pa.struct([("x", pa.int32())]), text) == ([{"x": 7}], [])


def test_promotions() -> None:
    """
    A column may be wider than the schema, as Avro's resolution allows.
    """
    schema = record(("i", "int"), ("l", "long"), ("f", "float"), ("s", "string"), ("b", "bytes"))
    kind = pa.struct(
        [
            *(("i", pa.float64()), ("l", pa.float64()), ("f", pa.float64())),
            *(("s", pa.binary()), ("b", pa.string())),
        ]
    )
    value = {"i": 3, "l": 4, "f": 0.5, "s": "x", "b": b"y"}

    assert decoded(schema, kind, *encoded(schema, value))[0] == [
        {"i": 3.0, "l": 4.0, "f": 0.5, "s": b"x", "b": "y"}
    ]


NAMED = {
    "type": "record",
    "name": "a.b.Outer",
    "fields": [
        {"name": "first", "type": {"type": "fixed", "name": "Inner", "size": 1}},
        {"name": "second", "type": "Inner"},
        {"name": "third", "type": ["null", "a.b.Inner"]},
    ],
}


def test_named_types() -> None:
    """
    A type is found by its full name, or by its name in the namespace of the enclosing type.
    """
    kind = pa.struct([(name, pa.binary()) for name in ("first", "second", "third")])

    assert decoded(NAMED, kind, b"xy\x02z")[0] == [{"first": b"x", "second": b"y", "third": b"z"}]


def test_a_namespace_that_is_null_is_absent() -> None:
    """
    A type whose namespace is null is in the namespace of the enclosing type, as with Avro's Java
    library; a type whose namespace is empty is in no namespace.
    """
    schema = {
        **record(
            ("first", {"type": "fixed", "name": "Inner", "namespace": None, "size": 1}),
            ("second", "Inner"),
            ("third", "a.Inner"),
            ("fourth", {"type": "fixed", "name": "Outer", "namespace": "", "size": 1}),
            ("fifth", "Outer"),
        ),
        "namespace": "a",
    }

    assert [(name, kind.name) for name, kind in parse_avro(json.dumps(schema)).fields] == [
        *(("first", "a.Inner"), ("second", "a.Inner"), ("third", "a.Inner")),
        *(("fourth", "Outer"), ("fifth", "Outer")),
    ]
    assert parse_avro(json.dumps({**record(), "namespace": None})).name == "Order"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "it is not JSON"),
        ('"Missing"', "the type 'Missing', but does not define it"),
        ('{"name": "x"}', "is not a type"),
        ('{"type": "record", "name": "x"}', "'fields' is missing"),
        ('{"type": "fixed", "name": "x", "size": -1}', "the size of 'x' is -1"),
        (
            '{"type":"record","name":"x","fields":[{"name":"x","type":["null","x"]}]}',
            "'x' contains itself",
        ),
        ("[" * 200 + "]" * 200, "nested more than 100 levels"),
    ],
)
def test_invalid_schemas(schema: str, message: str) -> None:
    """
    The error names the fault in the schema.
    """
    with pytest.raises(AvroSchemaError, match=message):
        parse_avro(schema)


def test_types_that_do_not_match() -> None:
    """
    The error names each field that does not fit the schema, with the expected type.
    """
    kind = pa.struct([("id", pa.string()), ("stat", pa.string()), ("price", pa.int32())])

    _, mistakes = writer_plan(parse_avro(json.dumps(ORDER)), kind, "value")

    assert mistakes == [
        "'value.stat' is not in the Avro schema; did you mean 'state'?",
        "'value.id' is STRING in the schema, but Avro's long in the records; it must be: BIGINT",
        "'value.price' is INT in the schema, but Avro's long in the records; it must be: BIGINT",
    ]


def test_many_mutated_values() -> None:
    """
    Thousands of values of random bytes give valid rows; a small part of ``make fuzz``.
    """
    good = 0
    for seed in range(3000):
        choices = RandomChoices(random.Random(seed))
        good += decode_any(values(choices), choices)

    assert good > 100


def test_dates() -> None:
    """
    A date is decoded as a date, or as its number of days if the column is an INT.
    """
    schema = {"type": "int", "logicalType": "date"}
    (text,) = encoded(schema, date(2024, 2, 29))

    assert decoded(schema, pa.date32(), text)[0] == [date(2024, 2, 29)]
    assert decoded(schema, pa.int32(), text)[0] == [19782]
