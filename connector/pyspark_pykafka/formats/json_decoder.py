"""
Decodes JSON texts into one Arrow column of any type that Spark's ``from_json`` supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark_pykafka.formats._json import JsonDecoder
from pyspark_pykafka.formats.column_types import plan
from pyspark_pykafka.formats.decoded_column import DecodedColumn

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_pykafka.formats.bad_records import BadRecordPolicy

_KINDS_OF_VALUE = {
    '"': "a string",
    "{": "an object",
    "[": "an array",
    "t": "true",
    "f": "false",
}


class JsonColumn(DecodedColumn):
    """
    The column that JSON texts are decoded into; it is full at ``max_bytes``.

    Each text may be preceded by a zero byte and a schema id of ``id_bytes`` bytes; 0 means no id.
    With ``rescues``, the last field of the type gets the unknown fields at any depth, as a JSON
    object.
    """

    format_name = "JSON"
    reasons: ClassVar = {
        1: "an unexpected byte",
        2: "the text ends too early",
        3: "a control character in a string",
        4: "an invalid escape in a string",
        5: "a string that is not UTF-8",
        6: "an invalid number",
        7: "more than 1000 levels of nesting",
        8: "extra text after its end",
        9: "a number of more than 1000 characters, or text too large for half of maxFetchMemory",
        11: "a number out of range",
        12: "a string with half of a surrogate pair",
        13: "a string that cannot be converted",
    }

    def __init__(
        self,
        name: str,
        kind: pa.DataType,
        max_bytes: int,
        policy: BadRecordPolicy,
        id_bytes: int = 0,
        *,
        rescues: bool = False,
    ) -> None:
        decoder = JsonDecoder(plan(name, kind), max_bytes, policy.fails, id_bytes, rescues)
        super().__init__(name, kind, decoder)

    def kind_of_value(self, byte: int) -> str:
        """
        Return the kind of a JSON value by its first byte.
        """
        number = "another number" if chr(byte) in "-0123456789" else "something else"
        return _KINDS_OF_VALUE.get(chr(byte), number)
