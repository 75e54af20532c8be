"""
The JSON decoder: the accepted texts, the decoded values, and the errors of bad texts.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_pykafka.formats.bad_records import BadRecordPolicy, BadValue
from pyspark_pykafka.formats.json_decoder import JsonColumn

LENIENT = BadRecordPolicy("null")
ROOM = 1 << 20
TIMESTAMP = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decoded(kind: pa.DataType, *texts: bytes | None) -> tuple[list[Any], list[BadValue]]:
    """
    Return the decoded values, and the bad ones with their reasons.
    """
    column = JsonColumn("value", kind, ROOM, LENIENT)
    assert column.decode(pa.array(texts, pa.binary()), 0, len(texts)) == len(texts)
    values = column.take()
    values.validate(full=True)
    assert values.type == kind
    return values.to_pylist(), column.take_bad()


def field(kind: pa.DataType, text: str | bytes) -> Any:
    """
    Return the decoded value of a field ``a`` of a type; the text must fit the type.
    """
    (value,), bad = decoded(pa.struct([("a", kind)]), b'{"a":%s}' % _bytes(text))
    assert bad == []
    return value["a"]


def reason(kind: pa.DataType, text: str | bytes) -> str:
    """
    Return the error for a field ``a`` that does not fit its type, or for a text that is not JSON.
    """
    (value,), bad = decoded(pa.struct([("a", kind)]), b'{"a":%s}' % _bytes(text))
    assert value == {"a": None}
    return bad[0].reason


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def is_json(text: bytes) -> bool:
    """
    Return whether Python's parser accepts the text, apart from numbers that JSON does not have.
    """

    def reject(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text.decode(), parse_constant=reject)
    except (ValueError, RecursionError):
        return False
    return True


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
TEXTS = st.builds(
    lambda value, ascii_only, spaces: json.dumps(
        value, ensure_ascii=ascii_only, indent=spaces, separators=(",", ":")
    ),
    JSON,
    st.booleans(),
    st.sampled_from([None, 0, 1]),
).filter(lambda text: "\\ud" not in text)
PIECES = [*b'{}[]:,"\\0129-+.eEntu\x00\x1f \xc3\xa9\xed\xa0\xff\xef', 0xF4]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """
    Return a JSON text with a few bytes replaced, inserted or removed.
    """
    text = bytearray(draw(TEXTS).encode())
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(text)))
        piece = [draw(st.sampled_from(PIECES))] if draw(st.booleans()) else []
        text[position : position + draw(st.integers(0, 2))] = bytes(piece)
    return bytes(text)


@given(mutated())
@example(b"\xef\xbb\xbf1")
@example(b'"\xed\xa0\x80"')
@example(b'{"a":1}x')
def test_accepts_the_texts_that_python_accepts(text: bytes) -> None:
    """
    A text is bad if and only if Python's parser rejects it, or it has half of a surrogate pair;
    a blank text is NULL and not bad.
    """
    (value,), bad = decoded(pa.string(), text)

    if not text.strip(b" \t\r\n"):
        assert (value, bad) == (None, [])
        return
    surrogate = bad and "surrogate" in bad[0].reason
    assert (not bad or surrogate) == is_json(text)


@given(TEXTS)
def test_unknown_fields_are_skipped(text: str) -> None:
    """
    Any field that the type does not have is skipped, with any valid content.
    """
    document = f'{{"x":{text},"a":1,"y":{text}}}'.encode()

    assert decoded(pa.struct([("a", pa.int64())]), document) == ([{"a": 1}], [])


@given(st.text())
def test_strings(text: str) -> None:
    """
    Strings keep every character, escaped or not.
    """
    for ascii_only in (True, False):
        assert field(pa.string(), json.dumps(text, ensure_ascii=ascii_only)) == text


@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?\Z")
)
@example("9007199254740993")
@example("2.2250738585072011e-308")
@example("4.9406564584124654e-324")
@example("2.4703282292062327e-324")
@example("1.7976931348623159e308")
@example("8.5e-27")
@example("9355950000000000000.0")
@example("0." + "0" * 400 + "1e400")
@example("1" + "0" * 308)
def test_doubles_are_the_nearest(number: float | str) -> None:
    """
    A double is the one nearest to the text, as Python computes it.
    """
    text = number if isinstance(number, str) else repr(number)

    assert field(pa.float64(), text) == float(text)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@given(data=st.data())
def test_whole_numbers_have_a_range(bits: int, data: st.DataObject) -> None:
    """
    A whole number fits if its type holds it; a number with a decimal point does not.
    """
    kind = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    limit = 2 ** (bits - 1)
    number = data.draw(st.integers(-2 * limit, 2 * limit))

    if -limit <= number < limit:
        assert field(kind, str(number)) == number
    else:
        assert "a number out of range" in reason(kind, str(number))
    assert "is another number" in reason(kind, f"{number}.0")


DECIMALS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,44})(\.[0-9]{1,44})?([eE][+-]?[0-9]{1,2})?\Z")


@given(DECIMALS, st.integers(1, 38), st.data())
def test_decimals_are_rounded_half_up(text: str, precision: int, data: st.DataObject) -> None:
    """
    A decimal is rounded half up to the type's scale, and must then fit its precision.
    """
    scale = data.draw(st.integers(0, precision))
    expected = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _decimal_context())
    kind = pa.decimal128(precision, scale)

    for json_text in (text, f'"{text}"'):
        if abs(expected) < Decimal(10) ** (precision - scale):
            assert field(kind, json_text) == expected
        else:
            assert "a number out of range" in reason(kind, json_text)


def _decimal_context() -> Any:
    from decimal import Context

    return Context(prec=400)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.sampled_from("T "))  # noqa: DTZ001
def test_timestamps(moment: datetime, separator: str) -> None:
    """
    A timestamp without a zone is UTC; one with an offset is converted to UTC.
    """
    text = moment.isoformat(separator)
    utc = moment.replace(tzinfo=UTC)

    assert field(TIMESTAMP, f'"{text}"') == utc
    assert field(pa.timestamp("us"), f'"{text}"') == moment
    if moment.year > 1:
        assert field(TIMESTAMP, f'"{text}+05:30"') == utc - timedelta(hours=5, minutes=30)


@given(st.dates())
def test_dates(day: date) -> None:
    """
    A date is read in ISO form, and the text after a T is ignored.
    """
    assert field(pa.date32(), f'"{day.isoformat()}"') == day
    assert field(pa.date32(), f'"{day.isoformat()}T12:00"') == day


@given(st.binary())
def test_binary_is_base64(content: bytes) -> None:
    """
    BINARY is padded base64, as Spark writes it.
    """
    assert field(pa.binary(), f'"{base64.b64encode(content).decode()}"') == content


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (pa.int64(), '"1"', "value.a must be BIGINT, but is a string, at byte 5"),
        (pa.int64(), "true", "value.a must be BIGINT, but is true"),
        (pa.int64(), "{}", "value.a must be BIGINT, but is an object"),
        (pa.bool_(), "1", "value.a must be BOOLEAN, but is another number"),
        (pa.float64(), '"1.5"', "value.a must be DOUBLE, but is a string"),
        (pa.list_(pa.int32()), '[1,"x"]', "value.a.item must be INT, but is a string, at byte 8"),
        (pa.list_(pa.int32()), "3", "value.a must be an ARRAY"),
        (pa.struct([("b", pa.int8())]), "[]", "value.a must be a STRUCT"),
        (pa.map_(pa.string(), pa.int8()), '{"k":300}', "value.a.value must be TINYINT"),
        (
            pa.date32(),
            '"2023-02-29"',
            "value.a must be DATE, but is a string that cannot be converted",
        ),
        (TIMESTAMP, '"2023-02-28T25:00:00"', "value.a must be TIMESTAMP"),
        (TIMESTAMP, '"2023-02-28T00:00:00 Europe/Paris"', "value.a must be TIMESTAMP"),
        (TIMESTAMP, "9223372036855", "a number out of range"),
        (pa.timestamp("us"), '"2023-02-28T00:00:00Z"', "must be TIMESTAMP_NTZ"),
        (pa.binary(), '"abc"', "value.a must be BINARY, but is a string that cannot be converted"),
        (pa.decimal128(5, 2), '"x"', "value.a must be DECIMAL(5,2)"),
        (pa.string(), '"\\ud800"', "half of a surrogate pair"),
        (pa.string(), '"a\tb"', "value is not valid JSON: a control character in a string"),
        (pa.string(), '"\\q"', "an invalid escape"),
        (pa.string(), b'"\xff"', "a string that is not UTF-8, at byte 6"),
        (pa.float64(), "NaN", "an unexpected byte"),
        (pa.float64(), "-Infinity", "an invalid number"),
        (pa.float64(), "01", "an invalid number"),
        (pa.int64(), "1" * 1001, "too large"),
        (pa.string(), "[" * 1000 + "]" * 1000, "more than 1000 levels of nesting"),
        (pa.string(), "[" * 100_000, "more than 1000 levels of nesting"),
        (pa.string(), "1} 2", "extra text after its end, at byte 8"),
        (pa.string(), "1", "extra text after its end"),
    ],
)
def test_bad_texts_are_named(kind: pa.DataType, text: str | bytes, message: str) -> None:
    """
    The reason names the field that does not fit its type, or the fault in the text.
    """
    if message == "extra text after its end":
        _, (bad,) = decoded(pa.struct([("a", kind)]), b'{"a":1}{"a":2}')
        assert message in bad.reason
        return
    assert message in reason(kind, text)


@pytest.mark.parametrize("length", range(33))
def test_texts_that_end_anywhere(length: int) -> None:
    """
    A text that ends too early, at any byte, is bad, and its fields are NULL.
    """
    text = b'{"a":"\\u00e9","b":[1.5e3,null,true]}'

    (value,), (bad,) = decoded(pa.struct([("a", pa.string())]), text[: length + 1])

    assert value == {"a": None}
    assert "the text ends too early" in bad.reason


def test_a_field_that_does_not_fit_is_null() -> None:
    """
    A field that does not fit is NULL, and its record keeps the others; a list with an element that
    does not fit is NULL as a whole.
    """
    kind = pa.struct(
        [
            ("a", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("b", pa.list_(pa.struct([("x", pa.int64())]))),
            ("c", pa.list_(pa.int64())),
        ]
    )
    text = b'{"a":{"x":"no","y":"yes"},"b":[{"x":1},{"x":{}}],"c":[1,[2],3]}'

    assert decoded(kind, text)[0] == [
        {"a": {"x": None, "y": "yes"}, "b": [{"x": 1}, {"x": None}], "c": None}
    ]


def test_empty_and_null_records() -> None:
    """
    A record without a value, with an empty one, or with JSON's null is NULL, and not bad.
    """
    kind = pa.struct([("a", pa.int64())])

    assert decoded(kind, None, b"", b" \n", b"null", b"{}") == ([None] * 4 + [{"a": None}], [])


def test_the_last_of_several_fields_of_one_name_wins() -> None:
    """
    Of several fields with one name the last counts, as in Spark; a map keeps all of them.
    """
    kind = pa.struct([("a", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int8()))])
    text = b'{"a":["x","y"],"m":{"k":1,"k":2},"a":["z"]}'

    assert decoded(kind, text, text)[0] == [{"a": ["z"], "m": [("k", 1), ("k", 2)]}] * 2


def test_other_values_of_a_string_field() -> None:
    """
    Values of other types in a STRING field become their own JSON text.
    """
    assert [field(pa.string(), text) for text in ('{"x": [1]}', "1.0", "true")] == [
        '{"x": [1]}',
        "1.0",
        "true",
    ]


def test_special_numbers_are_strings() -> None:
    """
    NaN and infinities are read from strings with Spark's names for them.
    """
    assert field(pa.float32(), '"-INF"') == -math.inf
    assert field(pa.float64(), '"Infinity"') == math.inf
    assert math.isnan(field(pa.float64(), '"NaN"'))


@given(st.lists(st.tuples(st.booleans(), st.permutations("abcdefgh"), st.integers(0, 8))))
def test_fields_in_any_order(documents: list[tuple[bool, list[str], int]]) -> None:
    """
    Keys may come in another order in each record, and may be missing, escaped or unknown.
    """
    kind = pa.struct([(name, pa.string()) for name in "hbdf"])
    texts, expected = [], []
    for escaped, names, count in documents:
        keys = [f"\\u{ord(name):04x}" if escaped else name for name in names[:count]]
        texts.append(("{" + ",".join(f'"{k}" : "{k}"' for k in keys) + "}").encode())
        expected.append({name: name if name in names[:count] else None for name in "hbdf"})

    assert decoded(kind, *texts)[0] == expected


@given(st.lists(st.none() | st.integers(0, 99), min_size=1), st.data())
def test_slices_of_arrays(numbers: list[int | None], data: st.DataObject) -> None:
    """
    A slice of an array is decoded from its own start, in parts, and bad rows are counted from it.
    """
    texts = [None if n is None else b'{"a":%d}' % n for n in numbers]
    texts = [b"}" if n == 7 else text for n, text in zip(numbers, texts, strict=True)]
    start = data.draw(st.integers(0, len(numbers)))
    middle = data.draw(st.integers(0, len(numbers) - start))
    column = JsonColumn("value", pa.struct([("a", pa.int64())]), ROOM, LENIENT)
    part = pa.array(texts, pa.binary()).slice(start)

    assert column.decode(part, 0, middle) == middle
    assert column.decode(part, middle, len(part)) == len(part)

    expected = [None if n == 7 else n for n in numbers[start:]]
    actual = [None if value is None else value["a"] for value in column.take().to_pylist()]
    assert actual == expected
    bad_rows = [bad.row for bad in column.take_bad()]
    assert bad_rows == [row for row, n in enumerate(numbers[start:]) if n == 7]


def test_values_outlive_their_texts() -> None:
    """
    Nothing of the source's buffers is used after the call, so that they can be reused.
    """
    data = bytearray(b'{"a":"first"}')
    ends = pa.py_buffer(memoryview(bytearray(b"\x00\x00\x00\x00\x0d\x00\x00\x00")))
    texts = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])
    column = JsonColumn("value", pa.struct([("a", pa.string())]), ROOM, LENIENT)
    column.decode(texts, 0, 1)
    data[:] = b"\x00" * len(data)

    first = column.take()
    column.decode(pa.array([b'{"a":"other"}'], pa.binary()), 0, 1)
    second = column.take()

    assert (first.to_pylist(), second.to_pylist()) == ([{"a": "first"}], [{"a": "other"}])


def test_a_full_column_stops_and_goes_on() -> None:
    """
    Columns never exceed their limit: decoding stops when they are full, and goes on once they are
    taken.
    """
    text = b'{"a":"%s"}' % (b"x" * 1000)
    column = JsonColumn("value", pa.struct([("a", pa.string())]), 20_000, LENIENT)
    texts = pa.array([text] * 100, pa.binary())
    position, rows = 0, 0
    while position < 100:
        position = column.decode(texts, position, 100)
        assert 0 < column.nbytes <= 20_000
        rows += len(column.take())

    assert (rows, column.take_bad()) == (100, [])


def test_a_record_that_is_too_large_is_bad() -> None:
    """
    A record whose columns exceed their limit is bad: three bytes of it may be a row of 500 columns.
    """
    wide = pa.list_(pa.struct([(f"f{i}", pa.int64()) for i in range(500)]))
    column = JsonColumn("value", wide, ROOM, LENIENT)
    texts = pa.array([b"[{}]", b"[" + b"{}," * 10_000 + b"{}]", b"[{}]"], pa.binary())
    position, values = 0, []
    while position < len(texts):
        position = column.decode(texts, position, len(texts))
        assert column.nbytes <= ROOM
        values += [None if row is None else len(row) for row in column.take().to_pylist()]

    assert values == [1, None, 1]
    (bad,) = column.take_bad()
    assert bad.row == 1
    assert "half of maxFetchMemory" in bad.reason


def test_the_first_bad_record_can_stop() -> None:
    """
    With the policy fail, decoding ends at the first bad record.
    """
    column = JsonColumn("value", pa.struct([("a", pa.int64())]), ROOM, BadRecordPolicy())
    texts = pa.array([b'{"a":1}', b'{"a":"x"}', b"}"], pa.binary())

    assert column.decode(texts, 0, 3) == 1
    assert [bad.row for bad in column.take_bad()] == [1]


def test_rows_can_be_forgotten() -> None:
    """
    Rows after the kept ones leave nothing in any column.
    """
    kind = pa.struct([("a", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.bool_()))])
    column = JsonColumn("value", kind, ROOM, LENIENT)
    texts = pa.array([b'{"a":["x"],"m":{"k":true}}', b'{"a":["y","z"]}', b"null"], pa.binary())
    column.decode(texts, 0, 3)

    column.keep(1)
    column.decode(texts, 1, 2)

    assert column.take().to_pylist() == [
        {"a": ["x"], "m": [("k", True)]},
        {"a": ["y", "z"], "m": None},
    ]


@pytest.mark.parametrize(
    "buffers",
    [
        (None, bytes(4), b""),
        (None, (5).to_bytes(4, "little") * 2, b"1"),
        (None, b"\xff" * 8, b"1"),
        (b"", bytes(8), b"1"),
    ],
    ids=["short offsets", "beyond the data", "negative", "short bitmap"],
)
def test_inconsistent_buffers_are_rejected(buffers: tuple[bytes | None, bytes, bytes]) -> None:
    """
    Offsets that are not within the data are an error, and are not followed.
    """
    from pyspark_pykafka.formats._json import JsonDecoder

    decoder = JsonDecoder((3, "value", 0, 0, []), ROOM, False)  # noqa: FBT003

    with pytest.raises(ValueError, match="row"):
        decoder.decode(*buffers, 0, 1)
