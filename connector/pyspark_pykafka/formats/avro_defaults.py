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


def encode_default(avro_type: AvroType, text: str) -> bytes:
    """
    Return a default, given as JSON ``text``, in the encoding of its type.

    Raises ValueError if the default is not a value of the type.
    """
    try:
        return _encode(avro_type, json.loads(text))
    except (RecursionError, OverflowError, UnicodeEncodeError) as cause:
        raise ValueError(text) from cause


def _encode(avro_type: AvroType, value: Any) -> bytes:
    if avro_type.kind == "union":
        return _encode_branch(avro_type, value)
    if avro_type.kind in _RANGES:
        limit = _RANGES[avro_type.kind]
        _check(type(value) is int and -limit <= value < limit, avro_type)
        return zigzag_varint(value)
    if avro_type.kind in _FORMATS:
        _check(type(value) in {int, float}, avro_type)
        return struct.pack(_FORMATS[avro_type.kind], value)
    if avro_type.kind in {"record", "array", "map"}:
        return _encode_nested(avro_type, value)
    return _encode_simple(avro_type, value)


def _encode_simple(avro_type: AvroType, value: Any) -> bytes:
    if avro_type.kind == "null":
        _check(value is None, avro_type)
        return b""
    if avro_type.kind == "boolean":
        _check(isinstance(value, bool), avro_type)
        return b"\x01" if value else b"\x00"
    _check(isinstance(value, str), avro_type)
    if avro_type.kind == "enum":
        _check(value in avro_type.symbols, avro_type)
        return zigzag_varint(avro_type.symbols.index(value))
    # In a default of type bytes or fixed, each character stands for the byte with its code point.
    encoded: bytes = value.encode("utf-8" if avro_type.kind == "string" else "latin-1")
    if avro_type.kind == "fixed":
        _check(len(encoded) == avro_type.size, avro_type)
        return encoded
    return zigzag_varint(len(encoded)) + encoded


def _encode_nested(avro_type: AvroType, value: Any) -> bytes:
    if avro_type.kind == "array":
        _check(isinstance(value, list), avro_type)
        items = [_encode(avro_type.fields[0][1], item) for item in value]
        return _blocks(items)
    _check(isinstance(value, dict), avro_type)
    if avro_type.kind == "map":
        key = avro_type.fields[0][1]
        return _blocks(
            [_encode(key, k) + _encode(avro_type.fields[1][1], v) for k, v in value.items()]
        )
    parts: list[bytes] = []
    for (name, inner), default in zip(avro_type.fields, avro_type.field_defaults, strict=True):
        _check(name in value or default is not None, avro_type)
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


def _check(is_valid: object, avro_type: AvroType) -> None:
    if not is_valid:
        msg = f"it is not a valid {avro_type.kind}"
        raise ValueError(msg)
