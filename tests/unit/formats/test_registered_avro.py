"""
Columns of Avro values that name their schemas, against a registry that answers over HTTP.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.support.avro_columns import arrow_type
from tests.support.fetching import settings
from tests.support.schema_registry import FakeRegistry, Fault, framed, running_registry

from pyspark_pykafka.errors import OptionsError, RecordError
from pyspark_pykafka.formats import registered_avro
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.formats.read_format import make_read_format
from pyspark_pykafka.formats.record_decoder import decode_records
from pyspark_pykafka.formats.registered_schemas import with_registered_schemas
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import (
    FormatOptions,
    RegistryOptions,
    SubjectOptions,
    Subscribe,
    SubscribePattern,
)
from pyspark_pykafka.registry.errors import RegistryUnavailableError, SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.options import Strategy
    from pyspark_pykafka.options.registry_values import SubjectNameStrategy

TP = TopicPartition("orders", 0)
ORDERS = Subscribe(("orders",))
Headers = list[tuple[str, bytes]]


def order(*fields: tuple[str, Any], **defaults: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": name, "type": kind} | ({"default": defaults[name]} if name in defaults else {})
            for name, kind in fields
        ],
    }


OLD = order(("id", "int"))
NEW = order(("id", "long"), ("note", "string"), note="none")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


def formats(registry: FakeRegistry, **changes: Any) -> FormatOptions:
    start = FormatOptions(
        value_format="avro", on_bad_record="rescue", registry=RegistryOptions((registry.url,))
    )
    return replace(start, **changes)


def rows(
    options: FormatOptions, values: list[bytes | None], headers: list[Headers] | None = None
) -> list[tuple[Any, str | None]]:
    """
    Return the decoded values with the errors of bad ones.
    """
    resolved = with_registered_schemas(options, ORDERS, derives_columns=True)
    assert resolved.value_schema is not None
    kind = arrow_type(parse_avro(resolved.value_schema))
    fields = [("value", kind)]
    if options.on_bad_record == "rescue":
        fields.append(("_error", pa.string()))
    record = make_read_format(resolved, pa.schema(fields), include_headers=False)
    schema = record.record_schema
    assert schema.names == ["value", "offset", "headers"]
    listed = [
        [{"key": key, "value": value} for key, value in pairs]
        for pairs in headers or [[]] * len(values)
    ]
    columns = [values, list(range(100, 100 + len(values))), listed]
    arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
    whole = pa.record_batch(arrays, schema=schema)
    # Sliced, as an engine may hand it over.
    parts = [whole.slice(0, 1), whole.slice(1)] if len(values) > 1 else [whole]
    decoded = [
        row
        for batch in decode_records(parts, TP, record, settings("b:1", "wire"))
        for row in batch.to_pylist()
    ]
    return [(row["value"], row.get("_error")) for row in decoded]


def test_schemas_in_turn(registry: FakeRegistry) -> None:
    """
    Each record is decoded with its own schema and converted to the latest one, in the log's order.
    """
    old, new = registry.add("orders-value", OLD), registry.add("orders-value", NEW)
    values: list[bytes | None] = [
        *(framed(old, b"\x02"), framed(new, b"\x04\x02x"), framed(old, b"\x06"), None),
    ]
    assert rows(formats(registry), values) == [
        *(({"id": 1, "note": "none"}, None), ({"id": 2, "note": "x"}, None)),
        *(({"id": 3, "note": "none"}, None), (None, None)),
    ]
    assert sorted(registry.requests[1:]) == [f"GET /schemas/ids/{n}" for n in (old, new)]


def test_version_and_subject(registry: FakeRegistry) -> None:
    """
    The columns can be those of another version, and of another subject.
    """
    old, new = registry.add("shop.Order", OLD), registry.add("shop.Order", NEW)
    values: list[bytes | None] = [framed(old, b"\x02"), framed(new, b"\x04\x02x")]
    subject = SubjectOptions(version=1, strategy="RecordNameStrategy", record_name="shop.Order")
    values_and_errors = rows(formats(registry, value_subject=subject), values)
    assert values_and_errors[0] == ({"id": 1}, None)
    # A long is not an int: the writer's new schema is incompatible with the reader's old one.
    assert values_and_errors[1][0] == {"id": None}
    assert "value.id must be INT, but is a value that does not match the reader's schema" in str(
        values_and_errors[1][1]
    )


@pytest.mark.parametrize("reader_schema", [None, json.dumps(NEW)])
def test_ids_of_a_context(registry: FakeRegistry, reader_schema: str | None) -> None:
    """
    Ids are looked up in the context of the column's subject, where another schema may have the same
    id as in the default context. This also applies if the reader's schema is an option.
    """
    prod = registry.contexts[".prod"] = FakeRegistry()
    registry.add("orders-value", order(("note", "string")))
    old, new = prod.add("orders-value", OLD), prod.add("orders-value", NEW)
    subject = SubjectOptions(":.prod:orders-value")
    values: list[bytes | None] = [framed(old, b"\x02"), framed(new, b"\x04\x02x")]
    assert rows(formats(registry, value_subject=subject, value_schema=reader_schema), values) == [
        ({"id": 1, "note": "none"}, None),
        ({"id": 2, "note": "x"}, None),
    ]


@pytest.mark.parametrize(
    ("strategy", "subject", "expected"),
    [
        (ORDERS, SubjectOptions(), "orders-value"),
        (SubscribePattern("o.*"), SubjectOptions(), ""),
        (SubscribePattern("o.*"), SubjectOptions("s"), "s"),
        (Subscribe(("a", "b")), SubjectOptions(), ""),
        (
            Subscribe(("a", "b")),
            SubjectOptions(strategy="RecordNameStrategy", record_name="shop.Order"),
            "shop.Order",
        ),
    ],
)
def test_subject_of_a_given_schema(
    registry: FakeRegistry, strategy: Strategy, subject: SubjectOptions, expected: str
) -> None:
    """
    With a schema as an option, ids are looked up under the subject that the schema would have. They
    are looked up without a subject if the query has several topics and nothing else names a
    subject.
    """
    options = formats(registry, value_schema=json.dumps(NEW), value_subject=subject)
    resolved = with_registered_schemas(options, strategy, derives_columns=True)
    kind = arrow_type(parse_avro(json.dumps(NEW)))
    fields = pa.schema([("value", kind), ("_error", pa.string())])
    (column,) = make_read_format(resolved, fields, include_headers=False).typed
    assert column.subject == expected
    assert registry.requests == []


@pytest.mark.parametrize("strategy", ["RecordNameStrategy", "TopicRecordNameStrategy"])
@pytest.mark.parametrize("has_reader_schema", [True, False])
def test_record_of_another_name(
    registry: FakeRegistry, strategy: SubjectNameStrategy, has_reader_schema: bool
) -> None:
    """
    In a topic of several types a record of another type is bad, even if it has all fields of the
    wanted type. A record whose name is an alias of the wanted type is good.
    """
    wanted = OLD | {"namespace": "shop", "aliases": ["OldOrder"]}
    record_subject = SubjectOptions(strategy=strategy, record_name="shop.Order")
    prefix = "orders-" if strategy == "TopicRecordNameStrategy" else ""
    ids = [
        registry.add(f"{prefix}{namespace}.{name}", NEW | {"name": name, "namespace": namespace})
        for namespace, name in (
            *(("shop", "Order"), ("shop", "OldOrder"), ("shop", "Customer"), ("other", "Order")),
        )
    ]
    registry.add(f"{prefix}shop.Order", wanted | {"fields": [{"name": "id", "type": "long"}]})
    reader = wanted | {"fields": [{"name": "id", "type": "long"}]}
    options = formats(
        registry,
        value_subject=record_subject,
        value_schema=json.dumps(reader) if has_reader_schema else None,
    )
    good, renamed, *bad = rows(options, [framed(number, b"\x04\x02x") for number in ids])
    assert good == renamed == ({"id": 2}, None)
    assert bad == [
        ({"id": None}, f"value cannot be decoded: its record is '{name}', not 'shop.Order'")
        for name in ("shop.Customer", "other.Order")
    ]


def test_renamed_record(registry: FakeRegistry) -> None:
    """
    With one type for each topic the name of the record does not matter.
    """
    number = registry.add("orders-value", OLD | {"name": "OldOrder"})
    registry.add("orders-value", OLD)
    assert rows(formats(registry), [framed(number, b"\x02")]) == [({"id": 1}, None)]


MONEY_SCHEMA = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    ("reader", "payload", "expected"),
    [
        ("bytes", b"\x04ab", b"\x04ab"),
        ("bytes", b"", b""),
        ("string", "é".encode(), "é"),
        (["null", "bytes"], b"\x04ab", b"\x04ab"),
        (["int", "bytes", "boolean"], b"a", {"member0": None, "member1": b"a", "member2": None}),
        (MONEY_SCHEMA, b"\x04\xd2", Decimal("12.34")),
    ],
)
def test_bytes_as_a_whole_value(
    registry: FakeRegistry, reader: Any, payload: bytes, expected: Any
) -> None:
    """
    A value whose schema is of the type bytes has no length: it is the rest of the record, as
    Confluent's Java serializer writes it.
    """
    writer = reader if reader == MONEY_SCHEMA else "bytes"
    number = registry.add("orders-value", json.dumps(writer))
    registry.add("orders-value", json.dumps(reader))
    guid: Headers = [("__value_schema_id", b"\1" + UUID(registry.guid(number)).bytes)]
    values: list[bytes | None] = [framed(number, payload), payload]
    assert rows(formats(registry), values, [[], guid]) == [(expected, None)] * 2


def test_bytes_that_the_reader_cannot_hold(registry: FakeRegistry) -> None:
    """
    Bytes as a whole value are bad for a reader of another type; other values are decoded.
    """
    old = registry.add("orders-value", json.dumps("bytes"))
    new = registry.add("orders-value", json.dumps("int"))
    (bad, reason), good = rows(formats(registry), [framed(old, b"\x04ab"), framed(new, b"\x04")])
    assert (bad, good) == (None, (2, None))
    assert "value must be INT, but is a value that does not match the reader's" in str(reason)


def test_bytes_in_a_union_have_a_length(registry: FakeRegistry) -> None:
    """
    Only bytes as a whole value have no length: those in a union are in Avro's encoding.
    """
    number = registry.add("orders-value", ["null", "bytes"])
    assert rows(formats(registry), [framed(number, b"\x02\x04ab")]) == [(b"ab", None)]


def test_guid_in_a_header(registry: FakeRegistry) -> None:
    """
    A value's schema is named by the GUID in its last header, or by a prefix if it has no header.
    """
    old, new = registry.add("orders-value", OLD), registry.add("orders-value", NEW)
    guids = {n: b"\1" + UUID(registry.guid(n)).bytes for n in (old, new)}
    values: list[bytes | None] = [b"\x02", b"\x04\x02x", framed(old, b"\x06"), b"\x08\x02y"]
    headers: list[Headers] = [
        [("other", b""), ("__value_schema_id", guids[old])],
        [("__value_schema_id", guids[old]), ("__value_schema_id", guids[new])],
        [("__key_schema_id", guids[new])],
        [("__value_schema_id", guids[new])],
    ]
    results = rows(formats(registry), values, headers)
    assert [(value["id"], error) for value, error in results] == [(n, None) for n in (1, 2, 3, 4)]


def test_values_without_a_usable_schema(registry: FakeRegistry) -> None:
    """
    A value without the id of a usable schema is a bad record, and the error gives the reason.
    """
    old = registry.add("orders-value", OLD)
    json_id = registry.add("other", "{}", "JSON")
    recursive = order(("id", "int"), ("next", ["null", "Order"]))
    registry.add("recursive", recursive, schema_id=77)
    registry.add("broken", "{", schema_id=78)
    missing = {"name": "A", "subject": "none", "version": 1}
    registry.add("refers", ["A"], references=[missing], schema_id=79)
    values: list[bytes | None] = [
        *(b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1\x02", framed(2**31, b"\x02")),
        *(framed(999, b"\x02"), framed(json_id, b"\x02"), framed(77, b"\x02"), framed(78, b"")),
        *(framed(79, b""), framed(old, b"\x02"), b"\x02"),
    ]
    headers: list[Headers] = [[] for _ in values]
    headers[-1] = [("__value_schema_id", b"\1short")]
    results = rows(formats(registry), values, headers)
    errors = [error for _, error in results]
    assert all(error and "begin with a schema id" in error for error in errors[:5])
    for error, reason in zip(
        errors[5:10],
        ["does not know id 999", "of type JSON", "contains itself", "not JSON", "Subject not"],
        strict=True,
    ):
        assert reason in str(error)
    assert results[10] == ({"id": 1}, None)
    assert "not the byte 1 followed by a GUID" in str(errors[11])


def test_unreachable_registry_is_no_bad_record(registry: FakeRegistry) -> None:
    """
    If the registry does not answer, the task fails with a retriable error, whatever onBadRecord is.
    """
    old = registry.add("orders-value", OLD)
    impatient = RegistryOptions((registry.url,), timeout_ms=2000)
    options = replace(formats(registry), registry=impatient)
    resolved = with_registered_schemas(options, ORDERS, derives_columns=True)
    registry.always = Fault(503)
    with pytest.raises(RegistryUnavailableError, match=registry.url) as caught:
        rows(resolved, [framed(old, b"\x02")])
    assert caught.value.retriable


def test_registry_that_recovers(registry: FakeRegistry) -> None:
    """
    A schema that is first needed while the registry fails for a moment is fetched by a retry.
    """
    old = registry.add("orders-value", OLD)
    registry.faults.extend([Fault(), Fault(500), Fault(500)])
    assert rows(formats(registry), [framed(old, b"\x02")]) == [({"id": 1}, None)]


def test_url_that_is_no_registry(registry: FakeRegistry) -> None:
    """
    A server that does not know the path at all means a wrong URL, not an unknown schema.
    """
    old = registry.add("orders-value", OLD)
    options = replace(formats(registry), value_schema=json.dumps(OLD))
    assert options.registry is not None
    wrong = replace(options.registry, urls=(f"{registry.url}/nothing",))
    with pytest.raises(SchemaRegistryError, match="HTTP 404"):
        rows(replace(options, registry=wrong), [framed(old, b"\x02")])


def named(registry: FakeRegistry, location: str, number: int) -> list[Headers]:
    """
    Return the headers of a record whose schema is named at a location.
    """
    guid = b"\1" + UUID(registry.guid(number)).bytes
    headers: dict[str, Headers] = {
        "guid": [("__value_schema_id", guid)],
        "Apicurio's id": [("apicurio.value.globalId", number.to_bytes(8, "big"))],
        "id": [],
    }
    return [headers[location]]


@pytest.mark.parametrize("location", ["guid", "Apicurio's id", "id"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(400, body=b'{"error_code": 400, "message": "no"}'),
        Fault(422, body=b'{"error_code": 42201, "message": "no"}'),
        Fault(302, body=b"{}", location="http://127.0.0.1:1/"),
    ],
    ids=["a bad request", "an invalid schema", "a redirect to another server"],
)
def test_errors_of_the_registry_are_no_bad_records(
    registry: FakeRegistry, location: str, fault: Fault
) -> None:
    """
    If the registry rejects a request for a schema that it may have, the task fails, wherever the
    schema's id is.
    """
    number = registry.add("orders-value", OLD)
    resolved = with_registered_schemas(formats(registry), ORDERS, derives_columns=True)
    registry.always = fault
    value = framed(number, b"\x02") if location == "id" else b"\x02"
    with pytest.raises(SchemaRegistryError):
        rows(resolved, [value], named(registry, location, number))


def test_guids_in_a_registry_without_guids(registry: FakeRegistry) -> None:
    """
    A record with a GUID is bad if the registry does not know GUIDs at all.
    """
    number = registry.add("orders-value", OLD)
    registry.has_guids = False
    results = rows(formats(registry), [b"\x02"], named(registry, "guid", number))
    assert "responds with HTTP 404" in str(results[0][1])


def test_failing_read_names_the_record(registry: FakeRegistry) -> None:
    """
    With onBadRecord=fail the error has the record's position and the schema's id.
    """
    registry.add("orders-value", OLD)
    with pytest.raises(RecordError, match="offset 100.*id 999"):
        rows(formats(registry, on_bad_record="fail"), [framed(999, b"\x02")])


def test_thousands_of_schemas(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Records of more schemas than a task keeps are all decoded.
    """
    monkeypatch.setattr(registered_avro, "MAX_SCHEMAS", 7)
    numbers = [registry.add("orders-value", OLD | {"doc": str(n)}) for n in range(30)]
    values: list[bytes | None] = [framed(n, b"\x02") for n in (*numbers, *numbers[:5], 999, 998)]
    results = rows(formats(registry), values)
    assert results[:35] == [({"id": 1}, None)] * 35
    assert [f"id {n}" in str(results[index][1]) for index, n in ((35, 999), (36, 998))] == [
        True,
        True,
    ]


