"""
Derives DDL from a JSON Schema.

If the schema leaves a type open, the column is a STRING with the JSON text.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark_pykafka.formats.json_types import MAX_TYPE_DEPTH

_SIMPLE = {"boolean": "BOOLEAN", "integer": "BIGINT", "number": "DOUBLE"}
_STRINGS = {"date": "DATE", "date-time": "TIMESTAMP"}
_ANY = "STRING"


def json_schema_ddl(text: str, name: str | None = None) -> str:
    """
    Return the DDL of a JSON Schema's type, or of the type of its property ``name``.

    Raises ValueError if the schema lacks the property, or is nested too deeply.
    """
    try:
        document = json.loads(text)
    except RecursionError as cause:
        msg = "it is nested too deeply"
        raise ValueError(msg) from cause
    return _ddl(document if name is None else _property(document, name), document, 1)


def _property(document: Any, name: str) -> Any:
    properties = document.get("properties") if isinstance(document, dict) else None
    if not isinstance(properties, dict) or name not in properties:
        msg = f"it has no property '{name}'"
        raise ValueError(msg)
    return properties[name]


def _ddl(schema: Any, root: Any, depth: int) -> str:
    if depth > MAX_TYPE_DEPTH:
        msg = f"it is nested more than {MAX_TYPE_DEPTH} levels, or contains itself"
        raise ValueError(msg)
    if not isinstance(schema, dict):
        return _ANY
    if "$ref" in schema:
        return _ddl(_resolve_reference(str(schema["$ref"]), root), root, depth + 1)
    if (only := _only_branch(schema)) is not None:
        return _ddl(only, root, depth + 1)
    kinds = schema.get("type", "object" if "properties" in schema else None)
    types = [k for k in (kinds if isinstance(kinds, list) else [kinds]) if k != "null"]
    if len(types) != 1:
        return _ANY
    return _of_kind(types[0], schema, root, depth)


def _of_kind(kind: Any, schema: dict[str, Any], root: Any, depth: int) -> str:
    if kind == "array":
        return f"ARRAY<{_ddl(schema.get('items'), root, depth + 1)}>"
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "string":
        return _STRINGS.get(str(schema.get("format")), "STRING")
    return _SIMPLE.get(str(kind), _ANY)


def _object(schema: dict[str, Any], root: Any, depth: int) -> str:
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        fields = [
            f"`{name.replace('`', '``')}`: {_ddl(inner, root, depth + 1)}"
            for name, inner in properties.items()
        ]
        return f"STRUCT<{', '.join(fields)}>"
    values = schema.get("additionalProperties")
    return f"MAP<STRING, {_ddl(values, root, depth + 1)}>" if isinstance(values, dict) else _ANY


def _only_branch(schema: dict[str, Any]) -> Any:
    """
    Return the branch of a union that is not null, or ``{}``, which allows any value, if there is
    not exactly one. Return None if the schema is not a union.
    """
    for name in ("oneOf", "anyOf"):
        if isinstance(branches := schema.get(name), list):
            others = [b for b in branches if not (isinstance(b, dict) and b.get("type") == "null")]
            return others[0] if len(others) == 1 else {}
    return None


def _resolve_reference(reference: str, root: Any) -> Any:
    """
    Return the part of a document that ``#/definitions/...`` refers to.

    For a reference to another document, return a schema that allows any value.
    """
    if not reference.startswith("#"):
        return {}
    part = root
    for step in reference[1:].strip("/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if name:
            part = part.get(name) if isinstance(part, dict) else None
    return part
