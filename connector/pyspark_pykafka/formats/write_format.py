"""
The mapping from rows to records: which columns are encoded, and with which schemas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.avro_encoder_plan import avro_encoder_plan
from pyspark_pykafka.formats.avro_schema import AvroSchemaError, parse_avro
from pyspark_pykafka.formats.derived_protobuf import (
    protobuf_schema,
    protobuf_type_mistakes,
    record_name_mistakes,
)
from pyspark_pykafka.formats.derived_schemas import avro_name_mistakes, avro_schema, json_schema
from pyspark_pykafka.formats.encoder_plan import encodable_mistakes
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_encoder_plan import protobuf_encoder_plan
from pyspark_pykafka.formats.protobuf_schemas import parsed_schema, schema_from_option

if TYPE_CHECKING:
    from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema
    from pyspark_pykafka.options import EncodedColumnOptions, EncodingOptions

_MODULE = "pyspark_pykafka.formats._value_encoder"
_TEXTS = (pa.string(), pa.binary())


class WrittenColumn(NamedTuple):
    """
    An encoded key or value: its name, its format, and its type in rows.

    ``schema`` is the text of its Avro schema or JSON Schema, or the descriptors of its Protobuf
    ``message``; it is empty if the schema has not been looked up yet, or if none is needed.
    ``prefix`` precedes each value, and ``schema_id`` is in a header of its record; either is
    written only if it is not empty.
    """

    name: str
    format: str
    type: pa.DataType
    schema: str = ""
    prefix: bytes = b""
    keeps_nulls: bool = False
    message: str = ""
    schema_id: bytes = b""

    @property
    def is_registered(self) -> bool:
        """
        Whether the values or their headers have the id of a registered schema.
        """
        return bool(self.prefix or self.schema_id)

    def with_message(self, schema: ResolvedSchema) -> WrittenColumn:
        """
        Return the same column with the schema of a Protobuf message.
        """
        return self._replace(schema=schema.text, message=schema.message)


@dataclass(frozen=True, slots=True)
class WriteFormat:
    """
    The encoded columns, and the schema of rows after encoding.
    """

    record_schema: pa.Schema
    columns: tuple[WrittenColumn, ...]

    def with_columns(self, columns: tuple[WrittenColumn, ...]) -> WriteFormat:
        """
        Return the same format with other columns.
        """
        return replace(self, columns=columns)


def make_write_format(options: EncodingOptions, schema: pa.Schema) -> WriteFormat:
    """
    Return the format that maps rows of a schema to records.

    Schemas in the registry are not looked up here. Raises :class:`OptionsError` if the rows cannot
    be encoded.
    """
    mistakes: list[str] = []
    columns: list[WrittenColumn] = []
    for name, column_options in options.by_column.items():
        if column_options.format == "raw" or name not in schema.names:
            continue
        field = schema.field(schema.names.index(name))
        type_mistakes = _type_mistakes(field, column_options)
        mistakes += type_mistakes
        if column_options.format == "text":
            continue
        column = WrittenColumn(
            name, column_options.format, field.type, keeps_nulls=not options.ignore_null_fields
        )
        if not type_mistakes:
            column = _with_schema(column, options)
        if column.schema:
            mistakes += schema_mistakes(column)
        columns.append(column)
    if mistakes:
        raise OptionsError(tuple(mistakes))
    encoded = {column.name for column in columns}
    fields = [pa.field(f.name, pa.binary()) if f.name in encoded else f for f in schema]
    return WriteFormat(pa.schema(fields), tuple(columns))


def _type_mistakes(field: pa.Field, column_options: EncodedColumnOptions) -> list[str]:
    name, kind = field.name, column_options.format
    if kind == "text":
        mistake = f"{name}Format is 'text', so the column '{name}' must be: STRING"
        return [] if field.type == pa.string() else [mistake]
    if find_spec(_MODULE) is None:
        return [
            (
                f"{name}Format is '{kind}', which needs a compiled module that is not installed; "
                "install a wheel of pyspark-pykafka for this platform, or a C compiler before you "
                f"install from source; or write the bytes of to_{kind}"
            )
        ]
    if kind == "protobuf":
        if column_options.schema is not None or column_options.uses_registered_schema:
            return []
        name_mistakes = record_name_mistakes(column_options.subject.record_name, name)
        return [*name_mistakes, *protobuf_type_mistakes(field, name)]
    if kind == "json" and field.type in _TEXTS:
        return [
            (
                f"{name}Format is 'json', but the column '{name}' is text or bytes; it must be: a "
                f"STRUCT, ARRAY or MAP. If it is JSON already, remove {name}Format"
            )
        ]
    return encodable_mistakes(field, name)


def _with_schema(column: WrittenColumn, options: EncodingOptions) -> WrittenColumn:
    """
    Return a column with its schema, unless the schema is in the registry or is not needed.

    Raises :class:`OptionsError` if a Protobuf schema cannot be read.
    """
    column_options = options.by_column[column.name]
    registered = options.registry is not None
    record_name = column_options.subject.record_name
    if column_options.uses_registered_schema and registered:
        return column
    if column.format == "avro":
        return column._replace(
            schema=column_options.schema or avro_schema(column.type, record_name)
        )
    if column.format == "protobuf":
        if column_options.schema is None:
            return column.with_message(protobuf_schema(column.type, record_name))
        return column.with_message(
            schema_from_option(column.name, column_options.schema, column_options.message)
        )
    if not registered:
        return column
    derived = json_schema(column.type, record_name, keeps_nulls=column.keeps_nulls)
    return column._replace(schema=column_options.schema or derived)


def schema_mistakes(column: WrittenColumn) -> list[str]:
    """
    Return the reasons why a column cannot be encoded with its schema.
    """
    if column.format == "protobuf":
        return _protobuf_mistakes(column)
    if column.format != "avro":
        return []
    names = avro_name_mistakes(column.type, column.name)
    if names:
        return names
    try:
        parsed = parse_avro(column.schema)
    except AvroSchemaError as cause:
        return [f"the Avro schema of {column.name} cannot be used: {cause}"]
    return avro_encoder_plan(column.name, column.type, parsed)[1]


def _protobuf_mistakes(column: WrittenColumn) -> list[str]:
    try:
        schema = parsed_schema(column.schema)
        return protobuf_encoder_plan(column.name, column.type, schema, column.message)[1]
    except ProtobufSchemaError as cause:
        return [f"the Protobuf schema of {column.name} cannot be used: {cause}"]
