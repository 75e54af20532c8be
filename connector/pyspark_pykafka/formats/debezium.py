"""
Debezium's change events: the types of their envelopes, and of the columns made from them.

An envelope has the row ``before`` and ``after`` a change, the operation ``op`` and the time
``ts_ms`` in milliseconds. JSON with schemas has it in the field ``payload``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.formats.avro_types import avro_ddl
from pyspark_pykafka.formats.column_types import type_mistakes
from pyspark_pykafka.options.schema_text import struct_fields

if TYPE_CHECKING:
    from pyspark_pykafka.formats.avro_schema import AvroType

BEFORE, AFTER, OPERATION, MILLIS = "before", "after", "op", "ts_ms"
#: The field with the envelope in JSON that has schemas.
PAYLOAD = "payload"
#: The column made from ``ts_ms``.
TIME = "ts"
#: The prefix of the columns ``op`` and ``ts`` beside the columns of a row.
ROW_PREFIX = "_"

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ROW_COLUMNS = {ROW_PREFIX + OPERATION, ROW_PREFIX + TIME}


class Envelope(NamedTuple):
    """
    The column that is made from envelopes. With ``rows``, its ``type`` has the fields of the
    changed row.

    With ``may_be_wrapped``, an envelope may be in the field ``payload`` of the decoded values.
    """

    type: pa.DataType
    rows: bool
    may_be_wrapped: bool

    @property
    def decoded_type(self) -> pa.DataType:
        """
        The type of the values to decode.
        """
        fields = [pa.field(name, kind) for name, kind in self._event_fields().items()]
        wrapped = [pa.field(PAYLOAD, pa.struct(fields))] if self.may_be_wrapped else []
        return pa.struct([*fields, *wrapped])

    def _event_fields(self) -> dict[str, pa.DataType]:
        # A value is a change event only if it has an operation.
        fields: dict[str, pa.DataType] = {OPERATION: pa.string()}
        if not self.rows:
            fields |= {field.name: field.type for field in self.type if field.name != TIME}
        elif row := [field for field in self.type if field.name not in _ROW_COLUMNS]:
            fields |= {BEFORE: pa.struct(row), AFTER: pa.struct(row)}
        if self.time_column in {field.name for field in self.type}:
            fields[MILLIS] = pa.int64()
        return fields

    @property
    def operation_column(self) -> str:
        """
        The name of the column with the operation.
        """
        return ROW_PREFIX + OPERATION if self.rows else OPERATION

    @property
    def time_column(self) -> str:
        """
        The name of the column with the time.
        """
        return ROW_PREFIX + TIME if self.rows else TIME


def envelope_mistakes(field: pa.Field, name: str, *, rows: bool) -> list[str]:
    """
    Return the reasons why a column cannot be made from change events, one text for each mistake.
    """
    if not pa.types.is_struct(field.type):
        return [f"{name} has Debezium's change events, so its type must be: STRUCT"]
    if mistakes := type_mistakes(field, name):
        return mistakes
    kinds = {inner.name: inner.type for inner in field.type}
    prefix = ROW_PREFIX if rows else ""
    expected = {
        prefix + OPERATION: (pa.string(), "STRING"),
        prefix + TIME: (_TIMESTAMP, "TIMESTAMP"),
    }
    if TIME in kinds and not rows:
        expected[MILLIS] = (pa.int64(), "BIGINT")
    if PAYLOAD in kinds and not rows:
        # The name is reserved for the payload of JSON that has schemas.
        return [f"'{name}.{PAYLOAD}' is not a field of a change event; name its inner fields"]
    mistakes = [
        f"'{name}.{column}' must be: {ddl}"
        for column, (kind, ddl) in expected.items()
        if kinds.get(column, kind) != kind
    ]
    if rows and ROW_PREFIX + OPERATION not in kinds:
        mistakes.append(
            f"debeziumRows is true, but {name} has no field '{ROW_PREFIX}{OPERATION}', without "
            f"which a deleted row looks like any other; add '{ROW_PREFIX}{OPERATION} STRING'"
        )
    return mistakes


def json_envelope_ddl(row: str, *, rows: bool) -> str:
    """
    Return the DDL of the columns made from JSON change events; ``row`` is the DDL of the rows.

    Raises :class:`OptionsError` if ``rows`` is set and ``row`` is not a STRUCT.
    """
    return _ddl(row, row, rows=rows)


def avro_envelope_ddl(name: str, envelope: AvroType, *, rows: bool) -> str:
    """
    Return the DDL of the columns made from change events; ``envelope`` is their Avro schema.

    Raises :class:`OptionsError` if it is not an envelope's schema, if its rows have no fields with
    values, or if ``rows`` is set and its rows are not a STRUCT.
    """
    fields = dict(envelope.fields) if envelope.kind == "record" else {}
    missing = [part for part in (BEFORE, AFTER, OPERATION, MILLIS) if part not in fields]
    if missing:
        msg = (
            f"the schema of {name} is not the envelope of Debezium's change events: the field "
            f"'{missing[0]}' is missing; it must be: the schema that Debezium writes with, or set "
            f"{name}Format to avro"
        )
        raise OptionsError((msg,))
    before, after = avro_ddl(fields[BEFORE]), avro_ddl(fields[AFTER])
    if before is None or after is None:
        msg = (
            f"the rows in the schema of {name} have no fields with values, so they give no "
            f"columns; set {name}Format to raw"
        )
        raise OptionsError((msg,))
    return _ddl(before, after, rows=rows)


def _ddl(before: str, after: str, *, rows: bool) -> str:
    if not rows:
        return f"STRUCT<before: {before}, after: {after}, op: STRING, ts: TIMESTAMP>"
    fields = struct_fields(after)
    if fields is None:
        msg = (
            f"debeziumRows is true, but the rows of the change events have the type "
            f"{after[:200]}; it must be: a STRUCT"
        )
        raise OptionsError((msg,))
    return f"STRUCT<{fields}, _op: STRING, _ts: TIMESTAMP>"
