"""
Looks up schemas in the registry: for columns on the driver, and for records in tasks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.avro_references import inline
from pyspark_pykafka.formats.avro_schema import AvroSchemaError, parse_avro
from pyspark_pykafka.formats.debezium import AFTER
from pyspark_pykafka.formats.json_schema import json_schema_ddl
from pyspark_pykafka.options import Assign, Subscribe
from pyspark_pykafka.registry.client import CONTENT_IDS, GLOBAL_IDS, schema_registry
from pyspark_pykafka.registry.errors import (
    InvalidSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from pyspark_pykafka.registry.schemas import SCHEMA_TYPES

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType
    from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema
    from pyspark_pykafka.formats.schema_names import SchemaName
    from pyspark_pykafka.options import FormatOptions, RegistryOptions, Strategy, SubjectOptions
    from pyspark_pykafka.registry.client import SchemaRegistry
    from pyspark_pykafka.registry.schemas import RegisteredSchema


class UnusableSchemaError(Exception):
    """
    A schema cannot be used, which makes all records with its id bad records.
    """


def with_registered_schemas(
    options: FormatOptions, strategy: Strategy, *, derives_columns: bool
) -> FormatOptions:
    """
    Return options in which missing schemas are filled in from the registry.

    With ``derives_columns``, the columns are derived from the schemas, so JSON Schemas are looked
    up too. Raises :class:`OptionsError` if the registry lacks a schema or its schema cannot be
    used, and the errors of the registry's client.
    """
    options = with_given_schemas(options)
    if options.registry is None:
        return options
    schemas: dict[str, str | None] = dict(options.schemas)
    messages: dict[str, str | None] = dict(options.messages)
    subjects = {
        column: replace(subject, name=_known_subject(column, subject, strategy))
        for column, subject in options.subjects.items()
    }
    for column, kind in options.encodings.items():
        needed = kind in {"avro", "protobuf"} or (kind == "json" and derives_columns)
        if needed and options.schemas[column] is None:
            registry = schema_registry(options.registry)
            subject = subject_name(column, options.subjects[column], strategy)
            version = options.subjects[column].version
            form = "serialized" if kind == "protobuf" else ""
            registered = _request_schema(registry, column, subject, version, form)
            if kind == "protobuf":
                name = messages[column] or options.subjects[column].record_name
                schemas[column], messages[column] = _protobuf(column, subject, registered, name)
            else:
                is_envelope = kind != options.by_column[column]
                schemas[column] = _text(column, kind, subject, registered, is_envelope=is_envelope)
    return replace(
        options,
        key_schema=schemas["key"],
        value_schema=schemas["value"],
        key_message=messages["key"],
        value_message=messages["value"],
        key_subject=subjects["key"],
        value_subject=subjects["value"],
    )


def with_given_schemas(options: FormatOptions) -> FormatOptions:
    """
    Return options in which the user's Protobuf schemas are resolved to descriptors and a message.

    Raises :class:`OptionsError` if a schema cannot be read.
    """
    changes: dict[str, str] = {}
    for column, kind in options.by_column.items():
        text = options.schemas[column]
        if kind == "protobuf" and text is not None:
            from pyspark_pykafka.formats.protobuf_schemas import schema_from_option

            schema = schema_from_option(column, text, options.messages[column])
            changes |= {f"{column}_schema": schema.text, f"{column}_message": schema.message}
    return replace(options, **changes) if changes else options  # type: ignore[arg-type]


def subject_name(column: str, subject: SubjectOptions, strategy: Strategy) -> str:
    """
    Return the subject of ``key`` or ``value``.

    Raises :class:`OptionsError` if it depends on the topic, but the query does not name exactly
    one topic.
    """
    name = _known_subject(column, subject, strategy)
    if name is None:
        msg = (
            f"the subject of {column} is derived from the topic, but the query does not name "
            f"exactly one topic; set {column}Subject to one subject for all topics, or set "
            f"{column}Schema"
        )
        raise OptionsError((msg,))
    return name


def _known_subject(column: str, subject: SubjectOptions, strategy: Strategy) -> str | None:
    if subject.name is not None:
        return subject.name
    record = subject.record_name
    if subject.strategy == "RecordNameStrategy":
        return record
    topics: set[str] = set()
    if isinstance(strategy, Subscribe):
        topics = set(strategy.topics)
    elif isinstance(strategy, Assign):
        topics = {tp.topic for tp in strategy.partitions}
    if len(topics) != 1:
        return None
    (topic,) = topics
    suffix = record if subject.strategy == "TopicRecordNameStrategy" else column
    return f"{topic}-{suffix}"


def _request_schema(
    registry: SchemaRegistry, column: str, subject: str, version: int | None, form: str
) -> RegisteredSchema:
    try:
        if version is None:
            return registry.latest(subject, form=form)
        return registry.version(subject, version, form=form)
    except SchemaNotFoundError as cause:
        msg = (
            f"{cause}. Set {column}Subject or {column}SubjectNameStrategy so that they match the "
            f"registry, or give the schema in {column}Schema"
        )
        raise OptionsError((msg,)) from cause


def _text(
    column: str, kind: str, subject: str, registered: RegisteredSchema, *, is_envelope: bool
) -> str:
    schema = registered.schema
    _check_schema_type(column, kind, subject, registered)
    imports = tuple(imported.text for _, imported in registered.imports)
    try:
        if kind == "json":
            return json_schema_ddl(schema.text, AFTER if is_envelope else None)
        text = inline(schema.text, imports)
        parse_avro(text)
    except ValueError as cause:
        msg = (
            f"the schema of the subject '{subject}' cannot be converted to columns: {cause}; give "
            f"the fields to read in {column}Schema"
        )
        raise OptionsError((msg,)) from cause
    return text


def _check_schema_type(column: str, kind: str, subject: str, registered: RegisteredSchema) -> None:
    if registered.schema.schema_type != SCHEMA_TYPES[kind]:
        msg = (
            f"the subject '{subject}' has a schema of type {registered.schema.schema_type}, but "
            f"{column}Format is '{kind}'; set it to the format of the records, or {column}Subject "
            "to their subject"
        )
        raise OptionsError((msg,))


def _protobuf(
    column: str, subject: str, registered: RegisteredSchema, message: str | None
) -> ResolvedSchema:
    from pyspark_pykafka.formats.protobuf_schemas import registered_schema

    _check_schema_type(column, "protobuf", subject, registered)
    imports = [(name, imported.text) for name, imported in registered.imports]
    try:
        return registered_schema(column, registered.schema.text, imports, message)
    except ValueError as cause:
        msg = (
            f"the schema of the subject '{subject}' cannot be converted to columns: {cause}; or "
            f"set {column}Schema to the file that protoc --include_imports "
            "--descriptor_set_out=... writes"
        )
        raise OptionsError((msg,)) from cause


class WriterSchemas:
    """
    Looks up the schemas whose ids are in records: Avro schemas are returned, and the messages of
    Protobuf schemas are checked.

    Ids are those of the context of ``subject``, or of the default context if it is empty.
    """

    def __init__(self, options: RegistryOptions, subject: str = "") -> None:
        self._registry = schema_registry(options)
        self._subject = subject
        self._id_bytes = options.id_bytes

    def find(self, name: SchemaName) -> AvroType:
        """
        Return a schema. Raises :class:`UnusableSchemaError` if its records are bad records.

        Errors of the registry itself are raised unchanged: they do not make records bad.
        """
        registered = self._registered(name, "AVRO")
        try:
            return _parsed(
                registered.schema.text, tuple(imported.text for _, imported in registered.imports)
            )
        except AvroSchemaError as cause:
            msg = f"the schema with {name} cannot be used: {cause}"
            raise UnusableSchemaError(msg) from cause

    def check(self, name: SchemaName, path: tuple[int, ...], message: str) -> None:
        """
        Raise :class:`UnusableSchemaError` if the message at a path in a schema is not ``message``,
        or, without a path, if the schema does not define ``message``.

        Errors of the registry itself are raised unchanged, as in :meth:`find`.
        """
        from pyspark_pykafka.formats.proto_text import all_names, at_path
        from pyspark_pykafka.formats.protobuf_schemas import registered_message_names

        registered = self._registered(name, "PROTOBUF")
        try:
            defined = registered_message_names(registered.schema.text)
        except ValueError as cause:
            msg = f"the schema with {name} cannot be used: {cause}"
            raise UnusableSchemaError(msg) from cause
        if not path:
            if name.message not in {"", message.rpartition(".")[2]}:
                msg = f"its message is '{name.message}', not '{message}'"
                raise UnusableSchemaError(msg)
            if message not in all_names(defined):
                msg = f"the schema with {name} has no message '{message}'"
                raise UnusableSchemaError(msg)
            return
        names = at_path(defined, path)
        if message not in names:
            message_path = ".".join(map(str, path))
            actual = f"'{min(names)}'" if names else "none"
            msg = (
                f"its message, at index {message_path} in the schema with {name}, is {actual}, "
                f"not '{message}'"
            )
            raise UnusableSchemaError(msg)

    def _registered(self, name: SchemaName, kind: str) -> RegisteredSchema:
        if name.kind == "invalid":
            raise UnusableSchemaError(name.value)
        try:
            registered = self._request_schema(name)
        except (SchemaNotFoundError, InvalidSchemaError) as cause:
            raise UnusableSchemaError(str(cause)) from cause
        except SchemaRegistryError as cause:
            # The registry may have no API for GUIDs or for Apicurio's ids. Since anyone may write
            # such an id into a header, only the record is bad. Other errors are the registry's own.
            if name.kind == "id" or cause.code != HTTPStatus.NOT_FOUND:
                raise
            raise UnusableSchemaError(str(cause)) from cause
        if registered.schema.schema_type != kind:
            msg = f"the schema with {name} is of type {registered.schema.schema_type}, not {kind}"
            raise UnusableSchemaError(msg)
        return registered

    def _request_schema(self, name: SchemaName) -> RegisteredSchema:
        if name.kind == "guid":
            return self._registry.schema_by_guid(str(name.value), self._subject)
        number = int(name.value)
        if name.kind == "id" and (self._id_bytes == 4 or not self._registry.is_apicurio):
            return self._registry.schema_by_id(number, self._subject)
        kind = CONTENT_IDS if name.kind == "contentId" else GLOBAL_IDS
        return self._registry.schema_of_apicurio(kind, number)


@lru_cache(maxsize=256)
def _parsed(text: str, imports: tuple[str, ...]) -> AvroType:
    return parse_avro(inline(text, imports))
