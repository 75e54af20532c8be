"""
Avro schemas: parsed from their JSON text, as Spark's DDL, and matched with the type of a column.

Types map as in Spark's ``from_avro``. A schema of a record that contains itself has no such type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.json_types import MAX_TYPE_DEPTH, inner_fields

#: A type for the compiled decoder: (kind, column or -1, conversion, size, children, symbols).
WriterPlan = tuple[int, int, int, int, list[Any], tuple[str, ...] | bytes]

KINDS = {
    name: number
    for number, name in enumerate(
        [
            *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
            *("record", "enum", "array", "map", "union", "fixed"),
            *("constant", "branch", "unresolved"),
        ]
    )
}
_PRIMITIVES = frozenset(list(KINDS)[:8])
AS_IT_IS, _FROM_MILLIS, _FROM_NANOS, _TO_MEMBERS = range(4)
_SKIPPED = -1

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_LOCAL = pa.timestamp("us")
TIMES = {
    "timestamp-millis": (_TIMESTAMP, _FROM_MILLIS),
    "timestamp-micros": (_TIMESTAMP, AS_IT_IS),
    "timestamp-nanos": (_TIMESTAMP, _FROM_NANOS),
    "local-timestamp-millis": (_LOCAL, _FROM_MILLIS),
    "local-timestamp-micros": (_LOCAL, AS_IT_IS),
    "local-timestamp-nanos": (_LOCAL, _FROM_NANOS),
}
# What a primitive type may become besides the type of its DDL.
_PROMOTIONS: dict[str, tuple[pa.DataType, ...]] = {
    "boolean": (pa.bool_(),),
    "int": (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    "long": (pa.int64(), pa.float32(), pa.float64()),
    "float": (pa.float32(), pa.float64()),
    "double": (pa.float64(),),
    "bytes": (pa.binary(), pa.string()),
    "string": (pa.string(), pa.binary()),
    "enum": (pa.string(),),
    "fixed": (pa.binary(),),
}
#: A schema with more types is rejected: a few lines can name each type twice, level by level.
MAX_TYPES = 100_000
_TOO_DEEP = f"it is nested more than {MAX_TYPE_DEPTH} levels"

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


class AvroSchemaError(ValueError):
    """
    A text that is no Avro schema, or one that no column can have; the message says why.
    """


@dataclass(frozen=True, slots=True)
class AvroType:
    """
    A type of an Avro schema; ``fields`` are those of a record, the branches of a union, the item of
    an array or the key and the value of a map, by name.

    A named type has its full ``name`` and ``aliases``, an enum may have a ``default``. For each
    field of a record there are aliases, and the JSON text of its default or None.
    """

    kind: str
    fields: tuple[tuple[str, AvroType], ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0
    name: str = ""
    aliases: tuple[str, ...] = ()
    default: str | None = None
    field_aliases: tuple[tuple[str, ...], ...] = ()
    field_defaults: tuple[str | None, ...] = ()

    @property
    def branches(self) -> list[AvroType]:
        """
        The branches of a union that are not null.
        """
        return [branch for _, branch in self.fields if branch.kind != "null"]


def parse_avro(text: str) -> AvroType:
    """
    Parse a schema. Raises :class:`AvroSchemaError`.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as cause:
        msg = f"it is not JSON ({cause})"
        raise AvroSchemaError(msg) from cause
    parsed = _Names().parse(document, "", 1)
    try:
        size, depth = _extent(parsed, {})
    except RecursionError as cause:
        raise AvroSchemaError(_TOO_DEEP) from cause
    if depth > MAX_TYPE_DEPTH:
        raise AvroSchemaError(_TOO_DEEP)
    if size > MAX_TYPES:
        msg = f"it has more than {MAX_TYPES} types, each counted wherever it is used"
        raise AvroSchemaError(msg)
    return parsed


