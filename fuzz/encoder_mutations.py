"""
Arrow arrays of arbitrary values and offsets, and the invariants that the encoder must keep.
"""

from __future__ import annotations

import ctypes
import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fuzz.avro_mutations import any_schema
from fuzz.decoding import decode_all
from fuzz.json_mutations import any_type
from fuzz.protobuf_mutations import any_message
from tests.support.avro_columns import arrow_type

from pyspark_pykafka.formats.avro_decoder import AvroColumn
from pyspark_pykafka.formats.avro_encoder_plan import avro_encoder_plan
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.column_types import inner_fields
from pyspark_pykafka.formats.derived_schemas import avro_schema
from pyspark_pykafka.formats.encoded_column import EncodedColumn, EncodingError
from pyspark_pykafka.formats.protobuf_decoder import ProtobufColumn
from pyspark_pykafka.formats.write_format import WrittenColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuzz.mutations import Choices

    from pyspark_pykafka.formats.columns import ValueColumn

MAX_BYTES = 1 << 20

_PIECES = (
    *(b"", b"a", b"S0", b"S1", b"A", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80"),
    *(b'"\\\n', b"plain text of some length, ", b"\xe2\x82", b"\x00"),
)


def any_array(
    kind: pa.DataType, rows: int, choices: Choices, *, has_nulls: bool = True
) -> pa.Array:
    """
    Return an array of a type. Its memory ends with it, so that a sanitizer sees reads beyond it.

    Numbers have arbitrary bits and strings arbitrary bytes; null entries may have content.
    """
    offset = choices.number(0, 3)
    total = offset + rows
    validity = None
    if has_nulls and choices.number(0, 1):
        validity = _exact(_bits(choices, (total + 7) // 8))
    children: list[pa.Array] = []
    buffers = [validity]
    if pa.types.is_struct(kind):
        children = [any_array(field.type, total, choices) for field in kind]
    elif inner := inner_fields(kind):
        ends, size = _ends([choices.number(0, 3) for _ in range(total)], choices)
        buffers.append(ends)
        children = _elements(kind, inner, size + choices.number(0, 2), choices)
    elif kind in (pa.string(), pa.binary()):
        texts = [_text(choices) for _ in range(total)]
        before = _text(choices)
        ends, _ = _ends([len(text) for text in texts], choices, first=len(before))
        buffers += [ends, _exact(before + b"".join(texts))]
    else:
        bits = kind.bit_width * total
        buffers.append(_exact(_bits(choices, (bits + 7) // 8)))
    return pa.Array.from_buffers(kind, rows, buffers, -1, offset, children or None)


def _elements(
    kind: pa.DataType, inner: Sequence[pa.Field], size: int, choices: Choices
) -> list[pa.Array]:
    if not pa.types.is_map(kind):
        return [any_array(inner[0].type, size, choices)]
    keys = any_array(inner[0].type, size, choices, has_nulls=False)
    pairs = [keys, any_array(inner[1].type, size, choices)]
    return [pa.Array.from_buffers(pa.struct(inner), size, [None], 0, children=pairs)]


def _ends(sizes: list[int], choices: Choices, first: int | None = None) -> tuple[pa.Buffer, int]:
    start = choices.number(0, 2) if first is None else first
    ends = list(itertools.accumulate(sizes, initial=start))
    return _exact(b"".join(end.to_bytes(4, "little") for end in ends)), ends[-1]


def _text(choices: Choices) -> bytes:
    pieces = [_PIECES[choices.number(0, len(_PIECES) - 1)] for _ in range(choices.number(0, 3))]
    return b"".join(pieces) + (choices.some_bytes(4) if choices.number(0, 7) == 0 else b"")


def _bits(choices: Choices, size: int) -> bytes:
    """
    Return bytes that often end with one repeated byte, like those of small and extreme numbers.
    """
    filler = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x01")[choices.number(0, 4)]
    return (choices.some_bytes(size) + filler * size)[:size]


def _exact(data: bytes) -> pa.Buffer:
    return pa.py_buffer(memoryview((ctypes.c_ubyte * len(data)).from_buffer_copy(data)).cast("B"))


def encode_any(choices: Choices) -> int:
    """
    Encode an array in any of the formats, check the invariants, and return the number of values.

    Every value that is encoded can be decoded.
    """
    return (_as_json, _as_derived_avro, _as_avro, _as_protobuf)[choices.number(0, 3)](choices)


def _as_json(choices: Choices) -> int:
    kind = any_type(choices)
    values = any_array(kind, choices.number(0, 5), choices)
    keeps_nulls = bool(choices.number(0, 1))
    column = EncodedColumn(WrittenColumn("value", "json", kind, keeps_nulls=keeps_nulls))
    texts = _encoded(column, values, choices)
    for text in texts:
        if text is not None:
            json.loads(text.decode("utf-8", "strict"))
    return len(texts)


def _as_derived_avro(choices: Choices) -> int:
    kind = any_type(choices)
    return _as_schema(kind, json.loads(avro_schema(kind)), choices)


def _as_avro(choices: Choices) -> int:
    schema, kind = any_schema(choices, [])
    if avro_encoder_plan("value", kind, parse_avro(json.dumps(schema)))[1]:
        # The column's type may be wider than the schema; such a column cannot be written.
        return 0
    return _as_schema(kind, schema, choices)


def _as_schema(kind: pa.DataType, schema: Any, choices: Choices) -> int:
    text = json.dumps(schema)
    values = any_array(kind, choices.number(0, 5), choices)
    texts = _encoded(EncodedColumn(WrittenColumn("value", "avro", kind, text)), values, choices)
    # The type is derived from the schema, and may differ from the type that was written: a STRING
    # that was written as bytes need not be UTF-8.
    kind = arrow_type(parse_avro(text))
    return _all_good(texts, AvroColumn("value", kind, text, MAX_BYTES, BadRecordPolicy("null")))


def _as_protobuf(choices: Choices) -> int:
    described = any_message(choices)
    kind, schema = described.kind, described.schema
    values = any_array(kind, choices.number(0, 5), choices)
    written = WrittenColumn("value", "protobuf", kind).with_message(schema)
    texts = _encoded(EncodedColumn(written), values, choices)
    policy = BadRecordPolicy("null")
    return _all_good(texts, ProtobufColumn("value", kind, schema, MAX_BYTES, policy))


def _all_good(texts: list[bytes | None], column: ValueColumn) -> int:
    if not texts:
        return 0
    good, _ = decode_all(texts, column, MAX_BYTES)
    assert good == len(texts)
    return good


def _encoded(column: EncodedColumn, values: pa.Array, choices: Choices) -> list[bytes | None]:
    """
    Return the encoded values of all rows that can be encoded before the first that cannot.
    """
    texts: list[bytes | None] = []
    start, end = 0, len(values)
    while start < end:
        try:
            part = column.encode(values, start, end, (1, 40, MAX_BYTES)[choices.number(0, 2)])
        except EncodingError as error:
            reason = column.describe(error)
            assert reason.startswith("value"), reason
            first_bad = error.row
            part = None
        if part is None:
            assert start <= first_bad < end
            end = first_bad
            continue
        part.validate(full=True)
        assert 0 < len(part) <= end - start
        assert part.is_null().to_pylist() == values[start : start + len(part)].is_null().to_pylist()
        texts += part.to_pylist()
        start += len(part)
    return texts
