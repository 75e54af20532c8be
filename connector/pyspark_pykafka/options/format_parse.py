"""
Parses the options for decoding keys and values, and for bad records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.options import table
from pyspark_pykafka.options.format_values import FormatOptions
from pyspark_pykafka.options.registry_parse import read_registry, read_subject
from pyspark_pykafka.options.registry_table import KEY_SUBJECT_OPTIONS, VALUE_SUBJECT_OPTIONS
from pyspark_pykafka.options.value_parsers import SCHEMA, InvalidOptionError
from pyspark_pykafka.settings import Role

if TYPE_CHECKING:
    from pyspark_pykafka.options.format_values import ValueFormat
    from pyspark_pykafka.options.option import Option
    from pyspark_pykafka.options.option_reader import OptionReader

# The formats whose values have a schema.
_STRUCTURED = ("json", "avro", "protobuf", "debezium-json", "debezium-avro")

# The formats whose schemas a registry may have.
_REGISTERED = ("avro", "json", "protobuf", "debezium-avro", "debezium-json")
_OR_STRUCTURED = {
    "valueFormat": "json, avro, protobuf, debezium-json or debezium-avro",
    "keyFormat": "json, avro or protobuf",
}
# The formats of change events.
_DEBEZIUM = ("debezium-json", "debezium-avro")
_DEBEZIUM_OPTIONS: tuple[Option[Any], ...] = (table.DEBEZIUM_ROWS, table.DEBEZIUM_TOMBSTONES)
_MAX_SCHEMA_LENGTH = 200


def read_formats(reader: OptionReader) -> FormatOptions:
    """
    Return how a read decodes, and report options that contradict each other.
    """
    value_format, key_format = reader.get(table.VALUE_FORMAT), reader.get(table.KEY_FORMAT)
    formats = FormatOptions(
        value_format=value_format,
        key_format=key_format,
        value_schema=_schema(reader, table.VALUE_SCHEMA, value_format),
        key_schema=_schema(reader, table.KEY_SCHEMA, key_format),
        flatten=reader.get(table.FLATTEN),
        on_bad_record=reader.get(table.ON_BAD_RECORD),
        max_bad_records=reader.find(table.MAX_BAD_RECORDS),
        dead_letter_topic=reader.find(table.DEAD_LETTER_TOPIC),
        registry=read_registry(reader),
        value_subject=read_subject(reader, "value"),
        key_subject=read_subject(reader, "key"),
        value_message=read_message(reader, table.VALUE_MESSAGE_NAME, value_format),
        key_message=read_message(reader, table.KEY_MESSAGE_NAME, key_format),
        debezium_rows=reader.get(table.DEBEZIUM_ROWS),
        drops_tombstones=(
            value_format in _DEBEZIUM and reader.get(table.DEBEZIUM_TOMBSTONES) == "drop"
        ),
        rescues_unknown_fields=reader.get(table.ON_UNKNOWN_FIELD) == "rescue",
    )
    _check_value_format(reader, formats)
    _check_debezium(reader, formats)
    _check_registry(reader, formats)
    _check_bad_records(reader, formats)
    _check_dead_letters(reader, formats)
    return formats


def _check_value_format(reader: OptionReader, formats: FormatOptions) -> None:
    if reader.has(table.ON_UNKNOWN_FIELD) and formats.value_format != "json":
        reader.mistakes.append(
            f"onUnknownField is set, but valueFormat is '{formats.value_format}'; set it to json"
        )
    if formats.flatten and formats.value_format not in _STRUCTURED:
        reader.mistakes.append(
            f"flatten is true, but valueFormat is '{formats.value_format}'; set it to "
            f"{_OR_STRUCTURED['valueFormat']}"
        )


def _check_bad_records(reader: OptionReader, formats: FormatOptions) -> None:
    if formats.on_bad_record != "fail" and {*formats.by_column.values()} == {"raw"}:
        reader.mistakes.append(
            f"onBadRecord is '{formats.on_bad_record}', but nothing is decoded; set valueFormat or "
            "keyFormat"
        )
    if formats.max_bad_records is not None and formats.on_bad_record == "fail":
        reader.mistakes.append(
            "maxBadRecords is set, but onBadRecord is 'fail'; it must be: null, rescue or "
            "deadletter"
        )


def _check_debezium(reader: OptionReader, formats: FormatOptions) -> None:
    if formats.value_format in _DEBEZIUM:
        return
    reader.mistakes += [
        f"{option.name} is set, but valueFormat is '{formats.value_format}'; set it to "
        f"{' or '.join(_DEBEZIUM)}"
        for option in _DEBEZIUM_OPTIONS
        if reader.has(option)
    ]


def _check_dead_letters(reader: OptionReader, formats: FormatOptions) -> None:
    sets_aside = formats.on_bad_record == "deadletter"
    if sets_aside and not reader.has(table.DEAD_LETTER_TOPIC):
        reader.mistakes.append(
            "onBadRecord is 'deadletter', but deadLetterTopic is missing; set it to the topic for "
            "bad records"
        )
    if not sets_aside and reader.has(table.DEAD_LETTER_TOPIC):
        reader.mistakes.append(
            f"deadLetterTopic is set, but onBadRecord is '{formats.on_bad_record}'; it must be: "
            "deadletter"
        )
    if sets_aside:
        # Dead letters are written with the settings of the read.
        reader.check_kafka_settings(Role.PRODUCER)


def _check_registry(reader: OptionReader, formats: FormatOptions) -> None:
    if formats.registry is None:
        return
    if not {*formats.by_column.values()} & {*_REGISTERED}:
        reader.mistakes.append(
            "schema.registry.url is set, but no format uses it; set valueFormat or keyFormat to: "
            f"{' or '.join(_REGISTERED)}"
        )
    by_column = {"value": VALUE_SUBJECT_OPTIONS, "key": KEY_SUBJECT_OPTIONS}
    for column, options in by_column.items():
        if formats.by_column[column] in _REGISTERED:
            continue
        reader.mistakes += [
            f"{option.name} is set, but {column}Format is '{formats.by_column[column]}', which has "
            "no schema in the registry"
            for option in options
            if reader.has(option)
        ]


def _schema(reader: OptionReader, option: Option[str], kind: ValueFormat) -> str | None:
    text = reader.find(option)
    if text is None:
        return None
    if kind not in _STRUCTURED:
        name = option.name.replace("Schema", "Format")
        reader.mistakes.append(
            f"{option.name} is set, but {name} is '{kind}'; set it to {_OR_STRUCTURED[name]}"
        )
    if kind not in {"json", "debezium-json"}:
        return text
    try:
        return SCHEMA(text)
    except InvalidOptionError as cause:
        reader.mistakes.append(f"{option.name} is '{text[:_MAX_SCHEMA_LENGTH]}'; {cause}")
        return None


def read_message(reader: OptionReader, option: Option[str], kind: ValueFormat) -> str | None:
    """
    Return the name of a Protobuf message, or None; report a name if the format is not Protobuf.
    """
    if kind != "protobuf" and reader.has(option):
        name = option.name.replace("MessageName", "Format")
        reader.mistakes.append(f"{option.name} is set, but {name} is '{kind}'; set it to protobuf")
    return reader.find(option)
