"""
Resolves the schema of the writer against that of the reader, as Avro's specification says.

Fields are matched by name and alias, those that the writer lacks have their defaults, numbers are
promoted, and the branches of unions are matched by type. What does not match makes a value unfit
where it occurs, and nothing else. Beyond the specification timestamps of different units are
converted, and decimals match that differ only in precision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.formats.avro_defaults import encode_default
from pyspark_pykafka.formats.avro_plan import KINDS, WriterPlan, conversion, skip_plan
from pyspark_pykafka.formats.avro_times import AS_IT_IS, TIMES
from pyspark_pykafka.formats.json_types import inner_fields, plan_size

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

#: What the compiled decoder notes of a value that the reader's schema has no place for, and of a
#: field that is neither in the record nor has a default.
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
    Return a writer's schema for the compiled decoder, read as another one into a column's type.

    ``kind`` is a type that :func:`writer_plan` accepts for the reader's schema.
    """
    return _plan(writer, reader, kind, 0)


def _plan(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    if writer.kind == "union":
        branches = [_plan(branch, reader, kind, number) for _, branch in writer.fields]
        return KINDS["union"], number, AS_IT_IS, 0, branches, ()
    if reader.kind == "union":
        return _into_union(writer, reader, kind, number)
    if not matches(writer, reader):
        return _unresolved(writer, number)
    if reader.kind == "enum":
        return _enum(writer, reader, number)
    plan = {"record": _record, "array": _items, "map": _items}.get(reader.kind, _simple)
    return plan(writer, reader, kind, number)


def _unresolved(writer: AvroType, number: int, reason: int = UNRESOLVED) -> WriterPlan:
    return KINDS["unresolved"], number, AS_IT_IS, reason, [skip_plan(writer)], ()


def matches(writer: AvroType, reader: AvroType) -> bool:
    """
    Return whether values of one type can be read as another, as far as the types themselves say.
    """
    if writer.logical == reader.logical == "decimal":
        return writer.scale == reader.scale
    if writer.kind in _PROMOTED:
        return reader.kind in _PROMOTED[writer.kind]
    if writer.kind != reader.kind or writer.size != reader.size:
        return False
    return writer.kind not in {"fixed", "enum"} or _same_name(writer, reader)


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    """
    Return whether the names without their namespaces are the same, or an alias is the writer's.
    """
    short = writer.name.rpartition(".")[2]
    names = (reader.name, *reader.aliases)
    return writer.name in names or short in {name.rpartition(".")[2] for name in names}


def _record(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    columns, at = {}, number + 1
    for f in kind:
        columns[f.name] = (f.type, at)
        at += plan_size(f.type)
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
    Return the reader's field for each field of the writer that it has, by name or else by alias.
    """
    written = [name for name, _ in writer.fields]
    sources: dict[str, str] = {}
    for (name, _), aliases in zip(reader.fields, reader.field_aliases, strict=True):
        known = next((n for n in (name, *aliases) if n in written), None)
        if known is not None:
            sources.setdefault(known, name)
    return sources


def _missing(reader: AvroType, default: str | None, kind: pa.DataType, number: int) -> WriterPlan:
    """
    Return what becomes of a reader's field that the writer has not got.
    """
    nothing = replace(reader, kind="null", fields=(), symbols=(), size=0)
    if default is None:
        return _unresolved(nothing, number, NO_DEFAULT)
    try:
        encoded = encode_default(reader, default)
    except ValueError:
        return _unresolved(nothing, number, NO_DEFAULT)
    own = _plan(reader, reader, kind, number)
    return KINDS["constant"], number, AS_IT_IS, 0, [own], encoded


def _items(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    plans, number_of = [], number + 1
    pairs = zip(writer.fields, reader.fields, inner_fields(kind), strict=True)
    for (_, written), (_, read), f in pairs:
        plans.append(_plan(written, read, f.type, number_of))
        number_of += plan_size(f.type)
    return KINDS[reader.kind], number, AS_IT_IS, 0, plans, ()


def _enum(writer: AvroType, reader: AvroType, number: int) -> WriterPlan:
    # An empty symbol is one that the reader does not have.
    default = reader.default if reader.default in reader.symbols else ""
    symbols = tuple(s if s in reader.symbols else default or "" for s in writer.symbols)
    return KINDS["enum"], number, AS_IT_IS, 0, [], symbols


def _simple(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    if writer.kind == "null":
        return KINDS["null"], number, AS_IT_IS, 0, [], ()
    # The reader's type says what a number means, unless both know their units.
    found = conversion(reader, kind)
    assert found is not None
    if writer.logical in TIMES and reader.logical in TIMES and pa.types.is_timestamp(kind):
        found = TIMES[writer.logical][1]
    written = writer.kind
    if written in {"string", "bytes"}:
        written = "string" if kind == pa.string() else "bytes"
    return KINDS[written], number, found, writer.size, [], ()


def _into_union(writer: AvroType, reader: AvroType, kind: pa.DataType, number: int) -> WriterPlan:
    """
    Read a value as the first branch of a union that it is itself, or can be read as.
    """
    if writer.kind == "null":
        has_null = len(reader.branches) < len(reader.fields)
        return (
            (KINDS["null"], number, AS_IT_IS, 0, [], ())
            if has_null
            else _unresolved(writer, number)
        )
    branch = _branch(writer, reader.branches)
    if branch is None:
        return _unresolved(writer, number)
    if len(reader.branches) == 1 or not pa.types.is_struct(kind):
        return _plan(writer, reader.branches[branch], kind, number)
    at = number + 1
    for f in kind:
        if f.name == f"member{branch}":
            inner = _plan(writer, reader.branches[branch], f.type, at)
            return KINDS["branch"], number, AS_IT_IS, 0, [inner], ()
        at += plan_size(f.type)
    # The column lacks this branch: a struct without values.
    return KINDS["branch"], number, AS_IT_IS, 0, [skip_plan(writer)], ()


def _branch(writer: AvroType, branches: list[AvroType]) -> int | None:
    same = [
        number
        for number, branch in enumerate(branches)
        if branch.kind == writer.kind and matches(writer, branch)
    ]
    named = [n for n in same if not branches[n].name or branches[n].name == writer.name]
    similar = [n for n in same if not branches[n].name or _same_name(writer, branches[n])]
    promoted = [n for n, branch in enumerate(branches) if matches(writer, branch)]
    return next(iter([*named, *similar, *promoted]), None)
