"""
The mapping from rows to records: which columns are encoded, and by which schemas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.avro_encoder_plan import avro_plan
from pyspark_pykafka.formats.avro_schema import AvroSchemaError, parse_avro
from pyspark_pykafka.formats.encoder_plan import encodable_mistakes
from pyspark_pykafka.formats.written_schemas import avro_name_mistakes, avro_schema, json_schema

if TYPE_CHECKING:
    from pyspark_pykafka.options import EncodingOptions

_MODULE = "pyspark_pykafka.formats._value_encoder"
_TEXTS = (pa.string(), pa.binary())


class WrittenColumn(NamedTuple):
    """
    An encoded key or value: its name, its format, and its type in rows.

    ``schema`` is the text of its Avro schema or JSON Schema; it is empty if the schema is not
    looked up yet, or if none is needed. ``prefix`` precedes each value.
    """

    name: str
    format: str
    type: pa.DataType
    schema: str = ""
    prefix: bytes = b""
    keeps_nulls: bool = False


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


def write_format(options: EncodingOptions, schema: pa.Schema) -> WriteFormat:
    """
    Return the format that maps rows of a schema to records.

    Schemas in the registry are not looked up here. Raises :class:`OptionsError` if the rows cannot
    be encoded.
    """
    mistakes: list[str] = []
    columns: list[WrittenColumn] = []
    for name, chosen in options.by_column.items():
        if chosen.format == "raw" or name not in schema.names:
            continue
        field = schema.field(schema.names.index(name))
        found = _type_mistakes(field, chosen.format)
        mistakes += found
        if chosen.format == "text":
            continue
        text = "" if found else _schema_text(options, name, field.type)
        column = WrittenColumn(
            name, chosen.format, field.type, text, keeps_nulls=not options.ignore_null_fields
        )
        if text:
            mistakes += schema_mistakes(column)
        columns.append(column)
    if mistakes:
        raise OptionsError(tuple(mistakes))
    encoded = {column.name for column in columns}
    fields = [pa.field(f.name, pa.binary()) if f.name in encoded else f for f in schema]
    return WriteFormat(pa.schema(fields), tuple(columns))


def _type_mistakes(field: pa.Field, kind: str) -> list[str]:
    name = field.name
    if kind == "text":
        text = f"{name}Format is 'text', so the column '{name}' must be: STRING"
        return [] if field.type == pa.string() else [text]
    if find_spec(_MODULE) is None:
        return [
            (
                f"{name}Format is '{kind}', which needs a compiled module that is not installed; "
                "install a wheel of pyspark-pykafka for this platform, or a C compiler before you "
                f"install from source; or write the bytes of to_{kind}"
            )
        ]
    if kind == "json" and field.type in _TEXTS:
        return [
            (
                f"{name}Format is 'json', and the column '{name}' is text or bytes; it must be: a "
                f"STRUCT, ARRAY or MAP. If it is JSON already, remove {name}Format"
            )
        ]
    return encodable_mistakes(field, name)


def _schema_text(options: EncodingOptions, name: str, kind: pa.DataType) -> str:
    """
    Return the text of a column's schema, or "" if it is in the registry or not needed.
    """
    chosen = options.by_column[name]
    registered = options.registry is not None
    if chosen.is_registered_already and registered:
        return ""
    if chosen.format == "avro":
        return chosen.schema or avro_schema(kind, chosen.subject.record_name)
    if not registered:
        return ""
    keeps_nulls = not options.ignore_null_fields
    return chosen.schema or json_schema(kind, chosen.subject.record_name, keeps_nulls=keeps_nulls)


def schema_mistakes(column: WrittenColumn) -> list[str]:
    """
    Return the reasons why a column cannot be encoded by its schema.
    """
    if column.format != "avro":
        return []
    names = avro_name_mistakes(column.type, column.name)
    if names:
        return names
    try:
        parsed = parse_avro(column.schema)
    except AvroSchemaError as cause:
        return [f"the Avro schema of {column.name} cannot be used: {cause}"]
    return avro_plan(column.name, column.type, parsed)[1]
