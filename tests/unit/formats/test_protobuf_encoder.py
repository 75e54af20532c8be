"""
The Protobuf encoder: it agrees with Protobuf's own library, derives messages, and names errors.
"""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fuzz.protobuf_mutations import MessageSpec, any_message, with_imports
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.arrow_forms import any_form
from tests.support.random_choices import RandomChoices
from tests.unit.formats.test_protobuf_column import (
    decoded,
    expected,
    fill,
    message_class,
    with_maps,
)

from pyspark_pykafka.formats.derived_protobuf import protobuf_schema, protobuf_type_mistakes
from pyspark_pykafka.formats.encoded_column import EncodedColumn, EncodingError
from pyspark_pykafka.formats.protobuf_encoder_plan import protobuf_encoder_plan
from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema, parsed_schema
from pyspark_pykafka.formats.protoc import compile_proto
from pyspark_pykafka.formats.write_format import WrittenColumn

if TYPE_CHECKING:
    from collections.abc import Callable

ROOM = 1 << 24
TIME = pa.timestamp("us", tz="UTC")
SPAN = pa.duration("us")


def written(values: pa.Array, schema: ResolvedSchema, prefix: bytes = b"") -> list[bytes | None]:
    """
    Return the encoded values of an array.
    """
    texts = encoder(values.type, schema, prefix).encode(values, 0, len(values), ROOM)
    texts.validate(full=True)
    payloads: list[bytes | None] = texts.to_pylist()
    return payloads


def encoder(kind: pa.DataType, schema: ResolvedSchema, prefix: bytes = b"") -> EncodedColumn:
    column = WrittenColumn("value", "protobuf", kind, prefix=prefix)
    return EncodedColumn(column.with_message(schema))


def message_spec(
    text: str, kind: pa.DataType, *, syntax: str = 'syntax = "proto3";'
) -> MessageSpec:
    """
    Return the message ``M`` that a schema text defines.
    """
    imports = "".join(
        f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "duration", "wrappers")
    )
    data = compile_proto(f"{syntax} {imports} {text}", {})
    return MessageSpec(descriptor_pb2.FileDescriptorSet.FromString(data), "M", kind)


def mistakes(definition: MessageSpec) -> str:
    schema = parsed_schema(definition.schema.text)
    return "\n".join(protobuf_encoder_plan("value", definition.kind, schema, definition.name)[1])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_equal_to_protobuf(seed: int) -> None:
    """
    Protobuf's own library and our decoder read messages of any shape, from arrays of any layout in
    memory, as the rows that were written.
    """
    generator = random.Random(seed)
    any_shape = any_message(RandomChoices(generator))
    kind = message_class(any_shape)
    records = []
    for _ in range(4):
        fill(filled := kind(), generator)
        records.append(filled.SerializeToString())
    rows, _ = decoded(any_shape, *records)
    # A number without a symbol is read as a name that no schema has.
    rows = [None, *(row for row in rows if "UNKNOWN_ENUM" not in str(row)), None]

    array = pa.array(rows, any_shape.kind)[1:]
    texts = written(array, any_shape.schema)

    form = any_form(array, generator)
    form.validate(full=True)
    column = encoder(any_shape.kind, any_shape.schema)
    assert column.encode(form, 0, len(form), ROOM).to_pylist() == texts
    assert decoded(any_shape, *texts) == (rows[1:], [])
    assert texts[-1] is None
    for row, text in zip(rows[1:-1], texts[:-1], strict=True):
        read = kind.FromString(text)
        assert expected(read, any_shape.kind) == with_maps(row, any_shape.kind)


TIME_SCHEMAS = {
    name: message_spec(f"message M {{ google.protobuf.{name} f = 1; }}", pa.struct([])).schema
    for name in ("Timestamp", "Duration")
}
SECOND = 10**6
# The limits of Timestamp, in microseconds, and that of Duration in both directions.
FIRST, LAST = -62135596800 * SECOND, 253402300800 * SECOND - 1
LONGEST = 315576000001 * SECOND - 1
MICROS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [edge + step for edge in (FIRST, LAST, LONGEST, -LONGEST, 0) for step in (-1, 0, 1, SECOND)]
)


