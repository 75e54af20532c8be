"""
JSON texts with mutations, and the invariants that the decoder must keep for any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fuzz.decoding import decode_all

from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.json_decoder import JsonColumn

if TYPE_CHECKING:
    from fuzz.mutations import Choices

MAX_BYTES = 1 << 16
VALID = b'{"i":7,"x":"\\u00e9","a":[1],"o":{"x":"y"},"k":{"z":null}}'

_SCALARS = (
    *(pa.string(), pa.binary(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 10), pa.date32()),
    *(pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
)
_VALUES = (
    *(b"null", b"true", b"-0", b"1e400", b"0.1", b"9223372036854775808", b"17e-9", b'"text"'),
    *(b'"2024-02-29T23:59:59.999999+18:00"', b'"\\ud83d\\ude00"', b'"aGk="', b'"\xc3\xa9"'),
    *(b"1234567890123456789012345678901234567890.5", b'"-INF"', b'"1,2.5e-3"', b'"-0044-03-15"'),
)
_NAMES = (b"i", b"x", b"a", b"o", b"k", b"\\u0069", b"other", b"n" * 60)
_MAX_DEPTH = 4


def any_type(choices: Choices, depth: int = 0) -> pa.DataType:
    """
    Return a type, which may be nested.
    """
    kind = choices.number(0, 3 if depth < _MAX_DEPTH else 0)
    if kind == 1:
        return pa.list_(any_type(choices, depth + 1))
    if kind == 2:
        return pa.map_(pa.string(), any_type(choices, depth + 1))
    if kind == 3:
        names = ["i", "x", "a", "o", "k"][: choices.number(0, 5)]
        return pa.struct([(name, any_type(choices, depth + 1)) for name in names])
    return _SCALARS[choices.number(0, len(_SCALARS) - 1)]


def any_text(choices: Choices, depth: int = 0) -> bytes:
    """
    Return a valid JSON text.
    """
    kind = choices.number(0, 3 if depth < _MAX_DEPTH else 0)
    if kind == 0:
        return _VALUES[choices.number(0, len(_VALUES) - 1)]
    inner = [any_text(choices, depth + 1) for _ in range(choices.number(0, 3))]
    if kind == 1:
        return b"[" + b" , ".join(inner) + b"]"
    fields = [b'"%s":%s' % (_NAMES[choices.number(0, len(_NAMES) - 1)], text) for text in inner]
    return b"{" + b",".join(fields) + b"}"


def mutated(text: bytes, choices: Choices) -> bytes:
    """
    Return the text with a few bytes replaced, inserted, removed or repeated.
    """
    changed = bytearray(text)
    for _ in range(choices.number(0, 3)):
        position = choices.number(0, len(changed))
        end = min(len(changed), position + choices.number(0, 4))
        changed[position:end] = (
            choices.some_bytes(4)
            if choices.number(0, 1)
            else bytes(changed[position:end]) * choices.number(0, 9)
        )
    return bytes(changed)


def texts(choices: Choices) -> list[bytes | None]:
    """
    Return some records, most of them mutated.
    """
    return [
        None if choices.number(0, 9) == 0 else mutated(any_text(choices), choices)
        for _ in range(choices.number(1, 6))
    ]


def decode_any(records: list[bytes | None], choices: Choices) -> int:
    """
    Decode records into any type, check the invariants, and return the number of good ones.

    A valid record at the end must be decoded as if it were the only one.
    """
    kind = any_type(choices)
    rescues = pa.types.is_struct(kind) and choices.number(0, 1) == 0
    if rescues:
        kind = pa.struct([*kind, pa.field("_rescued", pa.string())])
    column = JsonColumn("value", kind, MAX_BYTES, BadRecordPolicy("null"), rescues=rescues)
    good, last = decode_all([*records, VALID], column, MAX_BYTES)
    # Only the last row: others may have dates that Python cannot represent.
    assert repr(last[-1].as_py()) == repr(_alone(kind, rescues=rescues))
    return good


def _alone(kind: pa.DataType, *, rescues: bool) -> Any:
    column = JsonColumn("value", kind, MAX_BYTES, BadRecordPolicy("null"), rescues=rescues)
    column.decode(pa.array([VALID], pa.binary()), 0, 1)
    return column.take().to_pylist()[0]
