"""
Derives Spark's DDL from Avro schemas. Types map as in Spark's ``from_avro``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.formats.avro_times import TIMES, TIMESTAMP

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

_DDL = {
    "null": "VOID",
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


def avro_ddl(kind: AvroType) -> str:
    """
    Return the DDL of the type that Spark's ``from_avro`` derives from a schema.
    """
    if kind.kind == "record":
        return _struct_ddl(kind.fields)
    if kind.kind == "array":
        return f"ARRAY<{avro_ddl(kind.fields[0][1])}>"
    if kind.kind == "map":
        return f"MAP<STRING, {avro_ddl(kind.fields[1][1])}>"
    return _union_ddl(kind) if kind.kind == "union" else _simple_ddl(kind)


def _simple_ddl(kind: AvroType) -> str:
    if kind.logical == "decimal":
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind.logical == "date":
        return "DATE"
    if kind.logical in TIMES:
        return "TIMESTAMP" if TIMES[kind.logical][0] == TIMESTAMP else "TIMESTAMP_NTZ"
    return _DDL[kind.kind]


def _struct_ddl(fields: tuple[tuple[str, AvroType], ...]) -> str:
    return f"STRUCT<{', '.join(f'`{name}`: {avro_ddl(kind)}' for name, kind in fields)}>"


def _union_ddl(union: AvroType) -> str:
    branches = union.branches
    kinds = {branch.kind for branch in branches}
    has_no_logical_types = not any(branch.logical for branch in branches)
    if len(branches) == 1:
        return avro_ddl(branches[0])
    if has_no_logical_types and kinds == {"int", "long"}:
        return "BIGINT"
    if has_no_logical_types and kinds == {"float", "double"}:
        return "DOUBLE"
    if not branches:
        return "VOID"
    return _struct_ddl(tuple(pair for pair in union.fields if pair[1].kind != "null"))
