"""
The mapping from records to rows: which columns are decoded, and into which types.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.avro_decoder_plan import writer_plan
from pyspark_pykafka.formats.avro_schema import writer_schema
from pyspark_pykafka.formats.bad_records import DEAD_LETTER_COLUMNS, FAIL, BadRecordPolicy
from pyspark_pykafka.formats.column_types import type_mistakes
from pyspark_pykafka.formats.debezium import Envelope, envelope_mistakes
from pyspark_pykafka.formats.protobuf_decoder_plan import message_plan
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_schemas import missing_protobuf_mistake, parsed_schema
from pyspark_pykafka.schema import SOURCE_TYPES, check_source_schema, null_mistakes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.options import FormatOptions, RegistryOptions

#: The columns of ``onBadRecord=rescue``.
RESCUE_TYPES: dict[str, pa.DataType] = {"_raw": pa.binary(), "_error": pa.string()}

#: The column of ``onUnknownField=rescue``.
RESCUED_FIELDS = "_rescued"

#: The prefix of a record's own columns beside the columns of its flattened value.
FLAT_PREFIX = "_"

_MODULES = {
    "json": "pyspark_pykafka.formats._json",
    "avro": "pyspark_pykafka.formats._avro",
    "protobuf": "pyspark_pykafka.formats._protobuf",
}


class TypedColumn(NamedTuple):
    """
    A decoded key or value: its column in records, its format, and its type.

    For Avro, ``schema`` is the text of the writer's schema; with a ``registry`` it is the text of
    the reader's schema. ``subject`` is the schema's subject in the registry, or empty if unknown.
    For Protobuf, ``schema`` is the descriptors in base64, and ``message`` the name of the message.
    The values of a column with an ``envelope`` are change events of that type. With ``rescues``,
    the last field of the column's type gets the unknown fields of the JSON. With
    ``compares_names``, an Avro record is bad unless its name is the name or an alias of the
    reader's schema.
    """

    name: str
    format: str
    type: pa.DataType
    schema: str = ""
    registry: RegistryOptions | None = None
    message: str = ""
    envelope: Envelope | None = None
    rescues: bool = False
    subject: str = ""
    compares_names: bool = False

    @property
    def needs_headers(self) -> bool:
        """
        Whether the column's schema id may be in the record's headers.
        """
        return self.registry is not None and self.format in {"avro", "protobuf"}

    def failing_fast(self, max_ms: int) -> TypedColumn:
        """
        Return the column with a shorter limit on waiting for the schema registry.
        """
        if self.registry is None:
            return self
        registry = self.registry
        request_ms = min(registry.request_timeout_ms, max_ms)
        total_ms = min(registry.timeout_ms, max_ms)
        registry = replace(registry, request_timeout_ms=request_ms, timeout_ms=total_ms)
        return self._replace(registry=registry)


@dataclass(frozen=True, slots=True)
class ReadFormat:
    """
    The columns of rows, the columns of records to read for them, and the decoding in between.

    ``sources`` has pairs of an undecoded column of ``schema`` and the record's column. With
    ``flattens``, the fields of the value are columns of ``schema``. Bad records go to
    ``dead_letter_topic`` if there is one; a reader that must not wait uses :meth:`failing_fast`.
    With ``drops_tombstones``, there are no rows for records whose value is NULL.
    """

    schema: pa.Schema
    record_schema: pa.Schema
    typed: tuple[TypedColumn, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    flattens: bool = False
    policy: BadRecordPolicy = FAIL
    dead_letter_topic: str | None = None
    accepts_bad_records: bool = True
    drops_tombstones: bool = False

    def failing_fast(self, max_ms: int) -> ReadFormat:
        """
        Return the format with a shorter limit on waiting for the schema registry.

        Whatever the policy is, the first bad record ends the read, and a task repeats it: a record
        that is too large for this reader's memory may fit into a task's memory, and only tasks
        write dead letters.
        """
        typed = tuple(column.failing_fast(max_ms) for column in self.typed)
        return replace(self, typed=typed, accepts_bad_records=False)

    @property
    def rescues_unknown_fields(self) -> bool:
        """
        Whether a column gets the unknown fields of values, which the schema does not name.
        """
        return any(column.rescues for column in self.typed)

    def record_column(self, name: str) -> str | None:
        """
        Return the record's column that a column of rows is copied from, or None.
        """
        return dict(self.sources).get(name)


def make_read_format(
    options: FormatOptions, schema: pa.Schema, *, include_headers: bool
) -> ReadFormat:
    """
    Return the format that maps records to rows of a schema.

    Raises :class:`OptionsError` if the options and the schema contradict each other.
    """
    sources = _sources(options, schema)
    typed, mistakes = _typed_columns(options, schema, sources)
    known_columns = {*sources, *RESCUE_TYPES, *_typed_names(options, schema, sources)}
    if options.rescues_unknown_fields:
        known_columns.add(RESCUED_FIELDS)
    copied = pa.schema(
        [
            field.with_name(sources.get(field.name, field.name))
            for field in schema
            if field.name in sources or field.name not in known_columns
        ]
    )
    mistakes += _rescue_mistakes(options, schema) + _repeated_mistakes(schema)
    mistakes += _unknown_field_mistakes(options, schema, typed)
    if copied.names or not typed:
        mistakes += _record_mistakes(copied, include_headers=include_headers)
    if mistakes:
        raise OptionsError(tuple(mistakes))
    return ReadFormat(
        schema,
        _record_schema(copied, typed, options),
        tuple(typed),
        tuple(sources.items()),
        options.flatten,
        BadRecordPolicy(options.on_bad_record, options.max_bad_records),
        options.dead_letter_topic,
        drops_tombstones=options.drops_tombstones and any(c.name == "value" for c in typed),
    )


def _sources(options: FormatOptions, schema: pa.Schema) -> dict[str, str]:
    """
    Return the record's column for each column of rows that is not decoded.
    """
    formats = options.by_column
    prefix = FLAT_PREFIX if options.flatten else ""
    undecoded = {prefix + name: name for name in SOURCE_TYPES if formats.get(name, "raw") == "raw"}
    return {name: undecoded[name] for name in schema.names if name in undecoded}


def _typed_names(options: FormatOptions, schema: pa.Schema, sources: dict[str, str]) -> set[str]:
    if not options.flatten:
        return {name for name, kind in options.by_column.items() if kind != "raw"}
    return {name for name in schema.names if name not in sources and name not in RESCUE_TYPES}


def _typed_columns(
    options: FormatOptions, schema: pa.Schema, sources: dict[str, str]
) -> tuple[list[TypedColumn], list[str]]:
    prefix = FLAT_PREFIX if options.flatten else ""
    typed: list[TypedColumn] = []
    mistakes: list[str] = []
    for name, kind in options.by_column.items():
        if kind == "raw":
            continue
        if options.flatten and name == "value":
            field = _flat_value(schema, sources, options)
            if not field.type.num_fields:
                continue
        elif prefix + name in schema.names:
            field = schema.field(schema.names.index(prefix + name))
        else:
            continue
        column, column_mistakes = _typed_column(options, name, field)
        typed.append(column)
        mistakes += column_mistakes
    return typed, mistakes


def _typed_column(
    options: FormatOptions, name: str, field: pa.Field
) -> tuple[TypedColumn, list[str]]:
    encoding, text, message = options.encodings[name], options.schemas[name], options.messages[name]
    envelope, mistakes = None, []
    if encoding != options.by_column[name]:
        rows = options.debezium_rows
        mistakes = envelope_mistakes(field, name, rows=rows)
        if not mistakes:
            envelope = Envelope(field.type, rows, may_be_wrapped=encoding == "json")
            field = field.with_type(envelope.decoded_type)
    if not mistakes:
        mistakes = _type_mistakes(field, encoding, name, text, message)
    rescues = options.rescues_unknown_fields and name == "value"
    if rescues and pa.types.is_struct(field.type):
        field = field.with_type(pa.struct([*field.type, pa.field(RESCUED_FIELDS, pa.string())]))
    schema_text = (encoding in {"avro", "protobuf"} and text) or ""
    registry, subject = options.registry, options.subjects[name]
    column = TypedColumn(
        *(name, encoding, field.type, schema_text, registry, message or "", envelope, rescues),
        subject=subject.name or "",
        compares_names=subject.names_record,
    )
    return column, mistakes


def _flat_value(schema: pa.Schema, sources: dict[str, str], options: FormatOptions) -> pa.Field:
    reserved = {*sources, *RESCUE_TYPES}
    if options.key_format != "raw":
        reserved.add(f"{FLAT_PREFIX}key")
    if options.rescues_unknown_fields:
        reserved.add(RESCUED_FIELDS)
    return pa.field("value", pa.struct([f for f in schema if f.name not in reserved]))


def _type_mistakes(
    field: pa.Field, kind: str, name: str, schema: str | None, message: str | None
) -> list[str]:
    if kind == "text":
        if field.type == pa.string():
            return null_mistakes(field)
        return [f"{name}Format is 'text', so the schema's column '{field.name}' must be: STRING"]
    if find_spec(_MODULES[kind]) is None:
        return [
            (
                f"{name}Format is '{kind}', which needs a compiled module that is not installed; "
                "install a wheel of pyspark-pykafka for this platform, or a C compiler before you "
                f"install from source; or read the bytes, and decode them with from_{kind}"
            )
        ]
    if kind == "protobuf":
        return null_mistakes(field) + _protobuf_mistakes(field, name, schema, message)
    mistakes = type_mistakes(field, name)
    return mistakes or (_avro_mistakes(field, name, schema) if kind == "avro" else [])


def _avro_mistakes(field: pa.Field, name: str, schema: str | None) -> list[str]:
    try:
        _, mistakes = writer_plan(writer_schema(name, schema), field.type, name)
    except OptionsError as error:
        return list(error.mistakes)
    return mistakes


def _protobuf_mistakes(
    field: pa.Field, name: str, schema: str | None, message: str | None
) -> list[str]:
    if schema is None or message is None:
        return [missing_protobuf_mistake(name)]
    try:
        _, mistakes = message_plan(parsed_schema(schema), message, field.type, name)
    except ProtobufSchemaError as error:
        return [f"the Protobuf schema of {name} cannot be used: {error}"]
    return mistakes


def _rescue_mistakes(options: FormatOptions, schema: pa.Schema) -> list[str]:
    if options.on_bad_record != "rescue":
        return [
            f"the schema has the column '{name}'; set onBadRecord to rescue"
            for name in RESCUE_TYPES
            if name in schema.names
        ]
    mistakes = [
        f"the schema's column '{name}' must be: {'BINARY' if name == '_raw' else 'STRING'}"
        for name, kind in RESCUE_TYPES.items()
        if name in schema.names and schema.field(schema.names.index(name)).type != kind
    ]
    mistakes += _null_mistakes(schema, RESCUE_TYPES)
    if not set(RESCUE_TYPES) & set(schema.names):
        mistakes.append(
            "onBadRecord is 'rescue', but the schema has no column for it; add '_error STRING', "
            "'_raw BINARY' or both"
        )
    return mistakes


def _null_mistakes(schema: pa.Schema, names: Iterable[str]) -> list[str]:
    fields = [field for field in schema if field.name in names]
    return [mistake for field in fields for mistake in null_mistakes(field)]


def _unknown_field_mistakes(
    options: FormatOptions, schema: pa.Schema, typed: list[TypedColumn]
) -> list[str]:
    if not options.rescues_unknown_fields:
        return []
    if RESCUED_FIELDS not in schema.names:
        return [
            (
                "onUnknownField is 'rescue', but the schema has no column for it; add "
                f"'{RESCUED_FIELDS} STRING'"
            )
        ]
    mistakes = _null_mistakes(schema, [RESCUED_FIELDS])
    if schema.field(schema.names.index(RESCUED_FIELDS)).type != pa.string():
        mistakes.append(f"the schema's column '{RESCUED_FIELDS}' must be: STRING")
    values = [column for column in typed if column.name == "value"]
    if not values or not pa.types.is_struct(values[0].type):
        mistakes.append(
            "onUnknownField is 'rescue', so the schema must have the column 'value' as a STRUCT, "
            "or with flatten some of its fields"
        )
    return mistakes


def _repeated_mistakes(schema: pa.Schema) -> list[str]:
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    return [f"the schema has the column '{name}' twice" for name in sorted(repeated)]


def _record_mistakes(copied: pa.Schema, *, include_headers: bool) -> list[str]:
    try:
        check_source_schema(copied, include_headers=include_headers)
    except OptionsError as error:
        return list(error.mistakes)
    return []


def _record_schema(
    copied: pa.Schema, typed: list[TypedColumn], options: FormatOptions
) -> pa.Schema:
    """
    Return the record columns to read. With decoded columns they include the offset, with which bad
    records are reported.
    """
    if not typed:
        return copied
    fields = [*copied, *(pa.field(column.name, pa.binary()) for column in typed)]
    needed = ["offset"]
    if any(column.needs_headers for column in typed):
        needed.append("headers")
    if options.dead_letter_topic is not None:
        needed += DEAD_LETTER_COLUMNS
    present = {field.name for field in fields}
    fields += [pa.field(n, SOURCE_TYPES[n]) for n in dict.fromkeys(needed) if n not in present]
    return pa.schema(fields)
