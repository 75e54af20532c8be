"""
Batches of records become batches of rows: collected, without bad records, and flattened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fetching import settings

from pyspark_pykafka.errors import DeadLetterError, OptionsError, RecordError, UnknownTopicError
from pyspark_pykafka.formats.read_format import ReadFormat, make_read_format
from pyspark_pykafka.formats.record_decoder import decode_records
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.options import FormatOptions
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.source.driver_read import BoundedDriverReader, fail_fast_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.options.format_values import OnBadRecord

TP = TopicPartition("orders", 3)
TYPED = pa.struct([("a", pa.int64())])
JSON = FormatOptions(value_format="json")
RESCUE = FormatOptions(value_format="json", key_format="json", on_bad_record="rescue")
RESCUE_SCHEMA = pa.schema(
    [("value", TYPED), ("key", pa.int32()), ("_error", pa.string()), ("_raw", pa.binary())]
)


def format_of(options: FormatOptions, *fields: tuple[str, pa.DataType]) -> ReadFormat:
    return make_read_format(options, pa.schema(fields), include_headers=False)


def batches_of(
    read_format: ReadFormat, values: list[bytes | None], sizes: list[int]
) -> list[pa.RecordBatch]:
    """
    Return records in batches of these sizes, as an engine reads them.
    """
    count = len(values)
    columns: dict[str, list[Any]] = {
        "value": values,
        "key": [None] * count,
        "topic": ["orders"] * count,
        "offset": list(range(100, 100 + count)),
        "timestamp": [0] * count,
        "headers": [None] * count,
    }
    schema = read_format.record_schema
    whole = pa.record_batch([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
    batches, position = [], 0
    for size in sizes:
        batches.append(whole.slice(position, size))
        position += size
    return [*batches, whole.slice(position)]


def rows(
    read_format: ReadFormat, batches: list[pa.RecordBatch], **changes: Any
) -> list[pa.RecordBatch]:
    return [*decode_records(batches, TP, read_format, settings("b:1", "wire", **changes))]


def test_nothing_is_decoded_by_default() -> None:
    """
    Without a format, the engine's batches are returned unchanged.
    """
    raw = format_of(FormatOptions(), ("value", pa.binary()), ("offset", pa.int64()))
    batches = batches_of(raw, [b"x"], [])

    assert raw.record_schema.names == ["value", "offset"]
    assert all(a is b for a, b in zip(rows(raw, batches), batches, strict=True))


def test_only_the_columns_that_rows_need_are_read() -> None:
    """
    The offset is read as well, to name bad records, and the value only if the schema has it.
    """
    assert format_of(JSON, ("value", TYPED), ("topic", pa.string())).record_schema.names == [
        *("topic", "value", "offset")
    ]
    assert format_of(JSON, ("topic", pa.string())).record_schema.names == ["topic"]


@given(
    st.lists(st.none() | st.integers(0, 50), max_size=60),
    st.lists(st.integers(0, 20), max_size=5),
    st.sampled_from([1 << 20, 4 << 10, 2 << 10]),
)
def test_rows_are_those_of_the_records(
    numbers: list[int | None], sizes: list[int], memory: int
) -> None:
    """
    Rows keep their order and number, whatever the sizes of the batches and the memory limit.
    """
    values = [None if n is None else b"{" if n == 50 else b'{"a":%d}' % n for n in numbers]

    tables = rows(
        form := make_read_format(RESCUE, RESCUE_SCHEMA, include_headers=False),
        batches_of(form, values, sizes),
        memory_bytes=memory,
    )

    expected = [None if n in {None, 50} else n for n in numbers]
    table = pa.Table.from_batches(tables, RESCUE_SCHEMA)
    table.validate(full=True)
    actual = [None if row is None else row["a"] for row in table["value"].to_pylist()]
    assert actual == expected
    assert table["_raw"].to_pylist() == [b"{" if n == 50 else None for n in numbers]
    assert table["_error"].is_valid().to_pylist() == [n == 50 for n in numbers]


def test_small_rows_are_collected() -> None:
    """
    Rows from several batches of records become one batch, as large as a batch of records would be.
    """
    form = format_of(JSON, ("value", TYPED), ("topic", pa.string()))
    values: list[bytes | None] = [b'{"a":1,"b":"%s"}' % (b"x" * 1000)] * 3000

    tables = rows(form, batches_of(form, values, [500] * 5))

    assert [table.num_rows for table in tables] == [3000]


def test_key_and_value_of_a_bad_record() -> None:
    """
    If key and value are bad, `_error` has both reasons, and `_raw` the bytes of the key.
    """
    form = make_read_format(RESCUE, RESCUE_SCHEMA, include_headers=False)
    batch = pa.record_batch(
        [[b"{"], [b"x"], [7]],
        schema=pa.schema([("value", pa.binary()), ("key", pa.binary()), ("offset", pa.int64())]),
    )

    (table,) = rows(form, [batch])

    assert table["_raw"].to_pylist() == [b"x"]
    (error,) = table["_error"].to_pylist()
    assert error == (
        "key is not valid JSON: an unexpected byte, at byte 0; "
        "value is not valid JSON: the text ends too early, at byte 1"
    )
    assert table["value"].to_pylist() == [{"a": None}]


def test_a_bad_record_fails_with_its_place() -> None:
    """
    The error names topic, partition, offset and field.
    """
    form = format_of(JSON, ("value", TYPED))
    batches = batches_of(form, [b'{"a":1}', b'{"a":[]}'], [])

    with pytest.raises(RecordError, match="of orders-3 at offset 101: value.a must be BIGINT, but"):
        rows(form, batches)


@pytest.mark.parametrize("lenient", [False, True])
def test_text_that_is_not_utf8(*, lenient: bool) -> None:
    """
    A text that is not UTF-8 is a bad record, as invalid JSON is.
    """
    options = FormatOptions(value_format="text", on_bad_record="null" if lenient else "fail")
    form = format_of(options, ("value", pa.string()))
    batches = batches_of(form, [b"a", b"\xc3", None, b"z"], [1])

    if lenient:
        table = pa.Table.from_batches(rows(form, batches))
        assert table["value"].to_pylist() == ["a", None, None, "z"]
    else:
        with pytest.raises(RecordError, match="offset 101: value is not UTF-8"):
            rows(form, batches)


def test_flat_fields_are_columns() -> None:
    """
    The record's own columns begin with an underscore, so a field of the value may have the name
    ``offset``.
    """
    options = FormatOptions(value_format="json", flatten=True)
    form = format_of(
        options, ("offset", pa.string()), ("_offset", pa.int64()), ("_topic", pa.string())
    )

    (table,) = rows(form, batches_of(form, [b'{"offset":"x"}', None], []))

    assert table.to_pylist() == [
        {"offset": "x", "_offset": 100, "_topic": "orders"},
        {"offset": None, "_offset": 101, "_topic": "orders"},
    ]
    assert form.record_column("_offset") == "offset"
    assert form.record_column("offset") is None


@pytest.mark.parametrize("options", [JSON, FormatOptions("json", flatten=True)])
def test_rows_without_a_decoded_column(options: FormatOptions) -> None:
    """
    If the schema has no column of the value, the value is not read, and rows have the schema's
    names.
    """
    name = "_offset" if options.flatten else "offset"
    form = format_of(options, (name, pa.int64()))

    tables = rows(form, batches_of(form, [b"{", None], [1]))

    assert pa.Table.from_batches(tables).to_pydict() == {name: [100, 101]}
    assert form.record_schema.names == ["offset"]


NOT_NULL = pa.struct([pa.field("a", pa.int64(), nullable=False)])
TWICE = pa.struct([("a", pa.int64()), ("a", pa.string())])


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        (JSON, ("value", NOT_NULL), "'value.a' is NOT NULL"),
        (JSON, ("value", TWICE), "'value' has the field 'a' twice"),
        (JSON, ("value", pa.struct([])), "a STRUCT without fields"),
        (JSON, ("value", pa.list_(pa.null())), "has a type that values cannot be decoded into"),
        (JSON, ("value", pa.map_(pa.int64(), pa.string())), "the keys of 'value' must be: STRING"),
        (JSON, ("valeu", TYPED), "did you mean 'value'"),
        (JSON, ("_error", pa.string()), "set onBadRecord to rescue"),
        (RESCUE, ("value", TYPED), "add '_error STRING'"),
        (RESCUE, ("_error", pa.binary()), "'_error' must be: STRING"),
        (FormatOptions(value_format="text"), ("value", pa.binary()), "'value' must be: STRING"),
        (FormatOptions(), ("value", TYPED), "to decode it, set valueFormat"),
    ],
)
def test_schemas_that_cannot_be_decoded(
    options: FormatOptions, field: tuple[str, pa.DataType], message: str
) -> None:
    """
    The error names the column or field, and the expected type.
    """
    with pytest.raises(OptionsError, match=message):
        format_of(options, field)


RESCUE_ALL = FormatOptions("json", on_bad_record="rescue", rescues_unknown_fields=True)
ENVELOPE = pa.struct([("after", TYPED), ("op", pa.string())])


@pytest.mark.parametrize(
    ("options", "name", "kind"),
    [
        (JSON, "value", TYPED),
        (JSON, "key", pa.binary()),
        (FormatOptions(value_format="text"), "value", pa.string()),
        (FormatOptions("json", flatten=True), "_key", pa.binary()),
        (FormatOptions("json", flatten=True), "a", pa.int64()),
        (FormatOptions(key_format="json"), "key", pa.int32()),
        (FormatOptions("debezium-json"), "value", ENVELOPE),
        (RESCUE_ALL, "_raw", pa.binary()),
        (RESCUE_ALL, "_error", pa.string()),
        (RESCUE_ALL, "_rescued", pa.string()),
    ],
)
def test_columns_that_can_be_null_must_be_nullable(
    options: FormatOptions, name: str, kind: pa.DataType
) -> None:
    """
    A column that some record has no value for is rejected if it is NOT NULL, once and by its name.
    """
    with pytest.raises(OptionsError) as caught:
        make_read_format(
            options, pa.schema([pa.field(name, kind, nullable=False)]), include_headers=False
        )

    mistakes = [text for text in caught.value.mistakes if "is NOT NULL" in text]
    assert len(mistakes) == 1
    assert f"{name.removeprefix('_')}' is NOT NULL; it must be nullable" in mistakes[0]


def test_repeated_columns_are_rejected() -> None:
    """
    A schema with one name twice is an error, whether or not the column is decoded.
    """
    with pytest.raises(OptionsError, match="the schema has the column 'value' twice"):
        format_of(JSON, ("value", TYPED), ("value", TYPED))


def test_deep_schemas_are_rejected() -> None:
    """
    A schema of more than a hundred levels is an error, before anything recurses through it.
    """
    kind = pa.int64()
    for _ in range(150):
        kind = pa.list_(kind)

    with pytest.raises(OptionsError, match="at most 100 levels"):
        format_of(JSON, ("value", kind))


def test_without_the_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    JSON and Protobuf need the compiled module, and the error says so; text does not.
    """
    target = "pyspark_pykafka.formats.read_format.find_spec"
    monkeypatch.setattr(target, lambda _: None)

    with pytest.raises(OptionsError, match="needs a compiled module that is not installed"):
        format_of(JSON, ("value", TYPED))
    with pytest.raises(OptionsError, match="from source; or read the bytes, .* from_protobuf"):
        format_of(FormatOptions(value_format="protobuf"), ("value", TYPED))
    assert format_of(FormatOptions(value_format="text"), ("value", pa.string())).typed


