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


def arrow_type(avro_type: AvroType) -> pa.DataType:
    """
    Return the Arrow type of a column with this Avro schema.
    """
    if avro_type.logical == "decimal":
        return pa.decimal128(avro_type.precision, avro_type.scale)
    if avro_type.logical == "date":
        return pa.date32()
    if avro_type.logical:
        return pa.timestamp("us", tz=None if "local" in avro_type.logical else "UTC")
    if avro_type.kind == "record":
        return pa.struct([(name, arrow_type(inner)) for name, inner in avro_type.fields])
    if avro_type.kind in {"array", "map"}:
        item = arrow_type(avro_type.fields[-1][1])
        return pa.list_(item) if avro_type.kind == "array" else pa.map_(pa.string(), item)
    return _union(avro_type) if avro_type.kind == "union" else SIMPLE[avro_type.kind]


def _union(avro_type: AvroType) -> pa.DataType:
    kinds = {branch.kind for branch in avro_type.non_null_branches}
    if len(avro_type.non_null_branches) == 1:
        return arrow_type(avro_type.non_null_branches[0])
    if kinds == {"int", "long"}:
        return pa.int64()
    if kinds == {"float", "double"}:
        return pa.float64()
    return pa.struct([(name, arrow_type(b)) for name, b in avro_type.fields if b.kind != "null"])
