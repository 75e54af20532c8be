"""
Encodes the defaults of fields in Avro's binary encoding.

A default is JSON. The default of a union is a value of its first branch; newer versions of Avro
allow any branch.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.varint import zigzag_varint

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

_RANGES = {"int": 1 << 31, "long": 1 << 63}
_FORMATS = {"float": "<f", "double": "<d"}


def encode_default(kind: AvroType, text: str) -> bytes:
    """
    Return a default, given as JSON ``text``, in the encoding of its type.

    Raises ValueError if the default is not a value of the type.
    """
    try:
        return _encode(kind, json.loads(text))
    except (RecursionError, OverflowError, UnicodeEncodeError) as cause:
        raise ValueError(text) from cause


def _encode(kind: AvroType, value: Any) -> bytes:
    if kind.kind == "union":
        return _encode_branch(kind, value)
    if kind.kind in _RANGES:
        limit = _RANGES[kind.kind]
        _check(type(value) is int and -limit <= value < limit, kind)
        return zigzag_varint(value)
    if kind.kind in _FORMATS:
        _check(type(value) in {int, float}, kind)
        return struct.pack(_FORMATS[kind.kind], value)
    if kind.kind in {"record", "array", "map"}:
        return _encode_nested(kind, value)
    return _encode_simple(kind, value)


def _encode_simple(kind: AvroType, value: Any) -> bytes:
    if kind.kind == "null":
        _check(value is None, kind)
        return b""
    if kind.kind == "boolean":
        _check(isinstance(value, bool), kind)
        return b"\x01" if value else b"\x00"
    _check(isinstance(value, str), kind)
    if kind.kind == "enum":
        _check(value in kind.symbols, kind)
        return zigzag_varint(kind.symbols.index(value))
    # In a default of type bytes or fixed, each character stands for the byte with its code point.
    encoded: bytes = value.encode("utf-8" if kind.kind == "string" else "latin-1")
    if kind.kind == "fixed":
        _check(len(encoded) == kind.size, kind)
        return encoded
    return zigzag_varint(len(encoded)) + encoded


def _encode_nested(kind: AvroType, value: Any) -> bytes:
    if kind.kind == "array":
        _check(isinstance(value, list), kind)
        items = [_encode(kind.fields[0][1], item) for item in value]
        return _blocks(items)
    _check(isinstance(value, dict), kind)
    if kind.kind == "map":
        key = kind.fields[0][1]
        return _blocks([_encode(key, k) + _encode(kind.fields[1][1], v) for k, v in value.items()])
    parts: list[bytes] = []
    for (name, inner), default in zip(kind.fields, kind.field_defaults, strict=True):
        _check(name in value or default is not None, kind)
        parts.append(_encode(inner, value[name] if name in value else json.loads(str(default))))
    return b"".join(parts)


def _encode_branch(union: AvroType, value: Any) -> bytes:
    for number, (_, branch) in enumerate(union.fields):
        try:
            return zigzag_varint(number) + _encode(branch, value)
        except ValueError:
            continue
    msg = "no branch of the union has this value"
    raise ValueError(msg)


def _blocks(items: list[bytes]) -> bytes:
    return (zigzag_varint(len(items)) + b"".join(items) if items else b"") + b"\x00"


def _check(is_valid: object, kind: AvroType) -> None:
    if not is_valid:
        msg = f"it is not a valid {kind.kind}"
        raise ValueError(msg)
