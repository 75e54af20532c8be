"""
Columns of Protobuf messages that name their schemas, against a registry that answers over HTTP.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.support.fetching import settings
from tests.support.schema_registry import FakeRegistry, framed, running_registry

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.formats.proto_text import at_path, message_names
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_schemas import MAX_SCHEMA_BYTES, schema_from_option
from pyspark_pykafka.formats.protoc import compile_proto
from pyspark_pykafka.formats.read_format import make_read_format
from pyspark_pykafka.formats.record_decoder import decode_records
from pyspark_pykafka.formats.registered_schemas import with_registered_schemas
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import FormatOptions, RegistryOptions, Subscribe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TP = TopicPartition("orders", 0)
Headers = list[tuple[str, bytes]]

SHOP = """// Orders { of a shop }
syntax = "proto3";
package com.shop;
import "money.proto";
import "google/protobuf/timestamp.proto";
option java_package = "com.{shop}";
message Order {
  int64 id = 1; /* message Hidden { */
  map<string, int32> counts = 2;
  message Line { string item = 1; oneof x { int32 a = 2; } }
  repeated Line lines = 3 [deprecated = true];
  Money price = 4;
  google.protobuf.Timestamp at = 5;
  enum State { NEW = 0; }
}
message Refund { int64 id = 1; }
service Orders { rpc Get(Order) returns (Order) { option deprecated = true; } }
"""
MONEY = 'syntax = "proto3"; package com.shop; message Money { int64 units = 1; }'
MONEY_REFERENCE = [{"name": "money.proto", "subject": "money", "version": 1}]
KIND = pa.struct([("id", pa.int64()), ("price", pa.struct([("units", pa.int64())]))])
RECORD = b"\x08\x07\x22\x02\x08\x05"
VALUE = {"id": 7, "price": {"units": 5}}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


def formats(registry: FakeRegistry, **changes: Any) -> FormatOptions:
    registry_options = RegistryOptions((registry.url,), request_timeout_ms=9000, timeout_ms=9000)
    defaults: dict[str, Any] = {"value_format": "protobuf", "on_bad_record": "rescue"}
    options = FormatOptions(**defaults, registry=registry_options, **changes)
    return with_registered_schemas(options, Subscribe(("orders",)), derives_columns=True)


def rows(
    options: FormatOptions,
    values: list[bytes | None],
    headers: list[Headers] | None = None,
    kind: pa.DataType = KIND,
) -> list[tuple[Any, str]]:
    """
    Return the decoded values with the errors of bad ones.
    """
    fields = pa.schema([("value", kind), ("_error", pa.string())])
    record = make_read_format(options, fields, include_headers=False)
    listed = [
        [{"key": key, "value": value} for key, value in pairs]
        for pairs in headers or [[]] * len(values)
    ]
    columns = [values, list(range(len(values))), listed]
    schema = record.record_schema
    arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
    batch = pa.record_batch(arrays, schema=schema)
    decoded = decode_records([batch], TP, record, settings("b:1", "wire"))
    decoded_rows = [row for part in decoded for row in part.to_pylist()]
    return [(row["value"], row["_error"] or "") for row in decoded_rows]


def add_shop(registry: FakeRegistry) -> int:
    registry.add("money", MONEY, "PROTOBUF")
    return registry.add("orders-value", SHOP, "PROTOBUF", MONEY_REFERENCE)


@pytest.mark.parametrize("serializes", [True, False])
def test_columns_of_a_subject(registry: FakeRegistry, serializes: bool) -> None:
    """
    The columns are those of the first message, from descriptors or from texts with references.
    """
    number = add_shop(registry)
    registry.serializes = serializes
    options = formats(registry)

    ddl = default_ddl(options, include_headers=False)

    assert "value STRUCT<`id`: BIGINT, `counts`: MAP<STRING, INT>, `lines`: ARRAY<" in str(ddl)
    assert "`price`: STRUCT<`units`: BIGINT>, `at`: TIMESTAMP>" in str(ddl)
    assert rows(options, [framed(number, b"\x00" + RECORD), None]) == [(VALUE, ""), (None, "")]


def test_other_messages_are_bad(registry: FakeRegistry) -> None:
    """
    A record of another message, or without a known schema, is bad; other records are decoded.
    """
    number = add_shop(registry)
    other = registry.add("other", MONEY, "PROTOBUF")
    avro = registry.add("avro", '"string"')
    good, *bad = rows(
        formats(registry),
        [
            framed(number, b"\x02\x00" + RECORD),
            framed(number, b"\x02\x02" + RECORD),
            framed(number, b"\x04\x00\x02" + RECORD),
            framed(number, b"\x02\x7e" + RECORD),
            framed(other, b"\x00" + RECORD),
            framed(avro, b"\x00" + RECORD),
            framed(99, b"\x00" + RECORD),
            framed(number, b"\x80"),
            RECORD,
        ],
    )
    assert good == (VALUE, "")
    expected = [
        f"its message, at index 1 in the schema with id {number}, is 'com.shop.Refund', not 'com.",
        "is 'com.shop.Order.Line', not 'com.shop.Order'",
        "is none, not 'com.shop.Order'",
        "is 'com.shop.Money', not 'com.shop.Order'",
        f"the schema with id {avro} is of type AVRO, not PROTOBUF",
        "does not know id 99",
        "it does not begin with a schema id, followed by message indexes or Apicurio's name",
        "it does not begin with a schema id, followed by message indexes or Apicurio's name",
    ]
    assert len(bad) == len(expected)
    for (value, error), text in zip(bad, expected, strict=True):
        assert value == {"id": None, "price": None}
        assert text in error


def test_guid_and_index_in_a_header(registry: FakeRegistry) -> None:
    """
    A header names the schema by its GUID, and the message by the index after it.
    """
    guid = b"\1" + UUID(registry.guid(add_shop(registry))).bytes
    headers: list[Headers] = [
        [("__value_schema_id", guid + path)] for path in (b"\x00", b"\x02\x02", b"\x02", b"")
    ]
    results = rows(formats(registry), [RECORD] * 4, headers)
    assert [value["id"] for value, _ in results] == [7, None, None, 7]
    assert "is 'com.shop.Refund', not" in results[1][1]
    assert "a header __..._schema_id without a message index" in results[2][1]


def ref(name: str) -> bytes:
    """
    Return Apicurio's message ``Ref`` with its size: the name of a message is its field 1.
    """
    field = b"\x0a" + bytes([len(name)]) + name.encode()
    return bytes([len(field)]) + field


def of_apicurio(registry: FakeRegistry, id_bytes: int) -> FormatOptions:
    options = formats(registry)
    assert options.registry is not None
    url = f"{registry.url}/apis/ccompat/v7"
    return replace(options, registry=replace(options.registry, urls=(url,), id_bytes=id_bytes))


@pytest.mark.parametrize("id_bytes", [4, 8])
def test_names_of_apicurio(registry: FakeRegistry, id_bytes: int) -> None:
    """
    Apicurio's serializers write the name of the message before the message. A record with another
    name is bad, and so is one whose message the schema does not have. Message indexes are read,
    too.
    """
    number = add_shop(registry)
    other = registry.add("other", MONEY, "PROTOBUF")
    good, *bad, last = rows(
        of_apicurio(registry, id_bytes),
        [
            framed(number, ref("Order") + RECORD, id_bytes),
            framed(number, ref("Refund") + RECORD, id_bytes),
            framed(number, ref("Money") + RECORD, id_bytes),
            framed(other, ref("Order") + RECORD, id_bytes),
            framed(number, ref("Order")[:-1], id_bytes),
            framed(number, b"\x00" + RECORD, id_bytes),
        ],
    )
    assert good == last == (VALUE, "")
    expected = [
        "or Apicurio's name of the message",
        "or Apicurio's name of the message",
        f"the schema with id {other} has no message 'com.shop.Order'",
        "or Apicurio's name of the message",
    ]
    for (value, error), text in zip(bad, expected, strict=True):
        assert value == {"id": None, "price": None}
        assert text in error


def test_headers_of_apicurio(registry: FakeRegistry) -> None:
    """
    With ids in headers, the name of the message is in another header, both in that header and
    before the message, or nowhere; each name is checked.
    """
    number = add_shop(registry).to_bytes(8, "big")
    kind = "apicurio.protobuf.type"
    headers: list[Headers] = [
        [("apicurio.value.globalId", number), (kind, b"Order")],
        [(kind, b"Refund"), ("apicurio.value.globalId", number)],
        [("apicurio.value.contentId", number)],
        [("apicurio.value.contentId", number), ("a", b""), (kind, b"Order")],
        [("apicurio.value.globalId", number), (f"{kind}.key", b"Refund")],
        [("apicurio.value.globalId", b"1"), (kind, b"Order")],
    ]
    values: list[bytes | None] = [RECORD] * 6
    values[3] = ref("Order") + RECORD

    decoded = rows(of_apicurio(registry, 4), values, headers)

    assert [value["id"] for value, _ in decoded] == [7, None, 7, 7, 7, None]
    assert "its message is 'Refund', not 'com.shop.Order'" in decoded[1][1]
    assert "that is not an 8-byte id" in decoded[5][1]


def test_confluent_serializer(registry: FakeRegistry) -> None:
    """
    A record of Confluent's serializer is decoded with the schema that the serializer has
    registered.
    """
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="com.shop", syntax="proto3")
    file.message_type.add(name="First").field.add(name="x", number=1, label=1, type=5)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, label=1, type=3)
    price = order.nested_type.add(name="Money")
    price.field.add(name="units", number=1, label=1, type=3)
    order.field.add(name="price", number=4, label=1, type=11, type_name=".com.shop.Order.Money")
    pool.Add(file)
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("com.shop.Order"))
    client = SchemaRegistryClient({"url": registry.url})
    serializer = ProtobufSerializer(kind, client)
    context = SerializationContext("orders", MessageField.VALUE)
    record = serializer(kind(id=7, price={"units": 5}), context)

    options = formats(registry, value_message="com.shop.Order")

    assert rows(options, [record]) == [(VALUE, "")]


def test_schemas_of_the_user(tmp_path: Path) -> None:
    """
    A schema is the text of a .proto file, the descriptors that protoc writes (in base64), or the
    path of a file of either kind; one of several messages must be chosen.
    """
    text = SHOP.replace("  Money price = 4;", "").replace('import "money.proto";', "")
    described = compile_proto(text, {})
    (tmp_path / "shop.desc").write_bytes(described)
    (tmp_path / "shop.proto").write_text(text)
    encoded = base64.b64encode(described).decode()
    for schema in (str(tmp_path / "shop.desc"), str(tmp_path / "shop.proto"), text, encoded):
        assert schema_from_option("value", schema, "com.shop.Order") == (encoded, "com.shop.Order")

    for schema, message, expected in (
        (
            encoded,
            None,
            "set valueMessageName to one of its messages: com.shop.Order, com.shop.Ref",
        ),
        (encoded, "com.shop.Ordr", "the message 'com.shop.Ordr', but does not define it"),
        ("/nowhere/shop.desc", None, "the file '/nowhere/shop.desc' cannot be read on the driver"),
        ("a INT", None, "it is neither base64, nor the path of a file"),
        ("message Order { int64 id = 1 }", None, "protoc rejects it"),
        (base64.b64encode(described[:-3]).decode(), None, "not a descriptor written by protoc"),
    ):
        with pytest.raises(OptionsError, match=expected):
            schema_from_option("value", schema, message)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """
    A file that is not UTF-8 or is too large, a folder, and a path that no file can have are errors
    with the reason.
    """
    large = tmp_path / "large.desc"
    with large.open("wb") as file:
        file.truncate(MAX_SCHEMA_BYTES + 1)
    latin = tmp_path / "shop.proto"
    latin.write_bytes(b'syntax = "proto3"; // caf\xe9\nmessage Order { int64 id = 1; }')

    for path, reason in (
        (str(latin), "shop.proto' is not UTF-8"),
        (str(large), f"large.desc' has more than {MAX_SCHEMA_BYTES} bytes"),
        (f"file:{tmp_path}", "Is a directory"),
        ("/schemas/or\0ders.desc", "cannot be read on the driver .embedded null byte"),
    ):
        with pytest.raises(OptionsError, match=reason):
            schema_from_option("value", path, None)


def test_texts_with_imports_of_the_user() -> None:
    """
    A text cannot import files of the user; the error names the import and its line, shows no path
    of a temporary file, and says what to do.
    """
    with pytest.raises(OptionsError) as raised:
        schema_from_option("value", SHOP, "com.shop.Order")

    reason = str(raised.value)
    assert 'money.proto: File not found.; schema.proto:4:1: Import "money.proto" was not' in reason
    assert "pykafka-proto-" not in reason
    assert reason.endswith(
        "compile it with its imports, and set valueSchema to the file that "
        "protoc --include_imports --descriptor_set_out=... writes"
    )


def test_names_in_texts() -> None:
    """
    Messages are found in a text by their path, with and without counting maps; comments and strings
    are not read.
    """
    messages = message_names(SHOP)
    assert at_path(messages, (0,)) == {"com.shop.Order"}
    assert at_path(messages, (1,)) == {"com.shop.Refund"}
    assert at_path(messages, (0, 1)) == {"com.shop.Order.Line"}
    assert "com.shop.Order.Line" in at_path(messages, (0, 0))
    assert at_path(messages, (2,)) == set()
    with pytest.raises(ProtobufSchemaError, match="it defines no message"):
        message_names('syntax = "proto3";')
