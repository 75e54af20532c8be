"""
Decodes Protobuf's binary encoding into one Arrow column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark_pykafka.formats._protobuf import ProtobufDecoder
from pyspark_pykafka.formats.column_types import plan
from pyspark_pykafka.formats.decoded_column import MISMATCH, DecodedColumn
from pyspark_pykafka.formats.protobuf_decoder_plan import message_plan
from pyspark_pykafka.formats.protobuf_schemas import parsed_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.formats.bad_records import BadRecordPolicy
    from pyspark_pykafka.formats.protobuf_schemas import ResolvedSchema

# The number of a reason that concerns one field, like MISMATCH and the numbers after it.
_BAD_UTF8 = 5


class ProtobufColumn(DecodedColumn):
    """
    The column that Protobuf messages are decoded into; it is full at ``max_bytes``.

    With ``id_bytes`` each value begins with the id of its schema. After the id, message indexes
    identify the message, or the bytes ``ref``, which Apicurio's serializers write.
    """

    format_name = "Protobuf"
    reasons: ClassVar = {
        1: "an invalid tag, or the end of a group that has not begun",
        2: "it ends too early, or contains a size that exceeds it",
        5: "a string that is not UTF-8",
        6: "a number of more than ten bytes",
        7: "more than 100 levels of messages and groups",
        9: "too large for half of maxFetchMemory",
        11: "a number out of range",
        14: "it does not begin with a schema id, followed by message indexes or Apicurio's name of "
        "the message",
    }

    def __init__(
        self,
        name: str,
        kind: pa.DataType,
        schema: ResolvedSchema,
        max_bytes: int,
        policy: BadRecordPolicy,
        *,
        id_bytes: int = 0,
        ref: bytes = b"",
    ) -> None:
        message, _ = message_plan(parsed_schema(schema.text), schema.message, kind, name)
        self._protobuf = ProtobufDecoder(
            plan(name, kind), max_bytes, policy.fails, message, id_bytes, ref
        )
        super().__init__(name, kind, self._protobuf)

    def describe(self, position: int, reason: int, node: int, byte: int) -> str:
        """
        Return the reason why a value is bad, with the name of the field.
        """
        if node < 0 or reason >= MISMATCH or reason == _BAD_UTF8:
            return super().describe(position, reason, node, byte)
        name, _ = self._fields[node]
        fault = self.reasons[reason]
        return f"{name} is not valid {self.format_name}: {fault}, at byte {position}"

    def kind_of_value(self, byte: int) -> str:  # noqa: ARG002 (meaningless for Protobuf)
        """
        Return a description of a value with another wire type.
        """
        return "a value of another wire type"
