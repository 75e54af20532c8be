"""
The JSON encoder: Python's parser and our own reader read its texts back, for any type.
"""

from __future__ import annotations

import base64
import json
import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.arrow_forms import any_form

from pyspark_pykafka.formats.bad_records import FAIL
from pyspark_pykafka.formats.encoded_column import EncodedColumn, EncodingError
from pyspark_pykafka.formats.json_decoder import JsonColumn
from pyspark_pykafka.formats.write_format import WrittenColumn

ROOM = 1 << 24
UTC_TIME = pa.timestamp("us", tz="UTC")


def encoder(kind: pa.DataType, **column: Any) -> EncodedColumn:
    return EncodedColumn(WrittenColumn("value", "json", kind, **column))


def encoded(values: pa.Array, **column: Any) -> list[bytes | None]:
    """
    Return the texts of an array.
    """
    texts = encoder(values.type, **column).encode(values, 0, len(values), ROOM)
    texts.validate(full=True)
    payloads: list[bytes | None] = texts.to_pylist()
    return payloads


def decoded(kind: pa.DataType, texts: list[bytes | None]) -> list[Any]:
    """
    Return the values that a read decodes from texts.
    """
    column = JsonColumn("value", kind, ROOM, FAIL)
    assert column.decode(pa.array(texts, pa.binary()), 0, len(texts)) == len(texts)
    assert column.take_bad() == []
    rows: list[Any] = column.take().to_pylist()
    return rows


def text_of(kind: pa.DataType, value: Any) -> str:
    (text,) = encoded(pa.array([value], kind))
    assert text is not None
    return text.decode()


SIMPLE: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=30)),
    (pa.binary(), st.binary(max_size=20)),
    (pa.bool_(), st.booleans()),
    *(
        (kind, st.integers(-(2**bits), 2**bits - 1))
        for kind, bits in ((pa.int8(), 7), (pa.int16(), 15), (pa.int32(), 31), (pa.int64(), 63))
    ),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    (
        pa.decimal128(20, 20),
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-20)),
    ),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    (pa.date32(), st.dates()),
    (UTC_TIME, st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
]
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def random_type(generator: random.Random, depth: int = 0) -> Typed:
    """
    Return a type of any shape, and its values.
    """
    shape = generator.randrange(5 if depth < 3 else 1)
    if shape == 2:
        kind, values = random_type(generator, depth + 1)
        return pa.list_(kind), st.lists(st.none() | values, max_size=3)
    if shape == 3:
        kind, values = random_type(generator, depth + 1)
        named = st.dictionaries(st.text(max_size=5), st.none() | values, max_size=3)
        return pa.map_(pa.string(), kind), named.map(lambda pairs: [*pairs.items()])
    if shape == 4:
        names = random.Random(generator.random()).sample(
            'abc"\u00e9\u2028\\', generator.randrange(5)
        )
        fields = [(name, *random_type(generator, depth + 1)) for name in names]
        struct = pa.struct([(name, kind) for name, kind, _ in fields])
        return struct, st.fixed_dictionaries(
            {name: st.none() | values for name, _, values in fields}
        )
    return generator.choice(SIMPLE)


