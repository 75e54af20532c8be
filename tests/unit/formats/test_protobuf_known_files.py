"""
Files that Protobuf schemas import and that registries provide themselves.
"""

from __future__ import annotations

import base64
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from google.type import date_pb2, money_pb2
from tests.support.schema_registry import FakeRegistry, framed, running_registry
from tests.unit.formats.test_protobuf_registration import encoded
from tests.unit.formats.test_registered_protobuf import formats, rows
from tests.unit.formats.test_write_format import prepared

from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.ddl_types import arrow_type
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.formats.protobuf_decoder import ProtobufColumn
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_descriptors import varint
from pyspark_pykafka.formats.protobuf_known_files import known_files, parse_descriptor_set
from pyspark_pykafka.formats.protobuf_schemas import registered_schema, schema_from_option
from pyspark_pykafka.formats.protobuf_types import protobuf_ddl

if TYPE_CHECKING:
    from collections.abc import Iterator

LENIENT = BadRecordPolicy("null")

#: The files that Confluent's registry provides, with the modules that define them elsewhere.
PROVIDED = {
    **{
        f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
        for name in (
            *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context"),
            *("struct", "timestamp", "type", "wrappers"),
        )
    },
    **{
        f"google/type/{name}.proto": f"google.type.{name}_pb2"
        for name in (
            *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr"),
            *("fraction", "interval", "latlng", "money", "month", "phone_number"),
            *("postal_address", "quaternion", "timeofday"),
        )
    },
    **{
        f"confluent/{name}.proto": (
            f"confluent_kafka.schema_registry.confluent.{name.replace('/', '.')}_pb2"
        )
        for name in ("meta", "type/decimal", "type/variant", "types/decimal")
    },
}

DELIVERY = """syntax = "proto3";
package com.shop;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/any.proto";
import "google/type/date.proto";
import "google/type/money.proto";
import "google/type/dayofweek.proto";
message Delivery {
  int64 id = 1 [(confluent.field_meta).doc = "the order"];
  google.type.Date day = 2;
  google.type.Money price = 3;
  google.type.DayOfWeek weekday = 4;
  confluent.type.Decimal weight = 5;
  google.protobuf.Any more = 6;
}
"""
DELIVERY_DDL = (
    "STRUCT<`id`: BIGINT, `day`: STRUCT<`year`: INT, `month`: INT, `day`: INT>, "
    "`price`: STRUCT<`currency_code`: STRING, `units`: BIGINT, `nanos`: INT>, `weekday`: STRING, "
    "`weight`: STRUCT<`value`: BINARY, `precision`: BIGINT, `scale`: INT>, "
    "`more`: STRUCT<`type_url`: STRING, `value`: BINARY>>"
)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry(FakeRegistry()) as running:
        yield running


def described(path: str) -> descriptor_pb2.FileDescriptorProto:
    """
    Return the descriptor of a provided file as its Python module has it.
    """
    file = descriptor_pb2.FileDescriptorProto()
    import_module(PROVIDED[path]).DESCRIPTOR.CopyToProto(file)
    return file


def definitions(file: descriptor_pb2.FileDescriptorProto) -> set[str]:
    """
    Return the fields, symbols and extensions that a file defines, with their numbers and types.
    """
    found = {f"{file.name} {file.package} {file.syntax} {list(file.dependency)}"}
    found |= {f"extend {e.extendee} {e.name} {e.number} {e.type_name}" for e in file.extension}

    def add(message: Any, scope: str) -> None:
        name = f"{scope}.{message.name}"
        for field in message.field:
            kind = (field.label, field.type, field.type_name, field.options.packed)
            found.add(f"{name} {field.name} {field.number} {kind} {field.HasField('oneof_index')}")
        for enum in message.enum_type:
            add_enum(enum, name)
        for inner in message.nested_type:
            add(inner, name)

    def add_enum(enum: Any, scope: str) -> None:
        found.update(f"{scope}.{enum.name} {value.name} {value.number}" for value in enum.value)

    for message in file.message_type:
        add(message, file.package)
    for enum in file.enum_type:
        add_enum(enum, file.package)
    return found