def test_ids_of_eight_bytes(registry: FakeRegistry) -> None:
    """
    Apicurio's older serializers write ids of 8 bytes.
    """
    old = registry.add("orders-value", OLD, schema_id=2**40)
    options = formats(registry)
    assert options.registry is not None
    wide = replace(options, registry=replace(options.registry, id_bytes=8))
    assert rows(wide, [framed(old, b"\x02", 8), framed(1, b"\x02")])[0] == ({"id": 1}, None)


def test_ids_of_apicurio(registry: FakeRegistry) -> None:
    """
    Ids in Apicurio's headers, and those of 8 bytes, are looked up in Apicurio's own API.
    """
    registry.add("item", {"type": "enum", "name": "Item", "symbols": ["A", "B"]})
    to_item = {"name": "Item", "subject": "item", "version": 1}
    schema = order(("id", "int"), ("item", "Item"))
    number = registry.add("orders-value", schema, references=[to_item])
    named = number.to_bytes(8, "big")
    values: list[bytes | None] = [b"\x02\x00", b"\x04\x02", framed(number, b"\x06\x00", 8), b"\x02"]
    headers: list[Headers] = [
        [("apicurio.value.globalId", named)],
        [("apicurio.value.contentId", named), ("apicurio.key.globalId", b"")],
        [],
        [("apicurio.value.globalId", (99).to_bytes(8, "big"))],
    ]
    options = formats(registry)
    assert options.registry is not None
    url = f"{registry.url}/apis/ccompat/v7"
    apicurio = replace(options.registry, urls=(url,), id_bytes=8)
    results = rows(replace(options, registry=apicurio), values, headers)
    assert [value for value, _ in results[:3]] == [
        *({"id": 1, "item": "A"}, {"id": 2, "item": "B"}, {"id": 3, "item": "A"}),
    ]
    assert "does not know globalId 99" in str(results[3][1])
    assert f"GET /apis/registry/v2/ids/contentIds/{number}" in registry.requests


