"""
Writes of Protobuf with a registry: the schemas that it gets, and the values that Confluent reads.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fuzz.protobuf_mutations import with_imports
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from tests.support.schema_registry import FakeRegistry, running_registry
from tests.unit.formats.test_registered_protobuf import (
    MONEY,
    SHOP,
    VALUE,
    add_shop,
    formats,
    rows,
)
from tests.unit.formats.test_write_format import CONTEXT, mistakes, prepared

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.protoc import compile_proto
from pyspark_pykafka.formats.record_encoder import RecordEncoder
from pyspark_pykafka.options import SubjectOptions
from pyspark_pykafka.registry.errors import SchemaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_pykafka.formats.write_format import WriteFormat

MONEY_TYPE = pa.struct([("units", pa.int64())])
ORDER = pa.schema([("value", pa.struct([("price", MONEY_TYPE), ("id", pa.int64())]))])


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry(FakeRegistry()) as running:
        yield running


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """
    Return the path of the descriptors of a schema with an import.
    """
    path = tmp_path / "shop.desc"
    path.write_bytes(compile_proto(SHOP, {"money.proto": MONEY}))
    return str(path)


def encoded(format_: WriteFormat, *values: Any) -> list[bytes]:
    """
    Return the encoded values of rows.
    """
    (column,) = format_.columns
    batch = pa.RecordBatch.from_arrays([pa.array(values, column.type)], names=["value"])
    (encoded_batch,) = RecordEncoder(format_, "orders").batches([batch])
    texts: list[bytes] = encoded_batch.column("value").to_pylist()
    return texts


def message_class(files: Any, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    own_names = {file.name for file in files.file}
    for file in (
        *(imported for imported in with_imports().file if imported.name not in own_names),
        *files.file,
    ):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_confluent_reads_derived_messages(registry: FakeRegistry) -> None:
    """
    Confluent's deserializer gets the same values, with the message that is derived from the column.
    """
    kind = pa.struct(
        [
            *(("id", pa.int64()), ("who", pa.string()), ("tags", pa.list_(pa.string()))),
            *(("sizes", pa.map_(pa.string(), pa.float64())), ("at", pa.timestamp("us", tz="UTC"))),
            ("inner", pa.struct([("flag", pa.bool_()), ("raw", pa.binary())])),
        ]
    )
    options = {**registry.options(), "valueFormat": "protobuf", "valueRecordName": "shop.Order"}
    row = {"id": 0, "who": "é", "tags": ["a"], "sizes": [("k", 1.5)]}
    row |= {"at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "inner": {"flag": False, "raw": b"\xff"}}

    texts = encoded(prepared(options, pa.schema([("value", kind)])), row, dict.fromkeys(row), None)

    (schema,) = registry.schemas.values()
    assert schema["schemaType"] == "PROTOBUF"
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema["schema"]))
    read = message_class(descriptor_pb2.FileDescriptorSet(file=[file]), "shop.Order")
    client = SchemaRegistryClient({"url": registry.url})
    deserialize = ProtobufDeserializer(read, schema_registry_client=client)
    full, empty, tombstone = (deserialize(text, CONTEXT) for text in texts)
    assert json_format.MessageToDict(full, preserving_proto_field_name=True) == {
        "id": "0",
        "who": "é",
        "tags": ["a"],
        "sizes": {"k": 1.5},
        "at": "2026-01-02T03:04:05.000006Z",
        "inner": {"flag": False, "raw": "/w=="},
    }
    assert empty == read()
    assert tombstone is None


def test_imports_are_registered_first(registry: FakeRegistry, shop: str) -> None:
    """
    A schema with an import is registered with a reference to it; our reader checks the message.
    """
    options = {**registry.options(), "valueFormat": "protobuf", "valueSchema": shop}

    texts = encoded(
        prepared({**options, "valueMessageName": "com.shop.Order"}, ORDER),
        {"id": 7, "price": {"units": 5}},
    )

    assert [*registry.subjects] == ["money.proto", "orders-value"]
    (number,) = registry.subjects["orders-value"]
    assert registry.schemas[number]["references"] == [
        {"name": "money.proto", "subject": "money.proto", "version": 1}
    ]
    assert texts == [b"\x00" + number.to_bytes(4, "big") + b"\x00\x08\x07\x22\x02\x08\x05"]
    assert rows(formats(registry), [*texts]) == [(VALUE, "")]


def test_imports_of_a_context(registry: FakeRegistry, shop: str) -> None:
    """
    An import is registered in the context of the subject, where readers look for it.
    """
    prod = registry.contexts[".prod"] = FakeRegistry()
    options = {**registry.options(), "valueFormat": "protobuf", "valueSchema": shop}
    options |= {"valueMessageName": "com.shop.Order", "valueSubject": ":.prod:orders-value"}

    texts = encoded(prepared(options, ORDER), {"id": 7, "price": {"units": 5}})

    assert [*prod.subjects] == ["money.proto", "orders-value"]
    assert not registry.subjects
    read = formats(registry, value_subject=SubjectOptions(":.prod:orders-value"))
    assert rows(read, [*texts]) == [(VALUE, "")]


def test_only_imports_are_registered(registry: FakeRegistry, tmp_path: Path) -> None:
    """
    Of several files in the descriptors, only those that the schema imports, directly or not, are
    registered.
    """
    files = descriptor_pb2.FileDescriptorSet()
    for name, imports in {"a": "", "b": "a", "other": "a", "c": "b"}.items():
        file = files.file.add(name=f"{name}.proto", package=name, syntax="proto3")
        file.dependency.extend(f"{imported}.proto" for imported in imports)
        file.message_type.add(name="M").field.add(name="id", number=1, label=1, type=3)
    path = tmp_path / "all.desc"
    path.write_bytes(files.SerializeToString())
    options = {**registry.options(), "valueFormat": "protobuf", "valueSchema": str(path)}
    kind = pa.schema([("value", pa.struct([("id", pa.int64())]))])

    prepared({**options, "valueMessageName": "c.M"}, kind)

    assert [*registry.subjects] == ["a.proto", "b.proto", "orders-value"]


@pytest.mark.parametrize("version", [{"useLatestVersion": "true"}, {"valueSubjectVersion": "1"}])
@pytest.mark.parametrize("serializes", [True, False])
def test_schema_of_the_registry(
    registry: FakeRegistry, version: dict[str, str], serializes: bool
) -> None:
    """
    Values can be encoded with a schema that the subject has already; then nothing is registered.
    """
    number = add_shop(registry)
    registry.serializes = serializes
    options = {**registry.options(), "valueFormat": "protobuf", **version}
    second = pa.schema([("value", pa.struct([("id", pa.int64())]))])

    first = encoded(prepared(options, ORDER), {"id": 7, "price": {"units": 5}})
    refund = prepared({**options, "valueMessageName": "com.shop.Refund"}, second)

    prefix = b"\x00" + number.to_bytes(4, "big")
    assert first == [prefix + b"\x00\x08\x07\x22\x02\x08\x05"]
    # The index is a list of one number, 1.
    assert encoded(refund, {"id": 1}) == [prefix + b"\x02\x02\x08\x01"]
    assert not any(request.startswith("POST") for request in registry.requests)
    narrow = pa.schema([("value", pa.struct([("id", pa.string())]))])
    assert "'value.id' is STRING, but Protobuf's int64" in mistakes(options, narrow)


def test_indexes_are_those_of_confluent(registry: FakeRegistry, shop: str) -> None:
    """
    The prefix of a nested message is the one that Confluent's serializer writes.
    """
    name = "com.shop.Order.Line"
    files = descriptor_pb2.FileDescriptorSet.FromString(compile_proto(SHOP, {"money.proto": MONEY}))
    line = message_class(files, name)
    serializer = ProtobufSerializer(line, SchemaRegistryClient({"url": registry.url}))
    expected = serializer(line(item="x"), SerializationContext("orders", MessageField.VALUE))
    options = {**registry.options(), "valueFormat": "protobuf", "valueSchema": shop}
    rows_of_lines = pa.schema([("value", pa.struct([("item", pa.string())]))])

    format_ = prepared({**options, "valueMessageName": name}, rows_of_lines)

    # The prefix has the id of the schema, so the same schema is registered, too.
    assert encoded(format_, {"item": "x"}) == [expected]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("RecordNameStrategy", "com.shop.Refund"),
        ("TopicRecordNameStrategy", "orders-com.shop.Refund"),
    ],
)
def test_subject_strategies(registry: FakeRegistry, shop: str, strategy: str, subject: str) -> None:
    """
    The subject contains the name of the message.
    """
    options = {**registry.options(), "valueFormat": "protobuf", "valueSchema": shop}
    options |= {"valueMessageName": "com.shop.Refund", "valueSubjectNameStrategy": strategy}

    prepared(options, pa.schema([("value", pa.struct([("id", pa.int64())]))]))

    assert [*registry.subjects] == ["money.proto", subject]


def test_schemas_that_cannot_be_used(registry: FakeRegistry, shop: str) -> None:
    """
    A schema that is not registered, one of another type, and a message of an import are errors.
    """
    options = {**registry.options(), "valueFormat": "protobuf"}
    sink_options = {**options, "valueSchema": shop, "valueMessageName": "com.shop.Order"}
    registry.add("avro", {"type": "record", "name": "R", "fields": []})

    with pytest.raises(SchemaNotFoundError, match="set autoRegister to true"):
        prepared({**sink_options, "autoRegister": "false"}, ORDER)
    with pytest.raises(OptionsError, match="has a schema of type AVRO, but valueFormat is 'protob"):
        prepared({**options, "useLatestVersion": "true", "valueSubject": "avro"}, ORDER)
    money = pa.schema([("value", MONEY_TYPE)])
    with pytest.raises(OptionsError, match=r"'com.shop.Money' is in an import of the schema of"):
        prepared({**sink_options, "valueMessageName": "com.shop.Money"}, money)
    assert [*registry.subjects] == ["avro", "money.proto", "orders-value"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"valueMessageName": "M"}, "valueMessageName is set, but the schema is derived"),
        (
            {"valueRecordName": "a..b", "schema.registry.url": "http://h"},
            "valueRecordName is 'a..b', which is not the name",
        ),
        (
            {"valueSchema": "message M { optional int32 x = 1; }"},
            "'value.id' is not in the message 'M'",
        ),
        ({"valueSchema": "no"}, "valueSchema is not a usable Protobuf schema"),
        (
            {"valueSchema": "message A {} message B {}"},
            "set valueMessageName to one of its messages: A, B",
        ),
        ({"valueFormat": "avro", "valueMessageName": "M"}, "set it to protobuf"),
    ],
)
def test_mistakes(options: dict[str, str], text: str) -> None:
    """
    Options that contradict each other, the column or the schema are reported before any task runs.
    """
    assert text in mistakes({"valueFormat": "protobuf", **options}, ORDER)