def test_the_known_files_are_those_of_confluent() -> None:
    """
    Every file that Confluent's registry provides is known, before the files that import it.
    """
    assert set(known_files()) == set(PROVIDED)
    seen: set[str] = set()
    for name, file in known_files().items():
        assert set(file.imports) <= seen
        seen.add(name)


@pytest.mark.parametrize("path", PROVIDED)
def test_known_files_define_what_their_owners_define(path: str) -> None:
    """
    A known file has the messages, fields and symbols of the file that its owner publishes.
    """
    known = descriptor_pb2.FileDescriptorProto.FromString(known_files()[path].data)

    # A newer release may have more, because each edition adds to descriptor.proto.
    assert definitions(known) <= definitions(described(path))
    if path != "google/protobuf/descriptor.proto":
        assert definitions(known) == definitions(described(path))


@pytest.mark.parametrize("serializes", [True, False])
def test_schemas_import_known_files_without_references(
    registry: FakeRegistry, serializes: bool
) -> None:
    """
    A registered schema may import known files that it does not list as references, whether the
    registry returns descriptors or texts.
    """
    number = registry.add("orders-value", DELIVERY, "PROTOBUF")
    registry.serializes = serializes
    options = formats(registry)
    day = date_pb2.Date(year=2026, month=11, day=26).SerializeToString()
    price = money_pb2.Money(currency_code="EUR", units=-3, nanos=-500).SerializeToString()
    record = b"\x08\x07" + b"\x12%c%b\x1a%c%b\x20\x04" % (len(day), day, len(price), price)

    assert DELIVERY_DDL in str(default_ddl(options, include_headers=False))
    ((value, error),) = rows(
        options, [framed(number, b"\x00" + record)], kind=arrow_type(DELIVERY_DDL)
    )

    assert error == ""
    assert value == {
        "id": 7,
        "day": {"year": 2026, "month": 11, "day": 26},
        "price": {"currency_code": "EUR", "units": -3, "nanos": -500},
        "weekday": "THURSDAY",
        "weight": None,
        "more": None,
    }


def test_descriptors_without_known_imports() -> None:
    """
    The descriptors that a user gives may lack the known files that they import, directly or not.
    """
    whole = base64.b64decode(schema_from_option("value", DELIVERY, None).text)
    files = descriptor_pb2.FileDescriptorSet.FromString(whole)
    alone = descriptor_pb2.FileDescriptorSet(file=files.file[-1:]).SerializeToString()

    schema = parse_descriptor_set(alone)

    assert protobuf_ddl(schema, "com.shop.Delivery") == DELIVERY_DDL
    assert schema.messages.keys() >= {"confluent.Meta", "google.protobuf.FileOptions"}
    assert "google.protobuf.Struct" not in schema.messages


def test_a_reference_replaces_a_known_file() -> None:
    """
    If a registry has its own version of a known file as a reference, that version counts.
    """
    own = 'syntax = "proto3"; package google.type; message Date { int32 year = 1; string era = 9; }'
    text = """syntax = "proto3"; import "google/type/date.proto";
    message Day { google.type.Date date = 1; }"""
    imports = [("google/type/date.proto", own)]

    schema = registered_schema("value", text, imports, None)

    parsed = parse_descriptor_set(base64.b64decode(schema.text))
    assert protobuf_ddl(parsed, "Day") == "STRUCT<`date`: STRUCT<`year`: INT, `era`: STRING>>"
    # A registry that returns descriptors names each of them "default".
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema.text))
    data: list[str] = []
    for file in files.file:
        file.name = "default"
        data.append(base64.b64encode(file.SerializeToString()).decode())
    again = registered_schema("value", data[1], [("google/type/date.proto", data[0])], None)
    reparsed = parse_descriptor_set(base64.b64decode(again.text))
    assert reparsed.messages["google.type.Date"] == parsed.messages["google.type.Date"]


