"""
The Arrow types of decoded and encoded columns, with the numbers that the compiled modules use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.schema import null_mistakes

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The compiled decoders' plan of a column: (kind, name, precision, scale, children).
Plan = tuple[int, str, int, int, list[Any]]

_STRUCT, _LIST, _MAP = range(3)
_DECIMAL = 12
_SIMPLE_KINDS: dict[pa.DataType, int] = {
    pa.string(): 3,
    pa.binary(): 4,
    pa.bool_(): 5,
    pa.int8(): 6,
    pa.int16(): 7,
    pa.int32(): 8,
    pa.int64(): 9,
    pa.float32(): 10,
    pa.float64(): 11,
    pa.date32(): 13,
    pa.timestamp("us", tz="UTC"): 14,
    pa.timestamp("us"): 15,
}

# Spark's names of the types, for messages.
_SPARK_NAMES = {
    3: "STRING",
    4: "BINARY",
    5: "BOOLEAN",
    6: "TINYINT",
    7: "SMALLINT",
    8: "INT",
    9: "BIGINT",
    10: "FLOAT",
    11: "DOUBLE",
    13: "DATE",
    14: "TIMESTAMP",
    15: "TIMESTAMP_NTZ",
}

#: A more deeply nested schema is rejected, because the decoder is recursive.
MAX_TYPE_DEPTH = 100


def inner_fields(kind: pa.DataType) -> list[pa.Field]:
    """
    Return the fields of a struct, the element of a list, or the key and the value of a map.
    """
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) else []


def plan(name: str, kind: pa.DataType) -> Plan:
    """
    Return the compiled decoders' plan for a checked type.
    """
    if pa.types.is_decimal(kind):
        return _DECIMAL, name, kind.precision, kind.scale, []
    if kind in _SIMPLE_KINDS:
        return _SIMPLE_KINDS[kind], name, 0, 0, []
    if pa.types.is_duration(kind):
        # An interval is a 64-bit number too, but JSON texts are not decoded into it.
        return _SIMPLE_KINDS[pa.int64()], name, 0, 0, []
    inner = [plan(field.name, field.type) for field in inner_fields(kind)]
    return kind_number(kind), name, 0, 0, inner


def kind_number(kind: pa.DataType) -> int:
    """
    Return the compiled modules' number for a type, or -1 if they do not support it.
    """
    if _is_decimal(kind):
        return _DECIMAL
    if pa.types.is_struct(kind):
        return _STRUCT
    if pa.types.is_map(kind):
        return _MAP
    return _LIST if pa.types.is_list(kind) else _SIMPLE_KINDS.get(kind, -1)


def named_types(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    """
    Yield (path, Spark's name of the type) for a type and its nested types, in the order of the
    plan.
    """
    yield path, spark_name(kind)
    for field in inner_fields(kind):
        yield from named_types(f"{path}.{field.name}", field.type)


def spark_name(kind: pa.DataType) -> str:
    """
    Return Spark's name of a checked type or of VOID, for messages.
    """
    if pa.types.is_null(kind):
        return "VOID"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if kind in _SIMPLE_KINDS:
        return _SPARK_NAMES[_SIMPLE_KINDS[kind]]
    if pa.types.is_duration(kind):
        return "INTERVAL DAY TO SECOND"
    if pa.types.is_struct(kind):
        return "a STRUCT"
    return "a MAP" if pa.types.is_map(kind) else "an ARRAY"


def type_mistakes(field: pa.Field, path: str, depth: int = 1) -> list[str]:
    """
    Return the reasons why a field cannot be decoded from JSON or Avro, one text for each mistake.
    """
    kind = field.type
    if depth > MAX_TYPE_DEPTH:
        return [f"'{path}' is nested too deeply; it must be: at most {MAX_TYPE_DEPTH} levels"]
    mistakes = null_mistakes(field, path)
    inner = inner_fields(kind)
    if pa.types.is_struct(kind):
        mistakes += _struct_mistakes(inner, path)
    elif pa.types.is_map(kind):
        if kind.key_type != pa.string():
            mistakes.append(f"the keys of '{path}' must be: STRING, as in JSON and Avro")
        inner = inner[1:]
    elif not pa.types.is_list(kind) and kind not in _SIMPLE_KINDS and not _is_decimal(kind):
        mistakes.append(
            f"'{path}' has a type that values cannot be decoded into; it must be: STRUCT, ARRAY, "
            "MAP, STRING, BINARY, BOOLEAN, a number, DATE, TIMESTAMP or TIMESTAMP_NTZ"
        )
    return mistakes + [m for f in inner for m in type_mistakes(f, f"{path}.{f.name}", depth + 1)]


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind))


def _struct_mistakes(fields: list[pa.Field], path: str) -> list[str]:
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    mistakes = [f"'{path}' has the field '{name}' twice" for name in twice]
    return mistakes if fields else [f"'{path}' is a STRUCT without fields; add at least one"]


def plan_size(kind: pa.DataType) -> int:
    """
    Return the number of types in a column's plan.
    """
    return 1 + sum(plan_size(f.type) for f in inner_fields(kind))
