"""
Avro schema evolution: values written with one schema and read with another equal fastavro's.
"""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fuzz.avro_mutations import decode_named, values
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.avro_columns import arrow_type
from tests.support.random_choices import RandomChoices

from pyspark_pykafka.formats._avro import AvroDecoder
from pyspark_pykafka.formats.avro_decoder import AvroColumn
from pyspark_pykafka.formats.avro_resolution import resolved_plan
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.column_types import plan
from pyspark_pykafka.formats.decoded_column import DecodedColumn

ROOM = 1 << 20
INTS = st.integers(-(2**31), 2**31 - 1)
# (the writer's type, the reader's, the writer's values)
SIMPLE: list[tuple[Any, Any, st.SearchStrategy[Any]]] = [
    *(("int", other, INTS) for other in ("int", "long", "double")),
    ("int", "float", st.integers(-(2**24), 2**24)),
    *(("long", other, st.integers(-(2**53), 2**53)) for other in ("long", "double")),
    ("long", "float", st.integers(-(2**24), 2**24)),
    *(("float", other, st.floats(width=32, allow_nan=False)) for other in ("float", "double")),
    ("double", "double", st.floats(allow_nan=False)),
    *(("string", other, st.text(max_size=9)) for other in ("string", "bytes")),
    ("bytes", "bytes", st.binary(max_size=9)),
    ("bytes", "string", st.text(max_size=9).map(str.encode)),
    ("boolean", "boolean", st.booleans()),
]
DEFAULTS = [
    ("int", 7),
    ("long", -(2**60)),
    ("double", 1.5),
    ("float", -0.25),
    ("string", "né"),
    ("boolean", True),
    (["null", "int"], None),
    (["int", "null"], 3),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "string"}, {"a": "b"}),
]
Pair = tuple[Any, Any, st.SearchStrategy[Any]]


class Column(DecodedColumn):
    """
    A column of Avro values that are converted from the writer's schema to the reader's.
    """

    format_name = "Avro"
    reasons = AvroColumn.reasons | {16: "unresolved", 17: "missing"}


def resolved(
    writer: Any, reader: Any, payloads: list[bytes], kind: pa.DataType | None = None
) -> tuple[list[Any], list[str]]:
    """
    Return the values that the reader's schema gives for payloads of the writer's schema, and the
    errors of bad values.
    """
    written, read = parse_avro(json.dumps(writer)), parse_avro(json.dumps(reader))
    arrow = kind or arrow_type(read)
    decoder = AvroDecoder(plan("value", arrow), ROOM, False, resolved_plan(written, read, arrow))  # noqa: FBT003
    column = Column("value", arrow, decoder)
    assert column.decode(pa.array(payloads, pa.binary()), 0, len(payloads)) == len(payloads)
    values = column.take()
    values.validate(full=True)
    return values.to_pylist(), [bad.reason for bad in column.take_bad()]


def written(schema: Any, *values: Any) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    payloads = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        payloads.append(out.getvalue())
    return payloads


def read_by_fastavro(writer: Any, reader: Any, text: bytes) -> Any:
    """
    Return the value that fastavro reads, in the form in which Arrow would return it.
    """
    written, read = (
        fastavro.parse_schema(json.loads(json.dumps(schema))) for schema in (writer, reader)
    )
    return as_arrow(fastavro.schemaless_reader(io.BytesIO(text), written, read), reader)


def as_arrow(value: Any, reader: Any) -> Any:
    if isinstance(reader, list):
        (reader,) = [branch for branch in reader if branch != "null"]
    if value is None or not isinstance(reader, dict):
        # Promoted strings keep their type in fastavro.
        if reader == "bytes" and isinstance(value, str):
            return value.encode()
        return value.decode() if reader == "string" and isinstance(value, bytes) else value
    if reader["type"] == "array":
        return [as_arrow(item, reader["items"]) for item in value]
    if reader["type"] == "map":
        return [(key, as_arrow(item, reader["values"])) for key, item in value.items()]
    if reader["type"] == "record":
        return {f["name"]: as_arrow(value[f["name"]], f["type"]) for f in reader["fields"]}
    return value


