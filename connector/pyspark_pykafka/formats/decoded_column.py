"""
A growing Arrow column that a compiled decoder fills. Each format has its own decoder and error
texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from pyspark_pykafka.formats.bad_records import BadValue
from pyspark_pykafka.formats.column_types import inner_fields, named_types

if TYPE_CHECKING:
    from collections.abc import Mapping

# (rows, null count, bitmap or None, ends or None, data or None, children)
_Column = tuple[int, int, Any, Any, Any, list[Any]]

#: The reason for a value whose kind does not match its type.
MISMATCH = 10


class CompiledDecoder(Protocol):
    """
    The interface of the compiled decoders.
    """

    @property
    def rows(self) -> int:
        """
        The number of rows in the columns.
        """

    @property
    def bytes(self) -> int:
        """
        The number of bytes that the columns have allocated.
        """

    def decode(
        self,
        validity: Any,
        offsets: Any,
        data: Any,
        start: int,
        end: int,
        *,
        keys: tuple[Any, Any] | None = None,
        first_row: int = 0,
    ) -> int:
        """
        Decode the rows ``[start, end)`` of a binary array's buffers; return the next row.

        ``keys`` is a pair of buffers: rows, counted from ``first_row``, and the keys of their
        schemas.
        """

    def keep(self, rows: int) -> None:
        """
        Remove all rows after the first ``rows``.
        """

    def take_bad(self) -> list[tuple[int, int, int, int, int]]:
        """
        Return the bad records: (row, position, reason, node, byte).

        ``position`` is an index into the record's bytes. ``node`` is the index of the field in
        :func:`named_types`, or -1 for an error outside of any field. ``byte`` is the invalid byte,
        or -1 at the record's end.
        """

    def take(self) -> _Column:
        """
        Return the columns, and start new ones.
        """


class DecodedColumn:
    """
    The column that values are decoded into, array after array.

    ``name`` is the column's name, for messages. ``format_name`` is the format's name, and
    ``reasons`` maps the compiled decoder's reason numbers to texts.
    """

    format_name = ""
    reasons: ClassVar[Mapping[int, str]] = {}

    def __init__(self, name: str, kind: pa.DataType, decoder: CompiledDecoder) -> None:
        self._type = kind
        self._array_type = _array_type(kind)
        self._fields = list(named_types(name, kind))
        self._decoder = decoder
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

    def decode(
        self,
        encoded: pa.Array,
        start: int,
        end: int,
        headers: pa.Array | None = None,  # noqa: ARG002 (required by the protocol)
    ) -> int:
        """
        Decode the rows ``[start, end)``; return the next row.
        """
        return self.decode_rows(encoded, start, end)

    def decode_rows(
        self, encoded: pa.Array, start: int, end: int, keys: tuple[Any, Any] | None = None
    ) -> int:
        """
        Decode the rows ``[start, end)``, and return the next row. ``keys`` is a pair of buffers:
        rows of the array, and the keys of their schemas.
        """
        validity, offsets, data = encoded.buffers()
        first = encoded.offset
        data = b"" if data is None else data
        rows = first + start, first + end
        stop = self._decoder.decode(validity, offsets, data, *rows, keys=keys, first_row=first)
        self._bad += [
            BadValue(row - first, self.describe(position, reason, node, byte))
            for row, position, reason, node, byte in self._decoder.take_bad()
        ]
        return stop - int(first)

    def keep(self, rows: int) -> None:
        """
        Drop the rows after the first ``rows``.
        """
        self._decoder.keep(rows)

    def take_bad(self) -> list[BadValue]:
        """
        Return the bad values since the last call.
        """
        bad, self._bad = self._bad, []
        return bad

    def take(self) -> pa.Array:
        """
        Return the rows, and empty the column.
        """
        return _array(self._array_type, self._decoder.take())

    def describe(self, position: int, reason: int, node: int, byte: int) -> str:
        """
        Return the reason why a value is bad, from the numbers that the compiled decoder reported.
        """
        if node < 0:
            name = self._fields[0][0]
            fault = self.reasons[reason]
            return f"{name} is not valid {self.format_name}: {fault}, at byte {position}"
        name, kind = self._fields[node]
        value = self.kind_of_value(byte) if reason == MISMATCH else self.reasons[reason]
        return f"{name} must be {kind}, but is {value}, at byte {position}"

    def kind_of_value(self, byte: int) -> str:
        """
        Return a description of a value by its first byte.
        """
        return f"a value that starts with byte {byte}"


class _ArrayType(NamedTuple):
    """
    The type of an array and of the arrays inside it; ``entries`` is the struct of a map's entries.

    It is made once for each column: pyarrow makes a new object each time that a type or its fields
    are read.
    """

    type: pa.DataType
    entries: pa.DataType | None
    inner: tuple[_ArrayType, ...]


def _array_type(kind: pa.DataType) -> _ArrayType:
    fields = inner_fields(kind)
    entries = pa.struct(fields) if pa.types.is_map(kind) else None
    return _ArrayType(kind, entries, tuple(_array_type(field.type) for field in fields))


def _array(kind: _ArrayType, column: _Column) -> pa.Array:
    rows, nulls, bitmap, ends, data, columns = column
    inner = [
        _array(inner_kind, inner_column)
        for inner_kind, inner_column in zip(kind.inner, columns, strict=True)
    ]
    if kind.entries is not None:
        # Arrow's map is a list of pairs, which are never null.
        inner = [pa.Array.from_buffers(kind.entries, len(inner[0]), [None], 0, children=inner)]
    buffers = [None if bitmap is None else pa.py_buffer(bitmap)]
    buffers += [pa.py_buffer(memory) for memory in (ends, data) if memory is not None]
    return pa.Array.from_buffers(kind.type, rows, buffers, nulls, children=inner or None)