def test_avro() -> None:
    """
    Avro values are decoded with the schema in the options; the error for a bad value has its
    offset.
    """
    fields = '[{"name":"x","type":"string"},{"name":"a","type":"long"}]'
    schema = f'{{"type":"record","name":"R","fields":{fields}}}'
    options = FormatOptions(value_format="avro", value_schema=schema)
    form = format_of(options, ("value", TYPED))

    (table,) = rows(form, batches_of(form, [b"\x02x\x0e", None], []))

    assert table["value"].to_pylist() == [{"a": 7}, None]
    with pytest.raises(
        RecordError, match="offset 100: value is not valid Avro: the value ends too"
    ):
        rows(form, batches_of(form, [b"\x02x"], []))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "its schema is missing; set valueSchema"),
        ("[", "not a usable Avro schema: it is not JSON"),
        ('{"type":"record","name":"R","fields":[{"name":"aa","type":"int"}]}', "did you mean 'aa'"),
        ('"string"', "'value' is a STRUCT in the schema, but Avro's string"),
    ],
)
def test_avro_schemas_that_do_not_fit(schema: str | None, message: str) -> None:
    """
    The error names the option or the field.
    """
    options = FormatOptions(value_format="avro", value_schema=schema)

    with pytest.raises(OptionsError, match=message):
        format_of(options, ("value", TYPED))


