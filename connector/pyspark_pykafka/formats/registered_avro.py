"""
Decodes Avro records that carry the ids of their writers' schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from pyspark_pykafka.formats._avro import AvroDecoder
from pyspark_pykafka.formats.avro_decoder import AvroColumn
from pyspark_pykafka.formats.avro_resolution import registered_plan
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.column_types import plan
from pyspark_pykafka.formats.decoded_column import DecodedColumn
from pyspark_pykafka.formats.registered_schemas import UnusableSchemaError
from pyspark_pykafka.formats.schema_names import SchemaNames

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.formats.avro_schema import AvroType
    from pyspark_pykafka.formats.bad_records import BadRecordPolicy
    from pyspark_pykafka.formats.schema_names import SchemaName

#: The number of writers' schemas that a task caches; one more empties the cache.
MAX_SCHEMAS = 1000

#: The reason for a value whose schema cannot be used.
UNUSABLE_SCHEMA = 15


class SchemaSource(Protocol):
    """
    Looks up the schemas whose ids are in records.
    """

    def find(self, name: SchemaName) -> AvroType:
        """
        Return a schema. Raises :class:`UnusableSchemaError` if its records are bad records.
        """


class RegisteredAvroColumn(DecodedColumn):
    """
    A column of Avro values that carry the ids of their writers' schemas.

    Values are resolved to ``schema``, the JSON text of the reader's schema. ``writers`` looks up
    the writers' schemas; decoding waits for a lookup at the first value with a new id. With
    ``compares_names``, values whose schema is a record of another name are bad.
    """

    format_name = "Avro"
    reasons: ClassVar = AvroColumn.reasons | {
        14: "it does not begin with a schema id: a zero byte and 4 or 8 more bytes",
        16: "a value that does not match the reader's schema",
        17: "missing, and has no default in the reader's schema",
    }

    def __init__(
        self,
        name: str,
        kind: pa.DataType,
        schema: str,
        max_bytes: int,
        policy: BadRecordPolicy,
        *,
        id_bytes: int,
        writers: SchemaSource,
        compares_names: bool = False,
    ) -> None:
        self._reader = parse_avro(schema)
        self._column = name
        self._names = SchemaNames(name)
        self._writers = writers
        self._compares_names = compares_names
        self._unusable: dict[int, str] = {}
        self._avro = AvroDecoder(plan(name, kind), max_bytes, policy.fails, None, id_bytes)
        super().__init__(name, kind, self._avro)

    def decode(
        self, encoded: pa.Array, start: int, end: int, headers: pa.Array | None = None
    ) -> int:
        """
        Decode the rows ``[start, end)``, and fetch new schemas; return the next row.
        """
        keys = self._names.keys(headers)
        while True:
            start = self.decode_rows(encoded, start, end, keys)
            key = self._avro.missing
            if key is None:
                return start
            self._add(key)

    def _add(self, key: int) -> None:
        if self._avro.schemas >= MAX_SCHEMAS:
            self._avro.forget_schemas()
            self._unusable.clear()
        try:
            writer = self._writers.find(self._names.name(key))
            if self._compares_names:
                _check_name(writer, self._reader)
            self._avro.add_schema(key, registered_plan(writer, self._reader, self._type))
        except UnusableSchemaError as reason:
            self._unusable[key] = str(reason)
            self._avro.add_schema(key, None)

    def describe(self, position: int, reason: int, node: int, byte: int) -> str:
        """
        Return the reason why a value is bad; for an unusable schema ``position`` is its key.
        """
        if reason == UNUSABLE_SCHEMA:
            return f"{self._column} cannot be decoded: {self._unusable[position]}"
        return super().describe(position, reason, node, byte)


def _check_name(writer: AvroType, reader: AvroType) -> None:
    """
    Raise :class:`UnusableSchemaError` for a record whose full name is neither the reader's nor one
    of its aliases.
    """
    both_are_records = writer.kind == reader.kind == "record"
    if both_are_records and writer.name not in {reader.name, *reader.aliases}:
        msg = f"its record is '{writer.name}', not '{reader.name}'"
        raise UnusableSchemaError(msg)
