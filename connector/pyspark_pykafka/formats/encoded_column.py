"""
Encodes a column's values: the compiled encoder reads Arrow's buffers directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.formats._value_encoder import EncodingError, ValueEncoder
from pyspark_pykafka.formats.avro_encoder_plan import avro_encoder_plan, registered_encoder_plan
from pyspark_pykafka.formats.avro_schema import parse_avro
from pyspark_pykafka.formats.encoder_plan import EncoderPlan, json_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.formats.write_format import WrittenColumn

__all__ = ["EncodedColumn", "EncodingError"]

_REASONS = {
    1: "is null, but {expected} in the schema is not nullable",
    2: "is a string that is not UTF-8; make it BINARY",
    3: "has more than {precision} digits, or more than fit the schema's type",
    4: "is not a symbol of the enum in the schema",
    5: "does not have the {size} bytes of the schema's fixed type",
    6: "is out of range for {expected}",
    7: "is NaN or infinite, which JSON Schema does not allow for a number",
    8: "has more than 2147483647 bytes",
    9: "is set, and so is another field of its oneof; at most one of them may be non-null",
    10: "is set, and so is another member of its union; at most one of them may be non-null",
}


class EncodedColumn:
    """
    Encodes the rows of one column: the keys or the values.
    """

    def __init__(self, column: WrittenColumn) -> None:
        self._type = column.type
        plan = _plan(column)
        self._nodes = list(plan.nodes())
        self._encoder = ValueEncoder(
            plan.compiled(),
            column.prefix,
            keeps_nulls=column.keeps_nulls,
            needs_finite=bool(column.schema),
        )

    def encode(self, values: pa.Array, start: int, end: int, max_bytes: int) -> pa.Array:
        """
        Return the encoded values of the rows ``[start, end)``, or of fewer rows if they reach
        ``max_bytes``.

        At least one row is encoded, if there is one. Raises :class:`EncodingError` for the first
        row that cannot be encoded.
        """
        arrays = list(_nested(values, self._type))
        columns = [_addresses(array) for array in arrays]
        row, nulls, bitmap, ends, data = self._encoder.encode(columns, start, end, max_bytes)
        buffers = [pa.py_buffer(memory) for memory in (bitmap, ends, data)]
        return pa.Array.from_buffers(pa.binary(), row - start, buffers, nulls)

    def describe(self, error: EncodingError) -> str:
        """
        Return the path of the field that cannot be encoded, and the reason.
        """
        node = self._nodes[error.node]
        reason = _REASONS[error.reason].format(
            expected=node.expected, precision=node.precision, size=node.size
        )
        return f"{node.path} {reason}"


def _plan(column: WrittenColumn) -> EncoderPlan:
    if column.format == "avro":
        schema = parse_avro(column.schema)
        if column.is_registered:
            return registered_encoder_plan(column.name, column.type, schema)
        return avro_encoder_plan(column.name, column.type, schema)[0]
    if column.format == "protobuf":
        # Imported here because each import delays the start of a task.
        from pyspark_pykafka.formats.protobuf_encoder_plan import protobuf_encoder_plan
        from pyspark_pykafka.formats.protobuf_schemas import parsed_schema

        definitions = parsed_schema(column.schema)
        return protobuf_encoder_plan(column.name, column.type, definitions, column.message)[0]
    return json_plan(column.name, column.type)


def _nested(values: pa.Array, kind: pa.DataType) -> Iterator[pa.Array]:
    """
    Yield an array and its nested arrays, in the order of a plan's columns.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    yield values
    if pa.types.is_struct(kind):
        for number, field in enumerate(kind):
            yield from _nested(values.field(number), field.type)
    elif pa.types.is_map(kind):
        # The array of a map's entries may have an offset of its own.
        pairs = values.values
        yield from _nested(pairs.field(0), kind.key_type)
        yield from _nested(pairs.field(1), kind.item_type)
    elif pa.types.is_list(kind):
        yield from _nested(values.values, kind.value_type)


def _addresses(values: pa.Array) -> tuple[int, int, int, int, bool]:
    """
    Return the addresses of an array's validity, offsets and data buffers, the array's own offset,
    and whether its offsets buffer has 64-bit numbers.
    """
    kind, buffers = values.type, values.buffers()
    validity = _address(buffers[0]) if values.null_count else 0
    if pa.types.is_null(kind) or pa.types.is_struct(kind):
        return validity, 0, 0, values.offset, False
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        wide = pa.types.is_large_list(kind)
        return validity, _address(buffers[1]), 0, values.offset, wide
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return validity, 0, _address(buffers[1]), values.offset, False
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return validity, _address(buffers[1]), _address(buffers[2]), values.offset, wide


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)
