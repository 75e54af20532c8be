"""
Fields of JSON that the schema does not name, as a JSON object in the column ``_rescued``.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.formats.test_record_decoder import batches_of, format_of, rows

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.options import FormatOptions, parse_source

if TYPE_CHECKING:
    from pyspark_pykafka.formats.read_format import ReadFormat

RESCUE = FormatOptions("json", rescues_unknown_fields=True)
VALUE = pa.struct([("a", pa.int64()), ("b", pa.struct([("x", pa.int64())]))])
TEXT = pa.string()
PART = pa.struct([("x", pa.int64()), ("text", TEXT)])
NESTED = pa.struct(
    [
        ("one", PART),
        ("many", pa.list_(PART)),
        ("lists", pa.list_(pa.list_(PART))),
        ("named", pa.map_(TEXT, PART)),
        ("deep", pa.struct([("many", pa.list_(pa.map_(TEXT, pa.list_(PART))))])),
        ("plain", pa.list_(pa.int64())),
    ]
)


def decoded_rows(
    form: ReadFormat, values: list[bytes | None], sizes: tuple[int, ...] = (), **changes: Any
) -> list[dict[str, Any]]:
    """
    Return the rows that are decoded from values in batches of these sizes.
    """
    tables = rows(form, batches_of(form, values, [*sizes]), **changes)
    for table in tables:
        table.validate(full=True)
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("text", "value", "rescued"),
    [
        (b'{"a":1}', {"a": 1, "b": None}, None),
        (b'{"a":1,"c":2}', {"a": 1, "b": None}, '{"c":2}'),
        (
            *(b'{"c" : [1, {"d": "\\u00e9"}], "a": 1, "e":null }', {"a": 1, "b": None}),
            '{"c" : [1, {"d": "\\u00e9"}],"e":null}',
        ),
        (b'{"b":{"x":1,"y":2}}', {"a": None, "b": {"x": 1}}, '{"b":{"y":2}}'),
        (b'{"b":{"x":1}, "c":3}', {"a": None, "b": {"x": 1}}, '{"c":3}'),
        (b'{"b" : {"y":2}, "c":3}', {"a": None, "b": {"x": None}}, '{"b" : {"y":2},"c":3}'),
        # The last of several objects with one name is decoded; each one's unknown fields are kept.
        (b'{"b":{"y":1},"b":{"x":2}}', {"a": None, "b": {"x": 2}}, '{"b":{"y":1}}'),
        (b'{"b":7,"a":1}', {"a": 1, "b": None}, None),
        (b'{"_rescued":1}', {"a": None, "b": None}, '{"_rescued":1}'),
        (b"{}", {"a": None, "b": None}, None),
        (b"null", None, None),
        (None, None, None),
        (b"[1]", {"a": None, "b": None}, None),
        # The record is bad after the field.
        (b'{"c":2,"a":1', {"a": None, "b": None}, None),
        (b'{"c":2,"a":"x"}', {"a": None, "b": None}, '{"c":2}'),
    ],
)
def test_fields_are_rescued(text: bytes | None, value: Any, rescued: str | None) -> None:
    """
    The unknown fields are one JSON object, with their text unchanged; NULL if there are none, or if
    the value is not an object.
    """
    options = FormatOptions("json", on_bad_record="null", rescues_unknown_fields=True)
    form = format_of(options, ("value", VALUE), ("_rescued", TEXT), ("offset", pa.int64()))

    before, row, after = decoded_rows(form, [b'{"z":0}', text, b'{"z":1}'])

    assert row == {"value": value, "_rescued": rescued, "offset": 101}
    assert [before["_rescued"], after["_rescued"]] == ['{"z":0}', '{"z":1}']


@pytest.mark.parametrize(
    ("text", "rescued"),
    [
        (b'{"many":[{"x":1},{"y":[2]},{}]}', '{"many":[{},{"y":[2]},{}]}'),
        (b'{"many":[null, {"y":2}]}', '{"many":[{},{"y":2}]}'),
        (b'{"many":[{"x":1},{"x":2}]}', None),
        (b'{"lists":[[],[{"y":1}], null]}', '{"lists":[[],[{"y":1}],[]]}'),
        (b'{"named":{"k":{"x":1},"\\u00e9":{"y":2}}}', '{"named":{"\\u00e9":{"y":2}}}'),
        (
            b'{"deep":{"many":[{},{"k":[{"x":1,"y":2}]}],"z":3}}',
            '{"deep":{"many":[{},{"k":[{"y":2}]}],"z":3}}',
        ),
        # A list or map that does not fit is NULL, and leaves nothing.
        (b'{"many":[{"y":1},7],"z":2}', '{"z":2}'),
        (b'{"named":{"k":{"y":1},"l":7},"z":2}', '{"z":2}'),
        # A STRING has the text of any value.
        (b'{"one":{"text":{"y":1}}}', None),
    ],
)
def test_nested_fields_keep_their_path(text: bytes, rescued: str | None) -> None:
    """
    Unknown fields of nested objects stay in the objects, arrays and maps that contain them.
    """
    options = FormatOptions("json", on_bad_record="null", rescues_unknown_fields=True)
    form = format_of(options, ("value", NESTED), ("_rescued", TEXT))

    before, row, after = decoded_rows(form, [b'{"one":{"z":0}}', text, b'{"many":[{"z":1}]}'])

    assert row["_rescued"] == rescued
    assert [before["_rescued"], after["_rescued"]] == ['{"one":{"z":0}}', '{"many":[{"z":1}]}']


def value_of(kind: pa.DataType, generator: random.Random) -> Any:
    """
    Return a random value of a type. Its objects have further fields, and a few parts do not fit.
    """
    if generator.random() < 0.05:
        return generator.choice([None, 7, "text", {}, []])
    count = generator.randrange(4)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind] + ["more", "é"]
        types_by_name = {field.name: field.type for field in kind}
        sample = generator.sample(names, generator.randrange(len(names) + 1))
        return {
            name: value_of(types_by_name[name], generator)
            if name in types_by_name
            else any_json(generator, 2)
            for name in sample
        }
    if pa.types.is_map(kind):
        return {f"k{number}": value_of(kind.item_type, generator) for number in range(count)}
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, generator) for _ in range(count)]
    return "text" if kind == TEXT else generator.randrange(100)


def fits(kind: pa.DataType, value: Any) -> bool:
    """
    Return whether a value can be decoded as a type; for an object, its fields do not matter.
    """
    if value is None or kind == TEXT:
        return True
    if pa.types.is_struct(kind):
        return isinstance(value, dict)
    if pa.types.is_map(kind):
        return isinstance(value, dict) and all(fits(kind.item_type, v) for v in value.values())
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(fits(kind.value_type, v) for v in value)
    return isinstance(value, int)


def unknown(kind: pa.DataType, value: Any) -> Any:
    """
    Return the parts of a value that a type has no field for, or None if there are none.
    """
    if value is None or not fits(kind, value):
        return None
    if pa.types.is_struct(kind):
        types_by_name = {field.name: field.type for field in kind}
        rest = {
            n: unknown(types_by_name[n], v) if n in types_by_name else v for n, v in value.items()
        }
        return {n: v for n, v in rest.items() if v is not None or n not in types_by_name} or None
    if pa.types.is_map(kind):
        rest = {n: unknown(kind.item_type, v) for n, v in value.items()}
        return {n: v for n, v in rest.items() if v is not None} or None
    if pa.types.is_list(kind):
        parts = [unknown(kind.value_type, item) for item in value]
        empty: Any = [] if pa.types.is_list(kind.value_type) else {}
        has_unknown = any(part is not None for part in parts)
        return [empty if part is None else part for part in parts] if has_unknown else None
    return None


@pytest.mark.parametrize("flatten", [False, True])
def test_any_nested_objects(*, flatten: bool) -> None:
    """
    For any values, in batches of any size, the rescued object equals the result of a plain
    recursion, and is not longer than the value.
    """
    generator = random.Random(6)
    columns = [*NESTED] if flatten else [pa.field("value", NESTED)]
    options = FormatOptions(
        "json", on_bad_record="null", flatten=flatten, rescues_unknown_fields=True
    )
    form = format_of(options, *((f.name, f.type) for f in columns), ("_rescued", TEXT))
    rescued = 0
    for _ in range(200):
        objects = [value_of(NESTED, generator) for _ in range(generator.randint(1, 12))]
        texts: list[bytes | None] = [
            json.dumps(value, separators=(",", ":"), ensure_ascii=generator.random() < 0.5).encode()
            for value in objects
        ]
        for row, value, text in zip(
            decoded_rows(form, texts, (3, 0, 2)), objects, texts, strict=True
        ):
            assert (row["_rescued"] and json.loads(row["_rescued"])) == unknown(NESTED, value)
            if row["_rescued"]:
                rescued += 1
                assert len(row["_rescued"].encode()) <= len(text or b"")
    assert rescued > 300


def any_json(generator: random.Random, depth: int = 0) -> Any:
    shape = generator.randrange(7 if depth < 3 else 5)
    if shape == 5:
        return [any_json(generator, depth + 1) for _ in range(generator.randrange(3))]
    if shape == 6:
        return {name: any_json(generator, depth + 1) for name in generator.sample("abcd", 2)}
    return (None, True, -1.5, 'é\n"😀', "x" * generator.randrange(300))[shape]


@pytest.mark.parametrize("flatten", [False, True])
def test_any_objects(*, flatten: bool) -> None:
    """
    For any objects, schemas and sizes of batches, the fields without a column are in the rescued
    object.
    """
    generator = random.Random(5)
    names = ("a", "b", "c", "long_name_" * 8, "é", "_rescued")
    for _ in range(100):
        named = generator.sample(names[:-1], generator.randint(1, 5))
        fields = [(name, TEXT) for name in named]
        columns = fields if flatten else [("value", pa.struct(fields))]
        options = FormatOptions("json", flatten=flatten, rescues_unknown_fields=True)
        form = format_of(options, *columns, ("_rescued", TEXT))
        objects = [
            {n: any_json(generator) for n in generator.sample(names, generator.randrange(7))}
            for _ in range(generator.randint(1, 12))
        ]
        texts: list[bytes | None] = [
            json.dumps(value, ensure_ascii=generator.random() < 0.5).encode() for value in objects
        ]

        for row, value in zip(decoded_rows(form, texts, (3, 0, 2)), objects, strict=True):
            rest = {name: inner for name, inner in value.items() if name not in named}
            decoded = row if flatten else row["value"]
            assert (row["_rescued"] and json.loads(row["_rescued"])) == (rest or None)
            assert [decoded[name] is None for name in named] == [
                value.get(name) is None for name in named
            ]


def test_memory_is_bounded() -> None:
    """
    Rescued text counts towards the columns' memory, so a task returns many small batches.
    """
    form = format_of(RESCUE, ("value", VALUE), ("_rescued", TEXT))
    texts: list[bytes | None] = [b'{"a":1,"c":"%s"}' % (b"x" * 5000)] * 200

    tables = rows(form, batches_of(form, texts, []), memory_bytes=1 << 17)

    assert len(tables) >= 5
    assert sum(table.num_rows for table in tables) == 200


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([("value", VALUE)], "onUnknownField is 'rescue', but the schema has no column for it"),
        ([("value", VALUE), ("_rescued", pa.int32())], "'_rescued' must be: STRING"),
        ([("value", pa.list_(TEXT)), ("_rescued", TEXT)], "must have the column 'value' as a STR"),
        ([("offset", pa.int64()), ("_rescued", TEXT)], "must have the column 'value' as a STRUCT"),
    ],
)
def test_schemas_without_the_rescued_column(fields: Any, text: str) -> None:
    """
    The schema must have the column ``_rescued`` as a STRING, and the value as a STRUCT.
    """
    with pytest.raises(OptionsError, match=text):
        format_of(RESCUE, *fields)


def test_options() -> None:
    """
    Unknown fields are rescued from JSON values only, and the default schema then has the
    column ``_rescued``.
    """
    source_options = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "onUnknownField": "rescue",
    }
    with pytest.raises(OptionsError, match="valueFormat is 'raw'; set it to json"):
        parse_source(source_options)
    typed = {**source_options, "valueFormat": "json", "valueSchema": "id BIGINT", "flatten": "true"}

    options = parse_source(typed).formats

    assert default_ddl(options, include_headers=False) == (
        "STRUCT<id BIGINT, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, "
        "_rescued STRING>"
    )