def test_record_schema_has_the_types_of_records() -> None:
    """
    For decoded columns an engine reads the bytes of key and value.
    """
    form = format_of(JSON, ("value", TYPED), ("key", pa.binary()))

    assert {f.name: f.type for f in form.record_schema} == {
        name: SOURCE_TYPES[name] for name in ("key", "value", "offset")
    }


def test_decoded_bytes_are_not_kept() -> None:
    """
    While small rows are collected, the large records that they come from are freed.
    """
    form = format_of(JSON, ("value", TYPED), ("offset", pa.int64()))
    value = b'{"a":1,"b":"%s"}' % (b"x" * (1 << 20))
    before = pa.total_allocated_bytes()
    allocated = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(20):
            allocated.append(pa.total_allocated_bytes() - before)
            yield batches_of(form, [value], [])[0]

    (table,) = decode_records(batches(), TP, form, settings("b:1", "wire"))

    assert table.num_rows == 20
    assert max(allocated) < 4 << 20


@pytest.mark.parametrize("action", ["rescue", "deadletter"])
def test_bytes_of_bad_records_count(action: OnBadRecord, sent: list[Any]) -> None:
    """
    The bytes of bad records count towards the size of a batch, so that a batch has at most five of
    these records.
    """
    topic = "dead" if action == "deadletter" else None
    options = FormatOptions("json", on_bad_record=action, dead_letter_topic=topic)
    fields = [("value", TYPED)] + [("_raw", pa.binary())] * (action == "rescue")
    form = format_of(options, *fields)
    values: list[bytes | None] = [b"{" + b"x" * (1 << 18)] * 12

    tables = rows(form, batches_of(form, values, [1] * 11))

    sizes = [*map(len, sent)] if sent else [table.num_rows for table in tables]
    assert sum(sizes) == 12
    assert max(sizes) <= 5


