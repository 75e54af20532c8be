"""
The Arrow types of Avro schemas, as Spark's ``from_avro`` maps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

SIMPLE = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}


def arrow_type(kind: AvroType) -> pa.DataType:
    """
    Return the Arrow type of a column with this Avro schema.
    """
    if kind.logical == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.logical == "date":
        return pa.date32()
    if kind.logical:
        return pa.timestamp("us", tz=None if "local" in kind.logical else "UTC")
    if kind.kind == "record":
        return pa.struct([(name, arrow_type(inner)) for name, inner in kind.fields])
    if kind.kind in {"array", "map"}:
        item = arrow_type(kind.fields[-1][1])
        return pa.list_(item) if kind.kind == "array" else pa.map_(pa.string(), item)
    return _union(kind) if kind.kind == "union" else SIMPLE[kind.kind]


def _union(kind: AvroType) -> pa.DataType:
    kinds = {branch.kind for branch in kind.branches}
    if len(kind.branches) == 1:
        return arrow_type(kind.branches[0])
    if kinds == {"int", "long"}:
        return pa.int64()
    if kinds == {"float", "double"}:
        return pa.float64()
    return pa.struct([(name, arrow_type(b)) for name, b in kind.fields if b.kind != "null"])
