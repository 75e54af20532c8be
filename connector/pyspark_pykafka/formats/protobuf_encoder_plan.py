"""
Matches a column's type with a Protobuf message, and plans the compiled encoder's work.

In these plans ``text`` is the tag of a field, ``null_branch`` determines which values are omitted,
and ``branch`` is the index of the previous field of the same oneof, or -1. For a group,
``symbols`` holds only the tag that ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.formats.column_types import (
    MAX_TYPE_DEPTH,
    inner_fields,
    kind_number,
    plan_size,
    spark_name,
)
from pyspark_pykafka.formats.encoder_plan import EncoderPlan, repeated_names
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
)
from pyspark_pykafka.formats.protobuf_descriptors import varint
from pyspark_pykafka.formats.protobuf_types import TIMES, entry_of

if TYPE_CHECKING:
    from pyspark_pykafka.formats.protobuf_definitions import (
        ProtobufField,
        ProtobufMessage,
        ProtobufSchema,
    )

# The compiled encoder's numbers for its outputs.
_INT, _UINT, _SINT, _FIXED, _SFIXED, _BOOL, _FLOAT, _DOUBLE, _STRING, _BYTES = range(18, 28)
_ENUM, _ENUM_NUMBER, _TIMESTAMP, _DURATION = range(28, 32)
_MESSAGE, _GROUP, _REPEATED, _PACKED, _MAP = range(32, 37)

# What is omitted: nothing, so that null is an error; only null; or null and zero.
_NONE, _NULL, _ZERO = -1, 0, 1

_VARINT, _I64, _LEN, _SGROUP, _EGROUP, _I32 = range(6)

_TEXTS = (pa.string(), pa.binary())
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# For each kind of field: the output, the bits of a number, the wire type, and the column types.
_SIMPLE: dict[int, tuple[int, int, int, tuple[pa.DataType, ...]]] = {
    DOUBLE: (_DOUBLE, 0, _I64, (pa.float32(), pa.float64())),
    FLOAT: (_FLOAT, 0, _I32, (pa.float32(),)),
    3: (_INT, 64, _VARINT, _INTEGERS),
    4: (_UINT, 64, _VARINT, _INTEGERS),
    5: (_INT, 32, _VARINT, _INTEGERS),
    6: (_FIXED, 64, _I64, _INTEGERS),
    7: (_FIXED, 32, _I32, _INTEGERS),
    BOOL: (_BOOL, 0, _VARINT, (pa.bool_(),)),
    STRING: (_STRING, 0, _LEN, _TEXTS),
    BYTES: (_BYTES, 0, _LEN, _TEXTS),
    13: (_UINT, 32, _VARINT, _INTEGERS),
    ENUM: (_ENUM, 0, _VARINT, (pa.string(), pa.int32())),
    15: (_SFIXED, 32, _I32, _INTEGERS),
    16: (_SFIXED, 64, _I64, _INTEGERS),
    17: (_SINT, 32, _VARINT, _INTEGERS),
    18: (_SINT, 64, _VARINT, _INTEGERS),
}
_LONG = kind_number(pa.int64())
_ULONGS = {4, 6}


def protobuf_encoder_plan(
    path: str, kind: pa.DataType, schema: ProtobufSchema, name: str
) -> tuple[EncoderPlan, list[str]]:
    """
    Return the plan that encodes a column as a message, and the mistakes that prevent it.

    Raises :class:`ProtobufSchemaError` if the schema lacks the message, or a nested one that the
    type needs.
    """
    matching = _Matching(schema)
    message = schema.message(name)
    if not pa.types.is_struct(kind):
        matching.mistakes.append(f"'{path}' is {spark_name(kind)}; it must be: a STRUCT")
        return EncoderPlan(path, name, 0, _MESSAGE, 0), matching.mistakes
    fields = matching.fields(message, kind, 0, path, 1)
    return EncoderPlan(path, name, 0, _MESSAGE, 0, children=fields), matching.mistakes


@dataclass(frozen=True, slots=True)
class _Matching:
    """
    Matches the types of columns with messages, and collects the mistakes.
    """

    schema: ProtobufSchema
    mistakes: list[str] = field(default_factory=list)

    def fields(
        self, message: ProtobufMessage, kind: pa.DataType, column: int, path: str, depth: int
    ) -> tuple[EncoderPlan, ...]:
        """
        Return the plans of a struct's fields by ascending field number, the order in which
        Protobuf's libraries write them.
        """
        if depth > MAX_TYPE_DEPTH:
            self.mistakes.append(
                f"'{path}' is nested too deeply; it must be: at most {MAX_TYPE_DEPTH} levels"
            )
            return ()
        self._check_names(message, kind, path)
        columns: dict[str, tuple[pa.DataType, int]] = {}
        number = column + 1
        for struct_field in kind:
            columns[struct_field.name] = (struct_field.type, number)
            number += plan_size(struct_field.type)
        plans: list[EncoderPlan] = []
        last_of: dict[int, int] = {}
        for member in sorted(message.fields, key=lambda f: f.number):
            if member.name not in columns:
                continue
            plan = self.member(member, *columns[member.name], f"{path}.{member.name}", depth)
            if plan is not None:
                if member.oneof >= 0:
                    plan = replace(plan, branch=last_of.get(member.oneof, -1))
                    last_of[member.oneof] = len(plans)
                plans.append(plan)
        return tuple(plans)

    def _check_names(self, message: ProtobufMessage, kind: pa.DataType, path: str) -> None:
        names, field_names = [f.name for f in kind], {f.name for f in message.fields}
        self.mistakes.extend(repeated_names(names, path))
        for name in names:
            if name not in field_names:
                near = get_close_matches(name, field_names, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "remove it"
                self.mistakes.append(
                    f"'{path}.{name}' is not in the message '{message.name}'; {hint}"
                )
        self.mistakes.extend(
            f"'{path}.{f.name}' is missing; add it, since the message '{message.name}' requires it"
            for f in message.fields
            if f.is_required and f.name not in names
        )

    def member(
        self, member: ProtobufField, kind: pa.DataType, column: int, path: str, depth: int
    ) -> EncoderPlan | None:
        """
        Return the plan of a field, or None if its type does not match.
        """
        if not member.repeated:
            omitted = _ZERO
            if member.kind == MESSAGE or member.has_presence:
                omitted = _NONE if member.is_required else _NULL
            plan = self.single(member, kind, column, path, depth)
            return None if plan is None else replace(plan, null_branch=omitted)
        if member.kind == MESSAGE and self.schema.message(member.type_name).is_map_entry:
            return self.map(member, kind, column, path, depth)
        if not pa.types.is_list(kind):
            self.mistakes.append(f"'{path}' is {spark_name(kind)}; it must be: an ARRAY")
            return None
        element = self.single(member, kind.value_type, column + 1, f"{path}.element", depth + 1)
        if element is None:
            return None
        output = _PACKED if member.is_packed else _REPEATED
        return EncoderPlan(
            *(path, element.expected, kind_number(kind), output, column, _NULL),
            text=_tag(member.number, _LEN),
            children=(element,),
        )

    def map(
        self, member: ProtobufField, kind: pa.DataType, column: int, path: str, depth: int
    ) -> EncoderPlan | None:
        if not pa.types.is_map(kind):
            self.mistakes.append(f"'{path}' is {spark_name(kind)}; it must be: a MAP")
            return None
        plans: list[EncoderPlan] = []
        entry = entry_of(self.schema.message(member.type_name))
        next_column = column + 1
        for key_or_value, inner in zip(entry, inner_fields(kind), strict=True):
            # Groups do not exist in the entries of maps.
            without_group = replace(key_or_value, is_group=False)
            plan = self.single(
                without_group, inner.type, next_column, f"{path}.{key_or_value.name}", depth + 1
            )
            if plan is None:
                return None
            plans.append(plan)
            next_column += plan_size(inner.type)
        return EncoderPlan(
            *(path, "map", kind_number(kind), _MAP, column, _NULL),
            text=_tag(member.number, _LEN),
            children=tuple(plans),
        )

    def single(
        self, member: ProtobufField, kind: pa.DataType, column: int, path: str, depth: int
    ) -> EncoderPlan | None:
        if member.kind == MESSAGE:
            return self.nested_message(member, kind, column, path, depth)
        if member.kind not in _SIMPLE:
            self.mistakes.append(f"'{path}' has the unknown type {member.kind} in the message")
            return None
        output, bits, wire_type, kinds = _SIMPLE[member.kind]
        is_ulong = pa.types.is_decimal(kind) and kind.scale == 0 and member.kind in _ULONGS
        if kind not in kinds and not is_ulong:
            self._reject(member, kind, path)
            return None
        plan = EncoderPlan(
            path,
            TYPE_NAMES[member.kind],
            kind_number(kind),
            output,
            column,
            size=bits,
            text=_tag(member.number, wire_type),
        )
        return self._enum(member, kind, plan) if member.kind == ENUM else plan

    def _enum(self, member: ProtobufField, kind: pa.DataType, plan: EncoderPlan) -> EncoderPlan:
        enum = self.schema.enum(member.type_name)
        symbols = (*enum.symbols, *enum.aliases)
        plan = replace(
            plan,
            expected=f"the enum {enum.name}",
            symbols=tuple(symbol.encode() for _, symbol in symbols),
            numbers=tuple(number for number, _ in symbols),
        )
        if kind == pa.string():
            return plan
        if enum.is_closed:
            return replace(plan, output=_ENUM_NUMBER)
        return replace(plan, output=_INT, size=32, symbols=(), numbers=())

    def nested_message(
        self, member: ProtobufField, kind: pa.DataType, column: int, path: str, depth: int
    ) -> EncoderPlan | None:
        """
        Return the plan of a nested message, or None if the type does not match.
        """
        name = member.type_name
        plan = EncoderPlan(
            *(path, name, kind_number(kind), _GROUP if member.is_group else _MESSAGE, column),
            text=_tag(member.number, _SGROUP if member.is_group else _LEN),
            symbols=(_tag(member.number, _EGROUP),) if member.is_group else (),
        )
        if pa.types.is_struct(kind):
            message = self.schema.message(name)
            children = self.fields(message, kind, column, path, depth + 1)
            return replace(plan, children=children)
        if name in TIMES and kind == TIMES[name]:
            output = _TIMESTAMP if pa.types.is_timestamp(kind) else _DURATION
            return replace(plan, kind=_LONG, output=output)
        if name in WRAPPERS:
            (value,) = self.schema.message(name).fields
            inner = self.single(value, kind, column, path, depth)
            if inner is None:
                return None
            return replace(plan, children=(replace(inner, null_branch=_ZERO),))
        self._reject(member, kind, path)
        return None

    def _reject(self, member: ProtobufField, kind: pa.DataType, path: str) -> None:
        name = member.type_name or TYPE_NAMES[member.kind]
        self.mistakes.append(
            f"'{path}' is {spark_name(kind)}, but Protobuf's {name} cannot hold its values; cast "
            "the column, or change the schema"
        )


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)