def _extent(kind: AvroType, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """
    Return the number of types and levels; named types count wherever they are used.
    """
    if id(kind) not in known:
        inner = [_extent(part, known) for _, part in kind.fields]
        sizes, depths = [size for size, _ in inner], [depth for _, depth in inner]
        known[id(kind)] = 1 + sum(sizes), 1 + max(depths, default=0)
    return known[id(kind)]


def writer_schema(name: str, text: str | None) -> AvroType:
    """
    Return the schema in the option of a column, ``key`` or ``value``.

    Raises :class:`OptionsError` if there is none.
    """
    if text is None:
        msg = (
            f"{name}Format is 'avro' and its schema is missing; set {name}Schema to the JSON text "
            "of the Avro schema that the records were written with, or schema.registry.url if they "
            "name it"
        )
        raise OptionsError((msg,))
    try:
        return parse_avro(text)
    except AvroSchemaError as cause:
        msg = f"{name}Schema is no Avro schema that can be read: {cause}"
        raise OptionsError((msg,)) from cause


@dataclass(slots=True)
class _Names:
    """
    The named types that a schema has defined so far; None for those that it is defining.
    """

    types: dict[str, AvroType | None] = field(default_factory=dict)

    def parse(self, document: Any, namespace: str, depth: int) -> AvroType:
        if depth > MAX_TYPE_DEPTH:
            raise AvroSchemaError(_TOO_DEEP)
        if isinstance(document, str):
            return self._named(document, namespace)
        if isinstance(document, list):
            branches = [self.parse(branch, namespace, depth + 1) for branch in document]
            members = enumerate(branch for branch in branches if branch.kind != "null")
            names = {id(branch): f"member{number}" for number, branch in members}
            return AvroType("union", tuple((names.get(id(b), ""), b) for b in branches))
        if not isinstance(document, dict) or "type" not in document:
            msg = f"it has no type where it has {json.dumps(document)[:80]}"
            raise AvroSchemaError(msg)
        kind = document["type"]
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace, depth + 1)
        if kind in {"record", "error", "enum", "fixed"}:
            return self._definition(document, kind, namespace, depth)
        if kind in {"array", "map"}:
            inner = "items" if kind == "array" else "values"
            item = self.parse(_member(document, inner), namespace, depth + 1)
            key = (("key", AvroType("string")),) if kind == "map" else ()
            return AvroType(kind, (*key, ("value", item)))
        return _with_logical(self._named(kind, namespace), document)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self.types else name
        if full not in self.types:
            msg = f"it has the type '{name}', which it does not define"
            raise AvroSchemaError(msg)
        known = self.types[full]
        if known is None:
            msg = f"'{full}' contains itself, which no column can"
            raise AvroSchemaError(msg)
        return known

    def _definition(
        self, document: dict[str, Any], kind: str, namespace: str, depth: int
    ) -> AvroType:
        name = str(_member(document, "name"))
        inner = name.rpartition(".")[0] or str(document.get("namespace", namespace))
        full = name if "." in name or not inner else f"{inner}.{name}"
        self.types[full] = None
        named: dict[str, Any] = {"name": full, "aliases": _aliases(document, inner)}
        if kind == "enum":
            default = document.get("default")
            defined = AvroType(
                kind,
                symbols=tuple(map(str, _member(document, "symbols"))),
                default=None if default is None else str(default),
                **named,
            )
        elif kind == "fixed":
            size = _member(document, "size")
            if not isinstance(size, int) or not 0 <= size < 1 << 30:
                msg = f"the size of '{full}' is {size}"
                raise AvroSchemaError(msg)
            defined = _with_logical(AvroType(kind, size=size, **named), document)
        else:
            fields = tuple(
                (str(_member(f, "name")), self.parse(_member(f, "type"), inner, depth + 1))
                for f in _member(document, "fields")
            )
            defined = AvroType(
                "record",
                fields,
                field_aliases=tuple(_aliases(f, "") for f in document["fields"]),
                field_defaults=tuple(
                    json.dumps(f["default"]) if "default" in f else None for f in document["fields"]
                ),
                **named,
            )
        self.types[full] = defined
        return defined


def _member(document: Any, name: str) -> Any:
    if not isinstance(document, dict) or name not in document:
        msg = f"'{name}' is missing in {json.dumps(document)[:80]}"
        raise AvroSchemaError(msg)
    return document[name]


def _aliases(document: dict[str, Any], namespace: str) -> tuple[str, ...]:
    listed = document.get("aliases")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    return tuple(n if "." in n or not namespace else f"{namespace}.{n}" for n in names)


def _with_logical(kind: AvroType, document: dict[str, Any]) -> AvroType:
    """
    Return a type with its logical type; an invalid one is ignored, as Avro's specification says.
    """
    logical = str(document.get("logicalType", ""))
    if logical == "decimal" and kind.kind in {"bytes", "fixed"}:
        precision, scale = document.get("precision"), document.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return kind
        if 0 <= scale <= precision and 1 <= precision <= 38:
            return replace(kind, logical=logical, precision=precision, scale=scale)
    elif (logical == "date" and kind.kind == "int") or (logical in TIMES and kind.kind == "long"):
        return replace(kind, logical=logical)
    return kind


