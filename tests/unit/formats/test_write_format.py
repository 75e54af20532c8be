"""
Writes of typed keys and values: early checks, requests to the registry, and rows.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.schema_registry import FakeRegistry, framed, running_registry

from pyspark_pykafka.errors import AuthenticationError, OptionsError, RecordError
from pyspark_pykafka.formats import write_format as module
from pyspark_pykafka.formats.record_encoder import RecordEncoder
from pyspark_pykafka.formats.schema_registration import with_registered_write_schemas
from pyspark_pykafka.formats.write_format import WriteFormat, make_write_format
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.registry.errors import IncompatibleSchemaError, SchemaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDER = pa.struct([("id", pa.int64()), ("who", pa.string())])
ROWS = pa.schema([("key", pa.string()), ("value", ORDER), ("topic", pa.string())])
CONTEXT = SerializationContext("orders", MessageField.VALUE)
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}],
}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry(FakeRegistry()) as running:
        yield running


def prepared(
    options: dict[str, str], schema: pa.Schema = ROWS, topic: str | None = "orders"
) -> WriteFormat:
    """
    Return the format of a write, as the driver prepares it.
    """
    encoding = parse_sink({**SERVERS, **options}, streaming=False).encoding
    return with_registered_write_schemas(make_write_format(encoding, schema), encoding, topic)


def mistakes(options: dict[str, str], schema: pa.Schema = ROWS) -> str:
    with pytest.raises(OptionsError) as caught:
        prepared(options, schema)
    return str(caught.value)


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), ROWS)


def encoded(format_: WriteFormat, *rows: dict[str, Any], chunk: int = 1 << 20) -> list[Any]:
    # Tasks get the format pickled.
    copy = pickle.loads(pickle.dumps(format_))  # noqa: S301 - our own bytes
    batches = RecordEncoder(copy, None, chunk).batches([batch(*rows)])
    return [chunk_of_rows.to_pylist() for chunk_of_rows in batches]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"valueSchema": "{}"}, "valueSchema is set, but valueFormat is 'raw'"),
        ({"autoRegister": "true"}, "autoRegister is set, but schema.registry.url is missing"),
        ({"ignoreNullFields": "false"}, "ignoreNullFields is set, but neither valueFormat"),
        ({"schema.registry.url": "http://h"}, "no format uses it"),
        ({"valueFormat": "text"}, "so the column 'value' must be: STRING"),
        ({"keyFormat": "json"}, "the column 'key' is text or bytes; it must be: a STRUCT"),
        ({"valueFormat": "avro", "valueSchema": "no"}, "the Avro schema of value cannot be used"),
        ({"valueFormat": "avro", "valueSchema": '"int"'}, "'value' is a STRUCT"),
        (
            {
                "valueFormat": "avro",
                "schema.registry.url": "http://h",
                "valueSubjectNameStrategy": "RecordNameStrategy",
            },
            "valueRecordName is missing",
        ),
        (
            {
                "valueFormat": "avro",
                "schema.registry.url": "http://h",
                "useLatestVersion": "true",
                "valueSchema": '"int"',
            },
            "valueSchema is set together with useLatestVersion",
        ),
    ],
)
def test_mistakes(options: dict[str, str], text: str) -> None:
    """
    Options that contradict each other, the column or the schema are reported before any task runs.
    """
    assert text in mistakes(options)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.struct([("a", pa.int32()), ("a", pa.int32())]), "'value' has the field 'a' twice"),
        (pa.map_(pa.int32(), pa.int32()), "the keys of 'value' must be: STRING"),
        (pa.struct([("a", pa.null())]), "'value.a' is null, which cannot be encoded"),
        (pa.struct([("a b", pa.int32())]), "'value.a b' is not an Avro name"),
    ],
)
def test_types_that_cannot_be_encoded(kind: pa.DataType, text: str) -> None:
    """
    A type that has no encoding is reported with its place in the column.
    """
    assert text in mistakes({"valueFormat": "avro"}, pa.schema([("value", kind)]))


def test_without_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where the encoder is not compiled, the error says how to get it.
    """
    monkeypatch.setattr(module, "find_spec", lambda _: None)

    assert "needs a compiled module that is not installed" in mistakes({"valueFormat": "json"})


def test_rows_in_chunks() -> None:
    """
    Keys and values are encoded in chunks of the same rows; other columns are kept.
    """
    format_ = prepared({"valueFormat": "json", "keyFormat": "avro"})
    rows = [
        {"key": "k" * i, "value": None if i == 2 else {"id": i, "who": None}, "topic": f"t{i}"}
        for i in range(4)
    ]

    chunks = encoded(format_, *rows, chunk=4)

    assert len(chunks) == 3
    assert [row for chunk in chunks for row in chunk] == [
        {
            "key": bytes([2 * i]) + b"k" * i,
            "value": None if i == 2 else b'{"id":%d}' % i,
            "topic": f"t{i}",
        }
        for i in range(4)
    ]
    assert format_.record_schema.field("value").type == pa.binary()