def random_pair(generator: random.Random, depth: int = 0) -> Pair:
    """
    Return a writer's and a reader's schema that match, and the writer's values.
    """
    kind = generator.randrange(8 if depth < 3 else 1)
    if kind == 1:
        writer, reader, values = random_pair(generator, depth + 1)
        arrays = [{"type": "array", "items": items} for items in (writer, reader)]
        return arrays[0], arrays[1], st.lists(values, max_size=3)
    if kind == 2:
        writer, reader, values = random_pair(generator, depth + 1)
        maps = [{"type": "map", "values": inner} for inner in (writer, reader)]
        return maps[0], maps[1], st.dictionaries(st.text(max_size=3), values, max_size=3)
    if kind == 3:
        return random_nullable(generator, depth)
    if kind == 4:
        return random_enum(generator)
    if kind >= 5:
        return random_record(generator, depth)
    return SIMPLE[generator.randrange(len(SIMPLE))]


def random_nullable(generator: random.Random, depth: int) -> Pair:
    writer, reader, values = random_pair(generator, depth + 1)
    if isinstance(writer, list) or isinstance(reader, list) or "null" in (writer, reader):
        return writer, reader, values
    reader = ["null", reader] if generator.randrange(2) else [reader, "null"]
    if generator.randrange(2):
        return writer, reader, values
    return [writer, "null"], reader, st.none() | values


def random_enum(generator: random.Random) -> Pair:
    name = f"E{generator.randrange(10**12)}"
    symbols = generator.sample("ABCDE", 3)
    enums = [
        {"type": "enum", "name": name, "symbols": ["A", "B", "C", "D"]},
        {"type": "enum", "name": name, "symbols": symbols, "default": symbols[0]},
    ]
    return enums[0], enums[1], st.sampled_from("ABCD")


def random_record(generator: random.Random, depth: int) -> Pair:
    name = f"R{generator.randrange(10**12)}"
    writers: list[Any] = []
    readers: list[Any] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    for number in range(generator.randrange(1, 6)):
        field, change = f"f{number}", generator.randrange(5)
        writer, reader, strategy = random_pair(generator, depth + 1)
        if change == 0:
            kind, default = DEFAULTS[generator.randrange(len(DEFAULTS))]
            readers.append({"name": field, "type": kind, "default": default})
            continue
        writers.append({"name": field, "type": writer})
        values[field] = strategy
        if change == 1 and readers:
            continue
        renamed = (
            {"name": f"new_{field}", "aliases": ["x", field]} if change == 2 else {"name": field}
        )
        readers.append(renamed | {"type": reader})
    # Each record has at least one byte: arrays of more items than bytes are rejected as hostile.
    writers.append({"name": "written", "type": "int"})
    values["written"] = INTS
    if not readers:
        readers.append({"name": "own", "type": "int", "default": 1})
    generator.shuffle(readers)
    pair = [{"type": "record", "name": name, "fields": fields} for fields in (writers, readers)]
    return pair[0], pair[1], st.fixed_dictionaries(values)


@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=400)
def test_equals_fastavro(seed: int, data: st.DataObject) -> None:
    """
    Values are read as by fastavro, with defaults, aliases, promotions, enums, nullable types, and
    fields that only one side has, at any depth.
    """
    generator = random.Random(seed)
    writer, reader, values = random_record(generator, 0)
    payloads = written(writer, *data.draw(st.lists(values, min_size=1, max_size=3)))
    actual, reasons = resolved(writer, reader, payloads)
    assert reasons == []
    assert actual == [read_by_fastavro(writer, reader, text) for text in payloads]


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def schema_of(kind: Any, **attributes: Any) -> dict[str, Any]:
    return record({"name": "a", "type": kind, **attributes})


