"""
Avro values of arbitrary bytes, and the invariants that the decoder must keep for each.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fuzz.decoding import decode_all, joined_pieces

from pyspark_pykafka.formats.avro_decoder import AvroColumn
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.registered_avro import RegisteredAvroColumn
from pyspark_pykafka.formats.registered_schemas import UnusableSchemaError

if TYPE_CHECKING:
    from fuzz.mutations import Choices

    from pyspark_pykafka.formats.avro_schema import AvroType
    from pyspark_pykafka.formats.schema_names import SchemaName

MAX_BYTES = 1 << 16

_MAX_DEPTH = 4
_TIME = pa.timestamp("us", tz="UTC")
# Schemas that have no parts, with the type of their column.
_SIMPLE: list[tuple[Any, pa.DataType]] = [
    *(("null", pa.string()), ("boolean", pa.bool_()), ("int", pa.int32()), ("int", pa.float64())),
    *(("long", pa.int64()), ("float", pa.float32()), ("double", pa.float64())),
    *(("bytes", pa.binary()), ("bytes", pa.string()), ("string", pa.string())),
    ({"type": "enum", "name": "E", "symbols": ["A", "B", ""]}, pa.string()),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary()),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "long", "logicalType": "timestamp-millis"}, _TIME),
    ({"type": "long", "logicalType": "timestamp-nanos"}, _TIME),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        pa.decimal128(9, 2),
    ),
]
# Numbers, sizes and counts that are likely to break a decoder, in zigzag form.
_PIECES = (
    *(b"\x00", b"\x01", b"\x02", b"\x04", b"\x06", b"\x7f", b"\x80", b"abc", b"\xc3\xa9"),
    *(b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x03\x04\x02\x04"),
)


def any_schema(choices: Choices, names: list[str], depth: int = 0) -> tuple[Any, pa.DataType]:
    """
    Return a schema, which may be nested, and its column's type; ``names`` are the names in use.
    """
    kind = choices.number(0, 4 if depth < _MAX_DEPTH else 0)
    if kind == 0:
        schema, arrow = _SIMPLE[choices.number(0, len(_SIMPLE) - 1)]
        return _renamed(schema, names), arrow
    if kind == 3:
        return _record(choices, names, depth)
    inner, arrow = any_schema(choices, names, depth + 1)
    if kind == 1:
        return {"type": "array", "items": inner}, pa.list_(arrow)
    if kind == 2:
        return {"type": "map", "values": inner}, pa.map_(pa.string(), arrow)
    return (inner if inner == "null" or isinstance(inner, list) else ["null", inner]), arrow


def _renamed(schema: Any, names: list[str]) -> Any:
    if not isinstance(schema, dict) or "name" not in schema:
        return schema
    names.append(f"{schema['name']}{len(names)}")
    return {**schema, "name": names[-1]}


def _record(choices: Choices, names: list[str], depth: int) -> tuple[Any, pa.DataType]:
    names.append(f"R{len(names)}")
    record_name = names[-1]
    fields, columns = [], []
    for number in range(choices.number(1, 4)):
        schema, arrow = any_schema(choices, names, depth + 1)
        fields.append({"name": f"f{number}", "type": schema})
        if number == 0 or choices.number(0, 2):
            columns.append((f"f{number}", arrow))
    return {"type": "record", "name": record_name, "fields": fields}, pa.struct(columns)


def values(choices: Choices) -> list[bytes | None]:
    """
    Return some records, made of typical pieces of a value or of arbitrary bytes.
    """
    return joined_pieces(choices, _PIECES)


def decode_any(records: list[bytes | None], choices: Choices) -> int:
    """
    Decode records with any schema, check the invariants, and return the number of good ones.
    """
    schema, kind = any_schema(choices, [])
    policy = BadRecordPolicy("null")
    column = AvroColumn("value", kind, json.dumps(schema), MAX_BYTES, policy)
    good, _ = decode_all(records, column, MAX_BYTES)
    return good


class _Writers:
    """
    Stands in for a registry: some ids have a schema, and others cannot be used.
    """

    def __init__(self, schemas: list[AvroType]) -> None:
        self._schemas = schemas

    def find(self, name: SchemaName) -> AvroType:
        """
        Return one of the schemas, by the last bits of an id.
        """
        number = int(name.value) if name.kind == "id" else 0
        if number % 4 == 3:
            msg = "unknown"
            raise UnusableSchemaError(msg)
        return self._schemas[number % len(self._schemas)]


def decode_named(records: list[bytes | None], choices: Choices) -> int:
    """
    Decode records that name any of several writer's schemas, all with one reader's schema.
    """
    reader, kind = any_schema(choices, [])
    writers = [parse_avro(json.dumps(any_schema(choices, [])[0])) for _ in range(2)]
    writers.append(parse_avro(json.dumps(reader)))
    id_bytes = (4, 8)[choices.number(0, 1)]
    column = RegisteredAvroColumn(
        *("value", kind, json.dumps(reader), MAX_BYTES, BadRecordPolicy("null")),
        id_bytes=id_bytes,
        writers=_Writers(writers),
    )
    framed = [None if record is None else _prefix(choices, id_bytes) + record for record in records]
    good, _ = decode_all(framed, column, MAX_BYTES)
    return good


def _prefix(choices: Choices, id_bytes: int) -> bytes:
    """
    Return the id of a schema; rarely it is cut off or has another form.
    """
    prefix = choices.number(0, 9).to_bytes(1 + id_bytes, "big")
    return prefix if choices.number(0, 7) else choices.some_bytes(1 + id_bytes)
