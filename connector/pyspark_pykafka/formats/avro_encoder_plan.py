"""
Matches a column's type with an Avro schema, and plans the compiled encoder's work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.formats.avro_defaults import encode_default
from pyspark_pykafka.formats.avro_times import TIMES
from pyspark_pykafka.formats.column_types import inner_fields, kind_number, plan_size, spark_name
from pyspark_pykafka.formats.encoder_plan import NO_BRANCH, EncoderPlan
from pyspark_pykafka.varint import zigzag_varint

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

# The compiled encoder's numbers for its outputs.
_BOOLEAN, _INTEGER, _FLOAT, _DOUBLE, _BYTES, _STRING, _ENUM, _FIXED = range(1, 9)
_DECIMAL_BYTES, _DECIMAL_FIXED, _MILLIS, _NANOS = range(9, 13)
_RECORD, _ARRAY, _MAP, _MEMBERS, _CONSTANT = range(13, 18)
_CHOICE = 37
# The outputs that can hold only a part of the values of their column type.
_PARTIAL = {_STRING, _ENUM, _FIXED, _DECIMAL_BYTES, _DECIMAL_FIXED, _NANOS}

_NO_COLUMN = -1
# The compiled encoder's size for bytes whose length is not written.
_WITHOUT_LENGTH = -1
_INTEGERS = (pa.int8(), pa.int16(), pa.int32())

# For each Avro type: the output, and the column types. Avro's logical types are checked first.
_OUTPUTS: dict[str, tuple[int, tuple[pa.DataType, ...]]] = {
    "boolean": (_BOOLEAN, (pa.bool_(),)),
    "int": (_INTEGER, _INTEGERS),
    "long": (_INTEGER, (*_INTEGERS, pa.int64())),
    "float": (_FLOAT, (pa.float32(),)),
    "double": (_DOUBLE, (pa.float32(), pa.float64())),
    "bytes": (_BYTES, (pa.binary(), pa.string())),
    "string": (_STRING, (pa.string(),)),
    "enum": (_ENUM, (pa.string(),)),
    "fixed": (_FIXED, (pa.binary(),)),
}
_UNITS = {"millis": _MILLIS, "micros": _INTEGER, "nanos": _NANOS}
_MEMBER = re.compile(r"member\d+")


def avro_encoder_plan(
    path: str, kind: pa.DataType, schema: AvroType
) -> tuple[EncoderPlan, list[str]]:
    """
    Return the plan that encodes a column with an Avro schema, and the mistakes that prevent it.
    """
    matching = _Matching([])
    plan = matching.plan(path, kind, 0, schema)
    return plan, matching.mistakes


def registered_encoder_plan(path: str, kind: pa.DataType, schema: AvroType) -> EncoderPlan:
    """
    Return the plan that encodes a checked column as Confluent's Java serializer does.

    That serializer writes a value of the schema ``bytes`` without its length.
    """
    plan, _ = avro_encoder_plan(path, kind, schema)
    return replace(plan, size=_WITHOUT_LENGTH) if schema.kind == "bytes" else plan


@dataclass(frozen=True, slots=True)
class _Matching:
    """
    Matches the types of columns with a schema, and collects the mistakes.
    """

    mistakes: list[str]

    def plan(self, path: str, kind: pa.DataType, column: int, schema: AvroType) -> EncoderPlan:
        if schema.kind == "union":
            return self._union(path, kind, column, schema)
        expected = schema.logical or schema.kind
        number = kind_number(kind)
        if schema.kind == "record" and pa.types.is_struct(kind):
            children = self._record(path, kind, column, schema)
            return EncoderPlan(path, expected, number, _RECORD, column, children=children)
        if (schema.kind == "array" and pa.types.is_list(kind)) or (
            schema.kind == "map" and pa.types.is_map(kind)
        ):
            output = _MAP if schema.kind == "map" else _ARRAY
            children = self._items(path, kind, column, schema)
            return EncoderPlan(path, expected, number, output, column, children=children)
        if "" in schema.symbols:
            self.mistakes.append(f"the enum of '{path}' has an empty symbol; remove it")
        output, mistake = _simple_output(kind, schema)
        if mistake:
            self.mistakes.append(f"'{path}' is {spark_name(kind)}, but Avro's {expected} {mistake}")
        return EncoderPlan(
            path,
            expected,
            number,
            output,
            column,
            size=schema.size,
            precision=schema.precision,
            scale=schema.scale,
            symbols=tuple(symbol.encode() for symbol in schema.symbols),
        )

    def _items(
        self, path: str, kind: pa.DataType, column: int, schema: AvroType
    ) -> tuple[EncoderPlan, ...]:
        number = column + 1
        children = []
        for (_, inner), field in zip(schema.fields, inner_fields(kind), strict=True):
            children.append(self.plan(f"{path}.{field.name}", field.type, number, inner))
            number += plan_size(field.type)
        return tuple(children)

    def _record(
        self, path: str, kind: pa.DataType, column: int, schema: AvroType
    ) -> tuple[EncoderPlan, ...]:
        columns = _numbered(kind, column)
        names = [name for name, _ in schema.fields]
        for name in columns:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "remove it"
                self.mistakes.append(f"'{path}.{name}' is not in the Avro schema; {hint}")
        defaults = schema.field_defaults or (None,) * len(names)
        return tuple(
            self.plan(f"{path}.{name}", *columns[name], inner)
            if name in columns
            else self._missing(f"{path}.{name}", inner, default)
            for (name, inner), default in zip(schema.fields, defaults, strict=True)
        )

    def _missing(self, path: str, schema: AvroType, default: str | None) -> EncoderPlan:
        """
        Return the plan for a field that has no column: its default, or null.
        """
        text = b""
        null = _null_branch(schema)
        if default is not None:
            try:
                text = encode_default(schema, default)
            except ValueError:
                self.mistakes.append(f"the default of '{path}' in the schema is not of its type")
        elif null >= 0:
            text = zigzag_varint(null)
        elif schema.kind != "null":
            self.mistakes.append(
                f"'{path}' is missing; add it, since it has no default in the Avro schema"
            )
        return EncoderPlan(path, schema.kind, 0, _CONSTANT, _NO_COLUMN, text=text)

    def _union(self, path: str, kind: pa.DataType, column: int, schema: AvroType) -> EncoderPlan:
        if not pa.types.is_struct(kind) or not _are_members(kind):
            return self._branch(path, kind, column, schema)
        # A read returns a struct of members only for a union of several branches. A struct with the
        # same field names may also be a record, as in a schema that was derived from the column.
        forms = [_Matching._branch, _Matching._members]
        if len(schema.non_null_branches) > 1:
            forms.reverse()
        mistakes: list[list[str]] = []
        for form in forms:
            attempt = _Matching([])
            plan = form(attempt, path, kind, column, schema)
            if not attempt.mistakes:
                return plan
            mistakes.append(attempt.mistakes)
        self.mistakes.extend(mistakes[0])
        return plan

    def _branch(self, path: str, kind: pa.DataType, column: int, schema: AvroType) -> EncoderPlan:
        """
        Return the plan for a column whose type matches one branch, or several branches.
        """
        fitting: list[EncoderPlan] = []
        branch_mistakes: list[str] = []
        for number, (_, branch) in enumerate(schema.fields):
            if branch.kind == "null":
                continue
            attempt = _Matching([])
            plan = attempt.plan(path, kind, column, branch)
            if not attempt.mistakes:
                fitting.append(_in_union(plan, NO_BRANCH, number))
            branch_mistakes += attempt.mistakes
        if not fitting:
            mismatch = f"'{path}' is {spark_name(kind)}, but no branch of its union has that type"
            self.mistakes.extend(
                branch_mistakes if len(schema.non_null_branches) == 1 else [mismatch]
            )
            return EncoderPlan(path, "union", kind_number(kind), _CONSTANT, _NO_COLUMN)
        partial = list(takewhile(lambda plan: plan.output in _PARTIAL, fitting))
        choices = fitting[: len(partial) + 1]
        null = _null_branch(schema)
        if len(choices) == 1:
            return replace(choices[0], null_branch=null)
        return EncoderPlan(
            *(path, "union", kind_number(kind), _CHOICE, column),
            null_branch=null,
            children=tuple(choices),
        )

    def _members(self, path: str, kind: pa.DataType, column: int, schema: AvroType) -> EncoderPlan:
        """
        Return the plan for a struct with a field for each branch, as ``from_avro`` returns a union.
        """
        columns = _numbered(kind, column)
        branches = [pair for pair in enumerate(schema.fields) if pair[1][1].kind != "null"]
        children = []
        for index, (number, (_, branch)) in enumerate(branches):
            if (member := columns.pop(f"member{index}", None)) is not None:
                plan = self.plan(f"{path}.member{index}", *member, branch)
                children.append(_in_union(plan, NO_BRANCH, number))
        self.mistakes.extend(
            f"'{path}.{name}' is not in the Avro schema; its union has {len(branches)} branches"
            for name in columns
        )
        return EncoderPlan(
            path,
            "union",
            kind_number(kind),
            _MEMBERS,
            column,
            null_branch=_null_branch(schema),
            children=tuple(children),
        )


def _in_union(plan: EncoderPlan, null_branch: int, branch: int) -> EncoderPlan:
    return replace(plan, null_branch=null_branch, branch=branch)


def _numbered(kind: pa.DataType, column: int) -> dict[str, tuple[pa.DataType, int]]:
    """
    Return the types of a struct's fields, and the numbers of their columns, by name.
    """
    numbered, number = {}, column + 1
    for field in kind:
        numbered[field.name] = (field.type, number)
        number += plan_size(field.type)
    return numbered


def _are_members(kind: pa.DataType) -> bool:
    names = [field.name for field in kind]
    return bool(names) and all(map(_MEMBER.fullmatch, names))


def _null_branch(schema: AvroType) -> int:
    kinds = [branch.kind for _, branch in schema.fields] if schema.kind == "union" else []
    return kinds.index("null") if "null" in kinds else NO_BRANCH


def _simple_output(kind: pa.DataType, schema: AvroType) -> tuple[int, str]:
    """
    Return the output for a value, and "" or the reason why the value cannot be encoded.

    The reason is the end of a sentence.
    """
    logical = schema.logical
    if logical == "decimal":
        if pa.types.is_decimal(kind):
            has_same_scale = kind.scale == schema.scale
            text = "" if has_same_scale else f"has the scale {schema.scale}; cast one of them"
            return (_DECIMAL_FIXED if schema.kind == "fixed" else _DECIMAL_BYTES), text
    elif logical == "date" and kind == pa.date32():
        return _INTEGER, ""
    elif logical in TIMES and kind == TIMES[logical][0]:
        return _UNITS[logical.rpartition("-")[2]], ""
    if schema.kind in _OUTPUTS and not logical:
        output, kinds = _OUTPUTS[schema.kind]
        if kind in kinds:
            return output, ""
    return _CONSTANT, "cannot hold its values; cast the column, or change the schema"