def test_known_files_are_not_registered(registry: FakeRegistry) -> None:
    """
    A write registers no file that the registry provides, but does register other files in folders
    of the same name.
    """
    own = descriptor_pb2.FileDescriptorProto(name="google/type/own.proto", syntax="proto3")
    own.message_type.add(name="Own").field.add(name="x", number=1, label=1, type=3)
    main = descriptor_pb2.FileDescriptorProto(name="main.proto", syntax="proto3")
    main.dependency.extend(["google/type/own.proto", "google/type/date.proto"])
    order = main.message_type.add(name="Order")
    order.field.add(name="own", number=1, label=1, type=11, type_name=".Own")
    order.field.add(name="day", number=2, label=1, type=11, type_name=".google.type.Date")
    files = descriptor_pb2.FileDescriptorSet(file=[described("google/type/date.proto"), own, main])
    text = base64.b64encode(files.SerializeToString()).decode()
    options = {**registry.options(), "valueFormat": "protobuf", "valueSchema": text}
    kind = arrow_type("STRUCT<own: STRUCT<x: BIGINT>, day: STRUCT<year: INT>>")

    texts = encoded(
        prepared(options, pa.schema([("value", kind)])), {"own": {"x": 1}, "day": {"year": 2026}}
    )

    assert [*registry.subjects] == ["google/type/own.proto", "orders-value"]
    assert texts[0][6:] == b"\x0a\x02\x08\x01\x12\x03\x08\xea\x0f"


def test_recursive_known_messages_name_the_field() -> None:
    """
    A message that contains a Struct has no column type; the error names the recursive field, and
    shows a type without it.
    """
    text = """syntax = "proto3"; import "google/protobuf/struct.proto";
    message Event { int64 id = 1; google.protobuf.Struct attributes = 2; }"""
    schema = parse_descriptor_set(base64.b64decode(schema_from_option("value", text, None).text))

    with pytest.raises(ProtobufSchemaError) as raised:
        protobuf_ddl(schema, "Event")

    reason = str(raised.value)
    assert reason.startswith(
        "the message 'google.protobuf.Struct' contains itself in the field "
        "'attributes.fields.value.struct_value', which no column type can; name the fields"
    )
    assert reason.endswith(
        "Without such fields: "
        "STRUCT<`id`: BIGINT, `attributes`: STRUCT<`fields`: MAP<STRING, STRUCT<`null_value`: "
        "STRING, `number_value`: DOUBLE, `string_value`: STRING, `bool_value`: BOOLEAN>>>>"
    )


def test_fields_of_a_struct() -> None:
    """
    A Struct is read with the type that the error shows, or a deeper one; values without a column
    are skipped.
    """
    text = """syntax = "proto3"; import "google/protobuf/struct.proto";
    message Event { google.protobuf.Struct attributes = 2; }"""
    value = "STRUCT<number_value: DOUBLE, string_value: STRING"
    kind = arrow_type(
        f"STRUCT<attributes: STRUCT<fields: MAP<STRING, {value}, "
        f"list_value: STRUCT<values: ARRAY<{value}>>>>>>>"
    )
    attributes = struct_pb2.Struct()
    attributes.update({"n": 1.5, "l": ["x", None, {"deep": True}], "s": "text"})
    record = attributes.SerializeToString()
    column = ProtobufColumn(
        "value", kind, schema_from_option("value", text, None), 1 << 20, LENIENT
    )

    column.decode(pa.array([b"\x12" + varint(len(record)) + record], pa.binary()), 0, 1)

    assert column.take_bad() == []
    ((name, fields),) = column.take().to_pylist()[0]["attributes"].items()
    nothing = {"number_value": None, "string_value": None, "list_value": None}
    assert (name, sorted(fields)) == (
        "fields",
        [
            (
                "l",
                nothing
                | {
                    "list_value": {
                        "values": [
                            {"number_value": None, "string_value": "x"},
                            *[{"number_value": None, "string_value": None}] * 2,
                        ]
                    }
                },
            ),
            ("n", nothing | {"number_value": 1.5}),
            ("s", nothing | {"string_value": "text"}),
        ],
    )