@given(MICROS, st.sampled_from([("Timestamp", TIME), ("Duration", SPAN)]))
def test_limits_of_times(micros: int, named: tuple[str, pa.DataType]) -> None:
    """
    A Timestamp or Duration is written if and only if Protobuf's own library accepts it.
    """
    name, kind = named
    schema = TIME_SCHEMAS[name]
    values = pa.StructArray.from_arrays([pa.array([micros], pa.int64()).cast(kind)], ["f"])
    column = encoder(values.type, schema)
    seconds, rest = divmod(abs(micros) if name == "Duration" else micros, SECOND)
    sign = -1 if micros < 0 and name == "Duration" else 1
    message = {"Timestamp": timestamp_pb2.Timestamp, "Duration": duration_pb2.Duration}[name](
        seconds=sign * seconds, nanos=sign * rest * 1000
    )

    try:
        message.ToJsonString()
    except ValueError:
        with pytest.raises(EncodingError) as caught:
            column.encode(values, 0, 1, ROOM)
        assert (
            column.describe(caught.value) == f"value.f is out of range for google.protobuf.{name}"
        )
        return
    (text,) = column.encode(values, 0, 1, ROOM).to_pylist()
    content = message.SerializeToString()
    assert text == b"\x0a" + bytes([len(content)]) + content


FIELDS = """
    enum E { option allow_alias = true; A = 0; B = 5; C = 5; D = -1; }
    message Part { {o} int32 x = 1; {o} bytes y = 2; }
    message M {
        repeated sint32 late = 20;
        {o} double a = 1; {o} float b = 2; {o} int64 c = 3; {o} uint64 d = 4; {o} int32 e = 5;
        {o} fixed64 f = 6; {o} fixed32 g = 7; {o} bool h = 8; {o} string i = 9; {o} E j = 10;
        {o} Part k = 11; {o} bytes l = 12; {o} uint32 m = 13; {o} sfixed32 n = 15;
        {o} sfixed64 o = 16; {o} sint32 p = 17; {o} sint64 q = 18;
        repeated double many = 21; repeated Part parts = 22; repeated string texts = 23;
        repeated int64 other = 24 [packed = {packed}];
        map<string, Part> counts = 25;
        {o} google.protobuf.Timestamp at = 26; {o} google.protobuf.Duration span = 27;
        {o} google.protobuf.Int64Value wrapped = 28;
        oneof choice { string one = 2000; int32 two = 30; Part three = 31; }
    }
"""
PART = pa.struct([("x", pa.int32()), ("y", pa.binary())])
ALL = pa.struct(
    [
        *(("at", TIME), ("span", SPAN), ("wrapped", pa.int64()), ("late", pa.list_(pa.int8()))),
        *(("a", pa.float32()), ("b", pa.float32()), ("c", pa.int16()), ("d", pa.decimal128(20))),
        *(("e", pa.int64()), ("f", pa.int64()), ("g", pa.int64()), ("h", pa.bool_())),
        *(("i", pa.binary()), ("j", pa.string()), ("k", PART), ("l", pa.string())),
        *(("m", pa.int64()), ("n", pa.int32()), ("o", pa.int64()), ("p", pa.int32())),
        *(("q", pa.int64()), ("many", pa.list_(pa.float64())), ("parts", pa.list_(PART))),
        *(("texts", pa.list_(pa.string())), ("other", pa.list_(pa.int64()))),
        *(("counts", pa.map_(pa.string(), PART)), ("one", pa.string()), ("two", pa.int32())),
        ("three", PART),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "a": 0.5,
        "b": -0.0,
        "c": -(2**15),
        "d": Decimal(2**64 - 1),
        "e": -(2**31),
        "f": 2**63 - 1,
        "g": 2**32 - 1,
        "h": True,
        "i": "é".encode(),
        "j": "C",
        "k": {"x": 1, "y": b"\0" * 200},
        "l": "text",
        "m": 2**32 - 1,
        "n": -5,
        "o": -(2**63),
        "p": -(2**31),
        "q": -(2**63),
        "late": [-1, 1, 64],
        "many": [0.0, 1.5] * 20,
        "parts": [{}, {"x": 300}],
        "texts": ["", "x" * 128],
        "other": [-1, 2**40],
        "counts": [("k", {"x": 7})],
        "at": datetime(1969, 12, 31, 23, 59, 59, 1, UTC),
        "span": timedelta(microseconds=-1),
        "wrapped": 0,
        "two": 0,
    },
    {"at": datetime(1970, 1, 1, tzinfo=UTC), "span": timedelta(days=-400), "one": "", "j": "D"},
    {"a": 0.0, "c": 0, "d": Decimal(0), "h": False, "i": b"", "j": "A", "k": {"x": 0}, "g": 0},
    {"three": {"x": None}, "other": [], "late": [], "texts": None, "parts": []},
    {},
]


