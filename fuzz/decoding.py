"""
Decodes records into a column, and checks the invariants that each decoder must keep.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuzz.mutations import Choices

    from pyspark_pykafka.formats.columns import ValueColumn


def decode_all(
    records: Sequence[bytes | None], column: ValueColumn, max_bytes: int
) -> tuple[int, pa.Array]:
    """
    Return the number of good records, and the last array of decoded rows.
    """
    encoded = exact_array(records)
    position = rows = 0
    bad = set()
    while position < len(encoded):
        position = column.decode(encoded, position, len(encoded))
        assert column.nbytes <= max_bytes
        bad |= {value.row for value in column.take_bad()}
        part = column.take()
        part.validate(full=True)
        rows += len(part)
    assert rows == len(encoded)
    return rows - len(bad), part


def exact_array(records: Sequence[bytes | None]) -> pa.Array:
    """
    Return an array whose data end with the last record, so that a sanitizer sees reads beyond it.
    """
    array = pa.array(records, pa.binary())
    validity, offsets, data = array.buffers()
    size = sum(len(record or b"") for record in records)
    exact = memoryview((ctypes.c_ubyte * size).from_buffer_copy(data)).cast("B")
    return pa.Array.from_buffers(
        pa.binary(), len(records), [validity, offsets, pa.py_buffer(exact)]
    )


def joined_pieces(choices: Choices, pieces: Sequence[bytes]) -> list[bytes | None]:
    """
    Return some records, each made of some of the pieces and of arbitrary bytes.
    """
    return [
        b"".join(
            pieces[choices.number(0, len(pieces) - 1)]
            if choices.number(0, 3)
            else choices.some_bytes(8)
            for _ in range(choices.number(0, 9))
        )
        for _ in range(choices.number(1, 6))
    ]
