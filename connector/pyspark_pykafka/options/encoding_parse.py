"""
Parses the options for keys and values that a write encodes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark_pykafka.options import table
from pyspark_pykafka.options.encoding_values import EncodedColumnOptions, EncodingOptions
from pyspark_pykafka.options.format_parse import read_message
from pyspark_pykafka.options.registry_parse import read_registry
from pyspark_pykafka.options.registry_table import (
    AUTO_REGISTER,
    KEY_SUBJECT_OPTIONS,
    SCHEMA_ID_LOCATION,
    USE_LATEST_VERSION,
    VALUE_SUBJECT_OPTIONS,
)
from pyspark_pykafka.options.registry_values import SubjectOptions
from pyspark_pykafka.options.schema_text import begins_with_type
from pyspark_pykafka.options.value_parsers import SCHEMA, InvalidOptionError

if TYPE_CHECKING:
    from pyspark_pykafka.options.option_reader import OptionReader

_FORMATS = ("raw", "text", "json", "avro", "protobuf")
_STRUCTURED = ("json", "avro", "protobuf")
# Each of Spark's structs, arrays and maps has one of these keys in its JSON text; no JSON Schema
# does.
_SPARK_KEYS = {"fields", "elementType", "keyType"}
_MAX_SCHEMA_LENGTH = 200


def read_encoding(reader: OptionReader) -> EncodingOptions:
    """
    Return how keys and values are encoded, and add contradictions to ``reader.mistakes``.
    """
    registry = read_registry(reader)
    encoding = EncodingOptions(
        _read_column(reader, "value"),
        _read_column(reader, "key"),
        registry,
        reader.get(AUTO_REGISTER),
        reader.get(table.IGNORE_NULL_FIELDS),
        reader.get(SCHEMA_ID_LOCATION),
    )
    formats = {column.format for column in encoding.by_column.values()}
    if registry is not None and not formats & {*_STRUCTURED}:
        reader.mistakes.append(
            "schema.registry.url is set, but no format uses it; set valueFormat or keyFormat to: "
            "avro, json or protobuf"
        )
    if reader.has(table.IGNORE_NULL_FIELDS) and "json" not in formats:
        reader.mistakes.append(
            "ignoreNullFields is set, but neither valueFormat nor keyFormat is json"
        )
    return encoding


def _read_column(reader: OptionReader, name: str) -> EncodedColumnOptions:
    is_value = name == "value"
    format_name = reader.get(table.VALUE_FORMAT if is_value else table.KEY_FORMAT)
    match format_name:
        case "debezium-json" | "debezium-avro":
            reader.mistakes.append(
                f"{name}Format is '{format_name}', which cannot be written; it must be one of: "
                f"{', '.join(_FORMATS)}"
            )
            format_name = "raw"
    text = reader.find(table.VALUE_SCHEMA if is_value else table.KEY_SCHEMA)
    if text is not None and format_name not in _STRUCTURED:
        reader.mistakes.append(
            f"{name}Schema is set, but {name}Format is '{format_name}'; set it to json, avro or "
            "protobuf"
        )
    if format_name == "json" and text is not None and not _is_json_schema(text):
        if not _is_spark_type(text):
            reader.mistakes.append(
                f"{name}Schema is '{text[:_MAX_SCHEMA_LENGTH]}'; it must be: the text of a JSON "
                "Schema that is a JSON object, or the type of a read as DDL or JSON text"
            )
        # The text is a Spark type, with which a view reads; a write takes the column's type.
        text = None
    column = EncodedColumnOptions(
        format_name,
        text,
        _read_subject(reader, name),
        reader.get(USE_LATEST_VERSION),
        read_message(
            reader, table.VALUE_MESSAGE_NAME if is_value else table.KEY_MESSAGE_NAME, format_name
        ),
    )
    if format_name in _STRUCTURED:
        _check_schema(reader, name, column)
    return column


def _is_json_schema(text: str) -> bool:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and not _SPARK_KEYS & document.keys()


def _is_spark_type(text: str) -> bool:
    try:
        return begins_with_type(SCHEMA(text))
    except InvalidOptionError:
        return False


def _read_subject(reader: OptionReader, column: str) -> SubjectOptions:
    options = VALUE_SUBJECT_OPTIONS if column == "value" else KEY_SUBJECT_OPTIONS
    name, version, strategy, record_name = options
    subject = SubjectOptions(
        reader.find(name), reader.find(version), reader.get(strategy), reader.find(record_name)
    )
    if subject.name is not None and reader.has(strategy):
        reader.mistakes.append(
            f"{name.name} is set together with {strategy.name}, which names a subject too; remove "
            "one of them"
        )
    return subject


def _check_schema(reader: OptionReader, name: str, column: EncodedColumnOptions) -> None:
    subject = column.subject
    if column.uses_registered_schema and column.schema is not None:
        reader.mistakes.append(
            f"{name}Schema is set together with useLatestVersion or {name}SubjectVersion, which "
            "take the schema of the registry; remove one of them"
        )
    if column.uses_latest_version and subject.version is not None:
        reader.mistakes.append(
            f"useLatestVersion is true, but {name}SubjectVersion is {subject.version}; remove one"
        )
    if column.message is not None and column.schema is None and not column.uses_registered_schema:
        reader.mistakes.append(
            f"{name}MessageName is set, but the schema is derived from the column; set "
            f"{name}RecordName to its name, or {name}Schema"
        )
    schema_has_name = column.format in {"avro", "protobuf"} and column.schema
    has_record_name = subject.record_name or schema_has_name or column.message
    if subject.name is None and subject.strategy != "TopicNameStrategy" and not has_record_name:
        reader.mistakes.append(
            f"{name}SubjectNameStrategy is '{subject.strategy}', but {name}RecordName is missing; "
            "set it to the full name of the record, such as com.shop.Order"
        )