def filled(kind: Any, row: dict[str, Any]) -> bytes:
    """
    Return a row as Protobuf's own library encodes it.
    """
    fields = {name: value for name, value in row.items() if value is not None}
    changes: dict[str, Callable[[Any], Any]] = {
        "d": int,
        "i": bytes.decode,
        "l": str.encode,
        "counts": dict,
    }
    changes["wrapped"] = lambda value: {"value": value}
    message = kind(**{name: changes.get(name, _same)(value) for name, value in fields.items()})
    text: bytes = message.SerializeToString(deterministic=True)
    return text


def _same(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("syntax", "optional", "packed"),
    [
        ('syntax = "proto3";', "", "false"),
        ('syntax = "proto3";', "optional", "true"),
        ('syntax = "proto2";', "optional", "true"),
        ('edition = "2023"; option features.field_presence = IMPLICIT;', "", ""),
        ('edition = "2023"; option features.message_encoding = DELIMITED;', "", ""),
        ('edition = "2023"; option features.repeated_field_encoding = EXPANDED;', "", ""),
    ],
)
def test_bytes_are_those_of_protobuf(syntax: str, optional: str, packed: str) -> None:
    """
    In each syntax the bytes are those of Protobuf's own library: the order of fields, packed lists,
    groups, oneofs, and zeros only where a field has presence.
    """
    text = FIELDS.replace("{o}", optional).replace("{packed}", packed)
    definition = message_spec(text.replace("[packed = ]", ""), ALL, syntax=syntax)
    assert mistakes(definition) == ""
    kind = message_class(definition)

    texts = written(pa.array(ROWS, ALL), definition.schema, b"\x00")

    assert texts == [b"\x00" + filled(kind, row) for row in ROWS]


def test_groups_of_proto2() -> None:
    """
    A group is written between its start and end tags.
    """
    text = "message M { optional group G = 1 { optional int32 x = 1; } repeated group R = 200 {} }"
    inner = pa.struct([("x", pa.int32())])
    kind = pa.struct([("g", inner)])
    definition = message_spec(text, kind, syntax='syntax = "proto2";')

    texts = written(pa.array([{"g": {"x": 300}}, {"g": {}}, {}], kind), definition.schema)

    assert texts == [b"\x0b\x08\xac\x02\x0c", b"\x0b\x0c", b""]


@pytest.mark.parametrize(
    ("text", "kind", "value", "reason"),
    [
        ("int32 f = 1;", pa.int64(), 2**31, "value.f is out of range for int32"),
        ("sint32 f = 1;", pa.int64(), -(2**31) - 1, "value.f is out of range for sint32"),
        ("uint32 f = 1;", pa.int64(), 2**32, "value.f is out of range for uint32"),
        ("fixed32 f = 1;", pa.int32(), -1, "value.f is out of range for fixed32"),
        ("uint64 f = 1;", pa.int64(), -1, "value.f is out of range for uint64"),
        ("fixed64 f = 1;", pa.decimal128(38), Decimal(2**64), "value.f is out of range for fixed"),
        ("sfixed32 f = 1;", pa.int64(), 2**31, "value.f is out of range for sfixed32"),
        ("E f = 1;", pa.string(), "Z", "value.f is not a symbol of the enum in the schema"),
        ("string f = 1;", pa.binary(), b"\xff", "value.f is a string that is not UTF-8"),
        (
            *("repeated string f = 1;", pa.list_(pa.string()), ["a", None]),
            "value.f.element is null, but string in the schema is not nullable",
        ),
        (
            *("map<string, E> f = 1;", pa.map_(pa.string(), pa.string()), [("a", None)]),
            "value.f.value is null, but the enum E in the schema is not nullable",
        ),
        (
            *("oneof f_ { Part f = 1; }", pa.struct([("x", pa.int64())]), {"x": 2**40}),
            "value.f.x is out of range for int32",
        ),
    ],
)
def test_values_that_do_not_fit(text: str, kind: pa.DataType, value: Any, reason: str) -> None:
    """
    A value that the message cannot hold is an error that names the field and the reason.
    """
    enum = "enum E { A = 0; } message Part { int32 x = 1; }"
    definition = message_spec(f"{enum} message M {{ {text} }}", pa.struct([("f", kind)]))
    column = encoder(definition.kind, definition.schema)

    with pytest.raises(EncodingError) as caught:
        column.encode(pa.array([{}, {"f": value}], definition.kind), 0, 2, ROOM)

    assert caught.value.row == 1
    assert column.describe(caught.value).startswith(reason)


