"""
Change events of Debezium: unwrapped to columns, or to the rows that have changed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fetching import settings
from tests.support.schema_registry import framed, running_registry
from tests.unit.formats.test_record_decoder import batches_of

from pyspark_pykafka.errors import OptionsError, RecordError
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.formats.json_schema import json_schema_ddl
from pyspark_pykafka.formats.read_format import ReadFormat, make_read_format
from pyspark_pykafka.formats.record_decoder import decode_records
from pyspark_pykafka.formats.registered_schemas import with_registered_schemas
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import FormatOptions, RegistryOptions, Subscribe

if TYPE_CHECKING:
    from collections.abc import Sequence

TP = TopicPartition("shop.orders", 0)
ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
TIME = pa.timestamp("us", tz="UTC")
EVENT = pa.struct([("before", ROW), ("after", ROW), ("op", pa.string()), ("ts", TIME)])
FLAT = pa.schema([*ROW, ("_op", pa.string()), ("_ts", TIME), ("_offset", pa.int64())])
ANN, BOB = {"id": 1, "name": "ann"}, {"id": 1, "name": "bob"}
ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {
                "name": "before",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Value",
                        "fields": [
                            {"name": "id", "type": "long"},
                            {"name": "name", "type": ["null", "string"]},
                        ],
                    },
                ],
            },
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
)


def options(*, rows: bool = False, kind: str = "json", **changes: Any) -> FormatOptions:
    values = {"drops_tombstones": True, "flatten": rows, "debezium_rows": rows} | changes
    return FormatOptions(value_format=f"debezium-{kind}", **values)  # type: ignore[arg-type]


def event(operation: str | None, before: Any = None, after: Any = None, **fields: Any) -> bytes:
    envelope = {"before": before, "after": after, "op": operation, "ts_ms": 1_700_000_000_123}
    return json.dumps(envelope | {"source": {"name": "shop"}} | fields).encode()


def wrapped(value: bytes) -> bytes:
    """
    Return an event as Debezium's JSON with schemas wraps it.
    """
    return b'{"schema": {"type": "struct", "fields": []}, "payload": ' + value + b"}"


def decoded(
    form: ReadFormat, values: Sequence[bytes | None], sizes: Sequence[int] = ()
) -> list[dict[str, Any]]:
    batches = batches_of(form, [*values], [*sizes])
    decoded_batches = decode_records(batches, TP, form, settings("b:1", "wire"))
    return [row for batch in decoded_batches for row in batch.to_pylist()]


def form_of(schema: pa.Schema, format_options: FormatOptions) -> ReadFormat:
    return make_read_format(format_options, schema, include_headers=False)


def flat_rows(values: Sequence[bytes | None], **changes: Any) -> list[tuple[Any, ...]]:
    """
    Return (id, name, operation, offset) of the rows for some values.
    """
    names = ("id", "name", "_op", "_offset")
    rows = decoded(form_of(FLAT, options(rows=True, **changes)), values)
    return [tuple(row[name] for name in names) for row in rows]


CHANGES = [
    event("r", None, ANN),
    event("c", None, ANN),
    event("u", ANN, BOB),
    event("d", BOB, None),
    event("t"),
    event("m", message={"prefix": "p", "content": "YQ=="}),
]


@pytest.mark.parametrize("wrap", [bytes, wrapped], ids=["bare", "with schemas"])
def test_an_event_is_its_parts(wrap: Any) -> None:
    """
    An event has before, after, op and ts, with and without the schemas of JSON.
    """
    form = form_of(pa.schema([("value", EVENT)]), options())
    rows = [row["value"] for row in decoded(form, [wrap(value) for value in CHANGES])]
    time = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert rows == [
        {"before": None, "after": ANN, "op": "r", "ts": time},
        {"before": None, "after": ANN, "op": "c", "ts": time},
        {"before": ANN, "after": BOB, "op": "u", "ts": time},
        {"before": BOB, "after": None, "op": "d", "ts": time},
        {"before": None, "after": None, "op": "t", "ts": time},
        {"before": None, "after": None, "op": "m", "ts": time},
    ]


@pytest.mark.parametrize("wrap", [bytes, wrapped], ids=["bare", "with schemas"])
def test_an_event_is_the_row(wrap: Any) -> None:
    """
    With debeziumRows, the columns are those of the row after the change, or before a delete.
    """
    assert flat_rows([wrap(value) for value in CHANGES]) == [
        (1, "ann", "r", 100),
        (1, "ann", "c", 101),
        (1, "bob", "u", 102),
        (1, "bob", "d", 103),
        (None, None, "t", 104),
        (None, None, "m", 105),
    ]


@pytest.mark.parametrize(("keeps", "offsets"), [(True, [100, 101, 102]), (False, [100, 102])])
def test_tombstones(keeps: bool, offsets: list[int]) -> None:
    """
    A tombstone is dropped, or kept as a row of NULLs.
    """
    values = [event("d", ANN), None, event("c", None, BOB)]
    rows = flat_rows(values, drops_tombstones=not keeps)
    assert [row[-1] for row in rows] == offsets
    assert not keeps or rows[1] == (None, None, None, 101)


def test_only_tombstones_are_no_rows() -> None:
    """
    A batch in which all values are tombstones has no rows.
    """
    assert flat_rows([None, None]) == []


def test_some_fields_of_an_event() -> None:
    """
    Any field of an event may be selected, at any depth, each with its own type.
    """
    kind = pa.struct(
        [
            ("source", pa.struct([("name", pa.string())])),
            ("message", pa.struct([("prefix", pa.string())])),
            ("after", pa.struct([("name", pa.string())])),
            ("ts_ms", pa.int64()),
        ]
    )
    form = form_of(pa.schema([("value", kind)]), options())
    rows = [row["value"] for row in decoded(form, [CHANGES[1], wrapped(CHANGES[5])])]
    shop, time = {"name": "shop"}, 1_700_000_000_123
    assert rows == [
        {"source": shop, "message": None, "after": {"name": "ann"}, "ts_ms": time},
        {"source": shop, "message": {"prefix": "p"}, "after": None, "ts_ms": time},
    ]


BAD = {
    "no event": b'{"id": 1}',
    "no JSON": b"{",
    "no operation": wrapped(b"null"),
    "an unknown operation": event("x", None, ANN),
    "a wrong field": event("c", None, {"id": "one"}),
    "a wrong field with schemas": wrapped(event("c", None, {"id": "one"})),
    "a late time": event("c", None, ANN, ts_ms=2**62),
}
REASONS = {
    "no event": "value is not a change event of Debezium: op must be one of c, u, d, r, t, m",
    "no JSON": "value is not valid JSON: the text ends too early, at byte 1",
    "a wrong field": "value.after.id must be BIGINT, but is a string",
    "a wrong field with schemas": "value.payload.after.id must be BIGINT, but is a string",
    "a late time": "value.ts_ms must be TIMESTAMP, but is a number out of range",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_events_fail(name: str) -> None:
    """
    The error for a value that is not an event, or does not fit its row, has the offset and the
    reason.
    """
    reason = REASONS.get(name, REASONS["no event"])
    with pytest.raises(RecordError, match=f"at offset 102: {reason}"):
        flat_rows([event("c", None, ANN), None, BAD[name], event("c", None, BOB)])


def test_bad_events_are_rescued() -> None:
    """
    A row for each bad event has its bytes and the reason, in batches of any size.
    """
    schema = pa.schema([*FLAT, ("_error", pa.string()), ("_raw", pa.binary())])
    form = form_of(schema, options(rows=True, on_bad_record="rescue"))
    good = event("c", None, ANN)
    values = [good, None, *(value for bad in BAD.values() for value in (bad, good))]
    rows = decoded(form, values, [1, 2, 3])
    assert [row["_raw"] for row in rows if row["_error"] is not None] == [*BAD.values()]
    assert [row["_offset"] for row in rows] == [100, *range(102, 102 + 2 * len(BAD))]
    assert [row["name"] for row in rows if row["_error"] is None] == ["ann"] * (1 + len(BAD))


@pytest.mark.parametrize(("keeps", "offsets"), [(False, [100, 103]), (True, [100, 101, 103])])
def test_dead_letters_and_tombstones(
    monkeypatch: pytest.MonkeyPatch, keeps: bool, offsets: list[int]
) -> None:
    """
    A value that is not an event becomes a dead letter; a tombstone does not, and is dropped or
    kept.
    """
    sent: list[Any] = []

    def produce(letters: list[pa.RecordBatch], *_: object) -> int:
        sent.extend(value for batch in letters for value in batch.column("value").to_pylist())
        return len(sent)

    monkeypatch.setattr("pyspark_pykafka.engines.selection.produce", produce)
    changes = {"on_bad_record": "deadletter", "dead_letter_topic": "dead"}
    values = [event("c", None, ANN), None, b"{}", event("c", None, BOB), b"{"]

    rows = flat_rows(values, drops_tombstones=not keeps, **changes)

    assert [row[-1] for row in rows] == offsets
    assert sent == [b"{}", b"{"]


@pytest.mark.parametrize("action", ["null", "rescue"])
def test_tombstones_with_bad_keys_keep_their_rows(action: str) -> None:
    """
    A tombstone is dropped. If its key is bad, it keeps its row, unless it becomes a dead letter.
    """
    extra = [("_error", pa.string())] if action == "rescue" else []
    schema = pa.schema([*FLAT, ("_key", pa.int64()), *extra])
    form = form_of(schema, options(rows=True, key_format="json", on_bad_record=action))
    columns = {"key": [b"1", b"{", b"3"], "value": [event("d", ANN), None, None]}
    columns["offset"] = [100, 101, 102]
    arrays = [pa.array(columns[field.name], field.type) for field in form.record_schema]
    batch = pa.record_batch(arrays, schema=form.record_schema)

    tables = decode_records([batch], TP, form, settings("b:1", "wire"))

    rows = [row for table in tables for row in table.to_pylist()]
    assert [(row["_offset"], row["_key"], row["name"]) for row in rows] == [
        (100, 1, "ann"),
        (101, None, None),
    ]


OPERATIONS = st.sampled_from("crudtm")
ROWS = st.none() | st.fixed_dictionaries({"id": st.integers(-9, 9), "name": st.none() | st.text()})


@given(
    st.lists(st.none() | st.tuples(OPERATIONS, ROWS, ROWS, st.booleans())),
    st.lists(st.integers(0, 5), max_size=4),
)
def test_rows_of_any_events(events: list[Any], sizes: list[int]) -> None:
    """
    Any mix of events, with and without schemas, and in batches of any size, becomes the rows of
    these events.
    """
    values: list[bytes | None] = []
    expected = []
    for offset, change in enumerate(events, 100):
        if change is None:
            values.append(None)
            continue
        operation, before, after, is_wrapped = change
        value = event(operation, before, after)
        values.append(wrapped(value) if is_wrapped else value)
        row = (before if operation == "d" else after) or {"id": None, "name": None}
        expected.append((row["id"], row["name"], operation, offset))
    sizes = sizes if sum(sizes) <= len(values) else []
    rows = decoded(form_of(FLAT, options(rows=True)), values, sizes)
    assert [tuple(row[n] for n in ("id", "name", "_op", "_offset")) for row in rows] == expected


def avro(value: bytes) -> bytes:
    memory = BytesIO()
    writer = fastavro.parse_schema(json.loads(ENVELOPE))
    fastavro.schemaless_writer(memory, writer, json.loads(value))
    return memory.getvalue()


JSON_ENVELOPE = {
    "type": "object",
    "properties": {
        "before": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Value"}]},
        "after": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Value"}]},
        "op": {"type": "string"},
    },
    "definitions": {
        "Value": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        }
    },
}


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_registered_events(kind: str) -> None:
    """
    With a registry the columns are those of the envelope that the topic's subject describes.
    """
    with running_registry() as registry:
        schema = ENVELOPE if kind == "avro" else JSON_ENVELOPE
        number = registry.add("customers-value", schema, kind.upper())
        registry_options = RegistryOptions(
            (registry.url,), request_timeout_ms=9000, timeout_ms=9000
        )
        format_options = with_registered_schemas(
            options(rows=True, kind=kind, registry=registry_options),
            Subscribe(("customers",)),
            derives_columns=True,
        )
        encode = avro if kind == "avro" else bytes
        values = [framed(number, encode(value)) for value in CHANGES]
        rows = decoded(form_of(FLAT, format_options), values)
    expected = "STRUCT<`id`: BIGINT, `name`: STRING, _op: STRING, _ts: TIMESTAMP, _topic STRING"
    assert expected in str(default_ddl(format_options, include_headers=False))
    assert rows == decoded(form_of(FLAT, options(rows=True)), CHANGES)


def test_json_schema_of_no_event() -> None:
    """
    A JSON Schema without the row of a change event is rejected, and the error names the missing
    property.
    """
    with pytest.raises(ValueError, match="it has no property 'after'"):
        json_schema_ddl('{"type": "object", "properties": {}}', "after")


@pytest.mark.parametrize("rows", [True, False])
def test_avro_events(rows: bool) -> None:
    """
    Avro events are decoded with the schema of their envelope.
    """
    values = [avro(value) for value in CHANGES]
    kind = "avro"
    if rows:
        assert flat_rows(values, kind=kind, value_schema=ENVELOPE) == flat_rows([*CHANGES])
    else:
        schema = pa.schema([("value", EVENT)])
        form = form_of(schema, options(kind=kind, value_schema=ENVELOPE))
        assert decoded(form, values) == decoded(form_of(schema, options()), [*CHANGES])


@pytest.mark.parametrize(
    ("format_options", "expected"),
    [
        (
            options(value_schema="STRUCT<id BIGINT, name STRING>"),
            (
                "value STRUCT<before: STRUCT<id BIGINT, name STRING>, after: STRUCT<id BIGINT, "
                "name STRING>, op: STRING, ts: TIMESTAMP>"
            ),
        ),
        (
            options(rows=True, value_schema="STRUCT<id BIGINT, name STRING>"),
            "STRUCT<id BIGINT, name STRING, _op: STRING, _ts: TIMESTAMP, _topic STRING",
        ),
        (
            options(kind="avro", value_schema=ENVELOPE),
            (
                "value STRUCT<before: STRUCT<`id`: BIGINT, `name`: STRING>, after: STRUCT<`id`: "
                "BIGINT, `name`: STRING>, op: STRING, ts: TIMESTAMP>"
            ),
        ),
        (
            options(kind="avro", rows=True, value_schema=ENVELOPE),
            "STRUCT<`id`: BIGINT, `name`: STRING, _op: STRING, _ts: TIMESTAMP, _topic STRING",
        ),
    ],
)
def test_columns_without_a_schema(format_options: FormatOptions, expected: str) -> None:
    """
    For JSON, valueSchema is the type of a row; for Avro, it is the schema of the envelope.
    """
    assert expected in str(default_ddl(format_options, include_headers=False))


MISTAKES: list[tuple[FormatOptions, Any, str]] = [
    (options(), pa.string(), "value has Debezium's change events, so its type must be: STRUCT"),
    (options(), pa.struct([("op", pa.int64())]), "'value.op' must be: STRING"),
    (options(), pa.struct([("ts", pa.int64())]), "'value.ts' must be: TIMESTAMP"),
    (
        options(),
        pa.struct([("payload", EVENT)]),
        "'value.payload' is not a field of a change event",
    ),
    (options(rows=True, flatten=False), ROW, "add '_op STRING'"),
    (
        options(kind="avro", value_schema=ENVELOPE),
        pa.struct([("afte", ROW)]),
        "'value.afte' is not in the Avro schema; did you mean 'after'",
    ),
]


@pytest.mark.parametrize(("format_options", "kind", "message"), MISTAKES)
def test_mistakes_in_the_schema(
    format_options: FormatOptions, kind: pa.DataType, message: str
) -> None:
    """
    A schema that events cannot have is rejected, and the error names the expected one.
    """
    with pytest.raises(OptionsError, match=message):
        form_of(pa.schema([("value", kind)]), format_options)


EMPTY_ROW = {"type": "record", "name": "Value", "fields": []}
EMPTY_ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", EMPTY_ROW]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
)


@pytest.mark.parametrize(
    ("format_options", "message"),
    [
        (options(kind="avro", value_schema='"string"'), "the field 'before' is missing"),
        (
            options(kind="avro", value_schema=EMPTY_ENVELOPE),
            "the rows in the schema of value have no fields with values",
        ),
        (options(rows=True, value_schema="STRING"), "it must be: a STRUCT"),
        (options(), "valueFormat is 'debezium-json', but its type is missing"),
    ],
)
def test_mistakes_without_a_schema(format_options: FormatOptions, message: str) -> None:
    """
    If the columns cannot be derived from the options, the error names the missing part.
    """
    with pytest.raises(OptionsError, match=message):
        default_ddl(format_options, include_headers=False)
