"""
Decodes the keys and values that a command shows, with the decoders of queries but without Spark.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.ddl_types import arrow_type
from pyspark_pykafka.formats.default_columns import default_ddl
from pyspark_pykafka.formats.read_format import ReadFormat, make_read_format
from pyspark_pykafka.formats.registered_schemas import with_registered_schemas
from pyspark_pykafka.schema import TIMESTAMP_MS

if TYPE_CHECKING:
    from pyspark_pykafka.options import SourceOptions

#: The formats whose columns come from a schema.
DECODED_FORMATS = ("avro", "protobuf", "debezium-avro")

#: The length of a day in each unit of Arrow's times.
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
#: The format whose values are shown as JSON documents, without a schema: only Spark can parse the
#: DDL in which users write the types of JSON.
JSON = "json"

# Serializers with a registry write a zero byte and the schema's id before the JSON; the ids of
# Apicurio's older serializers are longer.
_ID_BYTES = 4
_OLD_ID_BYTES = 8


def decoded_format(options: SourceOptions) -> ReadFormat | None:
    """
    Return the format of records whose types come from a schema, or None if nothing is decoded.

    The column ``timestamp`` is in milliseconds, since not every timestamp fits microseconds.
    Raises :class:`OptionsError` if a schema is missing, and the errors of the registry's client.
    """
    if options.formats.flatten:
        msg = "flatten is true; leave it out, since a record is shown with its whole value"
        raise OptionsError((msg,))
    formats = with_registered_schemas(options.formats, options.strategy, derives_columns=True)
    ddl = default_ddl(formats, include_headers=True)
    if ddl is None:
        return None
    decoded = make_read_format(formats, pa.schema(list(arrow_type(ddl))), include_headers=True)
    return replace(
        decoded,
        schema=_with_milliseconds(decoded.schema),
        record_schema=_with_milliseconds(decoded.record_schema),
    )


def _with_milliseconds(schema: pa.Schema) -> pa.Schema:
    index = schema.get_field_index("timestamp")
    return schema.set(index, schema.field(index).with_type(TIMESTAMP_MS))


def json_document(data: bytes) -> Any:
    """
    Return the JSON document in a key or value, without the id of a registered schema before it.

    Raises :class:`ValueError` with the reason if the data is not JSON, or contains NaN, Infinity or
    a number that is too large for a float.
    """
    if data[:1] != b"\0":
        return _parse_json(data)
    try:
        return _parse_json(data[1 + _ID_BYTES :])
    except ValueError:
        return _parse_json(data[1 + _OLD_ID_BYTES :])


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode(), parse_float=_finite, parse_constant=_no_constant)
    except RecursionError as cause:
        msg = "it is nested too deeply"
        raise ValueError(msg) from cause


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        msg = f"the number {text[:20]} is too large"
        raise ValueError(msg)
    return number


def _no_constant(text: str) -> NoReturn:
    msg = f"{text} is not valid JSON"
    raise ValueError(msg)


def json_values(column: pa.Array) -> list[Any]:
    """
    Return the values of a column as values that JSON can hold; bytes stay bytes.

    Times, decimals, NaN and infinity become text, and maps become objects. A time that Python
    cannot represent, such as one after the year 9999, becomes its number with the unit.
    """
    if pa.types.is_binary(column.type):
        return list(column.to_pylist())
    return [_json_value(scalar) for scalar in column]


def _json_value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_temporal(kind):
        return _time_as_text(scalar)
    if not pa.types.is_nested(kind):
        return _plain_value(scalar.as_py())
    if pa.types.is_struct(kind):
        return {field.name: _json_value(scalar[index]) for index, field in enumerate(kind)}
    if pa.types.is_map(kind):
        keys, items = scalar.values.flatten()
        return dict(zip(map(str, keys.to_pylist()), map(_json_value, items), strict=True))
    return [_json_value(item) for item in scalar.values]


def _plain_value(value: Any) -> Any:
    is_json = isinstance(value, bytes | str | int) or (
        isinstance(value, float) and math.isfinite(value)
    )
    return value if is_json else str(value)


def _time_as_text(scalar: pa.Scalar) -> str:
    kind, number = scalar.type, scalar.value
    if pa.types.is_time(kind) and not 0 <= number < _DAY[kind.unit]:
        # Arrow would drop the days.
        return f"{number} {kind.unit} since midnight"
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError):
        unit = "days" if pa.types.is_date(kind) else kind.unit
        return f"{number} {unit} since 1970"
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