def test_hostile_schemas(registry: FakeRegistry) -> None:
    """
    Schemas that are small as text and huge as types, or deep, make their records bad, at once.
    """
    wide: Any = "int"
    deep: list[Any] = []
    for level in range(40):
        name = f"W{level}"
        fields = [{"name": "a", "type": wide}, {"name": "b", "type": f"W{level - 1}"}]
        wide = {"type": "record", "name": name, "fields": fields if level else fields[:1]}
    for level in range(3000):
        inner = f"D{level - 1}" if level else "int"
        fields = [{"name": "a", "type": inner}]
        deep.append({"type": "record", "name": f"D{level}", "fields": fields})
    registry.add("orders-value", OLD)
    numbers = [registry.add("hostile", schema) for schema in (wide, deep)]
    numbers.append(registry.add("hostile", "[" * 5000 + "]" * 5000))
    errors = [error for _, error in rows(formats(registry), [framed(n, b"") for n in numbers])]
    for error, reason in zip(errors, ["100000 types", "100 levels", "JSON"], strict=True):
        assert reason in str(error)


WHOLE = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "aliases": ["Older"],
    "fields": [
        {"name": "id", "type": "int", "default": 1, "aliases": ["number"]},
        {"name": "item", "type": {"type": "enum", "name": "Item", "symbols": ["A", "B"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "many", "type": {"type": "array", "items": "int"}},
        {"name": "named", "type": ["null", {"type": "map", "values": "string"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
    ],
}
OTHER: list[Any] = [
    *(None, 5, float("inf"), "", "\ud800", "shop.Order"),
    *([], {}, [5], ["\ud800"], {"type": 5}),
]


def variants(document: Any, value: Any) -> Iterator[Any]:
    """
    Yield a document with each of its parts replaced in turn.
    """
    yield value
    if isinstance(document, dict):
        for key, part in document.items():
            yield from ({**document, key: variant} for variant in variants(part, value))
    elif isinstance(document, list):
        for index, part in enumerate(document):
            for variant in variants(part, value):
                yield [*document[:index], variant, *document[index + 1 :]]


def test_invalid_schemas(registry: FakeRegistry) -> None:
    """
    A writer's schema with any part replaced is used, or makes its records bad.
    """
    registry.add("orders-value", WHOLE)
    record = b"\x02\x02ab\x00\x00\x02\x02\x00"
    numbers = [registry.add("own", WHOLE)]
    numbers += [
        registry.add("invalid", json.dumps(document))
        for value in OTHER
        for document in variants(WHOLE, value)
    ]

    good, *others = rows(formats(registry), [framed(number, record) for number in numbers])

    assert (good[0]["id"], good[0]["item"], good[0]["f"], good[1]) == (1, "B", b"ab", None)
    errors = [str(error) for _, error in others if error is not None]
    assert 100 < len(errors) < len(others)


def test_driver_waits_less(registry: FakeRegistry) -> None:
    """
    A read on the driver waits for the registry no longer than its own limit.
    """
    options = replace(formats(registry), value_schema=json.dumps(OLD), on_bad_record="null")
    schema = pa.schema([("value", pa.struct([("id", pa.int32())]))])
    quick = make_read_format(options, schema, include_headers=False).failing_fast(5)
    (column,) = quick.typed
    assert column.registry is not None
    assert (column.registry.request_timeout_ms, column.registry.timeout_ms) == (5, 5)


def test_references(registry: FakeRegistry) -> None:
    """
    Writers' and readers' schemas may refer to others, in other namespaces too.
    """
    item = {
        "type": "record",
        "name": "Item",
        "namespace": "shop",
        "fields": [{"name": "price", "type": "int"}, {"name": "kind", "type": "Kind"}],
    }
    kind = {"type": "enum", "name": "Kind", "namespace": "shop", "symbols": ["A", "B"]}
    registry.add("kind", kind)
    to_kind = {"name": "shop.Kind", "subject": "kind", "version": 1}
    registry.add("item", item, references=[to_kind])
    to_item = {"name": "shop.Item", "subject": "item", "version": 1}
    number = registry.add(
        "orders-value",
        order(("first", "shop.Item"), ("second", ["null", "shop.Item"]), ("kind", "shop.Kind")),
        references=[to_item],
    )
    value = framed(number, b"\x02\x00" + b"\x02\x04\x02" + b"\x02")
    expected = {
        "first": {"price": 1, "kind": "A"},
        "second": {"price": 2, "kind": "B"},
        "kind": "B",
    }
    assert rows(formats(registry), [value]) == [(expected, None)]


def test_references_with_a_namespace_that_is_null(registry: FakeRegistry) -> None:
    """
    A definition whose namespace is null, in the schema or in a reference, has the enclosing
    namespace.
    """
    kind = {"type": "enum", "name": "Kind", "namespace": None, "symbols": ["A", "B"]}
    item = {**order(("kind", kind)), "name": "shop.Item"}
    registry.add("item", item)
    to_item = {"name": "shop.Item", "subject": "item", "version": 1}
    number = registry.add(
        "orders-value",
        {**order(("item", "shop.Item"), ("kind", "shop.Kind")), "namespace": None},
        references=[to_item],
    )

    expected = {"item": {"kind": "A"}, "kind": "B"}
    assert rows(formats(registry), [framed(number, b"\x00\x02")]) == [(expected, None)]


@pytest.mark.parametrize(
    ("subject", "strategy", "name"),
    [
        (SubjectOptions(), Subscribe(("t",)), "t-value"),
        (SubjectOptions("own"), SubscribePattern("t"), "own"),
        (
            SubjectOptions(strategy="TopicRecordNameStrategy", record_name="a.R"),
            Subscribe(("t",)),
            "t-a.R",
        ),
    ],
)
def test_subjects(
    registry: FakeRegistry, subject: SubjectOptions, strategy: Strategy, name: str
) -> None:
    """
    The strategy and the topic name the subject, unless the options do.
    """
    registry.add(name, OLD)
    options = formats(registry, value_subject=subject, on_bad_record="fail")
    resolved = with_registered_schemas(options, strategy, derives_columns=True)
    assert "value STRUCT<`id`: INT>" in str(default_ddl(resolved, include_headers=False))


@pytest.mark.parametrize(
    ("strategy", "changes", "message"),
    [
        (Subscribe(("a", "b")), {}, "not name exactly one topic.*valueSubject"),
        (SubscribePattern("a"), {}, "not name exactly one topic"),
        (Subscribe(("a",)), {}, "does not know subject 'a-value'.*valueSubject"),
        (ORDERS, {"value_format": "json"}, "of type AVRO.*valueFormat is 'json'"),
    ],
)
def test_no_schema_for_columns(
    registry: FakeRegistry, strategy: Strategy, changes: dict[str, Any], message: str
) -> None:
    """
    If the registry has no schema for the columns, the error names the options that determine
    the schema.
    """
    registry.add("orders-value", OLD)
    with pytest.raises(OptionsError, match=message):
        with_registered_schemas(formats(registry, **changes), strategy, derives_columns=True)


def test_json_schema_becomes_columns(registry: FakeRegistry) -> None:
    """
    The columns of JSON come from the registered JSON Schema, if the user gives no schema.
    """
    schema = {
        "type": "object",
        "definitions": {"item": {"properties": {"n": {"type": "integer"}}}},
        "properties": {
            "id": {"type": "integer"},
            "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
            "price": {"type": ["number", "null"]},
            "items": {"type": "array", "items": {"$ref": "#/definitions/item"}},
            "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "any`thing": {},
        },
    }
    registry.add("orders-value", schema, "JSON")
    resolved = with_registered_schemas(
        formats(registry, value_format="json"), ORDERS, derives_columns=True
    )
    assert resolved.value_schema == (
        "STRUCT<`id`: BIGINT, `at`: TIMESTAMP, `price`: DOUBLE, `items`: ARRAY<STRUCT<`n`: BIGINT>>"
        ", `tags`: MAP<STRING, BOOLEAN>, `any``thing`: STRING>"
    )


def test_json_after_a_prefix(registry: FakeRegistry) -> None:
    """
    JSON is read with and without the id of a schema before it.
    """
    options = formats(registry, value_format="json", value_schema="STRUCT<a: BIGINT>")
    kind = pa.struct([("a", pa.int64())])
    record = make_read_format(
        options, pa.schema([("value", kind), ("_error", pa.string())]), include_headers=False
    )
    values = [framed(5, b'{"a":1}'), b'{"a":2}', b"\0\0\0\0", framed(5, b""), b"\0"]
    batch = pa.record_batch([pa.array(values), pa.array(range(5))], schema=record.record_schema)
    (decoded,) = decode_records([batch], TP, record, settings("b:1", "wire"))
    assert [row["value"] for row in decoded.to_pylist()] == [
        *({"a": 1}, {"a": 2}, {"a": None}, None, {"a": None}),
    ]
    assert registry.requests == []
