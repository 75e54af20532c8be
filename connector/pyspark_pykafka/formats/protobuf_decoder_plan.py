"""
Matches Protobuf messages with a column's type, and plans the compiled decoder's work.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.formats.column_types import (
    MAX_TYPE_DEPTH,
    inner_fields,
    plan_size,
    spark_name,
)
from pyspark_pykafka.formats.protobuf_definitions import (
    BOOL,
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    MESSAGE,
    STRING,
    TYPE_NAMES,
    WRAPPERS,
    ProtobufSchemaError,
)
from pyspark_pykafka.formats.protobuf_descriptors import varint
from pyspark_pykafka.formats.protobuf_types import COLUMNS, DDL, TIMES, columns_of, entry_of
from pyspark_pykafka.schema import null_mistakes
from pyspark_pykafka.varint import zigzag_varint

if TYPE_CHECKING:
    from pyspark_pykafka.formats.protobuf_definitions import (
        ProtobufEnum,
        ProtobufField,
        ProtobufMessage,
        ProtobufSchema,
    )

#: A field for the compiled decoder: (number, kind, column or -1, repeated, oneof or -1, default,
#: enum, message).
FieldPlan = tuple[int, int, int, bool, int, "bytes | None", "EnumPlan | None", "Any"]

#: A message for the compiled decoder: (is entry, fields). ``is entry`` is true for a map's entry,
#: and for a wrapper that is decoded as its value.
MessagePlan = tuple[bool, list[FieldPlan]]

#: An enum for the compiled decoder: (is closed, prefix of the names for numbers without a symbol,
#: (number, symbol) pairs).
EnumPlan = tuple[bool, str, list[tuple[int, str]]]

# Kinds of fields that only the compiled decoder has; _protobuf.pyx describes them.
_TIME, _UNWRAPPED, _REMOVING = 19, 20, 21
_FIXED_BYTES = {DOUBLE: 8, FLOAT: 4, 6: 8, 7: 4, 15: 4, 16: 8}
_ZIGZAG = frozenset({17, 18})


def message_plan(
    schema: ProtobufSchema, name: str, kind: pa.DataType, path: str
) -> tuple[MessagePlan, list[str]]:
    """
    Return the compiled decoder's plan for reading a message into a column's type, and the mistakes.

    Raises :class:`ProtobufSchemaError` if the schema lacks the message, or a nested message that
    the type needs.
    """
    matching = _Matching(schema)
    message = schema.message(name)
    if not pa.types.is_struct(kind):
        actual = spark_name(kind)
        matching.mistakes.append(f"'{path}' is {actual} in the schema; it must be: a STRUCT")
        return (False, []), matching.mistakes
    return matching.message(message, kind, 0, path, 1), matching.mistakes


@dataclass(slots=True)
class _Matching:
    """
    Matches messages with columns' types; ``number`` is a type's index in the plan of columns.
    """

    schema: ProtobufSchema
    mistakes: list[str] = field(default_factory=list)

    def message(
        self, message: ProtobufMessage, kind: pa.DataType, number: int, path: str, depth: int
    ) -> MessagePlan:
        columns: dict[str, tuple[pa.Field, int]] = {}
        self._check_struct(message, kind, path)
        if depth > MAX_TYPE_DEPTH:
            self.mistakes.append(
                f"'{path}' is nested too deeply; it must be: at most {MAX_TYPE_DEPTH} levels"
            )
            return False, []
        number += 1
        for struct_field in kind:
            columns[struct_field.name] = (struct_field, number)
            number += plan_size(struct_field.type)
        oneofs = {f.oneof for f in message.fields if f.name in columns and f.oneof >= 0}
        plans: list[FieldPlan] = []
        for member in sorted(message.fields, key=lambda f: f.number):
            if member.name in columns:
                struct_field, column = columns[member.name]
                plans += self.member(member, struct_field, column, f"{path}.{member.name}", depth)
            elif member.oneof in oneofs:
                plans.append(_plan(member, _REMOVING, -1, oneof=member.oneof))
        return False, plans

    def _check_struct(self, message: ProtobufMessage, kind: pa.DataType, path: str) -> None:
        names, field_names = [f.name for f in kind], [f.name for f in message.fields]
        if not names:
            self.mistakes.append(f"'{path}' is a STRUCT without fields; add at least one")
        for name in names:
            if name not in field_names:
                near = get_close_matches(name, field_names, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "remove it from the schema"
                self.mistakes.append(
                    f"'{path}.{name}' is not in the message '{message.name}'; {hint}"
                )
        twice = sorted({name for name in names if names.count(name) > 1})
        self.mistakes += [f"'{path}' has the field '{name}' twice" for name in twice]

    def member(
        self, member: ProtobufField, struct_field: pa.Field, number: int, path: str, depth: int
    ) -> list[FieldPlan]:
        """
        Return the plan of a field, or an empty list if its type does not match.
        """
        self.mistakes += null_mistakes(struct_field, path)
        kind = struct_field.type
        if not member.repeated:
            plan = self.single(member, kind, number, path, depth)
            return [] if plan is None else [plan]
        message = self.schema.message(member.type_name) if member.kind == MESSAGE else None
        if message is not None and message.is_map_entry:
            entries = self.map(message, kind, number, path, depth)
            if entries is None:
                return []
            return [_plan(member, MESSAGE, number, repeated=True, message=(True, entries))]
        if not pa.types.is_list(kind):
            actual = spark_name(kind)
            self.mistakes.append(f"'{path}' is {actual} in the schema; it must be: an ARRAY")
            return []
        self._check_nullable(kind.value_field, path)
        plan = self.single(member, kind.value_type, number + 1, f"{path}.element", depth + 1)
        return [] if plan is None else [(*plan[:2], number, True, *plan[4:])]

    def _check_nullable(self, element: pa.Field, path: str) -> None:
        if not element.nullable:
            self.mistakes.append(f"the elements of '{path}' are NOT NULL; they must be nullable")

    def map(
        self, entry: ProtobufMessage, kind: pa.DataType, number: int, path: str, depth: int
    ) -> list[FieldPlan] | None:
        """
        Return the plans of a map's key and value, or None if their types do not match.
        """
        if not pa.types.is_map(kind):
            self.mistakes.append(f"'{path}' is {spark_name(kind)} in the schema; it must be: a MAP")
            return None
        self._check_nullable(kind.item_field, path)
        plans: list[FieldPlan] = []
        next_number = number + 1
        for member, inner in zip(entry_of(entry), inner_fields(kind), strict=True):
            plan = self.single(member, inner.type, next_number, f"{path}.{member.name}", depth + 1)
            if plan is None:
                return None
            # A key or value that an entry lacks is the zero value of its type.
            plans.append((*plan[:5], self._zero(member), *plan[6:]))
            next_number += plan_size(inner.type)
        return plans

    def _zero(self, member: ProtobufField) -> bytes:
        if member.kind == MESSAGE:
            return b""
        if member.kind == ENUM:
            symbols = self.schema.enum(member.type_name).symbols
            return varint(symbols[0][0] if symbols else 0)
        return bytes(_FIXED_BYTES.get(member.kind, 1))

    def single(
        self, member: ProtobufField, kind: pa.DataType, number: int, path: str, depth: int
    ) -> FieldPlan | None:
        if member.kind == MESSAGE:
            return self.nested_message(member, kind, number, path, depth)
        if kind not in columns_of(member):
            self._reject(member, kind, path, DDL[columns_of(member)[0]])
            return None
        enum = self.schema.enum(member.type_name) if member.kind == ENUM else None
        # At most one member of a oneof is set. With a default, an absent member would look as if it
        # were set.
        has_default = member.default is not None and member.oneof < 0
        default = _encoded(member, member.default or "", enum) if has_default else None
        return _plan(
            *(member, member.kind, number),
            oneof=member.oneof,
            default=default,
            enum=None if enum is None else _enum_plan(enum),
        )

    def _reject(self, member: ProtobufField, kind: pa.DataType, path: str, ddl: str) -> None:
        name = member.type_name or TYPE_NAMES[member.kind]
        self.mistakes.append(
            f"'{path}' is {spark_name(kind)} in the schema, but Protobuf's {name} in the records; "
            f"it must be: {ddl}"
        )

    def nested_message(
        self, member: ProtobufField, kind: pa.DataType, number: int, path: str, depth: int
    ) -> FieldPlan | None:
        """
        Return the plan of a nested message, or None if the type does not match.
        """
        name = member.type_name
        if pa.types.is_struct(kind):
            inner = self.message(self.schema.message(name), kind, number, path, depth + 1)
            return _plan(member, MESSAGE, number, oneof=member.oneof, message=inner)
        if name in TIMES and kind == TIMES[name]:
            return _plan(member, _TIME, number, oneof=member.oneof)
        if name in WRAPPERS and kind in COLUMNS[WRAPPERS[name]]:
            (value,) = self.schema.message(name).fields
            plan = self.single(value, kind, number, path, depth)
            assert plan is not None
            wrapped = (*plan[:5], self._zero(value), *plan[6:])
            return _plan(member, _UNWRAPPED, number, oneof=member.oneof, message=(True, [wrapped]))
        ddl = "a STRUCT"
        if name in TIMES:
            ddl = DDL[TIMES[name]]
        elif name in WRAPPERS:
            wrapped_ddl = DDL[COLUMNS[WRAPPERS[name]][0]]
            ddl = f"STRUCT<value: {wrapped_ddl}> or {wrapped_ddl}"
        self._reject(member, kind, path, ddl)
        return None


def _plan(
    member: ProtobufField,
    kind: int,
    column: int,
    *,
    repeated: bool = False,
    oneof: int = -1,
    default: bytes | None = None,
    enum: EnumPlan | None = None,
    message: MessagePlan | None = None,
) -> FieldPlan:
    return member.number, kind, column, repeated, oneof, default, enum, message


def _enum_plan(enum: ProtobufEnum) -> EnumPlan:
    # As in Spark, a number without a symbol gets the name that Java's library generates.
    unnamed = f"UNKNOWN_ENUM_VALUE_{enum.name.rpartition('.')[2]}_"
    return enum.is_closed, unnamed, sorted(enum.symbols)


def _encoded(member: ProtobufField, text: str, enum: ProtobufEnum | None) -> bytes:
    """
    Return an explicit default in Protobuf's encoding; ``text`` has the form of descriptors.
    """
    try:
        return _encode(member.kind, text, enum)
    except (ValueError, struct.error, StopIteration) as cause:
        msg = f"the default of its field '{member.name}' is invalid: {text[:80]!r}"
        raise ProtobufSchemaError(msg) from cause


def _encode(kind: int, text: str, enum: ProtobufEnum | None) -> bytes:
    if enum is not None:
        symbols = (*enum.symbols, *enum.aliases)
        return varint(next(number for number, symbol in symbols if symbol == text))
    if kind in {STRING, BYTES}:
        data = text.encode() if kind == STRING else _unescaped(text)
        return varint(len(data)) + data
    if kind in {DOUBLE, FLOAT}:
        return struct.pack("<d" if kind == DOUBLE else "<f", float(text))
    number = int(text == "true") if kind == BOOL else int(text)
    if kind in _FIXED_BYTES:
        size = _FIXED_BYTES[kind]
        return (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return zigzag_varint(number) if kind in _ZIGZAG else varint(number)


def _unescaped(text: str) -> bytes:
    """
    Return the bytes of a string with C escapes.
    """
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")