def test_bad_row_is_named() -> None:
    """
    A row that cannot be encoded is named by its topic, its key and the field.
    """
    schema = json.dumps(AVRO)
    raw = prepared({"valueFormat": "avro", "valueSchema": schema})
    typed = prepared({"valueFormat": "avro", "valueSchema": schema, "keyFormat": "avro"})
    rows = [
        {"key": "a", "value": {"id": 1}, "topic": "t"},
        {"key": "b", "value": {"id": None}, "topic": "u"},
    ]
    text = (
        "for topic 'u' cannot be written: value.id is null, but long in the schema is not nullable"
    )

    with pytest.raises(RecordError, match=f"with key b'b' {text}") as caught:
        encoded(raw, *rows)
    assert caught.value.condition == "KAFKA_UNENCODABLE_RECORD"
    with pytest.raises(RecordError, match=rf"with key b'\\x02b' {text}"):
        encoded(typed, *rows)


def test_schemas_are_registered(registry: FakeRegistry) -> None:
    """
    Derived schemas are registered under the subjects of the topic, and ids precede the values.
    """
    format_ = prepared({**registry.options(), "valueFormat": "avro", "keyFormat": "avro"})

    ((row,),) = encoded(format_, {"key": "k", "value": {"id": 1, "who": "w"}, "topic": "orders"})

    ids = {name: numbers[0] for name, numbers in registry.subjects.items()}
    assert set(ids) == {"orders-key", "orders-value"}
    assert row["key"] == b"\x00" + ids["orders-key"].to_bytes(4, "big") + b"\x02k"
    assert row["value"] == b"\x00" + ids["orders-value"].to_bytes(4, "big") + b"\x00\x02\x00\x02w"
    assert json.loads(registry.schemas[ids["orders-value"]]["schema"])["name"] == "topLevelRecord"


@pytest.mark.parametrize("location", ["prefix", "header"])
@pytest.mark.parametrize(
    ("kind", "schema", "value", "payload"),
    [
        (pa.binary(), None, b"\x04ab", b"\x04ab"),
        (pa.binary(), None, b"", b""),
        (pa.string(), '"bytes"', "é", "é".encode()),
        (
            pa.decimal128(9, 2),
            '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}',
            Decimal("12.34"),
            b"\x04\xd2",
        ),
        (pa.binary(), '["null", "bytes"]', b"ab", b"\x02\x04ab"),
    ],
)
def test_bytes_as_a_whole_value(
    registry: FakeRegistry,
    location: str,
    kind: pa.DataType,
    schema: str | None,
    value: Any,
    payload: bytes,
) -> None:
    """
    With a registry, a value of the type bytes is written without a length, as Confluent's Java
    serializer does; without a registry, and in a union, it has the length of Avro's encoding.
    """
    options = {"valueFormat": "avro", **({} if schema is None else {"valueSchema": schema})}
    columns = pa.schema([("value", kind)])
    values = pa.record_batch([pa.array([value], kind)], names=["value"])

    texts = []
    for registry_options in ({**registry.options(), "schemaIdLocation": location}, {}):
        (part,) = RecordEncoder(prepared(options | registry_options, columns), "orders").batches(
            [values]
        )
        texts += part.column("value").to_pylist()

    (number,) = registry.schemas
    with_length = payload if schema == '["null", "bytes"]' else bytes([2 * len(payload)]) + payload
    assert texts == [framed(number, payload) if location == "prefix" else payload, with_length]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("RecordNameStrategy", "com.shop.Order"),
        ("TopicRecordNameStrategy", "orders-com.shop.Order"),
        ("TopicNameStrategy", "orders-value"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_subject_strategies(
    registry: FakeRegistry, strategy: str, subject: str, named: bool
) -> None:
    """
    The name of the record comes from the schema, or from the option if the schema is derived.
    """
    schema_options = (
        {"valueRecordName": "com.shop.Order"} if named else {"valueSchema": json.dumps(AVRO)}
    )
    options = {**registry.options(), "valueFormat": "avro", "valueSubjectNameStrategy": strategy}

    prepared(options | schema_options)

    assert [*registry.subjects] == [subject]
    (schema,) = registry.schemas.values()
    assert json.loads(schema["schema"])["name"] == "Order"


def test_json_schema_is_registered(registry: FakeRegistry) -> None:
    """
    JSON values have the id too, and their schema is derived from the column.
    """
    format_ = prepared({**registry.options(), "valueFormat": "json", "valueRecordName": "Order"})

    ((row,),) = encoded(format_, {"key": "k", "value": {"id": 1, "who": None}, "topic": "t"})

    (number,) = registry.subjects["orders-value"]
    assert row["value"] == b"\x00" + number.to_bytes(4, "big") + b'{"id":1}'
    assert registry.schemas[number]["schemaType"] == "JSON"
    assert json.loads(registry.schemas[number]["schema"]) == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
    }


