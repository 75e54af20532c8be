"""
The columns of a record as Arrow types: those of the source, and those that a sink accepts.
"""

from __future__ import annotations

from difflib import get_close_matches

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
#: The type of the column `timestamp` in Spark.
TIMESTAMP = pa.timestamp("us", tz="UTC")
#: The type of the same column for readers other than Spark: the record's own milliseconds. Some of
#: these values are out of range in Spark's microseconds.
TIMESTAMP_MS = pa.int64()

#: The columns of the source, in the order and with the types of Spark's JVM connector.
SOURCE_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}

#: The columns in which each record has a value.
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})

#: The key of the field metadata that may hold the caller's name of the type, for messages.
TYPE_NAME = b"type"

_TEXT_OR_BYTES = (pa.string(), pa.binary())

#: The accepted types of the columns that a sink knows, and their Spark names for messages.
_SINK_TYPES: dict[str, tuple[tuple[pa.DataType, ...], str]] = {
    "topic": ((pa.string(),), "STRING"),
    "key": (_TEXT_OR_BYTES, "STRING or BINARY"),
    "value": (_TEXT_OR_BYTES, "STRING or BINARY"),
    "headers": ((HEADERS,), "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    "partition": ((pa.int32(),), "INT"),
    "timestamp": ((TIMESTAMP,), "TIMESTAMP"),
}


SINK_COLUMNS = tuple(_SINK_TYPES)


def check_source_schema(schema: pa.Schema, *, include_headers: bool) -> None:
    """
    Raise :class:`OptionsError` if a user's schema has columns or types that a record lacks.

    A schema may have a subset of the columns in any order, and ``key`` and ``value`` may be STRING:
    bytes that are not UTF-8 then stay unchanged, as in ``CAST(value AS STRING)``.
    """
    mistakes = [m for f in schema for m in _source_field_mistakes(f)]
    if "headers" in schema.names and not include_headers:
        mistakes.append("the schema has the column 'headers'; set includeHeaders to true")
    if not schema.names:
        mistakes.append(f"the schema is empty; add at least one of: {', '.join(SOURCE_TYPES)}")
    if mistakes:
        raise OptionsError(tuple(mistakes))


def _source_field_mistakes(field: pa.Field) -> list[str]:
    expected = SOURCE_TYPES.get(field.name)
    if expected is None:
        near = get_close_matches(field.name, SOURCE_TYPES, n=1)
        columns = ", ".join(SOURCE_TYPES)
        hint = f"did you mean '{near[0]}'?" if near else f"it must be one of: {columns}"
        return [f"the schema's column '{field.name}' is not a column of a Kafka record; {hint}"]
    is_text = field.name in {"key", "value"} and field.type == pa.string()
    if not is_text and not types_match(field.type, expected):
        return [
            (
                f"the schema's column '{field.name}' has type {_type_name(field)}; it must be "
                f"{expected}{_decoding_hint(field.name)}"
            )
        ]
    mistakes = [] if field.name in _NEVER_NULL else null_mistakes(field)
    return mistakes + (_header_mistakes(field) if field.name == "headers" else [])


def null_mistakes(field: pa.Field, path: str | None = None) -> list[str]:
    """
    Return a mistake if a field that can be NULL is not nullable.

    Spark trusts the schema: without this check it would take ``IS NULL`` for false, and read a NULL
    as a value, which ends with a ``NullPointerException``.
    """
    if field.nullable:
        return []
    name = path or field.name
    return [f"'{name}' is NOT NULL; it must be nullable, since a record may have no value for it"]


def _header_mistakes(headers: pa.Field) -> list[str]:
    return null_mistakes(headers.type.value_type.field("value"), "headers.element.value")


def _decoding_hint(name: str) -> str:
    return f" or string; to decode it, set {name}Format" if name in {"key", "value"} else ""


def check_sink_schema(schema: pa.Schema, *, topic_option: bool) -> None:
    """
    Raise :class:`OptionsError` if rows of this schema cannot become records.

    Columns that are not part of a record are ignored.
    """
    mistakes = [m for f in schema for m in _sink_field_mistakes(f)]
    if "value" not in schema.names:
        mistakes.append("the column 'value' is missing; add it as STRING or BINARY")
    if "topic" not in schema.names and not topic_option:
        mistakes.append(
            "no topic is given; set the option 'topic', or add a column 'topic' of type STRING"
        )
    if mistakes:
        raise OptionsError(tuple(mistakes))


def _sink_field_mistakes(field: pa.Field) -> list[str]:
    if field.name not in _SINK_TYPES:
        return []
    accepted, names = _SINK_TYPES[field.name]
    if any(types_match(field.type, kind) for kind in accepted):
        return []
    hint = "" if field.name not in {"key", "value"} else f"; to encode it, set {field.name}Format"
    return [
        f"unsupported type of column '{field.name}': {_type_name(field)}; it must be {names}{hint}"
    ]


def types_match(actual: pa.DataType, expected: pa.DataType) -> bool:
    """
    Whether two types are equal except for nullability and for the size of Arrow's offsets.

    Spark passes large_string and large_binary if ``useLargeVarTypes`` is set.
    """
    if pa.types.is_nested(expected):
        return _same_headers(actual)
    return bool(_narrow(actual) == expected)


def _same_headers(actual: pa.DataType) -> bool:
    if not pa.types.is_list(actual) or not pa.types.is_struct(actual.value_type):
        return False
    fields = [(f.name, _narrow(f.type)) for f in actual.value_type]
    return fields == [(f.name, f.type) for f in HEADER]


def _type_name(field: pa.Field) -> str:
    return str((field.metadata or {}).get(TYPE_NAME, str(field.type).encode()).decode())


def _narrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind
