"""
Schemas given as text: Spark's DDL, or the JSON text of Spark's types, which becomes DDL.

Spark itself parses the DDL, so nothing here knows its whole grammar.
"""

from __future__ import annotations

import json
import re
from typing import Any

# A type's name with its parameters, as opposed to a list of fields: "BIGINT", "ARRAY<INT>".
_TYPE = re.compile(r"\w+\s*(<.*>|\([\d\s,]*\))?", re.DOTALL)
_STRUCT = re.compile(r"struct\s*<(.*)>", re.DOTALL | re.IGNORECASE)

# A quoted name or text, which is kept, or a field's NOT NULL, which is removed.
_QUOTED_OR_NOT_NULL = re.compile(
    r"(`[^`]*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|\s+NOT\s+NULL\b",
    re.DOTALL | re.IGNORECASE,
)

# A quoted name, a quoted text, a bracket or comma, or a word.
_TOKEN = re.compile(
    r"`((?:[^`]|``)*)`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),:]|[^\s`'\"<>(),:]+", re.DOTALL
)

# Spark's types, also by their names in JSON text.
_NAMES = (
    "array|bigint|binary|boolean|byte|char|character|date|dec|decimal|double|float|int|integer|"
    "interval|long|map|numeric|real|short|smallint|string|struct|time|timestamp|timestamp_ltz|"
    "timestamp_ntz|tinyint|varchar|variant|void"
)
_BEGINS_WITH_TYPE = re.compile(rf"({_NAMES})\b", re.IGNORECASE)
_BEGINS_WITH_FIELD = re.compile(rf"\s*(\w+|`([^`]|``)+`)(\s*:\s*|\s+)({_NAMES})\b", re.IGNORECASE)


def read_schema(text: str) -> str:
    """
    Return the DDL of a type for the text of an option.

    A list of fields, as in ``id BIGINT, name STRING``, is a STRUCT. DDL is not checked. Raises
    ValueError, KeyError, TypeError or RecursionError if the text is empty, or is JSON that does not
    describe a type.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError(text)
    if stripped[0] in '{"':
        return _type_ddl(json.loads(stripped))
    return stripped if _TYPE.fullmatch(stripped) else f"STRUCT<{stripped}>"


def begins_with_type(ddl: str) -> bool:
    """
    Return whether DDL from :func:`read_schema` begins with one of Spark's types or, in a STRUCT,
    with a field of such a type; the rest is not checked.
    """
    fields = struct_fields(ddl)
    if fields is None:
        return _BEGINS_WITH_TYPE.match(ddl) is not None
    return not fields.strip() or _BEGINS_WITH_FIELD.match(fields) is not None


def nullable_ddl(ddl: str) -> str:
    """
    Return the DDL of the same type with nullable fields.
    """
    return _QUOTED_OR_NOT_NULL.sub(lambda match: match[1] or "", ddl)


def struct_fields(ddl: str) -> str | None:
    """
    Return the DDL of the fields of a STRUCT, or None for another type.
    """
    match = _STRUCT.fullmatch(ddl)
    return None if match is None else match[1]


def field_names(fields: str) -> list[str]:
    """
    Return the names in the DDL of a list of fields, without those of nested fields.
    """
    names: list[str] = []
    level, begins = 0, True
    for match in _TOKEN.finditer(fields):
        text, quoted = match[0], match[1]
        if begins:
            names.append(text if quoted is None else quoted.replace("``", "`"))
        level += (text in {"<", "("}) - (text in {">", ")"})
        begins = text == "," and level == 0
    return names


def _type_ddl(document: Any) -> str:
    if isinstance(document, str):
        return document
    kind = document["type"] if isinstance(document, dict) and "type" in document else None
    if kind == "struct":
        return f"STRUCT<{', '.join(map(_field_ddl, document['fields']))}>"
    if kind == "array":
        return f"ARRAY<{_type_ddl(document['elementType'])}>"
    if kind == "map":
        return f"MAP<{_type_ddl(document['keyType'])}, {_type_ddl(document['valueType'])}>"
    msg = f"no type: {kind}"
    raise ValueError(msg)


def _field_ddl(field: Any) -> str:
    name = str(field["name"]).replace("`", "``")
    return f"`{name}`: {_type_ddl(field['type'])}"
