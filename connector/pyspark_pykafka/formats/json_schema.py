"""
Derives DDL from a JSON Schema.

If the schema leaves a type open, the column is a STRING with the JSON text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark_pykafka.formats.avro_schema import MAX_TYPES
from pyspark_pykafka.formats.column_types import MAX_TYPE_DEPTH

_SIMPLE = {"boolean": "BOOLEAN", "integer": "BIGINT", "number": "DOUBLE"}
_STRINGS = {"date": "DATE", "date-time": "TIMESTAMP"}
_ANY = "STRING"


def json_schema_ddl(text: str, name: str | None = None) -> str:
    """
    Return the DDL of a JSON Schema's type, or of the type of its property ``name``.

    Raises ValueError if the schema lacks the property, contains itself, or is too large.
    """
    try:
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError as cause:
        msg = "it is nested too deeply"
        raise ValueError(msg) from cause
    except UnicodeEncodeError as cause:
        msg = "it has a string with half of a surrogate pair"
        raise ValueError(msg) from cause
    return _Ddl(document).type(document if name is None else _property(document, name), 1)


def _property(document: Any, name: str) -> Any:
    properties = document.get("properties") if isinstance(document, dict) else None
    if not isinstance(properties, dict) or name not in properties:
        msg = f"it has no property '{name}'"
        raise ValueError(msg)
    return properties[name]


@dataclass(slots=True)
class _Ddl:
    """
    Writes the DDL of the types of a JSON Schema; ``count`` is the number of types so far.
    """

    root: Any
    count: int = 0

    def type(self, schema: Any, depth: int) -> str:
        self.count += 1
        if depth > MAX_TYPE_DEPTH:
            msg = f"it is nested more than {MAX_TYPE_DEPTH} levels, or contains itself"
            raise ValueError(msg)
        if self.count > MAX_TYPES:
            msg = f"it has more than {MAX_TYPES} types, each counted at every use"
            raise ValueError(msg)
        if not isinstance(schema, dict):
            return _ANY
        if "$ref" in schema:
            return self.type(_resolve_reference(str(schema["$ref"]), self.root), depth + 1)
        if (only := _only_branch(schema)) is not None:
            return self.type(only, depth + 1)
        kinds = schema.get("type", "object" if "properties" in schema else None)
        types = [k for k in (kinds if isinstance(kinds, list) else [kinds]) if k != "null"]
        if len(types) != 1:
            return _ANY
        return self._of_kind(types[0], schema, depth)

    def _of_kind(self, kind: Any, schema: dict[str, Any], depth: int) -> str:
        if kind == "array":
            return f"ARRAY<{self.type(schema.get('items'), depth + 1)}>"
        if kind == "object":
            return self._object(schema, depth)
        if kind == "string":
            return _STRINGS.get(str(schema.get("format")), "STRING")
        return _SIMPLE.get(str(kind), _ANY)

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            fields = [
                f"`{name.replace('`', '``')}`: {self.type(inner, depth + 1)}"
                for name, inner in properties.items()
            ]
            return f"STRUCT<{', '.join(fields)}>"
        values = schema.get("additionalProperties")
        return f"MAP<STRING, {self.type(values, depth + 1)}>" if isinstance(values, dict) else _ANY


def _only_branch(schema: dict[str, Any]) -> Any:
    """
    Return the schema that replaces a union, or an ``allOf`` with one part; None for other schemas.

    A union is replaced by its only branch that is not null. If it does not have exactly one such
    branch, it is replaced by ``{}``, which allows any value.
    """
    for name in ("oneOf", "anyOf"):
        if isinstance(branches := schema.get(name), list):
            others = [b for b in branches if not (isinstance(b, dict) and b.get("type") == "null")]
            return others[0] if len(others) == 1 else {}
    parts = schema.get("allOf")
    if not isinstance(parts, list) or len(parts) != 1 or {"type", "properties"} & {*schema}:
        return None
    return parts[0]


def _resolve_reference(reference: str, root: Any) -> Any:
    """
    Return the part of a document that ``#/definitions/...`` refers to.

    For a reference to another document, return a schema that allows any value.
    """
    if not reference.startswith("#"):
        return {}
    part = root
    for step in unquote(reference[1:]).strip("/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if name:
            part = _member(part, name)
    return part


def _member(part: Any, name: str) -> Any:
    if isinstance(part, list) and name.isascii() and name.isdigit():
        return dict(enumerate(part)).get(int(name))
    return part.get(name) if isinstance(part, dict) else None