FULL = pa.struct(
    [
        *(("id", pa.int64()), ("price", pa.decimal128(9, 2)), ("tags", pa.list_(pa.string()))),
        *(("sizes", pa.map_(pa.string(), pa.float64())), ("raw", pa.binary())),
        *(("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32())),
        ("inner", pa.struct([("flag", pa.bool_()), ("price", pa.decimal128(30, 3))])),
    ]
)
ROW: dict[str, Any] = {
    "id": -(2**62),
    "price": Decimal("-12.50"),
    "tags": ["a", None, "\u2028\x00"],
    "sizes": {"k": 1.5, "n": None},
    "raw": b"\x00\xff",
    "at": datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    "day": date(1, 1, 1),
    "inner": {"flag": True, "price": Decimal("123456789012345678901234567.891")},
}


def values_of(format_: WriteFormat) -> list[bytes]:
    """
    Return the values of a full and of an empty row.
    """
    rows = [ROW | {"sizes": [*ROW["sizes"].items()]}, dict.fromkeys(ROW)]
    batch = pa.RecordBatch.from_arrays([pa.array(rows, FULL)], names=["value"])
    (encoded,) = RecordEncoder(format_, "orders").batches([batch])
    values: list[bytes] = encoded.column("value").to_pylist()
    return values


def test_confluent_reads_avro(registry: FakeRegistry) -> None:
    """
    Confluent's deserializer gets the same values, with the schema that is derived from the column.
    """
    options = {**registry.options(), "valueFormat": "avro"}
    format_ = prepared(options, pa.schema([("value", FULL)]))
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))

    values = [deserialize(value, CONTEXT) for value in values_of(format_)]

    assert values == [ROW, dict.fromkeys(ROW)]


@pytest.mark.parametrize("keeps_nulls", [True, False])
def test_confluent_reads_json(registry: FakeRegistry, keeps_nulls: bool) -> None:
    """
    Confluent's deserializer accepts values written with the schema derived from the column.
    """
    ignored = str(not keeps_nulls).lower()
    options = {**registry.options(), "valueFormat": "json", "ignoreNullFields": ignored}
    format_ = prepared(options, pa.schema([("value", FULL)]))
    client = SchemaRegistryClient({"url": registry.url})
    deserialize = JSONDeserializer(None, schema_registry_client=client)

    full, empty = (deserialize(value, CONTEXT) for value in values_of(format_))

    assert empty == (dict.fromkeys(ROW) if keeps_nulls else {})
    assert full == ROW | {
        "price": -12.5,
        "raw": "AP8=",
        "at": "2026-01-02T03:04:05.678901Z",
        "day": "0001-01-01",
        "inner": {"flag": True, "price": 123456789012345678901234567.891},
    }


@pytest.mark.parametrize("version", [{"useLatestVersion": "true"}, {"valueSubjectVersion": "1"}])
def test_schema_of_the_registry(registry: FakeRegistry, version: dict[str, str]) -> None:
    """
    Values can be encoded with a schema that the subject has already; then nothing is registered.
    """
    number = registry.add("orders-value", AVRO, schema_id=300)

    format_ = prepared({**registry.options(), "valueFormat": "avro", **version})

    ((row,),) = encoded(format_, {"key": None, "value": {"id": 1, "who": None}, "topic": "t"})
    assert row["value"] == b"\x00" + number.to_bytes(4, "big") + b"\x02\x00"
    assert not any(request.startswith("POST") for request in registry.requests)
    narrow = pa.schema([("value", pa.struct([("id", pa.string())]))])
    assert "'value.id' is STRING, but Avro's long" in mistakes(
        {**registry.options(), "valueFormat": "avro", **version}, narrow
    )


def test_refused_schemas(registry: FakeRegistry) -> None:
    """
    A schema that is incompatible or missing is an error with the URL and the subject, at once.
    """
    options = {**registry.options(), "valueFormat": "avro"}
    registry.add("orders-value", AVRO)
    registry.closed.add("orders-value")

    with pytest.raises(IncompatibleSchemaError, match=f"'orders-value'.*at {registry.url}"):
        prepared(options)
    with pytest.raises(SchemaNotFoundError, match="'orders-value'.*set autoRegister to true"):
        prepared({**options, "autoRegister": "false"})
    with pytest.raises(SchemaNotFoundError, match="'other'.*set valueSubject to"):
        prepared({**options, "useLatestVersion": "true", "valueSubject": "other"})

    assert len(registry.requests) == 3


def test_refused_credentials(registry: FakeRegistry) -> None:
    """
    A registry that rejects the credentials is not asked again, and the subject is named.
    """
    registry.user_info = "me:secret"

    with pytest.raises(AuthenticationError, match="rejects.*the subject 'orders-value'"):
        prepared({**registry.options(), "valueFormat": "avro"})

    assert len(registry.requests) == 1


def test_rows_with_topics_of_their_own(registry: FakeRegistry) -> None:
    """
    A subject named after the topic needs the option topic, unless valueSubject names it.
    """
    options = {**registry.options(), "valueFormat": "avro"}

    with pytest.raises(OptionsError, match="set the option 'topic', or valueSubject"):
        prepared(options, topic=None)
    assert replace(prepared({**options, "valueSubject": "s"}, topic=None)).columns[0].prefix
