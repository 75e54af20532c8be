"""
Decodes JSON texts into one Arrow column, of any type that Spark's ``from_json`` has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.formats._json import JsonDecoder
from pyspark_pykafka.formats.bad_records import BadValue
from pyspark_pykafka.formats.json_types import inner_fields, named_types, plan

if TYPE_CHECKING:
    from pyspark_pykafka.formats.bad_records import BadRecordPolicy

# (rows, null count, bitmap or None, ends or None, data or None, children)
_Column = tuple[int, int, Any, Any, Any, list[Any]]

_MISMATCH = 10
_REASONS = {
    1: "an unexpected byte",
    2: "the text ends too early",
    3: "a control character in a string",
    4: "an invalid escape in a string",
    5: "a string that is not UTF-8",
    6: "an invalid number",
    7: "more than 1000 levels of nesting",
    8: "more text after its end",
    9: "too large, as a number of more than 1000 characters or for half of maxFetchMemory",
    11: "a number out of range",
    12: "a string with half of a surrogate pair",
    13: "a text that is none",
}
_KINDS_OF_VALUE = {
    '"': "a string",
    "{": "an object",
    "[": "an array",
    "t": "true",
    "f": "false",
}


class JsonColumn:
    """
    The column that JSON texts are decoded into, one array of texts after another.

    ``name`` is the column's, for messages. The column may have ``max_bytes``.
    """

    def __init__(
        self, name: str, kind: pa.DataType, max_bytes: int, policy: BadRecordPolicy
    ) -> None:
        self._type = kind
        self._fields = list(named_types(name, kind))
        self._decoder = JsonDecoder(plan(name, kind), max_bytes, policy.fails)
        self._bad: list[BadValue] = []

    @property
    def rows(self) -> int:
        """
        The number of rows.
        """
        return self._decoder.rows

    @property
    def nbytes(self) -> int:
        """
        The bytes that the column has allocated.
        """
        return self._decoder.bytes

    def decode(self, encoded: pa.Array, start: int, end: int) -> int:
        """
        Decode the rows ``[start, end)``; return the next row.
        """
        validity, offsets, data = encoded.buffers()
        first = encoded.offset
        data = b"" if data is None else data
        stop: int = self._decoder.decode(validity, offsets, data, first + start, first + end)
        self._bad += [
            BadValue(row - first, self._describe(position, reason, node, byte))
            for row, position, reason, node, byte in self._decoder.take_bad()
        ]
        return stop - int(first)

    def keep(self, rows: int) -> None:
        """
        Forget the rows after the first ``rows``.
        """
        self._decoder.keep(rows)

    def take_bad(self) -> list[BadValue]:
        """
        Return the bad texts since the last call.
        """
        taken, self._bad = self._bad, []
        return taken

    def take(self) -> pa.Array:
        """
        Return the rows, and start again without any.
        """
        return _array(self._type, self._decoder.take())

    def _describe(self, position: int, reason: int, node: int, byte: int) -> str:
        if node < 0:
            return f"{self._fields[0][0]} is not valid JSON: {_REASONS[reason]}, at byte {position}"
        name, kind = self._fields[node]
        value = _kind_of_value(byte) if reason == _MISMATCH else _REASONS[reason]
        return f"{name} must be {kind}, and is {value}, at byte {position}"


def _kind_of_value(byte: int) -> str:
    return _KINDS_OF_VALUE.get(chr(byte), "another number" if chr(byte) in "-0123456789" else "?")


def _array(kind: pa.DataType, column: _Column) -> pa.Array:
    rows, nulls, bitmap, ends, data, columns = column
    fields = inner_fields(kind)
    inner = [_array(field.type, part) for field, part in zip(fields, columns, strict=True)]
    if pa.types.is_map(kind):
        # Arrow's map is a list of pairs, which are never null.
        inner = [pa.Array.from_buffers(pa.struct(fields), len(inner[0]), [None], 0, children=inner)]
    memories = [memory for memory in (ends, data) if memory is not None]
    validity = None if bitmap is None else pa.py_buffer(bitmap)
    buffers = [validity, *map(pa.py_buffer, memories)]
    return pa.Array.from_buffers(kind, rows, buffers, nulls, children=inner or None)
