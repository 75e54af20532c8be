"""
Resolves a writer's schema against a reader's schema, as Avro's specification defines.

Fields are matched by name and alias. Fields that the writer lacks get their defaults, and numbers
are promoted. The branches of unions are matched by type, and branches that are records also by
name. Only values in which a mismatch occurs are bad. Beyond the specification, timestamps are
converted between units, and decimals match if they differ only in precision. Outside of unions,
records match whatever their names are, as in Java's resolver.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.formats.avro_decoder_plan import KINDS, WriterPlan, conversion, skip_plan
from pyspark_pykafka.formats.avro_defaults import encode_default
from pyspark_pykafka.formats.avro_times import AS_IT_IS, TIMES
from pyspark_pykafka.formats.column_types import inner_fields, plan_size

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

#: The compiled decoder's reasons for a value that does not match the reader's schema, and for a
#: field that is missing and has no default.
UNRESOLVED, NO_DEFAULT = 16, 17

_PROMOTED = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}


def resolved_plan(writer: AvroType, reader: AvroType, kind: pa.DataType) -> WriterPlan:
    """
    Return the compiled decoder's plan for a writer's schema, resolved to a reader's schema.

    ``kind`` is the column's type, which :func:`writer_plan` accepts for the reader's schema.
    """
    return _plan(writer, reader, kind, 0)


def registered_plan(writer: AvroType, reader: AvroType, kind: pa.DataType) -> WriterPlan:
    """
    Return the plan of :func:`resolved_plan` for values that Confluent's Java serializer writes.

    That serializer writes a value of the schema ``bytes`` without its length.
    """
    plan = resolved_plan(writer, reader, kind)
    return _without_length(plan) if writer.kind == "bytes" else plan


def _without_length(plan: WriterPlan) -> WriterPlan:
    """
    Return the plan for bytes without a length; they may be a branch of the reader's union, or be
    skipped.
    """
    kind, number, conversion_code, size, inner, symbols = plan
    if kind in {KINDS["bytes"], KINDS["string"]}:
        kind = KINDS["rest"]
    return kind, number, conversion_code, size, [_without_length(part) for part in inner], symbols


def _plan(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    if writer.kind == "union":
        branches = [_branch_plan(branch, reader, kind, number) for _, branch in writer.fields]
        return KINDS["union"], number, AS_IT_IS, 0, branches, ()
    if reader.kind == "union":
        return _into_union(writer, reader, kind, number)
    if not matches(writer, reader):
        return _unresolved(writer, number)
    if reader.kind == "enum":
        return _enum(writer, reader, number)
    plan_of_kind = {"record": _record, "array": _items, "map": _items}.get(reader.kind, _simple)
    return plan_of_kind(writer, reader, kind, number)


def _branch_plan(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    """
    Return the plan for a branch of the writer's union.
    """
    if reader.kind != "union" and not _matches_in_union(writer, reader):
        return _unresolved(writer, number)
    return _plan(writer, reader, kind, number)


def _unresolved(writer: AvroType, number: int, reason: int = UNRESOLVED) -> WriterPlan:
    return KINDS["unresolved"], number, AS_IT_IS, reason, [skip_plan(writer)], ()


def matches(writer: AvroType, reader: AvroType) -> bool:
    """
    Return whether values of one type can be read as another. Nested types are not compared.
    """
    if writer.logical == reader.logical == "decimal":
        return writer.scale == reader.scale
    if writer.kind in _PROMOTED:
        return reader.kind in _PROMOTED[writer.kind]
    if writer.kind != reader.kind or writer.size != reader.size:
        return False
    return writer.kind not in {"fixed", "enum"} or _same_name(writer, reader)


def _matches_in_union(writer: AvroType, reader: AvroType) -> bool:
    """
    Return whether values of one type can be read as another, if one of them is in a union.

    In a union only the name distinguishes records of different types that have the same fields.
    """
    return matches(writer, reader) and (writer.kind != "record" or _same_name(writer, reader))


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    """
    Return whether the writer's unqualified name is that of the reader or of one of its aliases.
    """
    short = writer.name.rpartition(".")[2]
    names = (reader.name, *reader.aliases)
    return writer.name in names or short in {name.rpartition(".")[2] for name in names}


def _record(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    columns, next_number = {}, number + 1
    for f in kind:
        columns[f.name] = (f.type, next_number)
        next_number += plan_size(f.type)
    sources = _field_sources(writer, reader)
    types = dict(reader.fields)
    plans: list[WriterPlan] = []
    for name, inner in writer.fields:
        target = sources.get(name)
        plans.append(
            skip_plan(inner)
            if target is None or target not in columns
            else _plan(inner, types[target], *columns[target])
        )
    plans += [
        _missing(types[name], default, *columns[name])
        for (name, _), default in zip(reader.fields, reader.field_defaults, strict=True)
        if name in columns and name not in sources.values()
    ]
    return KINDS["record"], number, AS_IT_IS, 0, plans, ()


def _field_sources(writer: AvroType, reader: AvroType) -> dict[str, str]:
    """
    Return the reader's field for each field of the writer, matched by name or else by alias.
    """
    written = [name for name, _ in writer.fields]
    sources: dict[str, str] = {}
    for (name, _), aliases in zip(reader.fields, reader.field_aliases, strict=True):
        match = next((n for n in (name, *aliases) if n in written), None)
        if match is not None:
            sources.setdefault(match, name)
    return sources


def _missing(reader: AvroType, default: str | None, kind: pa.DataType, number: int) -> WriterPlan:
    """
    Return the plan for a reader's field that the writer's schema does not have.
    """
    nothing = replace(reader, kind="null", fields=(), symbols=(), size=0)
    if default is None:
        return _unresolved(nothing, number, NO_DEFAULT)
    try:
        encoded = encode_default(reader, default)
    except ValueError:
        return _unresolved(nothing, number, NO_DEFAULT)
    value_plan = _plan(reader, reader, kind, number)
    return KINDS["constant"], number, AS_IT_IS, 0, [value_plan], encoded


def _items(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    plans, next_number = [], number + 1
    pairs = zip(writer.fields, reader.fields, inner_fields(kind), strict=True)
    for (_, written), (_, read), f in pairs:
        plans.append(_plan(written, read, f.type, next_number))
        next_number += plan_size(f.type)
    return KINDS[reader.kind], number, AS_IT_IS, 0, plans, ()


def _enum(writer: AvroType, reader: AvroType, number: int) -> WriterPlan:
    # An empty symbol stands for a symbol that the reader's enum does not have.
    default = reader.default if reader.default in reader.symbols else ""
    symbols = tuple(s if s in reader.symbols else default or "" for s in writer.symbols)
    return KINDS["enum"], number, AS_IT_IS, 0, [], symbols


def _simple(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    if writer.kind == "null":
        return KINDS["null"], number, AS_IT_IS, 0, [], ()
    # The conversion is that of the reader's logical type, except between units of timestamps.
    conversion_code = conversion(reader, kind)
    assert conversion_code is not None
    if writer.logical in TIMES and reader.logical in TIMES and pa.types.is_timestamp(kind):
        conversion_code = TIMES[writer.logical][1]
    written = writer.kind
    if written in {"string", "bytes"}:
        written = "string" if kind == pa.string() else "bytes"
    return KINDS[written], number, conversion_code, writer.size, [], ()


def _into_union(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    """
    Return the plan that reads a value as the first branch of the same type and name, or else as the
    first branch that it can be promoted to.
    """
    if writer.kind == "null":
        has_null = len(reader.non_null_branches) < len(reader.fields)
        return (
            (KINDS["null"], number, AS_IT_IS, 0, [], ())
            if has_null
            else _unresolved(writer, number)
        )
    branch = _branch(writer, reader.non_null_branches)
    if branch is None:
        return _unresolved(writer, number)
    if len(reader.non_null_branches) == 1 or not pa.types.is_struct(kind):
        return _plan(writer, reader.non_null_branches[branch], kind, number)
    next_number = number + 1
    for f in kind:
        if f.name == f"member{branch}":
            inner = _plan(writer, reader.non_null_branches[branch], f.type, next_number)
            return KINDS["branch"], number, AS_IT_IS, 0, [inner], ()
        next_number += plan_size(f.type)
    # The column has no field for this branch: all fields of the struct are null.
    return KINDS["branch"], number, AS_IT_IS, 0, [skip_plan(writer)], ()


def _branch(writer: AvroType, branches: list[AvroType]) -> int | None:
    matching = [n for n, branch in enumerate(branches) if _matches_in_union(writer, branch)]
    same_kind = [n for n in matching if branches[n].kind == writer.kind]
    same_name = [n for n in same_kind if branches[n].name == writer.name]
    return next(iter([*same_name, *same_kind, *matching]), None)
