"""
The contract of decoders of keys or values, and the decoder of text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from pyspark_pykafka.formats.bad_records import BadValue

if TYPE_CHECKING:
    from pyspark_pykafka.formats.bad_records import BadRecordPolicy


class ValueColumn(Protocol):
    """
    A growing column that arrays of keys or values are decoded into.
    """

    @property
    def rows(self) -> int:
        """
        The number of rows decoded since the last :meth:`take`.
        """

    @property
    def nbytes(self) -> int:
        """
        The approximate size in bytes of the rows decoded since the last :meth:`take`.
        """

    def decode(
        self, encoded: pa.Array, start: int, end: int, headers: pa.Array | None = None
    ) -> int:
        """
        Decode the rows ``[start, end)`` of a binary array; return the next row.

        The next row is before ``end`` if the column is full, or if a bad record must fail the read.
        ``headers`` is required for formats whose schema ids may be in the records' headers.
        """

    def keep(self, rows: int) -> None:
        """
        Drop the rows after the first ``rows``.
        """

    def take_bad(self) -> list[BadValue]:
        """
        Return the bad values since the last call; their rows are rows of the decoded arrays.
        """

    def take(self) -> pa.Array:
        """
        Return the rows, and empty the column.
        """


class ArrayColumn:
    """
    The rows of a column as Arrow arrays of one type, and the bad values among them.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._parts: list[pa.Array] = []
        self._bad: list[BadValue] = []

    @property
    def rows(self) -> int:
        """
        The number of rows.
        """
        return sum(map(len, self._parts))

    @property
    def nbytes(self) -> int:
        """
        The bytes of the rows.
        """
        return sum(part.nbytes for part in self._parts)

    def keep(self, rows: int) -> None:
        """
        Drop the rows after the first ``rows``.
        """
        excess = self.rows - rows
        while excess > 0:
            last = self._parts.pop()
            if len(last) > excess:
                self._parts.append(last.slice(0, len(last) - excess))
            excess -= len(last)

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
        parts, self._parts = self._parts, []
        return joined(parts, self._type)


class TextColumn(ArrayColumn):
    """
    Keys or values as strings, which must be UTF-8.
    """

    def __init__(self, name: str, policy: BadRecordPolicy) -> None:
        super().__init__(pa.string())
        self._name = name
        self._stops = policy.fails

    def decode(
        self,
        encoded: pa.Array,
        start: int,
        end: int,
        headers: pa.Array | None = None,  # noqa: ARG002 (required by the protocol)
    ) -> int:
        """
        Append the rows ``[start, end)`` as strings; return the next row.

        A row that is not UTF-8 is a bad value: it becomes null, or ends the decoding.
        """
        texts = encoded.slice(start, end - start).view(pa.string())
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            return self._decode_each(encoded, start, end)
        self._parts.append(texts)
        return end

    def _decode_each(self, encoded: pa.Array, start: int, end: int) -> int:
        texts: list[str | None] = []
        for row in range(start, end):
            value = encoded[row].as_py()
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                reason = f"{self._name} is not UTF-8: an invalid byte at byte {error.start}"
                self._bad.append(BadValue(row, reason))
                if self._stops:
                    return row
                texts.append(None)
        self._parts.append(pa.array(texts, pa.string()))
        return end


def joined(parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """
    Return the parts of a column as one array.
    """
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.nulls(0, kind)


def without_last_field(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """
    Return structs without their last field; ``kind`` is the type of the rest.
    """
    fields = [values.field(number) for number in range(kind.num_fields)]
    validity = values.buffers()[0]
    return pa.Array.from_buffers(
        kind, len(values), [validity], values.null_count, values.offset, children=fields
    )