def avro_ddl(kind: AvroType) -> str:
    """
    Return the DDL of the type that Spark's ``from_avro`` gives a schema.
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
        return "TIMESTAMP" if TIMES[kind.logical][0] == _TIMESTAMP else "TIMESTAMP_NTZ"
    return _DDL[kind.kind]


def _struct_ddl(fields: tuple[tuple[str, AvroType], ...]) -> str:
    return f"STRUCT<{', '.join(f'`{name}`: {avro_ddl(kind)}' for name, kind in fields)}>"


def _union_ddl(union: AvroType) -> str:
    branches = union.branches
    kinds = {branch.kind for branch in branches}
    plain = not any(branch.logical for branch in branches)
    if len(branches) == 1:
        return avro_ddl(branches[0])
    if plain and kinds == {"int", "long"}:
        return "BIGINT"
    if plain and kinds == {"float", "double"}:
        return "DOUBLE"
    if not branches:
        return "VOID"
    return _struct_ddl(tuple(pair for pair in union.fields if pair[1].kind != "null"))


def writer_plan(writer: AvroType, kind: pa.DataType, path: str) -> tuple[WriterPlan, list[str]]:
    """
    Return a schema for the compiled decoder, with the columns of a type that its values go to.

    The second value lists why they cannot.
    """
    matching = _Matching()
    return matching.plan(writer, kind, 0, path), matching.mistakes


def plan_size(kind: pa.DataType) -> int:
    """
    Return the number of types in a column's plan.
    """
    return 1 + sum(plan_size(f.type) for f in inner_fields(kind))


def skip_plan(writer: AvroType) -> WriterPlan:
    """
    Return a schema for the compiled decoder whose values are passed over.
    """
    inner = [skip_plan(kind) for _, kind in writer.fields]
    return KINDS[writer.kind], _SKIPPED, AS_IT_IS, writer.size, inner, writer.symbols


@dataclass(slots=True)
class _Matching:
    """
    Matches a schema with a type; ``number`` is the type's index in the plan of columns.
    """

    mistakes: list[str] = field(default_factory=list)

    def plan(self, writer: AvroType, kind: pa.DataType, number: int, path: str) -> WriterPlan:
        if writer.kind == "union":
            return self._union(writer, kind, number, path)
        if writer.kind == "record" and pa.types.is_struct(kind):
            return self._record(writer, kind, number, path)
        if (writer.kind == "array" and pa.types.is_list(kind)) or (
            writer.kind == "map" and pa.types.is_map(kind)
        ):
            inner = self._inner(writer, kind, number, path)
            return KINDS[writer.kind], number, AS_IT_IS, 0, inner, ()
        if writer.kind == "null":
            return KINDS["null"], number, AS_IT_IS, 0, [], ()
        found = conversion(writer, kind)
        if found is None:
            name = str(kind)
            self.mistakes.append(
                f"'{path}' is {name} in the schema, and Avro's {writer.logical or writer.kind} in "
                f"the records; it must be: {avro_ddl(writer)}"
            )
            return skip_plan(writer)
        avro_kind = writer.kind
        if avro_kind == "bytes" and kind == pa.string():
            avro_kind = "string"
        elif avro_kind == "string" and kind == pa.binary():
            avro_kind = "bytes"
        return KINDS[avro_kind], number, found, writer.size, [], writer.symbols

    def _inner(
        self, writer: AvroType, kind: pa.DataType, number: int, path: str
    ) -> list[WriterPlan]:
        plans, number = [], number + 1
        for (_, inner), f in zip(writer.fields, inner_fields(kind), strict=True):
            plans.append(self.plan(inner, f.type, number, f"{path}.{f.name}"))
            number += plan_size(f.type)
        return plans

    def _record(self, writer: AvroType, kind: pa.DataType, number: int, path: str) -> WriterPlan:
        inner = self._fields(writer.fields, kind, number, path)
        return KINDS["record"], number, AS_IT_IS, 0, inner, ()

    def _fields(
        self,
        fields: tuple[tuple[str, AvroType], ...],
        kind: pa.DataType,
        number: int,
        path: str,
    ) -> list[WriterPlan]:
        wanted, at = {}, number + 1
        for f in kind:
            wanted[f.name] = (f.type, at)
            at += plan_size(f.type)
        names = [name for name, _ in fields]
        for name in wanted:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "remove it from the schema"
                self.mistakes.append(f"'{path}.{name}' is not in the Avro schema; {hint}")
        return [
            self.plan(inner, *wanted[name], f"{path}.{name}")
            if name in wanted
            else skip_plan(inner)
            for name, inner in fields
        ]

    def _union(self, writer: AvroType, kind: pa.DataType, number: int, path: str) -> WriterPlan:
        to_members = len(writer.branches) > 1 and pa.types.is_struct(kind)
        if to_members:
            inner = self._fields(writer.fields, kind, number, path)
            return KINDS["union"], number, _TO_MEMBERS, 0, inner, ()
        inner = [self.plan(branch, kind, number, path) for _, branch in writer.fields]
        return KINDS["union"], number, AS_IT_IS, 0, inner, ()


def conversion(writer: AvroType, kind: pa.DataType) -> int | None:
    """
    Return how values become a type that has no parts, or None if they cannot.
    """
    if writer.logical == "decimal" and pa.types.is_decimal(kind):
        same = (kind.precision, kind.scale) == (writer.precision, writer.scale)
        return AS_IT_IS if same else None
    if writer.logical == "date" and kind == pa.date32():
        return AS_IT_IS
    if writer.logical in TIMES and kind == TIMES[writer.logical][0]:
        return TIMES[writer.logical][1]
    return AS_IT_IS if kind in _PROMOTIONS.get(writer.kind, ()) else None