def test_two_fields_of_a_oneof() -> None:
    """
    Protobuf would keep only one of two fields of a oneof, so setting two is an error.
    """
    text = "message M { oneof o { int32 a = 1; string b = 5; int32 c = 3; } int32 d = 4; }"
    kind = pa.struct([("d", pa.int32()), ("b", pa.string()), ("c", pa.int32()), ("a", pa.int32())])
    definition = message_spec(text, kind)
    column = encoder(kind, definition.schema)

    for row, path in (({"a": 0, "b": ""}, "b"), ({"a": 1, "c": 1}, "c"), ({"b": "", "c": 1}, "b")):
        with pytest.raises(EncodingError) as caught:
            column.encode(pa.array([row | {"d": 1}], kind), 0, 1, ROOM)
        assert column.describe(caught.value).startswith(
            f"value.{path} is set, and so is another field of its oneof"
        )


def test_enums_of_proto2() -> None:
    """
    A number outside a closed enum is an error, as is a required field that is null or missing.
    """
    text = "enum E { A = 1; } message M { required E e = 1; repeated E es = 2; }"
    kind = pa.struct([("e", pa.int32()), ("es", pa.list_(pa.int32()))])
    definition = message_spec(text, kind, syntax='syntax = "proto2";')
    column = encoder(kind, definition.schema)

    assert written(pa.array([{"e": 1, "es": [1]}], kind), definition.schema) == [
        b"\x08\x01\x10\x01"
    ]
    for row, reason in (
        ({"e": 2}, "value.e is not a symbol of the enum"),
        ({"e": None}, "value.e is null, but the enum E in the schema is not nullable"),
    ):
        with pytest.raises(EncodingError) as caught:
            column.encode(pa.array([row], kind), 0, 1, ROOM)
        assert column.describe(caught.value).startswith(reason)
    assert "'value.e' is missing; add it" in mistakes(
        MessageSpec(definition.files, "M", pa.struct([("es", pa.list_(pa.string()))]))
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.string(), "'value' is STRING; it must be: a STRUCT"),
        (pa.struct([("idd", pa.int32())]), "not in the message 'M'; did you mean 'id'?"),
        (pa.struct([("q", pa.int32())]), "'value.q' is not in the message 'M'; remove it"),
        (pa.struct([("id", pa.string())]), "'value.id' is STRING, but Protobuf's int32 cannot"),
        (pa.struct([("id", pa.int32()), ("id", pa.int32())]), "'value' has the field 'id' twice"),
        (pa.struct([("tags", pa.string())]), "'value.tags' is STRING; it must be: an ARRAY"),
        (pa.struct([("m", pa.list_(pa.int32()))]), "'value.m' is an ARRAY; it must be: a MAP"),
        (pa.struct([("at", pa.int64())]), "Protobuf's google.protobuf.Timestamp cannot hold"),
        (pa.struct([("u", pa.decimal128(9, 2))]), "'value.u' is DECIMAL(9,2), but Protobuf's uint"),
        (pa.struct([("id", pa.date32())]), "'value.id' is DATE, but Protobuf's int32"),
        (pa.struct([("id", pa.null())]), "'value.id' is VOID, but Protobuf's int32"),
        (pa.struct([("part", pa.null())]), "'value.part' is VOID, but Protobuf's M cannot"),
        (pa.struct([("parts", pa.list_(pa.null()))]), "'value.parts.element' is VOID, but Protob"),
    ],
)
def test_columns_without_a_place_in_the_message(kind: pa.DataType, text: str) -> None:
    """
    Before anything is written, each field that cannot be encoded is named.
    """
    message = """
        message M {
            int32 id = 1; repeated string tags = 2; map<string, int32> m = 3;
            google.protobuf.Timestamp at = 4; uint64 u = 5; M part = 6; repeated M parts = 7;
        }
    """

    assert text in mistakes(message_spec(message, kind))


# --- Messages that are derived from columns -------------------------------------------------------

SIMPLE = (
    *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), TIME, SPAN),
)
KEYS = (pa.string(), pa.bool_(), pa.int32(), pa.int64())
NAMES = ("a", "a_b", "aEntry", "_a", "XA", "A_", "_1", "value", "b2", "Xb", "_", "b2_entry")