DEAD = FormatOptions(
    "json", "json", on_bad_record="deadletter", dead_letter_topic="dead", max_bad_records=3
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """
    Return the writes of dead letters, each as rows; the brokers acknowledge all of them.
    """
    writes: list[Any] = []

    def produce(batches: list[pa.RecordBatch], _: object, topic: str, engine: str) -> int:
        assert (topic, engine) == ("dead", "wire")
        writes.append([row for batch in batches for row in batch.to_pylist()])
        return len(writes[-1])

    monkeypatch.setattr("pyspark_pykafka.engines.selection.produce", produce)
    return writes


def records(*values: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    """
    Return records with keys and values, from offset 100 on, as an engine reads them.
    """
    schema = pa.schema([(n, SOURCE_TYPES[n]) for n in ("key", "value", *REST)])
    keys, texts = zip(*values, strict=True)
    headers = [[{"key": "own", "value": b"1"}], *[None] * (len(values) - 1)]
    times = [1_000_000 * n + 999_999 for n in range(len(values))]
    return pa.record_batch(
        [keys, texts, range(100, 100 + len(values)), times, headers], schema=schema
    )


REST = ("offset", "timestamp", "headers")


def test_bad_records_become_dead_letters(sent: list[Any]) -> None:
    """
    A record whose key, value or both are bad is written whole, once, and has no row.
    """
    form = format_of(DEAD, ("value", TYPED), ("key", pa.int64()), ("offset", pa.int64()))
    batch = records((b"1", b"{"), (b"2", b'{"a":2}'), (b"x", None), (None, b"{}"), (b"y", b"["))
    batch = batch.select(form.record_schema.names)

    (table,) = decode_records([batch], TP, form, settings("b:1", "wire"), 7)

    assert table.to_pylist() == [
        {"value": {"a": 2}, "key": 2, "offset": 101},
        {"value": {"a": None}, "key": None, "offset": 103},
    ]
    (letters,) = sent
    assert [(row["key"], row["value"]) for row in letters] == [
        (b"1", b"{"),
        (b"x", None),
        (b"y", b"["),
    ]
    assert letters[0]["headers"][0] == {"key": "own", "value": b"1"}
    assert [row["timestamp"].microsecond for row in letters] == [999_999] * 3
    provenance = [(header["key"], header["value"]) for header in letters[2]["headers"]]
    assert provenance == [
        ("pykafka.deadletter.topic", b"orders"),
        ("pykafka.deadletter.partition", b"3"),
        ("pykafka.deadletter.offset", b"104"),
        ("pykafka.deadletter.timestamp", b"4999"),
        ("pykafka.deadletter.batch", b"7"),
        ("pykafka.deadletter.error.class", b"pyspark_pykafka.errors.RecordError"),
        (
            "pykafka.deadletter.error.message",
            (
                b"[KAFKA_UNDECODABLE_RECORD] key is not valid JSON: an unexpected byte, at byte 0; "
                b"value is not valid JSON: the text ends too early, at byte 1"
            ),
        ),
        ("pykafka.deadletter.attempts", b"1"),
    ]


@pytest.mark.parametrize(("millis", "is_kept"), [(-1, False), (0, False), (1, True), (None, False)])
def test_timestamps_that_cannot_be_written(
    sent: list[Any], millis: int | None, *, is_kept: bool
) -> None:
    """
    A dead letter has no timestamp if the record's timestamp is too early to be written; a header
    has the original.
    """
    form = format_of(DEAD, ("value", TYPED))
    batch = records((None, b"{")).select(form.record_schema.names)
    micros = None if millis is None else millis * 1000
    position = batch.schema.names.index("timestamp")
    times = pa.array([micros], SOURCE_TYPES["timestamp"])
    batch = batch.set_column(position, batch.schema.field(position), times)

    assert rows(form, [batch]) == []

    ((letter,),) = sent
    assert (letter["timestamp"] is not None) == is_kept
    original = {h["key"]: h["value"] for h in letter["headers"]}
    assert original["pykafka.deadletter.timestamp"] == str(millis).encode()


def test_dead_letters_are_written_while_a_batch_is_read(sent: list[Any]) -> None:
    """
    Dead letters are written while the batch is read, not before, and a batch may have no rows.
    """
    form = format_of(DEAD, ("value", TYPED))
    batch = records((None, b"{"), (None, b"{")).select(form.record_schema.names)

    tables = decode_records([batch], TP, form, settings("b:1", "wire"))

    assert sent == []
    assert list(tables) == []
    assert [len(letters) for letters in sent] == [2]


def test_too_many_dead_letters(sent: list[Any]) -> None:
    """
    If a range of offsets has more bad records than maxBadRecords, the task fails, and writes no
    dead letter of the batch.
    """
    form = format_of(DEAD, ("value", TYPED))
    batch = records(*[(None, b"{")] * 4).select(form.record_schema.names)

    with pytest.raises(
        RecordError, match=r"offset 103: .*range of offsets .*maxBadRecords allows, 3"
    ):
        rows(form, [batch])
    assert sent == []


def test_dead_letters_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The task fails with an error that names the topic and the reason, and returns no row.
    """

    def produce(*_: object) -> int:
        msg = "topic 'dead' was not found"
        raise UnknownTopicError(msg)

    monkeypatch.setattr("pyspark_pykafka.engines.selection.produce", produce)
    form = format_of(DEAD, ("value", TYPED))
    batch = records((None, b"{}"), (None, b"{")).select(form.record_schema.names)
    tables = decode_records([batch], TP, form, settings("b:1", "wire"))

    with pytest.raises(
        DeadLetterError,
        match="1 bad records of orders-3 cannot be written to .* topic 'dead', .*found",
    ):
        next(iter(tables))


def test_the_driver_writes_no_dead_letters(sent: list[Any]) -> None:
    """
    A small batch with a bad record is left to a task, and the next one is read on the driver.
    """
    form = format_of(DEAD, ("value", TYPED)).failing_fast(1000)
    batch = records((None, b"{}"), (None, b"{")).select(form.record_schema.names)
    good = batch.slice(0, 1)
    batches = [batch, good]
    reader = BoundedDriverReader(
        lambda _: decode_records([batches.pop(0)], TP, form, settings("b:1", "wire"))
    )
    ranges = [OffsetRange(TP, 100, 102)]

    assert reader.read(ranges) is None
    assert reader.read(ranges) == [pa.record_batch([[{"a": None}]], schema=form.schema)]
    assert sent == []


@pytest.mark.parametrize("action", ["fail", "null", "rescue"])
def test_the_driver_accepts_no_bad_record(action: OnBadRecord) -> None:
    """
    The driver leaves each bad record to a task: a record that does not fit the driver's memory may
    fit a task's. The next small batch is read on the driver.
    """
    wide = pa.struct([(f"f{n}", pa.int64()) for n in range(100)])
    fields = [("value", pa.struct([("items", pa.list_(wide))]))]
    rescue = [("_error", pa.string())] * (action == "rescue")
    form = format_of(FormatOptions("json", on_bad_record=action), *fields, *rescue)
    large = batches_of(form, [b'{"items":[%s{}]}' % (b"{}," * 14_999)], [])
    small = batches_of(form, [b'{"items":[{}]}'], [])
    batches = [large, small]
    user_settings = settings("b:1", "wire")
    reader = BoundedDriverReader(
        lambda _: decode_records(
            batches.pop(0), TP, form.failing_fast(1000), fail_fast_settings(user_settings)
        )
    )
    ranges = [OffsetRange(TP, 100, 101)]

    assert reader.read(ranges) is None
    assert reader.read(ranges) is not None
    (table,) = rows(form, large)
    assert len(table["value"][0]["items"]) == 15_000


@pytest.mark.parametrize("field", ["key", "value"])
def test_strings_that_are_not_utf8_stay_bytes(sent: list[Any], field: str) -> None:
    """
    A STRING that is not UTF-8 is written to the dead-letter topic as its original bytes.
    """
    other = "value" if field == "key" else "key"
    formats = {f"{other}_format": "json", "dead_letter_topic": "dead"}
    options = FormatOptions(**formats, on_bad_record="deadletter")  # type: ignore[arg-type]
    form = format_of(options, (other, pa.int64()), (field, pa.string()))
    batch = records((b"\xff", b"{") if field == "key" else (b"{", b"\xff"))
    columns = [
        batch.column(f.name).view(f.type) if f.name == field else batch.column(f.name)
        for f in form.record_schema
    ]

    assert rows(form, [pa.RecordBatch.from_arrays(columns, schema=form.record_schema)]) == []

    ((letter,),) = sent
    assert (letter[field], letter[other]) == (b"\xff", b"{")