def test_many_mutated_values() -> None:
    """
    Random bytes, decoded with any pair of schemas, keep the decoder's invariants.
    """
    good = 0
    for seed in range(3000):
        choices = RandomChoices(random.Random(seed))
        good += decode_named(values(choices), choices)
    assert good > 30


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (["null", "string", "int"], ["int", "null", "string"], 5, {"member0": 5, "member1": None}),
        (["string", "int"], ["int", "string"], "x", {"member0": None, "member1": "x"}),
        ("int", ["string", "long"], 5, {"member0": None, "member1": 5}),
        ("int", ["long", "int"], 5, 5),
        (["int", "string"], "long", 5, 5),
        (["float", "int"], ["double", "null"], 5, 5.0),
        (["null", "int"], "int", 6, 6),
    ],
)
def test_unions_by_branch(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    """
    The written branch becomes the reader's branch of its type, or else the first that it can be
    promoted to.
    """
    values, reasons = resolved(
        schema_of(writer), schema_of(reader), written(schema_of(writer), {"a": value})
    )
    assert (values, reasons) == ([{"a": expected}], [])


def named(kind: str, name: str, **attributes: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, **attributes}


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (["null", "int"], "int", None),
        (["int", "string"], "long", "x"),
        ("string", "int", "x"),
        ("long", "int", 1),
        ("double", "float", 1.0),
        ("boolean", ["null", "string"], True),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, [1]),
        (named("fixed", "F", size=2), named("fixed", "F", size=3), b"ab"),
        (named("fixed", "F", size=2), named("fixed", "G", size=2), b"ab"),
        (named("enum", "E", symbols=["A", "B"]), named("enum", "E", symbols=["A"]), "B"),
        (named("enum", "E", symbols=["A"]), named("enum", "G", symbols=["A"]), "A"),
    ],
)
def test_values_that_do_not_match(writer: Any, reader: Any, value: Any) -> None:
    """
    A value that the reader's schema cannot hold is NULL, its field is named, and other fields stay.
    """
    schemas = [
        record({"name": "a", "type": kind}, {"name": "b", "type": "int"})
        for kind in (writer, reader)
    ]
    values, reasons = resolved(schemas[0], schemas[1], written(schemas[0], {"a": value, "b": 2}))
    assert values == [{"a": None, "b": 2}]
    assert [reason.split(" must")[0] for reason in reasons] == ["value.a"]


def test_missing_without_default() -> None:
    """
    A field that is not written and has no default is NULL, and its record is bad.
    """
    values, reasons = resolved(schema_of("int"), record({"name": "b", "type": "int"}), [b"\x02"])
    assert values == [{"b": None}]
    assert reasons == ["value.b must be INT, but is missing, at byte 1"]


def test_default_that_is_no_value() -> None:
    """
    An invalid default counts as no default.
    """
    _, reasons = resolved(
        schema_of("int"), record({"name": "b", "type": "int", "default": "x"}), [b"\x02"]
    )
    assert len(reasons) == 1


def test_default_of_bytes() -> None:
    """
    The characters of a default are bytes, as the specification says.
    """
    default = "\u00ff\u0001"
    reader = record(
        {"name": "b", "type": "bytes", "default": default},
        {"name": "f", "type": named("fixed", "F", size=2), "default": default},
    )
    assert resolved(schema_of("int"), reader, [b"\x02"]) == ([{"b": b"\xff\1", "f": b"\xff\1"}], [])


def test_named_types_by_alias() -> None:
    """
    An enum that was renamed is found by its alias; namespaces do not matter.
    """
    old = named("enum", "old.E", symbols=["A"])
    for new in (
        named("enum", "new.E", symbols=["A"]),
        named("enum", "G", aliases=["old.E"], symbols=["A"]),
    ):
        assert resolved(schema_of(old), schema_of(new), written(schema_of(old), {"a": "A"})) == (
            [{"a": "A"}],
            [],
        )


def test_branches_by_name() -> None:
    """
    Records in a union are distinguished by their names.
    """
    branches = [named("record", name, fields=[{"name": "n", "type": "int"}]) for name in ("P", "Q")]
    writer, reader = schema_of(branches), schema_of(branches[::-1])
    text = b"\x02\x0a"
    values, _ = resolved(writer, reader, [text])
    assert values == [{"a": {"member0": {"n": 5}, "member1": None}}]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=300)
