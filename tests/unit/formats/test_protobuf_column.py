"""
The Protobuf decoder: it agrees with Protobuf's own library, and names the errors of bad values.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import copysign
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fuzz.protobuf_mutations import (
    MessageSpec,
    any_message,
    decode_any,
    decode_named,
    new_file,
    values,
    with_imports,
)
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.support.random_choices import RandomChoices

from pyspark_pykafka.formats.bad_records import BadRecordPolicy, BadValue
from pyspark_pykafka.formats.protobuf_decoder import ProtobufColumn
from pyspark_pykafka.formats.protobuf_decoder_plan import message_plan
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_descriptors import varint
from pyspark_pykafka.formats.protobuf_schemas import parsed_schema
from pyspark_pykafka.formats.protobuf_types import protobuf_ddl

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELD = descriptor_pb2.FieldDescriptorProto
LENIENT = BadRecordPolicy("null")
ROOM = 1 << 20
TIME = pa.timestamp("us", tz="UTC")


def message_class(spec: MessageSpec) -> type[Message]:
    """
    Return the class of a message in Protobuf's own library.
    """
    pool = descriptor_pool.DescriptorPool()
    for file in spec.files.file:
        pool.Add(file)
    message_type: type[Message] = message_factory.GetMessageClass(
        pool.FindMessageTypeByName(spec.name)
    )
    return message_type


def decoded(spec: MessageSpec, *records: bytes | None) -> tuple[list[Any], list[BadValue]]:
    """
    Return the decoded values, and the bad ones with their reasons.
    """
    column = ProtobufColumn("value", spec.kind, spec.schema, ROOM, LENIENT)
    assert column.decode(pa.array(records, pa.binary()), 0, len(records)) == len(records)
    values = column.take()
    values.validate(full=True)
    assert values.type == spec.kind
    return values.to_pylist(), column.take_bad()


def message(
    *fields: tuple[str, int, Any], syntax: str = "proto3", kind: pa.DataType | None = None
) -> MessageSpec:
    """
    Return the message ``shop.Order`` with these fields, each (name, number, type or settings).
    """
    file = new_file(syntax)
    order = file.message_type.add(name="Order")
    for name, number, settings in fields:
        arguments = settings if isinstance(settings, dict) else {"type": settings}
        label = arguments.pop("label", FIELD.LABEL_OPTIONAL)
        order.field.add(name=name, number=number, label=label, **arguments)
    return MessageSpec(with_imports(file), "shop.Order", kind or pa.struct([]))


# --- Equal to Protobuf's own library --------------------------------------------------------------


def fill(message: Message, generator: random.Random, depth: int = 0) -> None:
    """
    Set some fields of a message to random values.
    """
    for field in message.DESCRIPTOR.fields:
        count = generator.randrange(4)
        if not count:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            fill_map(getattr(message, field.name), field, generator, depth)
        elif field.is_repeated:
            for _ in range(count):
                if field.message_type is None:
                    getattr(message, field.name).append(any_value(field, generator))
                else:
                    fill_part(getattr(message, field.name).add(), generator, depth)
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill_part(getattr(message, field.name), generator, depth)
        else:
            setattr(message, field.name, any_value(field, generator))


def fill_map(entries: Any, field: Any, generator: random.Random, depth: int) -> None:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(generator.choice([1, 2, 30])):
        key_value = any_value(key, generator)
        if value.message_type is not None:
            fill_part(entries[key_value], generator, depth)
        else:
            entries[key_value] = any_value(value, generator)


def unknown_symbols(descriptor: Any, generator: random.Random) -> bytes:
    """
    Return an entry with an unknown symbol for each map of closed enums in a message.
    """
    entries = b""
    for field in descriptor.fields:
        value = field.message_type and field.message_type.fields_by_name.get("value")
        if field.is_repeated and value and value.enum_type and value.enum_type.is_closed:
            entry: Any = message_factory.GetMessageClass(field.message_type)()
            entry.key = any_value(field.message_type.fields_by_name["key"], generator)
            data = entry.SerializeToString() + b"\x10\x09"
            entries += varint(field.number << 3 | 2) + varint(len(data)) + data
    return entries


def fill_part(part: Any, generator: random.Random, depth: int) -> None:
    if part.DESCRIPTOR.full_name in {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
        part.seconds = generator.choice([0, 1, -1, generator.randrange(-(10**9), 10**9)])
        part.nanos = generator.choice([0, 999, generator.randrange(10**9)])
    else:
        fill(part, generator, depth + 1)


def any_value(field: Any, generator: random.Random) -> Any:
    bits = generator.choice([3, 7, 31, 32, 63, 64])
    number = generator.getrandbits(bits)
    if field.enum_type is not None:
        unknown = [] if field.enum_type.is_closed else [7, -(2**31)]
        return generator.choice([*field.enum_type.values_by_number, *unknown])
    if field.type in {FIELD.TYPE_DOUBLE, FIELD.TYPE_FLOAT}:
        return generator.choice([0.0, -0.0, 1.5, -2.25, float("inf"), 2.0**60])
    if field.type == FIELD.TYPE_BOOL:
        return bool(number & 1)
    if field.type == FIELD.TYPE_STRING:
        return "".join(generator.choices("aé\0€😀", k=number % 5))
    if field.type == FIELD.TYPE_BYTES:
        return generator.randbytes(number % 5)
    return whole_number(field, number)


def whole_number(field: Any, number: int) -> int:
    wide = field.type in {3, 4, 6, 16, 18}
    number %= 1 << (64 if wide else 32)
    if field.type in {4, 6, 7, 13}:
        return number
    half = 1 << (63 if wide else 31)
    return number - 2 * half if number >= half else number


def expected(message: Any, kind: pa.DataType) -> Any:
    """
    Return the value that the column should have for a message.
    """
    return {part.name: expected_field(message, part) for part in kind}


def expected_field(message: Any, part: pa.Field) -> Any:
    field = message.DESCRIPTOR.fields_by_name[part.name]
    value = getattr(message, part.name)
    if pa.types.is_map(part.type):
        entry = field.message_type.fields_by_name
        return {
            expected_value(k, entry["key"], part.type.key_type): expected_value(
                value[k], entry["value"], part.type.item_type
            )
            for k in value
        }
    if pa.types.is_list(part.type):
        return [expected_value(item, field, part.type.value_type) for item in value]
    if field.has_presence:
        if not message.HasField(part.name) and not field.has_default_value:
            return None
    elif not value and not (isinstance(value, float) and copysign(1, value) < 0):
        return None
    return expected_value(value, field, part.type)


def expected_value(value: Any, field: Any, kind: pa.DataType) -> Any:
    if field.enum_type is not None:
        symbol = field.enum_type.values_by_number.get(value)
        return f"UNKNOWN_ENUM_VALUE_E_{value}" if symbol is None else symbol.name
    if pa.types.is_struct(kind):
        return expected(value, kind)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        span = timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return EPOCH + span if kind == TIME else span
    if field.message_type is not None:
        value = value.value
    return Decimal(value) if pa.types.is_decimal(kind) else value


def with_maps(value: Any, kind: pa.DataType) -> Any:
    """
    Return a value in which maps, which have no order, are dicts.
    """
    if value is None:
        return None
    if pa.types.is_map(kind):
        keys = [key for key, _ in value]
        assert len(set(keys)) == len(keys)
        return {key: with_maps(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [with_maps(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {part.name: with_maps(value[part.name], part.type) for part in kind}
    return value


@pytest.mark.parametrize("start", range(0, 160, 40))
def test_equals_protobuf(start: int) -> None:
    """
    Messages of any shape, alone and concatenated, are decoded as by Protobuf's own library.
    """
    for seed in range(start, start + 40):
        generator = random.Random(seed)
        spec = any_message(RandomChoices(generator))
        kind = message_class(spec)
        written = []
        for _ in range(4):
            filled = kind()
            fill(filled, generator)
            unknown = unknown_symbols(filled.DESCRIPTOR, generator)
            written.append(filled.SerializeToString() + unknown)
        # Concatenated messages are one: later values replace, continue or follow earlier ones.
        records = [*written, written[0] + written[1], b"".join(written), b""]

        actual, bad = decoded(spec, *records)

        assert bad == [], seed
        assert [with_maps(value, spec.kind) for value in actual] == [
            expected(kind.FromString(record), spec.kind) for record in records
        ], seed


# --- Values ---------------------------------------------------------------------------------------

NUMBERS = message(
    ("a", 1, FIELD.TYPE_INT32),
    ("b", 2, FIELD.TYPE_UINT64),
    ("c", 3, {"type": FIELD.TYPE_INT32, "label": FIELD.LABEL_REPEATED}),
    ("d", 4, FIELD.TYPE_STRING),
    ("e", 5, {"type": FIELD.TYPE_ENUM, "type_name": ".shop.E"}),
    ("f", 6, FIELD.TYPE_UINT32),
    kind=pa.struct(
        [
            *(("a", pa.int32()), ("b", pa.int64()), ("c", pa.list_(pa.int32()))),
            *(("d", pa.string()), ("e", pa.int32()), ("f", pa.int32())),
        ]
    ),
)
NOTHING: dict[str, Any] = {"a": None, "b": None, "c": [], "d": None, "e": None, "f": None}


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (b"", {}),
        (b"\x08\x00\x22\x00", {"a": 0, "d": ""}),
        # Packed, not packed, and both.
        (b"\x1a\x02\x01\x02", {"c": [1, 2]}),
        (b"\x18\x01\x18\x02", {"c": [1, 2]}),
        (b"\x1a\x01\x01\x08\x05\x18\x02\x1a\x00", {"a": 5, "c": [1, 2]}),
        # The last one counts.
        (b"\x08\x01\x22\x01x\x08\x02\x22\x01y", {"a": 2, "d": "y"}),
        # The low 32 bits of a longer number, which Protobuf's libraries truncate, too.
        (b"\x08\x81\x80\x80\x80\x10", {"a": 1}),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", {"a": -1}),
        # A number of more bytes than it needs.
        (b"\x08\x81\x80\x00", {"a": 1}),
        # Unknown fields of each wire type, and a group with an unknown field in it.
        (b"\x78\x01\x79abcdefgh\x7a\x01x\x7dabcd\x7b\x0b\x0c\x08\x01\x7c\x08\x03", {"a": 3}),
        (b"\x28\x07", {"e": 7}),
    ],
)
def test_values(record: bytes, changes: dict[str, Any]) -> None:
    """
    A missing field is NULL, as in Spark, and a list without elements is empty.
    """
    assert decoded(NUMBERS, record) == ([NOTHING | changes], [])


@pytest.mark.parametrize(
    ("record", "changes", "message"),
    [
        (b"\x0d\0\0\0\0", {}, "value.a must be INT, but is a value of another wire type"),
        (b"\x08\x01\x0a\x00", {}, "value.a must be INT, but is a value of another wire type"),
        (b"\x1a\x01\x01\x19abcdefgh", {"c": None}, "value.c.item must be INT, but is a value"),
        (b"\x22\x02\xc3\x28\x08\x01", {"a": 1}, "value.d must be STRING, but is a string that is"),
        (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", {}, "value.b must be BIGINT, but is a n"),
        (b"\x30\xff\xff\xff\xff\x0f\x08\x01", {"a": 1}, "value.f must be INT, but is a number ou"),
    ],
)
def test_fields_that_do_not_fit(record: bytes, changes: dict[str, Any], message: str) -> None:
    """
    A field that does not fit is NULL and named; fields after it are decoded.
    """
    (value,), (bad,) = decoded(NUMBERS, record)

    assert value == NOTHING | changes
    assert message in bad.reason
    if "wire type" in message:
        # Protobuf's own library sees nothing wrong.
        message_class(NUMBERS)().MergeFromString(record)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\x08", "value.a is not valid Protobuf: it ends too early, or contains a size that exc"),
        (b"\x08\x80", "value.a is not valid Protobuf: it ends too early"),
        (
            b"\x08" + b"\x80" * 10 + b"\x01",
            "value.a is not valid Protobuf: a number of more than t",
        ),
        (b"\x22\x05abcd", "value.d is not valid Protobuf: it ends too early, or contains"),
        (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "value.d is not valid Protobuf: it ends"),
        (b"\x1a\x02\x01\x80", "value.c is not valid Protobuf: it ends too early"),
        (
            b"\x07",
            "value is not valid Protobuf: an invalid tag, or the end of a group, at byte 0",
        ),
        (b"\x00\x01", "value is not valid Protobuf: an invalid tag"),
        (b"\x08\x01\x0c", "value is not valid Protobuf: an invalid tag, or the end of a group"),
        (b"\x7b\x08\x01", "value is not valid Protobuf: it ends too early"),
        (b"\x7b\x8c\x01", "value is not valid Protobuf: an invalid tag, or the end of a group"),
        (b"\x7b" * 101 + b"\x7c" * 101, "more than 100 levels of messages and groups, at byte 100"),
        (b"\xff" * 11, "value is not valid Protobuf: a number of more than ten bytes, at byte 0"),
    ],
)
def test_bad_records_are_named(record: bytes, message: str) -> None:
    """
    A record that is not Protobuf is bad, and the reason names the field and the byte; the next
    record is decoded.
    """
    values, (bad,) = decoded(NUMBERS, record, b"\x08\x01")

    assert bad.row == 0
    assert message.replace("group, at byte 0", "group that has not begun, at byte 0") in bad.reason
    assert values == [dict.fromkeys(NOTHING), NOTHING | {"a": 1}]


def recursive(levels: int) -> MessageSpec:
    """
    Return a message ``M`` that may contain itself, with a type of this number of levels.
    """
    file = new_file("proto3")
    part = file.message_type.add(name="M")
    part.field.add(name="x", number=2, label=1, type=FIELD.TYPE_INT64)
    part.field.add(name="m", number=1, label=1, type=FIELD.TYPE_MESSAGE, type_name=".shop.M")
    kind = pa.struct([("x", pa.int64())])
    for _ in range(levels):
        kind = pa.struct([("x", pa.int64()), ("m", kind)])
    return MessageSpec(with_imports(file), "shop.M", kind)


@pytest.mark.parametrize("levels", [0, 1, 50, 98])
@pytest.mark.parametrize("depth", [99, 100, 101])
def test_deep_records(levels: int, depth: int) -> None:
    """
    Messages, and unknown groups in them, are read to the same depth as by Protobuf's own library.
    """
    spec = recursive(levels)
    groups = depth - levels
    record = b"\x1b" * groups + b"\x1c" * groups + b"\x10\x07"
    for _ in range(levels):
        record = b"\x0a" + varint(len(record)) + record

    values, bad = decoded(spec, record, b"\x10\x01")

    if depth > 100:
        with pytest.raises(DecodeError):
            message_class(spec).FromString(record)
        assert "more than 100 levels of messages and groups" in bad[0].reason
    else:
        assert expected(message_class(spec).FromString(record), spec.kind) == values[0]
        assert bad == []
    assert values[1]["x"] == 1


@given(
    st.sampled_from([(pa.timestamp("us", tz="UTC"), "Timestamp"), (pa.duration("us"), "Duration")]),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**13), 10**13),
    st.integers(-(2**31), 2**31 - 1),
)
def test_times_beyond_the_limits(named: tuple[pa.DataType, str], seconds: int, nanos: int) -> None:
    """
    A time beyond the limits that Protobuf defines is read if its microseconds fit in 64 bits, as
    Protobuf's own library reads any time. Otherwise the field does not fit.
    """
    kind, name = named
    part = {"type": FIELD.TYPE_MESSAGE, "type_name": f".google.protobuf.{name}"}
    spec = message(("f", 1, part), kind=pa.struct([("f", kind)]))
    record: Any = message_class(spec)()
    record.f.seconds, record.f.nanos = seconds, nanos
    column = ProtobufColumn("value", spec.kind, spec.schema, ROOM, LENIENT)

    column.decode(pa.array([record.SerializeToString()], pa.binary()), 0, 1)

    (micros,) = column.take().field("f").cast(pa.int64()).to_pylist()
    bad = column.take_bad()
    if micros is None:
        assert abs(seconds) > 9_223_372_030_000
        assert "a number out of range" in bad[0].reason
    else:
        assert micros == seconds * 10**6 + nanos // 1000
        assert bad == []


def nested() -> MessageSpec:
    """
    Return a message with parts of each kind, in proto2.
    """
    file = new_file("proto2")
    part = file.message_type.add(name="Part")
    part.field.add(name="x", number=1, label=1, type=FIELD.TYPE_INT32)
    part.field.add(name="s", number=2, label=3, type=FIELD.TYPE_STRING)
    part.field.add(name="again", number=3, label=1, type=11, type_name=".shop.Part")
    order = file.message_type.add(name="Order")
    order.field.add(name="part", number=1, label=1, type=11, type_name=".shop.Part")
    order.field.add(name="parts", number=2, label=3, type=11, type_name=".shop.Part")
    order.field.add(name="grp", number=3, label=1, type=FIELD.TYPE_GROUP, type_name=".shop.Part")
    order.field.add(name="e", number=4, label=1, type=14, type_name=".shop.E", default_value="S5")
    order.field.add(name="n", number=5, label=1, type=FIELD.TYPE_SINT32, default_value="-7")
    order.field.add(name="f", number=6, label=1, type=FIELD.TYPE_FLOAT, default_value="inf")
    order.field.add(name="y", number=7, label=1, type=FIELD.TYPE_BYTES, default_value=r"\001\"a")
    part_kind = pa.struct([("x", pa.int32()), ("s", pa.list_(pa.string()))])
    kind = pa.struct(
        [
            *(("part", part_kind), ("parts", pa.list_(pa.struct([("x", pa.int64())])))),
            *(("grp", pa.struct([("x", pa.int32())])), ("e", pa.string()), ("n", pa.int32())),
            *(("f", pa.float64()), ("y", pa.binary())),
        ]
    )
    return MessageSpec(with_imports(file), "shop.Order", kind)


ABSENT: dict[str, Any] = {"part": None, "parts": [], "grp": None}
ABSENT |= {"e": "S5", "n": -7, "f": float("inf"), "y": b'\1"a'}


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (b"", {}),
        (b"\x0a\x00", {"part": {"x": None, "s": []}}),
        # One message in two parts, with another field between them.
        (
            b"\x0a\x05\x08\x01\x12\x01a\x12\x00\x0a\x03\x12\x01b",
            {
                "part": {"x": 1, "s": ["a", "b"]},
                "parts": [{"x": None}],
            },
        ),
        (b"\x0b\x08\x02\x0c", {"part": {"x": 2, "s": []}}),
        (b"\x1b\x08\x02\x1c", {"grp": {"x": 2}}),
        (b"\x1a\x02\x08\x02", {"grp": {"x": 2}}),
        (b"\x13\x08\x03\x14\x12\x02\x08\x04", {"parts": [{"x": 3}, {"x": 4}]}),
        # A number without a symbol in a closed enum does not set the field: the default stays.
        (b"\x20\x09", {}),
        (b"\x20\x01\x20\x09", {"e": "S1"}),
    ],
)
def test_parts_and_defaults(record: bytes, changes: dict[str, Any]) -> None:
    """
    Parts of one message are merged, groups are read as messages, and proto2's defaults apply.
    """
    assert decoded(nested(), record) == ([ABSENT | changes], [])


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (b"", {"a": None, "b": None}),
        (b"\x12\x01x", {"a": None, "b": "x"}),
        (b"\x08\x07", {"a": 7, "b": None}),
        (b"\x12\x01x\x08\x05", {"a": 5, "b": None}),
    ],
)
def test_members_of_a_oneof_have_no_default(record: bytes, row: dict[str, Any]) -> None:
    """
    A member of a oneof that is not set is NULL, although proto2 gives it an explicit default: at
    most one member has a value.
    """
    file = new_file("proto2")
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="o")
    order.field.add(
        name="a", number=1, label=1, type=FIELD.TYPE_INT32, default_value="5", oneof_index=0
    )
    order.field.add(name="b", number=2, label=1, type=FIELD.TYPE_STRING, oneof_index=0)
    kind = pa.struct([("a", pa.int32()), ("b", pa.string())])

    assert decoded(MessageSpec(with_imports(file), "shop.Order", kind), record) == ([row], [])


def test_a_default_may_be_an_alias() -> None:
    """
    A default may name any symbol of its enum; the decoded value is the first symbol of its number.
    """
    file = new_file("proto2")
    enum = file.enum_type.add(name="Aliased")
    enum.options.allow_alias = True
    for symbol, number in (("A", 0), ("B", 1), ("C", 1)):
        enum.value.add(name=symbol, number=number)
    order = file.message_type.add(name="Order")
    order.field.add(
        name="e", number=1, label=1, type=14, type_name=".shop.Aliased", default_value="C"
    )
    spec = MessageSpec(with_imports(file), "shop.Order", pa.struct([("e", pa.string())]))

    assert decoded(spec, b"", b"\x08\x00") == ([{"e": "B"}, {"e": "A"}], [])


@pytest.mark.parametrize("kind", [pa.string(), pa.int32()])
@pytest.mark.parametrize(
    ("record", "entries"),
    [
        # Key 1 with the unknown number 9, alone and beside other entries.
        (b"\x0a\x04\x08\x01\x10\x09", []),
        (b"\x0a\x04\x08\x01\x10\x09\x0a\x04\x08\x02\x10\x05", [(2, 5)]),
        # Such an entry has no effect on an entry of the same key before or after it.
        (b"\x0a\x04\x08\x01\x10\x05\x0a\x04\x08\x01\x10\x09", [(1, 5)]),
        (b"\x0a\x04\x08\x01\x10\x09\x0a\x04\x08\x01\x10\x05", [(1, 5)]),
        # Two numbers in an entry, one of them unknown.
        (b"\x0a\x06\x08\x01\x10\x09\x10\x05", []),
        (b"\x0a\x06\x08\x01\x10\x05\x10\x09", []),
        # An entry without a value has the first symbol.
        (b"\x0a\x04\x08\x01\x10\x09\x0a\x02\x08\x01", [(1, 0)]),
    ],
)
def test_map_entries_with_unknown_symbols_of_a_closed_enum(
    record: bytes, entries: list[tuple[int, int]], kind: pa.DataType
) -> None:
    """
    An entry whose value is no symbol of a closed enum is not in the map, as in Protobuf's library.
    """
    file = new_file("proto2")
    order = file.message_type.add(name="Order")
    order.field.add(name="m", number=1, label=3, type=11, type_name=".shop.Order.MEntry")
    entry = order.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=FIELD.TYPE_INT32)
    entry.field.add(name="value", number=2, label=1, type=14, type_name=".shop.E")
    column = pa.struct([("m", pa.map_(pa.int32(), kind))])
    spec = MessageSpec(with_imports(file), "shop.Order", column)
    library: Any = message_class(spec).FromString(record)

    ((value,), bad) = decoded(spec, record)

    assert dict(library.m) == dict(entries)
    symbols = [(key, f"S{n}" if pa.types.is_string(kind) else n) for key, n in entries]
    assert (value, bad) == ({"m": symbols}, [])


def nested_maps(levels: int) -> MessageSpec:
    """
    Return a message ``M`` with a map of messages ``M``, with a type of this number of levels.
    """
    file = new_file("proto3")
    part = file.message_type.add(name="M")
    part.field.add(name="x", number=2, label=1, type=FIELD.TYPE_INT32)
    part.field.add(name="m", number=1, label=3, type=FIELD.TYPE_MESSAGE, type_name=".shop.M.MEntry")
    entry = part.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=FIELD.TYPE_INT32)
    entry.field.add(name="value", number=2, label=1, type=FIELD.TYPE_MESSAGE, type_name=".shop.M")
    kind = pa.struct([("x", pa.int32())])
    for _ in range(levels):
        kind = pa.struct([("x", pa.int32()), ("m", pa.map_(pa.int32(), kind))])
    return MessageSpec(with_imports(file), "shop.M", kind)


def test_nested_maps_with_duplicate_keys_are_read_once() -> None:
    """
    The entries of a map with duplicate keys are decoded once. A decoder that decodes them again
    takes twice the time for each level of nested maps: 28 levels take more time than a test may.
    """
    levels = 28
    record = b"\x10\x01"
    for _ in range(levels):
        entry = b"\x08\x01\x12" + varint(len(record)) + record
        # An entry without a value, which the next one of the same key replaces.
        record = b"\x0a\x02\x08\x01\x0a" + varint(len(entry)) + entry

    (value,), bad = decoded(nested_maps(levels), record)

    assert bad == []
    for _ in range(levels):
        assert value["x"] is None
        ((key, value),) = value["m"]
        assert key == 1
    assert value == {"x": 1}


def test_bad_bytes_deep_in_a_message() -> None:
    """
    The reason for bad bytes names the innermost field that contains them.
    """
    (_, _), (size, text) = decoded(nested(), b"\x0a\x02\x08\x80", b"\x12\x04\x08\x01\x12\x09")

    assert size.reason.startswith("value.part.x is not valid Protobuf: it ends too early")
    assert text.reason.startswith("value.parts is not valid Protobuf: it ends too early")


def test_ddl_is_that_of_from_protobuf() -> None:
    """
    The type of a message is the one in Spark's guide, except for unsigned numbers; a recursive
    message is an error.
    """
    file = new_file("proto3")
    order = file.message_type.add(name="Order")
    names = ("Timestamp", "Duration", "StringValue")
    kinds = [FIELD.TYPE_UINT32, FIELD.TYPE_UINT64, FIELD.TYPE_BOOL, FIELD.TYPE_BYTES]
    for index, kind in enumerate(kinds, 1):
        order.field.add(name=f"f{index}", number=index, label=1, type=kind)
    for index, name in enumerate(names, 10):
        order.field.add(
            name=f"f{index}", number=index, label=3, type=11, type_name=f".google.protobuf.{name}"
        )
    order.field.add(name="e", number=20, label=1, type=14, type_name=".shop.E")
    schema = parsed_schema(MessageSpec(with_imports(file), "shop.Order", pa.null()).schema.text)
    assert protobuf_ddl(schema, "shop.Order") == (
        "STRUCT<`f1`: BIGINT, `f2`: DECIMAL(20, 0), `f3`: BOOLEAN, `f4`: BINARY, "
        "`f10`: ARRAY<TIMESTAMP>, `f11`: ARRAY<INTERVAL DAY TO SECOND>, "
        "`f12`: ARRAY<STRUCT<`value`: STRING>>, `e`: STRING>"
    )
    with pytest.raises(
        ProtobufSchemaError, match="'shop.Part' contains itself in the field 'part.again',"
    ):
        protobuf_ddl(parsed_schema(nested().schema.text), "shop.Order")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            pa.struct([("parts", pa.int32())]),
            "'value.parts' is INT in the schema; it must be: an",
        ),
        (pa.struct([("n", pa.string())]), "'value.n' is STRING in the schema, but Protobuf's sint"),
        (pa.struct([("m", pa.int32())]), "'value.m' is not in the message 'shop.Order'; remove"),
        (pa.struct([("part", pa.struct([]))]), "'value.part' is a STRUCT without fields"),
        (pa.struct([("part", pa.null())]), "'value.part' is VOID in the schema, but Proto"),
        (pa.struct([pa.field("n", pa.int32(), nullable=False)]), "'value.n' is NOT NULL"),
        (pa.int32(), "'value' is INT in the schema; it must be: a STRUCT"),
    ],
)
def test_types_that_do_not_match(kind: pa.DataType, message: str) -> None:
    """
    A type that a message cannot be decoded to is a mistake, reported with the field's name.
    """
    spec = nested()
    _, mistakes = message_plan(parsed_schema(spec.schema.text), spec.name, kind, "value")
    assert any(message in mistake for mistake in mistakes), mistakes


def test_memory_is_bounded() -> None:
    """
    A record whose columns would take more than the limit is bad, and the next ones are not.
    """
    record = b"\x12\x00" * 20_000

    spec = nested()
    column = ProtobufColumn("value", spec.kind, spec.schema, 1 << 14, LENIENT)
    records = pa.array([b"", record, b""], pa.binary())

    values: list[Any] = []
    position = 0
    while position < len(records):
        position = column.decode(records, position, len(records))
        assert column.nbytes <= 1 << 14
        values += column.take().to_pylist()

    (bad,) = column.take_bad()
    assert bad.row == 1
    assert "too large" in bad.reason
    assert [value["n"] for value in values] == [-7, None, -7]


@pytest.mark.parametrize("decode", [decode_any, decode_named])
def test_many_mutated_records(decode: Callable[[list[bytes | None], RandomChoices], int]) -> None:
    """
    Random bytes give rows or bad values of any message, and leave no trace in later rows.
    """
    good = 0
    for seed in range(400):
        choices = RandomChoices(random.Random(seed))
        good += decode(values(choices), choices)

    assert good > 50
