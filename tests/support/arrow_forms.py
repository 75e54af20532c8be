"""
Arrow arrays with equal values but different layouts in memory.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyspark_pykafka.formats.column_types import inner_fields

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence


def any_form(
    array: pa.Array, generator: random.Random, *, wide: bool = True, dictionaries: bool = True
) -> pa.Array:
    """
    Return an equal array that is sliced at an offset, and has junk values under its nulls.

    Each nested array has an offset of its own. With ``wide``, strings, binaries and lists may have
    64-bit offsets, and with ``dictionaries``, strings and binaries may be dictionary-encoded.
    """
    before = generator.randrange(4)
    array = pa.concat_arrays([_junk(array.type, before), array, _junk(array.type, 1)])
    kind = array.type
    nested = _Nested(generator, wide, dictionaries)
    if pa.types.is_struct(kind):
        array = nested.struct(array)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        array = nested.lists(array)
    elif kind in (pa.string(), pa.binary()):
        if wide and generator.random() < 0.5:
            array = array.cast(pa.large_string() if kind == pa.string() else pa.large_binary())
        if dictionaries and generator.random() < 0.3:
            array = array.dictionary_encode()
    return array[before:-1]


class _Nested:
    def __init__(self, generator: random.Random, wide: bool, dictionaries: bool) -> None:
        self._generator = generator
        self._options = {"wide": wide, "dictionaries": dictionaries}

    def struct(self, array: pa.Array) -> pa.Array:
        fields = []
        for number in range(array.type.num_fields):
            column = array.field(number)
            rows = [
                column[row : row + 1] if valid else _junk(column.type, 1)
                for row, valid in enumerate(array.is_valid().to_pylist())
            ]
            fields.append(any_form(pa.concat_arrays(rows), self._generator, **self._options))
        types = [field.with_type(c.type) for field, c in zip(array.type, fields, strict=True)]
        return pa.Array.from_buffers(
            pa.struct(types), len(array), [_validity(array)], children=fields
        )

    def lists(self, array: pa.Array) -> pa.Array:
        is_map = pa.types.is_map(array.type)
        element = array.values.type
        first = self._generator.randrange(3)
        parts, ends = [_junk(element, first)], [first]
        for row, valid in enumerate(array.is_valid().to_pylist()):
            if valid:
                start, end = array.offsets[row].as_py(), array.offsets[row + 1].as_py()
                parts.append(array.values[start:end])
            else:
                parts.append(_junk(element, self._generator.randrange(3)))
            ends.append(ends[-1] + len(parts[-1]))
        values = any_form(pa.concat_arrays(parts), self._generator, **self._options)
        wide = not is_map and self._options["wide"] and self._generator.random() < 0.5
        if is_map:
            key, item = values.type
            kind: pa.DataType = pa.map_(key.with_nullable(nullable=False), item)
        else:
            kind = (pa.large_list if wide else pa.list_)(
                array.type.value_field.with_type(values.type)
            )
        offsets = pa.py_buffer(np.array(ends, np.int64 if wide else np.int32))
        return pa.Array.from_buffers(
            kind, len(array), [_validity(array), offsets], children=[values]
        )


def _validity(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    bits = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return pa.py_buffer(bits)


def _junk(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.array([_value(kind)] * rows, kind)


def _value(kind: pa.DataType) -> Any:
    inner: Sequence[pa.Field] = inner_fields(kind)
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type) for field in inner}
    if pa.types.is_map(kind):
        return [(_value(inner[0].type), _value(inner[1].type))]
    if inner:
        return [_value(inner[0].type)] * 2
    simple: dict[pa.DataType, Any] = {
        pa.string(): "junk",
        pa.binary(): b"\xff",
        pa.bool_(): True,
        pa.date32(): date(1999, 1, 1),
        pa.timestamp("us", tz="UTC"): datetime(1999, 1, 1, tzinfo=UTC),
        pa.timestamp("us"): datetime(1999, 1, 1),  # noqa: DTZ001 (a TIMESTAMP_NTZ)
    }
    return simple.get(kind, Decimal(0) if pa.types.is_decimal(kind) else 99)
