"""
Decodes the keys and values that a command shows, with the decoders of queries but without Spark.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.ddl_types import arrow_type
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.formats.record_format import RecordFormat, record_format
from pyspark_pykafka.formats.registered_schemas import with_registered_schemas

if TYPE_CHECKING:
    from pyspark_pykafka.options import SourceOptions

#: JSON is left out: it is text already, and only Spark can parse the types that a user names.
DECODED_FORMATS = ("avro", "protobuf", "debezium-avro")


def decoded_format(options: SourceOptions) -> RecordFormat | None:
    """
    Return the format of records whose types come from a schema, or None if nothing is decoded.

    Raises :class:`OptionsError` if a schema is missing, and the errors of the registry's client.
    """
    if options.formats.flatten:
        msg = "flatten is true; leave it out, since a record is shown with its whole value"
        raise OptionsError((msg,))
    formats = with_registered_schemas(options.formats, options.strategy, gives_columns=True)
    ddl = default_ddl(formats, include_headers=True)
    if ddl is None:
        return None
    return record_format(formats, pa.schema(list(arrow_type(ddl))), include_headers=True)


def json_values(column: pa.Array) -> list[Any]:
    """
    Return the values of a column in a form for JSON, but leave bytes as they are.

    Times, decimals, NaN and infinity become text, and maps become objects.
    """
    return [_json_value(value, column.type) for value in column.to_pylist()]


def _json_value(value: Any, kind: pa.DataType) -> Any:
    if value is None or isinstance(value, bytes | str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if pa.types.is_struct(kind):
        return {field.name: _json_value(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_json_value(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return {str(key): _json_value(item, kind.item_type) for key, item in value}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
