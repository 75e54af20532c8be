"""
Avro schemas, parsed from their JSON text.

A recursive record is rejected: no column can have its type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.avro_times import TIMES
from pyspark_pykafka.formats.column_types import MAX_TYPE_DEPTH

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

#: A schema with more types is rejected: if each type uses the next one twice, a schema of a few
#: lines has exponentially many.
MAX_TYPES = 100_000

#: The maximum size of a value of a fixed type.
MAX_FIXED_BYTES = (1 << 30) - 1
# Spark's decimals, and the size of a fixed type that can hold each of them.
_DECIMAL_DIGITS, _BYTES_OF_ALL_DIGITS = 38, 16
_TOO_DEEP = f"it is nested more than {MAX_TYPE_DEPTH} levels"


class AvroSchemaError(ValueError):
    """
    The text is not an Avro schema, or no column can have its type; the message has the reason.
    """


@dataclass(frozen=True, slots=True)
class AvroType:
    """
    A type of an Avro schema. ``fields`` are the (name, type) pairs of a record's fields, a union's
    branches, an array's item, or a map's key and value.

    ``name`` and ``aliases`` are the full names of a named type; ``default`` is the default symbol
    of an enum. A record also has the aliases of each field, and the JSON text of each field's
    default, or None.
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
    def non_null_branches(self) -> list[AvroType]:
        """
        The branches of a union that are not null.
        """
        return [branch for _, branch in self.fields if branch.kind != "null"]


def parse_avro(text: str) -> AvroType:
    """
    Parse a schema. Raises :class:`AvroSchemaError` if it cannot be used.
    """
    try:
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as cause:
        msg = "it has a string with half of a surrogate pair"
        raise AvroSchemaError(msg) from cause
    except (ValueError, RecursionError) as cause:
        msg = f"it is not JSON ({cause})"
        raise AvroSchemaError(msg) from cause
    parsed = _Parser().parse(document, "", 1)
    try:
        size, depth = _extent(parsed, {})
    except RecursionError as cause:
        raise AvroSchemaError(_TOO_DEEP) from cause
    if depth > MAX_TYPE_DEPTH:
        raise AvroSchemaError(_TOO_DEEP)
    if size > MAX_TYPES:
        msg = f"it has more than {MAX_TYPES} types, each counted at every use"
        raise AvroSchemaError(msg)
    return parsed