def plain(kind: pa.DataType, value: Any) -> Any:  # noqa: PLR0911 (one for each kind of value)
    """
    Return a value as JSON represents it; fields that are null are left out.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if pa.types.is_struct(kind):
        return {f.name: plain(f.type, value[f.name]) for f in kind if value[f.name] is not None}
    if pa.types.is_map(kind):
        return {name: plain(kind.item_type, item) for name, item in value}
    if isinstance(value, list):
        return [plain(kind.value_type, item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("inf", "Infinity")
    if isinstance(value, datetime):
        digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return value.replace(tzinfo=None).isoformat("T", digits) + ("Z" if value.tzinfo else "")
    return str(value) if isinstance(value, date) else value


def parsed(text: bytes) -> Any:
    return json.loads(text.decode("utf-8", "strict"), parse_float=Decimal)


def comparable(value: Any) -> Any:
    """
    Return a document with all numbers as Decimal, so that 1.0 and 1.00 are equal.
    """
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, float):
        return Decimal(repr(value))
    return Decimal(value) if type(value) is int else value


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.data())
def test_any_type_is_read_back(generator: random.Random, data: st.DataObject) -> None:
    """
    Values of any type, in a slice, are read back unchanged by Python's parser and by our reader.
    """
    kind, values = random_type(generator)
    rows = data.draw(st.lists(st.none() | values, max_size=5))
    array = pa.array(rows, kind)
    start = data.draw(st.integers(0, len(rows)))
    rows, array = rows[start:], array[start:]

    texts = encoded(array)

    expected = [None if row is None else plain(kind, row) for row in array.to_pylist()]
    actual = [None if text is None else parsed(text) for text in texts]
    if not uses_floats(kind):
        assert comparable(actual) == comparable(expected)
    if pa.types.is_struct(kind) and kind.num_fields and not has_empty(kind):
        assert decoded(kind, texts) == array.to_pylist()


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.data())
def test_any_form_in_memory(generator: random.Random, data: st.DataObject) -> None:
    """
    Equal arrays become equal texts, whatever their layout in memory: slices, values under nulls,
    64-bit offsets and dictionaries.
    """
    kind, values = random_type(generator)
    array = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), kind)

    form = any_form(array, generator)

    form.validate(full=True)
    texts = encoder(kind).encode(form, 0, len(form), ROOM)
    assert texts.to_pylist() == encoded(array)


def uses_floats(kind: pa.DataType) -> bool:
    return "float" in str(kind)


def has_empty(kind: pa.DataType) -> bool:
    return "struct<>" in str(kind)


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_strings_are_utf8_whatever_they_hold(content: bytes) -> None:
    """
    Each part of a string that is not UTF-8 becomes U+FFFD; half of a surrogate pair is one part.
    """
    offsets = pa.py_buffer(np.array([0, len(content)], np.int32))
    array = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(content))

    (text,) = encoded(array)

    assert text is not None
    whole = content.decode("utf-8", "surrogatepass") if is_text(content) else None
    actual = json.loads(text.decode("utf-8", "strict"))
    if whole is None:
        assert actual.replace("\ufffd", "") == content.decode("utf-8", "replace").replace(
            "\ufffd", ""
        )
    else:
        assert actual == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in whole)


def is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


@given(
    st.floats(width=64)
    | st.integers(0, 2**53).map(float)
    | st.integers(-330, 308).map(lambda e: float(f"1e{e}"))
)
def test_doubles_are_the_shortest(number: float) -> None:
    """
    A double has the digits that Python gives it, and NaN and infinity are strings as in to_json.
    """
    text = text_of(pa.float64(), number)

    if math.isfinite(number):
        assert Decimal(text).as_tuple().sign == (math.copysign(1, number) < 0)
        assert Decimal(text) == Decimal(repr(number))
    else:
        assert json.loads(text) == str(number).replace("inf", "Infinity").replace("nan", "NaN")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_the_shortest(number: float) -> None:
    """
    A float has the shortest digits of a float, not those of the double with its value.
    """
    assert Decimal(text_of(pa.float32(), number)) == Decimal(str(np.float32(number)))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (1e7, "1.0E7"), (9999999.5, "9999999.5")),
        *(
            (0.001, "0.001"),
            (0.00099, "9.9E-4"),
            (1.7976931348623157e308, "1.7976931348623157E308"),
        ),
    ],
)
def test_doubles_look_as_in_java(number: float, text: str) -> None:
    """
    Numbers below 0.001, and from ten million on, have an exponent.
    """
    assert text_of(pa.float64(), number) == text


def test_characters_that_need_an_escape() -> None:
    """
    Quotes, backslashes and controls are escaped; other characters are not, including U+2028.
    """
    text = text_of(pa.string(), '"\\/\b\t\n\f\r\x00\x1f\x7f\u2028é😀')

    assert text == '"\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001F\x7f\u2028é😀"'


def test_nulls() -> None:
    """
    A null row has no text. Null fields are left out, or kept on request; null elements are always
    kept.
    """
    kind = pa.struct(
        [("a", pa.int32()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))]
    )
    rows = [None, {"a": None}, {"a": 1, "l": [None], "m": [("k", None)]}]

    assert encoded(pa.array(rows, kind)) == [None, b"{}", b'{"a":1,"l":[null],"m":{"k":null}}']
    assert encoded(pa.array(rows[:2], kind), keeps_nulls=True) == [
        *(None, b'{"a":null,"l":null,"m":null}'),
    ]


def test_empty_structs_and_arrays() -> None:
    """
    Empty structs and arrays are written as {} and [].
    """
    kind = pa.struct([("s", pa.struct([])), ("l", pa.list_(pa.string()))])

    assert text_of(kind, {"s": {}, "l": []}) == '{"s":{},"l":[]}'
    assert text_of(pa.struct([]), {}) == "{}"


def test_large_types_and_dictionaries() -> None:
    """
    The large types of Spark's useLargeVarTypes, and dictionaries, are encoded like plain types.
    """
    kind = pa.struct([("s", pa.string()), ("b", pa.binary())])
    wide = pa.struct([("s", pa.large_string()), ("b", pa.large_binary())])
    rows = [{"s": "x", "b": b"\x00"}, {"s": "yy", "b": b""}]
    column = encoder(kind)
    names = pa.array(["p", "q", "p"]).dictionary_encode()

    assert column.encode(pa.array(rows, wide), 0, 2, ROOM) == column.encode(
        *(pa.array(rows, kind), 0, 2, ROOM)
    )
    texts = encoder(pa.string()).encode(names[1:], 0, 2, ROOM)
    assert texts.to_pylist() == [b'"q"', b'"p"']


def test_a_limit_ends_a_chunk() -> None:
    """
    Encoding stops after the row that reaches the limit, and goes on from there.
    """
    values = pa.array(["x" * 10] * 5)
    column = encoder(pa.string())

    first = column.encode(values, 0, 5, 13)

    assert len(first) == 2
    assert column.encode(values, 2, 5, 1 << 20).to_pylist() == [b'"xxxxxxxxxx"'] * 3
    assert first.to_pylist() == [b'"xxxxxxxxxx"'] * 2


def test_infinity_is_no_number_of_a_schema() -> None:
    """
    With a JSON Schema, NaN and infinity are errors that name the field.
    """
    kind = pa.struct([("a", pa.list_(pa.float64()))])
    column = encoder(kind, schema="{}")

    with pytest.raises(EncodingError) as caught:
        column.encode(pa.array([{"a": [1.0]}, {"a": [math.inf]}], kind), 0, 2, ROOM)

    assert caught.value.row == 1
    assert column.describe(caught.value).startswith("value.a.item is NaN or infinite")


def test_prefix_precedes_values_only() -> None:
    """
    The id of a schema is before each value, and a null row stays null.
    """
    kind = pa.struct([("a", pa.int32())])

    texts = encoded(pa.array([{"a": 1}, None], kind), prefix=b"\x00\x00\x00\x00\x07")

    assert texts == [b'\x00\x00\x00\x00\x07{"a":1}', None]


def test_deep_nesting() -> None:
    """
    A type as deep as the reader's limit is encoded.
    """
    kind = pa.struct([("x", pa.int32())])
    value: dict[str, Any] = {"x": 7}
    for _ in range(98):
        kind, value = pa.struct([("x", kind)]), {"x": value}

    assert text_of(kind, value) == '{"x":' * 99 + "7" + "}" * 99


def test_years_beyond_four_digits() -> None:
    """
    Years of more than four digits have a sign, as in Java.
    """
    days = pa.array([2932897, -719529, -719163, -(10**6)], pa.int32()).cast(pa.date32())

    assert encoded(days) == [b'"+10000-01-01"', b'"-0001-12-31"', b'"0000-12-31"', b'"-0768-02-04"']
