"""
Decodes Protobuf records that carry the ids of their schemas, and the indexes or names of their
messages.

Fields are numbered, so every record is decoded with the reader's message. The id, and the index or
the name, only serve to check that a record has this message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_pykafka.formats.protobuf_decoder import ProtobufColumn
from pyspark_pykafka.formats.protobuf_descriptors import varint
from pyspark_pykafka.formats.registered_avro import MAX_SCHEMAS, UNUSABLE_SCHEMA
from pyspark_pykafka.formats.registered_schemas import UnusableSchemaError
from pyspark_pykafka.formats.schema_names import SchemaNames

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.formats.bad_records import BadRecordPolicy
    from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema
    from pyspark_pykafka.formats.schema_names import SchemaName


def apicurio_ref(message: str) -> bytes:
    """
    Return the bytes with which Apicurio's serializers name a message before its value: the size of
    the message ``Ref``, and this message, whose field 1 is the name without the package.
    """
    name = message.rpartition(".")[2].encode()
    ref = b"\x0a" + varint(len(name)) + name
    return varint(len(ref)) + ref


class MessageSource(Protocol):
    """
    Checks the messages whose schema ids and indexes are in records.
    """

    def check(self, name: SchemaName, path: tuple[int, ...], message: str) -> None:
        """
        Raise :class:`UnusableSchemaError` if the message at a path in a schema is not ``message``,
        or, without a path, if the schema does not define ``message``.
        """


class RegisteredProtobufColumn(ProtobufColumn):
    """
    A column of Protobuf messages that carry the ids of their schemas; ``writers`` checks the ids.
    """

    def __init__(
        self,
        name: str,
        kind: pa.DataType,
        schema: ResolvedSchema,
        max_bytes: int,
        policy: BadRecordPolicy,
        *,
        id_bytes: int,
        writers: MessageSource,
    ) -> None:
        self._column = name
        self._message = schema.message
        self._names = SchemaNames(name, has_paths=True)
        self._writers = writers
        self._unusable: dict[int, str] = {}
        super().__init__(
            name,
            kind,
            schema,
            max_bytes,
            policy,
            id_bytes=id_bytes,
            ref=apicurio_ref(schema.message),
        )

    def decode(
        self, encoded: pa.Array, start: int, end: int, headers: pa.Array | None = None
    ) -> int:
        """
        Decode the rows ``[start, end)``, and check new schema ids and indexes; return the next row.
        """
        keys = self._names.keys(headers)
        while True:
            start = self.decode_rows(encoded, start, end, keys)
            key = self._protobuf.missing
            if key is None:
                return start
            self._add(key, self._protobuf.missing_path)

    def _add(self, key: int, path: tuple[int, ...]) -> None:
        if self._protobuf.schemas >= MAX_SCHEMAS:
            self._protobuf.forget_schemas()
            self._unusable.clear()
        name = self._names.name(key)
        try:
            self._writers.check(name, path or name.path, self._message)
        except UnusableSchemaError as reason:
            self._unusable[self._protobuf.add_schema(is_usable=False)] = str(reason)
        else:
            self._protobuf.add_schema(is_usable=True)

    def describe(self, position: int, reason: int, node: int, byte: int) -> str:
        """
        Return the reason why a value is bad; for an unusable schema ``position`` is its number.
        """
        if reason == UNUSABLE_SCHEMA:
            return f"{self._column} cannot be decoded: {self._unusable[position]}"
        return super().describe(position, reason, node, byte)