def _extent(avro_type: AvroType, extents: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """
    Return the number of types and the number of levels; a named type is counted at each use.
    """
    if id(avro_type) not in extents:
        inner = [_extent(part, extents) for _, part in avro_type.fields]
        sizes, depths = [size for size, _ in inner], [depth for _, depth in inner]
        extents[id(avro_type)] = 1 + sum(sizes), 1 + max(depths, default=0)
    return extents[id(avro_type)]


def writer_schema(name: str, text: str | None) -> AvroType:
    """
    Return the parsed schema of a column; ``name`` is ``key`` or ``value``, and ``text`` the option.

    Raises :class:`OptionsError` if the option is missing or not a usable schema.
    """
    if text is None:
        msg = (
            f"{name}Format is 'avro', but its schema is missing; set {name}Schema to the JSON text "
            "of the Avro schema that the records were written with, or schema.registry.url if the "
            "records have schema ids"
        )
        raise OptionsError((msg,))
    try:
        return parse_avro(text)
    except AvroSchemaError as cause:
        msg = f"{name}Schema is not a usable Avro schema: {cause}"
        raise OptionsError((msg,)) from cause


@dataclass(slots=True)
class _Parser:
    """
    Parses types. ``types`` holds the named types so far; None for one that is being parsed.
    """

    types: dict[str, AvroType | None] = field(default_factory=dict)

    def parse(self, document: Any, namespace: str, depth: int) -> AvroType:
        if depth > MAX_TYPE_DEPTH:
            raise AvroSchemaError(_TOO_DEEP)
        if isinstance(document, str):
            return self._named(document, namespace)
        if isinstance(document, list):
            branches = [self.parse(branch, namespace, depth + 1) for branch in document]
            # As in Spark's from_avro, a union becomes a struct of member0, member1 and so on.
            members = enumerate(branch for branch in branches if branch.kind != "null")
            names = {id(branch): f"member{number}" for number, branch in members}
            return AvroType("union", tuple((names.get(id(b), ""), b) for b in branches))
        if not isinstance(document, dict) or "type" not in document:
            raise _not_a_type_error(document)
        kind = document["type"]
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise _not_a_type_error(kind)
        if kind in {"record", "error", "enum", "fixed"}:
            return self._definition(document, kind, namespace, depth)
        if kind in {"array", "map"}:
            item_name = "items" if kind == "array" else "values"
            item = self.parse(_member(document, item_name), namespace, depth + 1)
            key = (("key", AvroType("string")),) if kind == "map" else ()
            return AvroType(kind, (*key, ("value", item)))
        return _with_logical(self._named(kind, namespace), document)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self.types else name
        if full not in self.types:
            msg = f"it uses the type '{name}', but does not define it"
            raise AvroSchemaError(msg)
        named = self.types[full]
        if named is None:
            msg = f"'{full}' contains itself, which no column type can"
            raise AvroSchemaError(msg)
        return named

    def _definition(
        self, document: dict[str, Any], kind: str, namespace: str, depth: int
    ) -> AvroType:
        name = str(_member(document, "name"))
        scope = name.rpartition(".")[0] or declared_namespace(document, namespace)
        full = name if "." in name or not scope else f"{scope}.{name}"
        self.types[full] = None
        names: dict[str, Any] = {"name": full, "aliases": _aliases(document, scope)}
        if kind == "enum":
            default = document.get("default")
            defined = AvroType(
                kind,
                symbols=tuple(map(str, _listed(document, "symbols"))),
                default=None if default is None else str(default),
                **names,
            )
        elif kind == "fixed":
            size = _member(document, "size")
            if not isinstance(size, int) or not 0 <= size <= MAX_FIXED_BYTES:
                msg = f"the size of '{full}' is {size}; it must be from 0 to {MAX_FIXED_BYTES}"
                raise AvroSchemaError(msg)
            defined = _with_logical(AvroType(kind, size=size, **names), document)
        else:
            fields = tuple(
                (
                    str(_member(f, "name")),
                    self.parse(_member(f, "type"), scope, depth + 1),
                )
                for f in _listed(document, "fields")
            )
            defined = AvroType(
                "record",
                fields,
                field_aliases=tuple(_aliases(f, "") for f in document["fields"]),
                field_defaults=tuple(
                    json.dumps(f["default"]) if "default" in f else None for f in document["fields"]
                ),
                **names,
            )
        self.types[full] = defined
        return defined


def declared_namespace(document: dict[str, Any], enclosing: str) -> str:
    """
    Return the namespace of a definition. As in Avro's Java library, a namespace that is not a
    string, such as null, counts as absent.
    """
    namespace = document.get("namespace")
    return namespace if isinstance(namespace, str) else enclosing


def _member(document: Any, name: str) -> Any:
    if not isinstance(document, dict) or name not in document:
        msg = f"'{name}' is missing in {json.dumps(document)[:80]}"
        raise AvroSchemaError(msg)
    return document[name]


def _listed(document: Any, name: str) -> list[Any]:
    listed = _member(document, name)
    if not isinstance(listed, list):
        msg = f"'{name}' is {json.dumps(listed)[:80]}; it must be a list"
        raise AvroSchemaError(msg)
    return listed


def _not_a_type_error(document: Any) -> AvroSchemaError:
    return AvroSchemaError(f"{json.dumps(document)[:80]} is not a type")


def _aliases(document: dict[str, Any], namespace: str) -> tuple[str, ...]:
    listed = document.get("aliases")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    return tuple(n if "." in n or not namespace else f"{namespace}.{n}" for n in names)


def _with_logical(avro_type: AvroType, document: dict[str, Any]) -> AvroType:
    """
    Return a type with its logical type. As Avro's specification requires, an invalid logical type
    is ignored.
    """
    logical = str(document.get("logicalType", ""))
    if logical == "decimal" and avro_type.kind in {"bytes", "fixed"}:
        precision, scale = document.get("precision"), document.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:
            return avro_type
        if 0 <= scale <= precision and 1 <= precision <= _max_digits(avro_type):
            return replace(avro_type, logical=logical, precision=precision, scale=scale)
    elif (logical == "date" and avro_type.kind == "int") or (
        logical in TIMES and avro_type.kind == "long"
    ):
        return replace(avro_type, logical=logical)
    return avro_type


def _max_digits(avro_type: AvroType) -> int:
    """
    Return the maximum number of digits of a decimal: Spark's maximum, or fewer if a ``fixed`` type
    is too small for it.
    """
    if avro_type.kind != "fixed" or avro_type.size >= _BYTES_OF_ALL_DIGITS:
        return _DECIMAL_DIGITS
    return len(str((1 << 8 * avro_type.size) // 2)) - 1
