"""
How the values of a column are encoded: a tree of plans for the compiled encoder.

Columns are numbered as they are nested: a type, then all that is in it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.formats.avro_defaults import encode_default, encode_long
from pyspark_pykafka.formats.avro_types import TIMES, plan_size
from pyspark_pykafka.formats.json_types import (
    MAX_TYPE_DEPTH,
    inner_fields,
    kind_number,
    spark_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_pykafka.formats.avro_types import AvroType

#: (kind, output, column, null branch, branch, size, precision, scale, text, symbols, children)
CompiledPlan = tuple[int, int, int, int, int, int, int, int, bytes, tuple[bytes, ...], list[Any]]

# What a value becomes, as the compiled encoder numbers it.
_JSON = 0
_BOOLEAN, _INTEGER, _FLOAT, _DOUBLE, _BYTES, _STRING, _ENUM, _FIXED = range(1, 9)
_DECIMAL_BYTES, _DECIMAL_FIXED, _MILLIS, _NANOS = range(9, 13)
_RECORD, _ARRAY, _MAP, _MEMBERS, _CONSTANT = range(13, 18)

_NO_COLUMN = -1
_NO_BRANCH = -1
_INTEGERS = (pa.int8(), pa.int16(), pa.int32())
# What the types of columns become; those with a logical type come before.
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


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """
    How one value is encoded; ``path`` and ``expected`` are for messages.

    ``column`` is the number of its Arrow column, or -1 for the same ``text`` in every record. The
    branches are those of a union that null and other values are, or -1.
    """

    path: str
    expected: str
    kind: int
    output: int
    column: int
    null_branch: int = _NO_BRANCH
    branch: int = _NO_BRANCH
    size: int = 0
    precision: int = 0
    scale: int = 0
    text: bytes = b""
    symbols: tuple[bytes, ...] = ()
    children: tuple[EncoderPlan, ...] = ()

    def compiled(self) -> CompiledPlan:
        """
        Return the plan as the compiled encoder takes it.
        """
        return (
            *(self.kind, self.output, self.column, self.null_branch, self.branch),
            *(self.size, self.precision, self.scale, self.text, self.symbols),
            [child.compiled() for child in self.children],
        )

    def nodes(self) -> Iterator[EncoderPlan]:
        """
        Yield the plan and all plans in it, as the compiled encoder numbers them.
        """
        yield self
        for child in self.children:
            yield from child.nodes()


def json_plan(
    path: str, kind: pa.DataType, column: int = 0, name: str | None = None
) -> EncoderPlan:
    """
    Return how a column of a checked type becomes JSON; ``name`` is that of a field.
    """
    number = column + 1
    children: list[EncoderPlan] = []
    for field in inner_fields(kind):
        own = field.name if pa.types.is_struct(kind) else None
        children.append(json_plan(f"{path}.{field.name}", field.type, number, own))
        number += plan_size(field.type)
    text = b"" if name is None else f",{json.dumps(name, ensure_ascii=False)}:".encode()
    return EncoderPlan(
        path,
        "JSON",
        kind_number(kind),
        _JSON,
        column,
        scale=kind.scale if pa.types.is_decimal(kind) else 0,
        text=text,
        children=tuple(children),
    )


def avro_plan(path: str, kind: pa.DataType, schema: AvroType) -> tuple[EncoderPlan, list[str]]:
    """
    Return how a column becomes Avro of a schema, and why it cannot.
    """
    matching = _Matching([])
    plan = matching.plan(path, kind, 0, schema)
    return plan, matching.mistakes


@dataclass(frozen=True, slots=True)
class _Matching:
    """
    Matches the types of columns with a schema, and notes the mistakes.
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
        output, mistake = _simple_output(kind, schema)
        if mistake:
            self.mistakes.append(f"'{path}' is {spark_name(kind)}, and Avro's {expected} {mistake}")
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
            text = encode_long(null)
        elif schema.kind != "null":
            self.mistakes.append(
                f"'{path}' is missing; add it, since it has no default in the Avro schema"
            )
        return EncoderPlan(path, schema.kind, 0, _CONSTANT, _NO_COLUMN, text=text)

    def _union(self, path: str, kind: pa.DataType, column: int, schema: AvroType) -> EncoderPlan:
        null = _null_branch(schema)
        if pa.types.is_struct(kind) and _are_members(kind):
            return self._members(path, kind, column, schema)
        refused: list[str] = []
        for number, (_, branch) in enumerate(schema.fields):
            if branch.kind == "null":
                continue
            tried = _Matching([])
            plan = tried.plan(path, kind, column, branch)
            if not tried.mistakes:
                return _in_union(plan, null, number)
            refused += tried.mistakes
        one = len(schema.branches) == 1
        other = f"'{path}' is {spark_name(kind)}, and no branch of its union is"
        self.mistakes.extend(refused if one else [other])
        return EncoderPlan(path, "union", kind_number(kind), _CONSTANT, _NO_COLUMN)

    def _members(self, path: str, kind: pa.DataType, column: int, schema: AvroType) -> EncoderPlan:
        """
        Return the plan for a struct as ``from_avro`` makes it of a union: a field for each branch.
        """
        columns = _numbered(kind, column)
        branches = [pair for pair in enumerate(schema.fields) if pair[1][1].kind != "null"]
        children = []
        for at, (number, (_, branch)) in enumerate(branches):
            if (found := columns.pop(f"member{at}", None)) is not None:
                plan = self.plan(f"{path}.member{at}", *found, branch)
                children.append(_in_union(plan, _NO_BRANCH, number))
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
    return kinds.index("null") if "null" in kinds else _NO_BRANCH


