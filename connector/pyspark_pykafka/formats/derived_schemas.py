"""
Derives the schemas of encoded values from the types of columns.

Avro schemas equal those of Spark's ``to_avro``, except that the top level is not nullable.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from pyspark_pykafka.formats.column_types import inner_fields

#: Spark's name for the record of the whole value.
RECORD_NAME = "topLevelRecord"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AVRO: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}
_INTEGER, _NUMBER, _STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
_JSON: dict[pa.DataType, dict[str, Any]] = {
    pa.bool_(): {"type": "boolean"},
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), _INTEGER),
    **dict.fromkeys((pa.float32(), pa.float64()), _NUMBER),
    pa.string(): _STRING,
    pa.binary(): {"type": "string", "contentEncoding": "base64"},
    pa.date32(): {"type": "string", "format": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "string", "format": "date-time"},
    pa.timestamp("us"): _STRING,
}


def avro_schema(kind: pa.DataType, record_name: str | None = None) -> str:
    """
    Return the Avro schema of a checked type as JSON text; ``record_name`` may have a namespace.
    """
    namespace, _, name = (record_name or RECORD_NAME).rpartition(".")
    return json.dumps(_avro(kind, name, namespace))


def _avro(kind: pa.DataType, name: str, namespace: str) -> Any:
    if pa.types.is_struct(kind):
        inner_namespace = f"{namespace}.{name}" if namespace else name
        fields = [
            {"name": field.name, "type": _nullable(field, field.name, inner_namespace)}
            for field in kind
        ]
        attributes = {"namespace": namespace} if namespace else {}
        return {"type": "record", "name": name, **attributes, "fields": fields}
    if pa.types.is_map(kind):
        return {"type": "map", "values": _nullable(kind.item_field, name, namespace)}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name, namespace)}
    if pa.types.is_decimal(kind):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}" if namespace else name,
            "size": _decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    return _AVRO[kind]


def _nullable(field: pa.Field, name: str, namespace: str) -> Any:
    kind = _avro(field.type, name, namespace)
    return [kind, "null"] if field.nullable else kind


def _decimal_bytes(precision: int) -> int:
    return int(10**precision - 1).bit_length() // 8 + 1


def avro_name_mistakes(kind: pa.DataType, path: str) -> list[str]:
    """
    Return a mistake for each field whose name Avro does not allow.
    """
    mistakes = [
        f"'{path}.{field.name}' is not an Avro name (letters, digits and underscores only); "
        "rename it"
        for field in (kind if pa.types.is_struct(kind) else ())
        if not _NAME.fullmatch(field.name)
    ]
    inner = [m for f in inner_fields(kind) for m in avro_name_mistakes(f.type, f"{path}.{f.name}")]
    return mistakes + inner


def json_schema(kind: pa.DataType, record_name: str | None = None, *, keeps_nulls: bool) -> str:
    """
    Return the JSON Schema of a checked type as text; ``record_name`` is its title.
    """
    title = {} if record_name is None else {"title": record_name}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", **title}
    return json.dumps(head | _json(kind, keeps_nulls=keeps_nulls))


def _json(kind: pa.DataType, *, keeps_nulls: bool) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        properties = {
            field.name: _json_element(field, keeps_nulls=keeps_nulls, may_be_null=keeps_nulls)
            for field in kind
        }
        return {"type": "object", "properties": properties}
    if pa.types.is_map(kind):
        item = _json_element(kind.item_field, keeps_nulls=keeps_nulls)
        return {"type": "object", "additionalProperties": item}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _json_element(kind.value_field, keeps_nulls=keeps_nulls)}
    return _NUMBER if pa.types.is_decimal(kind) else _JSON[kind]


def _json_element(
    field: pa.Field, *, keeps_nulls: bool, may_be_null: bool = True
) -> dict[str, Any]:
    schema = _json(field.type, keeps_nulls=keeps_nulls)
    return {"oneOf": [{"type": "null"}, schema]} if field.nullable and may_be_null else schema