def any_struct(generator: random.Random, depth: int = 0) -> pa.DataType:
    names = generator.sample(NAMES, generator.randint(1, 5))
    fields = [pa.field(name, any_kind(generator, depth)) for name in names]
    kind = pa.struct(fields)
    # Some of the names collide in Protobuf.
    return (
        any_struct(generator, depth) if protobuf_type_mistakes(pa.field("v", kind), "v") else kind
    )


def any_kind(generator: random.Random, depth: int) -> pa.DataType:
    shape = generator.randrange(6)
    simple = generator.choice(SIMPLE)
    inner = any_struct(generator, depth + 1) if shape > 3 and depth < 3 else simple
    if shape % 3 == 1:
        return pa.list_(inner)
    return pa.map_(generator.choice(KEYS), inner) if shape % 3 == 2 else inner


def any_row(kind: pa.DataType, generator: random.Random, *, may_be_null: bool = True) -> Any:
    if pa.types.is_list(kind):
        count = generator.randrange(3)
        return [any_row(kind.value_type, generator, may_be_null=False) for _ in range(count)]
    if pa.types.is_map(kind):
        keys = {any_row(kind.key_type, generator, may_be_null=False) for _ in range(2)}
        return [(key, any_row(kind.item_type, generator, may_be_null=False)) for key in keys]
    if may_be_null and not generator.randrange(4):
        return None
    if pa.types.is_struct(kind):
        return {field.name: any_row(field.type, generator) for field in kind}
    values: dict[pa.DataType, tuple[Any, ...]] = {
        pa.bool_(): (False, True),
        pa.string(): ("", "é", "x" * 130),
        pa.binary(): (b"", b"\xff\x00"),
        TIME: (datetime(1970, 1, 1, tzinfo=UTC), datetime(1, 1, 1, 0, 0, 0, 7, UTC)),
        SPAN: (timedelta(0), timedelta(days=-3, microseconds=-1), timedelta(hours=5)),
        pa.int64(): (0, -(2**63), 2**63 - 1),
    }
    return generator.choice(values.get(kind, (0, 1, -1)))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_derived_messages_are_read_back(seed: int) -> None:
    """
    Protobuf's own library accepts the message of any type, and our reader reads rows back
    unchanged, NULL and zero included.
    """
    generator = random.Random(seed)
    kind = any_struct(generator)
    schema = protobuf_schema(kind, generator.choice([None, "com.shop.Order"]))
    rows = [None, *(any_row(kind, generator, may_be_null=False) for _ in range(3))]

    texts = written(pa.array(rows, kind), schema)

    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema.text))
    read = message_class(MessageSpec(with_imports(*files.file), schema.message, kind))
    for text in texts[1:]:
        read.FromString(text)
    actual, bad = decoded(MessageSpec(files, schema.message, kind), *texts)
    assert (actual, bad) == (pa.array(rows, kind).to_pylist(), [])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.string(), "'value' must be: a STRUCT"),
        (pa.struct([]), "'value' is a STRUCT without fields"),
        (pa.struct([("a b", pa.int32())]), "'value.a b' is not a valid name in Protobuf"),
        (pa.struct([("_1", pa.int32())]), "'value._1' is not a valid name in Protobuf"),
        (
            pa.struct([("aB", pa.int32()), ("a_b", pa.int32())]),
            "'value.aB' and 'value.a_b' become",
        ),
        (pa.struct([("d", pa.date32())]), "'value.d' is date32[day], which Protobuf cannot"),
        (pa.struct([("d", pa.decimal128(9, 2))]), "'value.d' is decimal128(9, 2), which"),
        (pa.struct([("l", pa.list_(pa.list_(pa.int8())))]), "put a STRUCT between them"),
        (pa.struct([("m", pa.map_(pa.float64(), pa.int8()))]), "the keys of 'value.m' must be"),
        (
            pa.struct([("a_b", pa.map_(pa.string(), pa.int8())), ("ABEntry", pa.int8())]),
            "'value.ABEntry' is Protobuf's name for an entry of the map 'value.a_b'",
        ),
    ],
)
def test_types_without_a_message(kind: pa.DataType, text: str) -> None:
    """
    A type that no message can have is reported with its path in the column.
    """
    assert text in "\n".join(protobuf_type_mistakes(pa.field("value", kind), "value"))
