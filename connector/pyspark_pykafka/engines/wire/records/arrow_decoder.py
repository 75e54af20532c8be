"""
Turns the compiled decoder's memory into Arrow arrays of the requested columns.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.engines.wire.records._decoder import RecordDecoder
from pyspark_pykafka.engines.wire.records.checksum import crc32c
from pyspark_pykafka.schema import TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from typing_extensions import Buffer

    from pyspark_pykafka.engines.wire.records._decoder import BytesColumn, HeadersColumn
    from pyspark_pykafka.engines.wire.records.compression import Decompressor
    from pyspark_pykafka.offsets import TopicPartition


class ArrowDecoder:
    """
    Decodes the records of one offset range from fetch responses into Arrow batches of one schema.
    """

    def __init__(
        self,
        tp: TopicPartition,
        schema: pa.Schema,
        decoder: RecordDecoder,
    ) -> None:
        self._tp = tp
        self._schema = schema
        self._decoder = decoder
        self._constants: dict[str, pa.Array] = {}
        # Looked up once: pyarrow makes a new object each time that a field or its type is read.
        self._builders = [(field.name, field.type, *_BUILDERS[field.name]) for field in schema]

    @classmethod
    def of_range(
        cls,
        tp: TopicPartition,
        start: int,
        end: int,
        schema: pa.Schema,
        decompress: Decompressor,
        *,
        max_records: int,
        max_bytes: int,
        check_crcs: bool,
    ) -> ArrowDecoder:
        """
        Return a decoder for the offsets ``[start, end)``.

        An Arrow batch is full at ``max_records`` records or ``max_bytes`` bytes. ``check_crcs``
        verifies the checksum of each record batch first (``check.crcs``).
        """
        # The decoder checks invariant R13 (consistent batches).
        decoder = RecordDecoder(
            frozenset(map(_decoder_column, schema)),
            start,
            end,
            crc32c if check_crcs else None,
            decompress,
            max_records,
            max_bytes,
        )
        return cls(tp, schema, decoder)

    @property
    def position(self) -> int:
        """
        The next offset to read.
        """
        return self._decoder.position

    @property
    def done(self) -> bool:
        """
        Whether every offset of the range has been passed.
        """
        return self._decoder.done

    def skip_to(self, position: int) -> None:
        """
        Continue at a later offset: the offsets before it have no records.
        """
        self._decoder.skip_to(position)

    def allow_log_change(self) -> None:
        """
        Continue in a log that was truncated: its batches need not follow those decoded so far.
        """
        self._decoder.allow_log_change()

    def batches(
        self, records: bytes | memoryview, aborted: Iterable[tuple[int, int]]
    ) -> Iterator[pa.RecordBatch]:
        """
        Decode a response's records and yield the full batches; the last one stays open.
        """
        self._decoder.feed(records, aborted)
        while self._decoder.fill():
            yield self._take()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """
        Yield the open batch, if it has rows.
        """
        if self._decoder.rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        rows, *columns = self._decoder.take()
        arrays = [
            self._constant(name, rows)
            if column is None or columns[column] is None
            else make(kind, rows, columns[column])
            for name, kind, column, make in self._builders
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """
        Return a column with the same value in every row: a slice of one cached array.
        """
        cached = self._constants.get(name)
        if cached is None or len(cached) < rows:
            make = {
                "topic": self._topics,
                "partition": self._partitions,
                "headers": self._no_headers,
            }[name]
            # With a few extra rows, so that a slightly larger batch does not need a new array.
            cached = self._constants[name] = make(rows + rows // 8)
        return cached.slice(0, rows)

    # The next two columns are built from buffers: pa.scalar() and pa.array() would import pandas,
    # which takes 0.2 s.
    def _topics(self, rows: int) -> pa.Array:
        name = self._tp.topic.encode()
        ends = array("i", range(0, (rows + 1) * len(name), len(name)))
        return pa.Array.from_buffers(
            pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(name * rows)], null_count=0
        )

    def _partitions(self, rows: int) -> pa.Array:
        return _fixed(pa.int32(), rows, array("i", [self._tp.partition]) * rows)

    def _no_headers(self, rows: int) -> pa.Array:
        return pa.nulls(rows, self._schema.field("headers").type)


def _decoder_column(field: pa.Field) -> str:
    """
    Return the decoder's name of a column; the timestamp has two names, one for each unit.
    """
    is_ms = field.name == "timestamp" and field.type == TIMESTAMP_MS
    return "timestampMs" if is_ms else str(field.name)


def _fixed(kind: pa.DataType, rows: int, memory: Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(memory)], null_count=0)


def _variable(kind: pa.DataType, rows: int, column: BytesColumn) -> pa.Array:
    """
    Return an array of bytes or strings; invalid UTF-8 is kept as it is.
    """
    _, nulls, bitmap, ends, data = column
    buffers = [_bitmap(bitmap), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=nulls)


def _headers(kind: pa.DataType, rows: int, column: HeadersColumn) -> pa.Array:
    _, nulls, bitmap, ends, keys, values = column
    arrays = [_header_keys(keys), _variable(pa.binary(), values[0], values)]
    pairs = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    buffers = [_bitmap(bitmap), pa.py_buffer(ends)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=nulls, children=[pairs])


def _header_keys(column: BytesColumn) -> pa.Array:
    """
    Return the keys as strings; invalid UTF-8 is replaced, as in the Java client.
    """
    keys = _variable(pa.string(), column[0], column)
    # Nearly all keys are ASCII, which is cheap to check for all at once.
    if not bytes(column[-1]).isascii():
        try:
            keys.validate(full=True)
        except pa.ArrowInvalid:
            raw = _variable(pa.binary(), column[0], column).to_pylist()
            return pa.array([key.decode("utf-8", "replace") for key in raw], pa.string())
    return keys


def _bitmap(memory: Buffer | None) -> pa.Buffer | None:
    return None if memory is None else pa.py_buffer(memory)


#: The position of each column in the decoder's result, after the row count, and the function
#: that builds its array; topic and partition are constants. The decoder returns None for headers if
#: no record has any, and for columns that are not selected; those are not in the schema.
_BUILDERS: dict[str, tuple[int | None, Callable[[pa.DataType, int, Any], pa.Array]]] = {
    "key": (0, _variable),
    "value": (1, _variable),
    "topic": (None, _fixed),
    "partition": (None, _fixed),
    "offset": (2, _fixed),
    "timestamp": (3, _fixed),
    "timestampType": (4, _fixed),
    "headers": (5, _headers),
}
