"""
Schema ids in the headers of records, next to the rows' own headers.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, json_format
from tests.support.arrow_forms import any_form
from tests.support.schema_registry import FakeRegistry, running_registry
from tests.unit.formats.test_protobuf_registration import message_class
from tests.unit.formats.test_write_format import AVRO, ORDER, mistakes, prepared

from pyspark_pykafka.formats.protobuf_schemas import schema_from_option
from pyspark_pykafka.formats.protoc import compile_proto
from pyspark_pykafka.formats.record_encoder import RecordEncoder
from pyspark_pykafka.formats.schema_id_headers import SchemaIdHeaders
from pyspark_pykafka.formats.schema_names import SchemaName, SchemaNames
from pyspark_pykafka.registry.errors import SchemaRegistryError
from pyspark_pykafka.schema import HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator

Headers = list[tuple[str, bytes | None]]

ROWS = pa.schema([("key", ORDER), ("value", ORDER), ("headers", HEADERS)])
# Confluent's deserializer rejects Avro of fewer than six bytes, as if an id were before it.
LINE = {"id": 7, "who": "walter"}
PROTO = """syntax = "proto3"; package shop;
message First {} message Order { int64 id = 1; string who = 2; }"""


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry(FakeRegistry()) as running:
        yield running


def encoded(options: dict[str, str], *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """
    Return the records that rows become.
    """
    batch = pa.RecordBatch.from_pylist(list(rows), ROWS)
    format_ = prepared({**options, "schemaIdLocation": "header"}, ROWS)
    (encoded_batch,) = RecordEncoder(format_, "orders").batches([batch])
    for array in encoded_batch.columns:
        array.validate(full=True)
    records: list[dict[str, Any]] = encoded_batch.to_pylist()
    return records


def pairs(record: dict[str, Any]) -> Headers:
    return [(header["key"], header["value"]) for header in record["headers"]]


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_confluent_reads_headers(registry: FakeRegistry, kind: str) -> None:
    """
    Confluent's deserializers find the schema in the header. A row keeps its own headers, and no id
    is added for a key or value that is NULL.
    """
    options = {**registry.options(), "valueFormat": kind, "keyFormat": kind}
    files = compile_proto(PROTO, {})
    if kind == "protobuf":
        text = schema_from_option("value", PROTO, "shop.Order").text
        for column in ("key", "value"):
            options |= {f"{column}Schema": text, f"{column}MessageName": "shop.Order"}
    row_headers = [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}]

    both, value_only, tombstone = encoded(
        options,
        {"key": LINE, "value": LINE, "headers": row_headers},
        {"key": None, "value": LINE, "headers": None},
        {"key": LINE, "value": None, "headers": []},
    )

    names = ["trace", "trace", "__key_schema_id", "__value_schema_id"]
    assert [key for key, _ in pairs(both)] == names
    assert [key for key, _ in pairs(value_only)] == ["__value_schema_id"]
    assert [key for key, _ in pairs(tombstone)] == ["__key_schema_id"]
    client = SchemaRegistryClient({"url": registry.url})
    deserializers = {
        "avro": lambda: AvroDeserializer(client),
        "json": lambda: JSONDeserializer(None, schema_registry_client=client),
        "protobuf": lambda: ProtobufDeserializer(
            message_class(descriptor_pb2.FileDescriptorSet.FromString(files), "shop.Order"),
            schema_registry_client=client,
        ),
    }
    deserialize = deserializers[kind]()
    for record, name, field in (
        (both, "key", MessageField.KEY),
        (both, "value", MessageField.VALUE),
        (value_only, "value", MessageField.VALUE),
    ):
        actual = deserialize(record[name], SerializationContext("orders", field, pairs(record)))
        if kind == "protobuf":
            actual = json_format.MessageToDict(actual)
            actual["id"] = int(actual["id"])
        assert actual == LINE


def test_equal_to_confluent(registry: FakeRegistry) -> None:
    """
    The header and the value are those of Confluent's serializer.
    """
    headers: Headers = []
    serializer = AvroSerializer(
        SchemaRegistryClient({"url": registry.url}),
        json.dumps(AVRO),
        conf={"schema.id.serializer": header_schema_id_serializer},
    )
    expected_value = serializer(LINE, SerializationContext("orders", MessageField.VALUE, headers))
    options = {**registry.options(), "valueFormat": "avro", "keyFormat": "avro"}

    (record,) = encoded({**options, "valueSchema": json.dumps(AVRO)}, {"value": LINE})

    assert (record["value"], pairs(record)) == (expected_value, headers)


def test_ids_of_former_schemas_are_removed() -> None:
    """
    The headers of any list stay in order, without the ids of former schemas; the new id is last.

    The lists may have any layout in memory; a list that is null may have entries in the buffers.
    """
    generator = random.Random(7)
    names = ["a", "b", "__value_schema_id", "apicurio.value.globalId", "__key_schema_id"]
    for _ in range(100):
        rows: list[list[tuple[str, bytes]] | None] = [
            generator.choice(
                [None, [(generator.choice(names), generator.randbytes(1)) for _ in range(3)], []]
            )
            for _ in range(generator.randint(0, 6))
        ]
        values = [generator.choice([None, b"v"]) for _ in rows]
        array = any_form(pa.array(rows, HEADERS), generator)
        encoded = {"value": pa.array(values, pa.binary())}
        for value in (b"id", b""):
            new_headers = SchemaIdHeaders({"value": value}).headers(array, encoded, len(rows))
            assert new_headers is not None
            new_headers.validate(full=True)
            assert [[(h["key"], h["value"]) for h in row] for row in new_headers.to_pylist()] == [
                [pair for pair in row or [] if "value" not in pair[0]]
                + ([("__value_schema_id", b"id")] if value and content else [])
                for row, content in zip(rows, values, strict=True)
            ]


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_ids_are_removed_without_a_registry(kind: str) -> None:
    """
    A value that is encoded without a registry has no schema id. So the headers that name a schema
    or a message for the value are removed: they belong to the value that was read. The headers of a
    key that is not encoded stay.
    """
    schema = pa.schema([("key", pa.binary()), *list(ROWS)[1:]])
    stale = ["__value_schema_id", "apicurio.value.globalId", "apicurio.value.contentId"]
    kept = ["trace", "__key_schema_id", "apicurio.key.globalId", "apicurio.protobuf.type.key"]
    names = [*stale, "apicurio.protobuf.type", *kept]
    row = {"key": b"k", "value": LINE, "headers": [{"key": n, "value": b"1"} for n in names]}
    batch = pa.RecordBatch.from_pylist([row, {**row, "headers": None}], schema)

    encoder = RecordEncoder(prepared({"valueFormat": kind}, schema), "orders")
    (encoded_batch,) = encoder.batches([batch])

    first, second = encoded_batch.to_pylist()
    assert [name for name, _ in pairs(first)] == kept
    assert not second["headers"]


def test_text_keeps_its_headers() -> None:
    """
    A value that is not encoded may be the bytes of the record that was read, so its headers stay.
    """
    schema = pa.schema([("value", pa.string()), ("headers", HEADERS)])
    headers = [{"key": "__value_schema_id", "value": b"1"}]
    batch = pa.RecordBatch.from_pylist([{"value": "v", "headers": headers}], schema)

    encoder = RecordEncoder(prepared({"valueFormat": "text"}, schema), "orders")
    (encoded_batch,) = encoder.batches([batch])

    assert encoded_batch.to_pylist() == [{"value": "v", "headers": headers}]


def test_registry_without_guids(registry: FakeRegistry) -> None:
    """
    A registry without GUIDs is an error that names the option.
    """
    registry.has_guids = False

    with pytest.raises(SchemaRegistryError, match="has no GUID.*Set schemaIdLocation to prefix"):
        encoded({**registry.options(), "valueFormat": "avro", "keyFormat": "avro"})


def test_location_needs_a_registry() -> None:
    """
    The option schemaIdLocation without a registry is an error, since there is no id.
    """
    options = {"valueFormat": "avro", "schemaIdLocation": "header"}
    assert "schemaIdLocation is set, but schema.registry.url is missing" in mistakes(options)


def test_ids_of_read_records_in_any_form() -> None:
    """
    The ids in equal lists of headers are the same, whatever the lists' form in memory.
    """
    generator = random.Random(8)
    for _ in range(50):
        rows = [
            generator.choice(
                [None, [], [("a", b"1"), ("__value_schema_id", generator.randbytes(17))]]
            )
            for _ in range(generator.randint(0, 6))
        ]
        array = pa.array(rows, HEADERS)
        form = any_form(array, generator, wide=False, dictionaries=False)

        assert keys_of(form) == keys_of(array)


NAMES = {
    "__value_schema_id": "guid",
    "apicurio.value.globalId": "globalId",
    "apicurio.value.contentId": "contentId",
}
MESSAGE = "apicurio.protobuf.type"


def test_last_header_of_the_first_kind_counts() -> None:
    """
    Of the kinds of ids that a record has in headers, the first in NAMES counts, and of several
    headers of that kind the last one; of several message names the last one counts, too. Other
    records of the batch may have other headers.
    """
    generator = random.Random(9)
    for _ in range(300):
        rows: list[list[tuple[str, bytes]]] = []
        for _ in range(generator.randint(1, 4)):
            row = generator.choices([*NAMES, MESSAGE, "a"], k=generator.randint(0, 5))
            rows.append([(name, header_value(name, generator)) for name in row])
        names = SchemaNames("value", has_paths=True)
        keys = names.keys(pa.array(rows, HEADERS))
        rows_and_keys = [] if keys is None else [memoryview(p).cast("q").tolist() for p in keys]
        # The compiled decoders use the last key of a row.
        actual = {row: names.name(key) for row, key in zip(*rows_and_keys, strict=True)}

        assert actual == {index: name for index, row in enumerate(rows) if (name := expected(row))}


def header_value(name: str, generator: random.Random) -> bytes:
    if name == MESSAGE:
        return generator.choice([b"Order", b"Refund", b"Money"])
    if name == "__value_schema_id":
        return b"\1" + bytes(15) + generator.randbytes(1) + b"\0"
    return generator.randrange(5).to_bytes(8, "big")


def expected(row: list[tuple[str, bytes]]) -> SchemaName | None:
    """
    Return the schema that the headers of a record name.
    """
    last = dict(row)
    for name, kind in NAMES.items():
        if name not in last:
            continue
        if kind == "guid":
            return SchemaName(kind, str(UUID(bytes=last[name][1:17])), (0,))
        return SchemaName(kind, last[name][-1], (), last.get(MESSAGE, b"").decode())
    return None


def test_long_message_names_are_not_kept() -> None:
    """
    A message name that is too long makes the record bad, and is not kept in memory.
    """
    rows = [
        [("apicurio.value.globalId", bytes(8)), (MESSAGE, b"%d" % number + b"x" * 10**5)]
        for number in range(50)
    ]
    names = SchemaNames("value", has_paths=True)

    keys = names.keys(pa.array(rows, HEADERS))

    assert keys is not None
    seen = {names.name(key) for key in memoryview(keys[1]).cast("q")}
    assert [name.kind for name in seen] == ["invalid"]
    assert "a header apicurio.protobuf.type of more than 1000 bytes" in str(*seen)


@pytest.mark.parametrize("index", [b"\x80", b"\xfe\xff\x7f" + b"\x02"])
def test_long_indexes_are_not_read(index: bytes) -> None:
    """
    Message indexes that are too long make the record bad at once, and are not kept in memory.
    """
    value = b"\1" + bytes(16) + index + index[-1:] * 10**6
    names = SchemaNames("value", has_paths=True)

    keys = names.keys(pa.array([[("__value_schema_id", value)]], HEADERS))

    assert keys is not None
    name = names.name(memoryview(keys[1]).cast("q")[0])
    assert str(name) == "invalid a header __..._schema_id without a message index"


def keys_of(headers: pa.Array) -> list[list[int]] | None:
    keys = SchemaNames("value").keys(headers)
    return None if keys is None else [memoryview(part).cast("q").tolist() for part in keys]
