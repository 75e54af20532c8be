"""
Decodes Avro's binary encoding into one Arrow column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark_pykafka.formats._avro import AvroDecoder
from pyspark_pykafka.formats.avro_decoder_plan import writer_plan
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.column_types import plan
from pyspark_pykafka.formats.decoded_column import DecodedColumn

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.formats.bad_records import BadRecordPolicy


class AvroColumn(DecodedColumn):
    """
    The column that Avro values are decoded into; ``schema`` is the writer's schema as JSON text.

    The column is full at ``max_bytes``.
    """

    format_name = "Avro"
    reasons: ClassVar = {
        1: "a branch, a symbol or a boolean that the schema does not have",
        2: "the value ends too early",
        5: "a string that is not UTF-8",
        6: "a number that is not a valid varint of its type",
        8: "extra bytes after its end",
        9: "more items than bytes, or too large for half of maxFetchMemory",
        11: "a number out of range",
        16: "an enum's symbol that is empty",
    }

    def __init__(
        self, name: str, kind: pa.DataType, schema: str, max_bytes: int, policy: BadRecordPolicy
    ) -> None:
        writer, _ = writer_plan(parse_avro(schema), kind, name)
        decoder = AvroDecoder(plan(name, kind), max_bytes, policy.fails, writer)
        super().__init__(name, kind, decoder)
