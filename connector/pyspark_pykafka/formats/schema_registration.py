"""
Registers or looks up the schemas of a write, once, on the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from pyspark_pykafka.errors import (
    AuthenticationError,
    AuthorizationError,
    OptionsError,
    PykafkaError,
    TlsError,
)
from pyspark_pykafka.formats.avro_references import inline
from pyspark_pykafka.formats.avro_schema import AvroSchemaError, parse_avro
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_registration import message_index, register_files
from pyspark_pykafka.formats.protobuf_schemas import registered_schema
from pyspark_pykafka.formats.write_format import schema_mistakes
from pyspark_pykafka.registry.client import schema_registry
from pyspark_pykafka.registry.errors import SchemaNotFoundError, SchemaRegistryError
from pyspark_pykafka.registry.schemas import SCHEMA_TYPES, Schema

if TYPE_CHECKING:
    from pyspark_pykafka.formats.write_format import WriteFormat, WrittenColumn
    from pyspark_pykafka.options import EncodedColumnOptions, EncodingOptions
    from pyspark_pykafka.registry.client import SchemaRegistry
    from pyspark_pykafka.registry.schemas import RegisteredSchema

# The magic bytes of schema ids: of an id before a value, and of a GUID in a header.
_ID, _GUID = b"\x00", b"\x01"


def with_registered_write_schemas(
    format_: WriteFormat, options: EncodingOptions, topic: str | None
) -> WriteFormat:
    """
    Return the format with the ids of its schemas, which precede each value or are in a header.

    The options decide whether schemas are registered, looked up, or taken from the registry. Raises
    :class:`OptionsError` if a schema cannot be used, and the errors of the registry's client with
    the URLs or the subject added to their messages.
    """
    if options.registry is None:
        return format_
    registry = schema_registry(options.registry)
    subjects = {
        column.name: _subject(column, options.by_column[column.name], topic)
        for column in format_.columns
    }
    urls = ", ".join(options.registry.urls)
    columns = []
    for column in format_.columns:
        subject = subjects[column.name]
        try:
            columns.append(_register_or_look_up(registry, column, options, subject))
        except (AuthenticationError, AuthorizationError, TlsError) as error:
            msg = f"{error}; the request was for the subject '{subject}'"
            raise type(error)(msg) from error
        except SchemaRegistryError as error:
            msg = f"{error}, at {urls}{_advice(error, column.name, options)}"
            raise type(error)(msg, error.code) from error
    return format_.with_columns(tuple(columns))


def _advice(error: PykafkaError, name: str, options: EncodingOptions) -> str:
    if not isinstance(error, SchemaNotFoundError):
        return ""
    if options.by_column[name].uses_registered_schema:
        return f"; set {name}Subject to a subject that has the schema"
    return "; register it there, or set autoRegister to true"


def _subject(column: WrittenColumn, options: EncodedColumnOptions, topic: str | None) -> str:
    """
    Return the subject of a column.

    Raises :class:`OptionsError` if it depends on the topic, but rows have their own topics.
    """
    subject = options.subject
    if subject.name is not None:
        return subject.name
    record = subject.record_name or _record_name(column, options)
    if subject.strategy == "RecordNameStrategy":
        return record
    if topic is None:
        msg = (
            f"the subject of {column.name} is named after the topic, but rows have their own "
            f"topics; set the option 'topic', or {column.name}Subject"
        )
        raise OptionsError((msg,))
    suffix = record if subject.strategy == "TopicRecordNameStrategy" else column.name
    return f"{topic}-{suffix}"


def _record_name(column: WrittenColumn, options: EncodedColumnOptions) -> str:
    if column.format == "protobuf":
        return column.message or options.message or ""
    if column.format != "avro" or not column.schema:
        return ""
    return parse_avro(column.schema).name


def _register_or_look_up(
    registry: SchemaRegistry, column: WrittenColumn, options: EncodingOptions, subject: str
) -> WrittenColumn:
    column_options = options.by_column[column.name]
    if column_options.uses_registered_schema:
        version = column_options.subject.version
        form = "serialized" if column.format == "protobuf" else ""
        if version is None:
            registered = registry.latest(subject, form=form)
        else:
            registered = registry.version(subject, version, form=form)
        column = _with_schema(column, column_options, subject, registered)
        if mistakes := schema_mistakes(column):
            raise OptionsError(tuple(mistakes))
    else:
        request = registry.register if options.auto_register else registry.look_up
        if column.format == "protobuf":
            registered = register_files(column.schema, subject, request, registry.look_up)
        else:
            registered = request(subject, Schema(column.schema, SCHEMA_TYPES[column.format]))
    index = b""
    if column.format == "protobuf":
        index = message_index(column.name, column.schema, column.message)
    if options.schema_id_location == "header":
        return column._replace(schema_id=_GUID + _guid(registered, subject) + index)
    if not 0 <= registered.id < 1 << 31:
        msg = f"the schema registry's response for subject '{subject}' has no 4-byte id"
        raise SchemaRegistryError(msg)
    return column._replace(prefix=_ID + registered.id.to_bytes(4, "big") + index)


def _guid(registered: RegisteredSchema, subject: str) -> bytes:
    try:
        return UUID(registered.guid).bytes
    except ValueError as cause:
        msg = (
            f"the schema registry's response for subject '{subject}' has no GUID, which "
            "schemaIdLocation=header needs; Confluent's registry has them from 8.0 on. Set "
            "schemaIdLocation to prefix"
        )
        raise SchemaRegistryError(msg) from cause


def _with_schema(
    column: WrittenColumn,
    options: EncodedColumnOptions,
    subject: str,
    registered: RegisteredSchema,
) -> WrittenColumn:
    """
    Return a column with the schema that the registry has for its subject.
    """
    schema = registered.schema
    if schema.schema_type != SCHEMA_TYPES[column.format]:
        msg = (
            f"the subject '{subject}' has a schema of type {schema.schema_type}, but "
            f"{column.name}Format is '{column.format}'; set it to the format of the subject, or "
            f"{column.name}Subject to another one"
        )
        raise OptionsError((msg,))
    if column.format == "json":
        return column._replace(schema=schema.text)
    try:
        if column.format == "protobuf":
            imports = [(name, imported.text) for name, imported in registered.imports]
            message = options.message or options.subject.record_name
            return column.with_message(
                registered_schema(column.name, schema.text, imports, message)
            )
        text = inline(schema.text, tuple(imported.text for _, imported in registered.imports))
        return column._replace(schema=text)
    except (AvroSchemaError, ProtobufSchemaError) as cause:
        msg = f"the schema of the subject '{subject}' cannot be used: {cause}"
        raise OptionsError((msg,)) from cause