def _simple_output(kind: pa.DataType, schema: AvroType) -> tuple[int, str]:
    """
    Return what a value becomes, and why it cannot, as the end of a sentence.
    """
    logical = schema.logical
    if logical == "decimal":
        if pa.types.is_decimal(kind):
            same = kind.scale == schema.scale
            text = "" if same else f"has the scale {schema.scale}; cast one of them"
            return (_DECIMAL_FIXED if schema.kind == "fixed" else _DECIMAL_BYTES), text
    elif logical == "date" and kind == pa.date32():
        return _INTEGER, ""
    elif logical in TIMES and kind == TIMES[logical][0]:
        return _UNITS[logical.rpartition("-")[2]], ""
    if schema.kind in _OUTPUTS and not logical:
        output, kinds = _OUTPUTS[schema.kind]
        if kind in kinds:
            return output, ""
    return _CONSTANT, "does not have its values; cast the column, or change the schema"


def encodable_mistakes(field: pa.Field, path: str, depth: int = 1) -> list[str]:
    """
    Return why a column cannot be encoded, one text for each mistake in it.
    """
    kind = field.type
    inner = inner_fields(kind)
    if depth > MAX_TYPE_DEPTH:
        return [f"'{path}' is nested too deeply; it must be: at most {MAX_TYPE_DEPTH} levels"]
    own: list[str] = []
    if pa.types.is_map(kind):
        inner = inner[1:]
        if kind.key_type != pa.string():
            own.append(f"the keys of '{path}' must be: STRING; cast them")
    elif pa.types.is_struct(kind):
        own += _repeated([f.name for f in inner], path)
    elif not pa.types.is_list(kind) and kind_number(kind) < 0:
        metadata = (field.metadata or {}).get(b"type", str(kind).encode()).decode()
        own.append(
            f"'{path}' is {metadata}, which cannot be encoded; it must be: STRUCT, ARRAY, MAP, "
            "STRING, BINARY, BOOLEAN, a number, DATE, TIMESTAMP or TIMESTAMP_NTZ"
        )
    return own + [m for f in inner for m in encodable_mistakes(f, f"{path}.{f.name}", depth + 1)]


def _repeated(names: Sequence[str], path: str) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    return [f"'{path}' has the field '{name}' twice; rename one of them" for name in twice]
