"""
The columns of a read with decoded keys or values, if the user gives no schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.avro_schema import writer_schema
from pyspark_pykafka.formats.avro_types import avro_ddl
from pyspark_pykafka.formats.debezium import avro_envelope_ddl, json_envelope_ddl
from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_schemas import missing_protobuf_mistake, parsed_schema
from pyspark_pykafka.formats.protobuf_types import protobuf_ddl
from pyspark_pykafka.options.schema_text import field_names, nullable_ddl, struct_fields

if TYPE_CHECKING:
    from pyspark_pykafka.options import FormatOptions

_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_BESIDE_FLAT_FIELDS = ("topic", "partition", "offset", "timestamp")


def default_ddl(options: FormatOptions, *, include_headers: bool) -> str | None:
    """
    Return the columns as DDL, or None if nothing is decoded.

    Raises :class:`OptionsError` if a format needs a schema and has none.
    """
    if {*options.by_column.values()} == {"raw"}:
        return None
    types = _TYPES | _decoded_types(options)
    if not include_headers:
        del types["headers"]
    columns = [f"{name} {ddl}" for name, ddl in types.items()]
    if options.flatten:
        columns = [_flat_fields(types["value"])]
        _check_flat_names(columns[0], options)
        names = (*_BESIDE_FLAT_FIELDS, "headers") if include_headers else _BESIDE_FLAT_FIELDS
        columns += [f"_{name} {types[name]}" for name in names]
    if options.rescues_unknown_fields:
        columns.append("_rescued STRING")
    if options.on_bad_record == "rescue":
        columns += ["_raw BINARY", "_error STRING"]
    # One STRUCT type, since DDL allows a colon after a field's name only in a STRUCT.
    return f"STRUCT<{', '.join(columns)}>"


def _decoded_types(options: FormatOptions) -> dict[str, str]:
    types: dict[str, str] = {}
    mistakes: list[str] = []
    for name, format_ in options.by_column.items():
        if format_ == "raw":
            continue
        try:
            types[name] = _decoded_type(options, name, format_)
        except OptionsError as error:
            mistakes += error.mistakes
    if mistakes:
        raise OptionsError(tuple(mistakes))
    return types


def _decoded_type(options: FormatOptions, name: str, format_: str) -> str:
    schema = options.schemas[name]
    if format_ == "text":
        return "STRING"
    if format_ == "protobuf":
        return _protobuf_type(name, schema, options.messages[name])
    if format_ == "debezium-avro":
        writer = writer_schema(name, schema)
        return avro_envelope_ddl(name, writer, rows=options.debezium_rows)
    if format_ == "avro":
        return _avro_type(name, schema)
    if schema is None:
        msg = (
            f"{name}Format is '{format_}', but its type is missing; set {name}Schema, such as "
            "'id BIGINT, name STRING', or give the column a type with .schema(...)"
        )
        raise OptionsError((msg,))
    # As in Spark's from_json: a record may lack any field.
    nullable = nullable_ddl(schema)
    return (
        json_envelope_ddl(nullable, rows=options.debezium_rows) if format_ != "json" else nullable
    )


def _avro_type(name: str, schema: str | None) -> str:
    ddl = avro_ddl(writer_schema(name, schema))
    if ddl is None:
        msg = (
            f"the Avro schema of {name} has only records without fields and the type null, so it "
            f"gives no columns; set {name}Format to raw"
        )
        raise OptionsError((msg,))
    return ddl


def _protobuf_type(name: str, schema: str | None, message: str | None) -> str:
    if schema is None or message is None:
        raise OptionsError((missing_protobuf_mistake(name),))
    try:
        return protobuf_ddl(parsed_schema(schema), message)
    except ProtobufSchemaError as cause:
        msg = f"the Protobuf schema of {name} cannot be converted to columns: {cause}"
        raise OptionsError((msg,)) from cause


def _flat_fields(ddl: str) -> str:
    fields = struct_fields(ddl)
    if fields is None:
        msg = f"flatten is true, but the type of value is {ddl[:200]}; it must be: a STRUCT"
        raise OptionsError((msg,))
    return fields


def _check_flat_names(fields: str, options: FormatOptions) -> None:
    """
    Raise :class:`OptionsError` if a field of the value has the name of a column of the record.
    """
    reserved = {*(f"_{name}" for name in _TYPES if name != "value"), "_raw", "_error"}
    if options.rescues_unknown_fields:
        reserved.add("_rescued")
    mistakes = tuple(
        f"flatten is true, but the value has the field '{name}', which is also the name of a "
        "column of the record; set flatten to false, or name the other fields with .schema(...)"
        for name in field_names(fields)
        if name in reserved
    )
    if mistakes:
        raise OptionsError(mistakes)