def test_records_in_unions_equal_fastavro(seed: int) -> None:
    """
    A record in a union, of the writer or of the reader, becomes the branch whose name or alias is
    its unqualified name, as in fastavro. Without such a branch it is NULL, with a reason.
    """
    generator = random.Random(seed)
    writer = [some_record(name) for name in generator.sample("ABCDE", generator.randrange(1, 4))]
    # No alias is the name of another branch: the specification does not say which branch counts.
    names = generator.sample("ABCDE", 5)
    count = generator.randrange(1, 4)
    reader: Any = [
        some_record(name, names[count + number :][: generator.randrange(2)])
        for number, name in enumerate(names[:count])
    ]
    # Each branch of the reader has a field of its own, which shows the branch in the result.
    for number, branch in enumerate(reader):
        branch["fields"].append({"name": f"own{number}", "type": "int", "default": number})
    change = generator.randrange(4)
    if change == 0:
        reader = reader[0]
    elif change == 1:
        writer = writer[:1]
    for branch in writer:
        whole = branch if change == 2 else writer
        index = b"" if change == 2 else bytes([2 * writer.index(branch)])
        schemas = schema_of(whole), schema_of(reader)
        text = index + b"\x0a"
        actual, reasons = resolved(*schemas, [text])
        try:
            expected = read_by_fastavro_as_members(*schemas, text)
        except fastavro.read.SchemaResolutionError:
            assert actual == [{"a": None}]
            assert len(reasons) == 1
        else:
            assert (actual, reasons) == ([{"a": expected}], [])


def some_record(name: str, aliases: list[str] | None = None) -> dict[str, Any]:
    """
    Return a record with a field that all records have, so that only names distinguish two records.
    """
    fields = [{"name": "n", "type": "int"}]
    return named("record", name, aliases=aliases or [], fields=fields)


def read_by_fastavro_as_members(writer: Any, reader: Any, text: bytes) -> Any:
    """
    Return the record that fastavro reads, as a member if the reader's union has several branches.
    """
    written, read = (
        fastavro.parse_schema(json.loads(json.dumps(schema))) for schema in (writer, reader)
    )
    row: Any = fastavro.schemaless_reader(io.BytesIO(text), written, read)
    value = row["a"]
    branches = reader["fields"][0]["type"]
    if not isinstance(branches, list) or len(branches) == 1:
        return value
    (branch,) = [number for number in range(len(branches)) if f"own{number}" in value]
    return {f"member{n}": value if n == branch else None for n in range(len(branches))}


def test_names_of_records_outside_unions() -> None:
    """
    Outside of unions the names of records are not compared, as in Java's resolver and in Spark: a
    record may be renamed without an alias.
    """
    old, new = (named("record", name, fields=[{"name": "n", "type": "int"}]) for name in "PQ")
    text = b"\x0a"
    assert resolved(old, new, [text]) == ([{"n": 5}], [])
    assert resolved(schema_of(old), schema_of(new), [text]) == ([{"a": {"n": 5}}], [])


def test_times_of_different_units() -> None:
    """
    Timestamps are converted, where the specification would read milliseconds as microseconds.
    """
    units = [{"type": "long", "logicalType": f"timestamp-{u}"} for u in ("millis", "micros")]
    values, _ = resolved(schema_of(units[0]), schema_of(units[1]), [b"\x02"])
    assert values[0]["a"].microsecond == 1000


def test_decimals() -> None:
    """
    Decimals of the same scale match, and decimals of different scales do not; a number with too
    many digits does not fit.
    """
    wide, narrow, other = (
        {"type": "bytes", "logicalType": "decimal", "precision": p, "scale": s}
        for p, s in ((9, 2), (3, 2), (9, 3))
    )
    payloads = [b"\x02\x7b", b"\x04\x7f\xff"]
    values, reasons = resolved(schema_of(wide), schema_of(narrow), payloads)
    assert [str(row["a"]) for row in values] == ["1.23", "None"]
    assert len(reasons) == 1
    assert len(resolved(schema_of(wide), schema_of(other), payloads)[1]) == 2


def test_some_columns() -> None:
    """
    Only the requested columns are decoded; a column may be wider than the reader's type.
    """
    writer = record(
        {"name": "a", "type": "int"}, {"name": "b", "type": "string"}, {"name": "c", "type": "int"}
    )
    reader = record(
        {"name": "c", "type": "int"},
        {"name": "d", "type": "int", "default": 9},
        {"name": "a", "type": "long"},
    )
    kind = pa.struct([("d", pa.int64()), ("a", pa.float64())])
    payloads = written(writer, {"a": 1, "b": "x", "c": 3})
    assert resolved(writer, reader, payloads, kind) == ([{"d": 9, "a": 1.0}], [])
