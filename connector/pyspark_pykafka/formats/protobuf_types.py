"""
Derives Spark's DDL from Protobuf messages, and lists the column types of each kind of field.

Types map as in Spark's ``from_protobuf``, except that unsigned numbers never become negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.formats.avro_schema import MAX_TYPES
from pyspark_pykafka.formats.column_types import MAX_TYPE_DEPTH
from pyspark_pykafka.formats.protobuf_definitions import (
    BOOL,
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    MESSAGE,
    STRING,
    ProtobufSchemaError,
)

if TYPE_CHECKING:
    from pyspark_pykafka.formats.protobuf_definitions import (
        ProtobufField,
        ProtobufMessage,
        ProtobufSchema,
    )

# A longer example of a type is not shown.
_MAX_EXAMPLE = 1000

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_DURATION = pa.duration("us")
_UINT64 = pa.decimal128(20, 0)
TIMES = {"google.protobuf.Timestamp": _TIMESTAMP, "google.protobuf.Duration": _DURATION}

_INTS, _LONGS = (pa.int32(), pa.int64()), (pa.int64(),)
_UINTS, _ULONGS = (pa.int64(), pa.int32()), (_UINT64, pa.int64())
# The column types of each kind; the first is the type in its DDL.
COLUMNS: dict[int, tuple[pa.DataType, ...]] = {
    DOUBLE: (pa.float64(),),
    FLOAT: (pa.float32(), pa.float64()),
    BOOL: (pa.bool_(),),
    STRING: (pa.string(), pa.binary()),
    BYTES: (pa.binary(), pa.string()),
    ENUM: (pa.string(), pa.int32()),
    **dict.fromkeys((5, 15, 17), _INTS),
    **dict.fromkeys((3, 16, 18), _LONGS),
    **dict.fromkeys((7, 13), _UINTS),
    **dict.fromkeys((4, 6), _ULONGS),
}
DDL = {
    pa.float64(): "DOUBLE",
    pa.float32(): "FLOAT",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    _UINT64: "DECIMAL(20, 0)",
    _TIMESTAMP: "TIMESTAMP",
    _DURATION: "INTERVAL DAY TO SECOND",
}


def protobuf_ddl(schema: ProtobufSchema, name: str) -> str:
    """
    Return the DDL of the type of a message.

    As in Spark, messages without fields are left out. Raises :class:`ProtobufSchemaError` if the
    message is missing, has no fields, is too large or contains itself. For a message that contains
    itself, the user must give a schema.
    """
    writer = _Ddl(schema)
    ddl = writer.message(schema.message(name), (), "")
    if writer.recursion:
        raise ProtobufSchemaError(_recursion_text(writer.recursion, ddl))
    if ddl is None:
        msg = f"the message '{name}' has no fields"
        raise ProtobufSchemaError(msg)
    return ddl


def _recursion_text(recursion: str, ddl: str | None) -> str:
    example = "" if ddl is None or len(ddl) > _MAX_EXAMPLE else f". Without such fields: {ddl}"
    return (
        f"{recursion}, which no column type can; name the fields to read with .schema(...), as "
        f"deep as you need them{example}"
    )


@dataclass(slots=True)
class _Ddl:
    """
    Writes the DDL of messages. ``count`` is the number of types so far, and ``recursion`` names the
    first field whose message contains the field; such fields are left out.
    """

    schema: ProtobufSchema
    count: int = 0
    recursion: str = ""

    def message(self, message: ProtobufMessage, outer: tuple[str, ...], path: str) -> str | None:
        """
        Return the DDL of a message, or None if it has no fields; ``outer`` has the names of the
        messages that contain it.
        """
        if message.name in outer:
            self.recursion = self.recursion or (
                f"the message '{message.name}' contains itself in the field '{path}'"
            )
            return None
        self.count += 1 + len(message.fields)
        if len(outer) >= MAX_TYPE_DEPTH or self.count > MAX_TYPES:
            limits = f"it has more than {MAX_TYPE_DEPTH} levels, or {MAX_TYPES} types"
            msg = _recursion_text(self.recursion, None) if self.recursion else limits
            raise ProtobufSchemaError(msg)
        outer = (*outer, message.name)
        prefix = f"{path}." if path else ""
        inner = [(f.name, self.field(f, outer, f"{prefix}{f.name}")) for f in message.fields]
        fields = ", ".join(f"`{name}`: {ddl}" for name, ddl in inner if ddl is not None)
        return f"STRUCT<{fields}>" if fields else None

    def field(self, member: ProtobufField, outer: tuple[str, ...], path: str) -> str | None:
        if member.kind != MESSAGE:
            ddl: str | None = DDL[columns_of(member)[0]]
        elif member.type_name in TIMES:
            ddl = DDL[TIMES[member.type_name]]
        else:
            message = self.schema.message(member.type_name)
            if member.repeated and message.is_map_entry:
                key, value = entry_of(message)
                inner = self.field(value, outer, f"{path}.value")
                return None if inner is None else f"MAP<{self.field(key, outer, path)}, {inner}>"
            ddl = self.message(message, outer, path)
        return f"ARRAY<{ddl}>" if member.repeated and ddl is not None else ddl


def columns_of(member: ProtobufField) -> tuple[pa.DataType, ...]:
    """
    Return the column types that a field may have; the first one is the type in its DDL.

    Raises :class:`ProtobufSchemaError` for an unknown kind.
    """
    types = COLUMNS.get(member.kind)
    if types is None:
        msg = f"its field '{member.name}' has the unknown type {member.kind}"
        raise ProtobufSchemaError(msg)
    return types


def entry_of(message: ProtobufMessage) -> tuple[ProtobufField, ProtobufField]:
    """
    Return the key and the value of a map's entry.

    Raises :class:`ProtobufSchemaError` unless it has exactly these two fields.
    """
    members = {member.number: member for member in message.fields}
    if set(members) != {1, 2}:
        msg = f"the entry of a map, '{message.name}', must have a key and a value"
        raise ProtobufSchemaError(msg)
    return members[1], members[2]
