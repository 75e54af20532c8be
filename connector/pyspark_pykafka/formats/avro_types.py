"""
Derives Spark's DDL from Avro schemas. Types map as in Spark's ``from_avro``, except that types
without values are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.formats.avro_times import TIMES, TIMESTAMP

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

_DDL = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}


def avro_ddl(avro_type: AvroType) -> str | None:
    """
    Return the DDL of the type that Spark's ``from_avro`` derives from a schema.

    Records without fields and the type null are left out, like Protobuf messages without fields:
    they have no column type. Returns None if nothing is left.
    """
    if avro_type.kind == "record":
        return _struct_ddl(avro_type.fields)
    if avro_type.kind in {"array", "map"}:
        item = avro_ddl(avro_type.fields[-1][1])
        start = "ARRAY<" if avro_type.kind == "array" else "MAP<STRING, "
        return None if item is None else f"{start}{item}>"
    return _union_ddl(avro_type) if avro_type.kind == "union" else _simple_ddl(avro_type)


def _simple_ddl(avro_type: AvroType) -> str | None:
    if avro_type.logical == "decimal":
        return f"DECIMAL({avro_type.precision}, {avro_type.scale})"
    if avro_type.logical == "date":
        return "DATE"
    if avro_type.logical in TIMES:
        return "TIMESTAMP" if TIMES[avro_type.logical][0] == TIMESTAMP else "TIMESTAMP_NTZ"
    return _DDL.get(avro_type.kind)


def _struct_ddl(fields: tuple[tuple[str, AvroType], ...]) -> str | None:
    inner = [(name, avro_ddl(avro_type)) for name, avro_type in fields]
    listed = ", ".join(f"`{name}`: {ddl}" for name, ddl in inner if ddl is not None)
    return f"STRUCT<{listed}>" if listed else None


def _union_ddl(union: AvroType) -> str | None:
    branches = union.non_null_branches
    kinds = {branch.kind for branch in branches}
    has_no_logical_types = not any(branch.logical for branch in branches)
    if len(branches) == 1:
        return avro_ddl(branches[0])
    if has_no_logical_types and kinds == {"int", "long"}:
        return "BIGINT"
    if has_no_logical_types and kinds == {"float", "double"}:
        return "DOUBLE"
    return _struct_ddl(union.fields)
