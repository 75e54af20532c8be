"""
From Arrow batches to the encoder: where the columns lie in memory, and which topic a row is for.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.engines import row_errors as faults
from pyspark_pykafka.engines.wire.records._encoder import RecordEncoder, RowError
from pyspark_pykafka.errors import UnknownTopicError
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_pykafka.engines.wire.records._encoder import Column, Payload
    from pyspark_pykafka.errors import RecordError


# More than a record batch and a record add to the record's own bytes.
_ONE_RECORD_BYTES = 256


class ArrowEncoder:
    """
    Turns rows whose schema :func:`columns.check_sink_schema` has accepted into full batches.

    ``topic`` wins over the rows' own; ``partitions`` tells of a topic how many it has and which of
    them have a leader. ``most_open`` bounds the bytes of batches that are not full. Rows for the
    topic ``ledger`` are refused.
    """

    def __init__(
        self,
        topic: str | None,
        partitions: Callable[[str], tuple[int, Sequence[int]]],
        encoder: RecordEncoder,
        most_open: int,
        *,
        now: Callable[[], float] = time.time,
        ledger: str | None = None,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._encoder = encoder
        self._most_open = most_open
        self._now = now
        self._ledger = ledger
        self._numbers: dict[str, int] = {}
        self._slots: list[TopicPartition] = []
        self._constant = array("i")

    def full(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Payload]]:
        """
        Encode the rows, and yield what has become full; the rest waits for more.

        Raises :class:`RecordError` for the first row that cannot be written.
        """
        if not batch.num_rows:
            return
        self._feed(batch)
        while (slot := self._fill(batch)) >= 0:
            yield self._take(slot)
        if self._encoder.open_bytes > self._most_open:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[TopicPartition, Payload]]:
        """
        Yield what is not full.
        """
        for slot in self._encoder.filled():
            yield self._take(slot)

    @property
    def content(self) -> str:
        """
        Return the hash of all rows so far, in any order, if the encoder makes one.
        """
        return f"{self._encoder.content:016x}"

    def _take(self, slot: int) -> tuple[TopicPartition, Payload]:
        payload = self._encoder.take(slot)
        assert payload is not None
        return self._slots[slot], payload

    def _feed(self, batch: pa.RecordBatch) -> None:
        columns = {name: _column(batch, name) for name in _VARIABLE}
        columns |= {name: _column(batch, name) for name in _FIXED}
        headers = _array(batch, "headers")
        if headers is not None:
            pairs = headers.values
            columns["headers"] = _addresses(headers)
            columns["pairs"] = _addresses(pairs)
            columns["header key"] = _addresses(pairs.field(0))
            columns["header value"] = _addresses(pairs.field(1))
        now_ms = int(self._now() * 1000)
        topics = self._topics(batch)
        present = {name: column for name, column in columns.items() if column is not None}
        self._encoder.feed(batch, batch.num_rows, present, topics, now_ms)

    def _fill(self, batch: pa.RecordBatch) -> int:
        try:
            return self._encoder.fill()
        except RowError as error:
            raise self._refused(batch, error) from error

    def _topics(self, batch: pa.RecordBatch) -> memoryview:
        """
        Return the encoder's number of each row's topic.
        """
        if self._topic is not None:
            if len(self._constant) < batch.num_rows:
                self._constant = array("i", [self._number(self._topic, batch)]) * batch.num_rows
            return memoryview(self._constant)[: batch.num_rows]
        column = _array(batch, "topic")
        assert column is not None
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise faults.null_topic(row, _key(batch, row))
        named = column.dictionary_encode()
        names = named.dictionary.to_pylist()
        numbers = array("i", [self._number(name, batch) for name in names])
        table = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
        found = table.take(named.indices)
        return memoryview(found.buffers()[1]).cast("B").cast("i")[: batch.num_rows]

    def _number(self, topic: str, batch: pa.RecordBatch) -> int:
        known = self._numbers.get(topic)
        if known is None:
            if topic == self._ledger:
                raise faults.ledger_row(self._first_place(topic, batch))
            try:
                count, available = self._partitions(topic)
            except UnknownTopicError as error:
                msg = f"{self._first_place(topic, batch)} cannot be written: {error}"
                raise UnknownTopicError(msg) from error
            known, first = self._encoder.add_topic(count, available, topic.encode())
            assert first == len(self._slots)
            self._slots += [TopicPartition(topic, at) for at in range(count)]
            self._numbers[topic] = known
        return known

    def _first_place(self, topic: str, batch: pa.RecordBatch) -> str:
        """
        Return the first of the batch's rows that is for a topic, for messages.
        """
        row = 0 if self._topic else _array(batch, "topic").index(topic).as_py()
        return faults.place(topic, _key(batch, row))

    def _refused(self, batch: pa.RecordBatch, error: RowError) -> RecordError:
        if error.why == RowError.TOO_EARLY:
            return faults.timestamp_too_early()
        if error.why == RowError.NO_HEADER_KEY:
            return faults.null_header_key()
        topic = self._topic or _array(batch, "topic")[error.row].as_py()
        partition = _array(batch, "partition")
        wanted = None if partition is None else partition[error.row].as_py()
        where = faults.place(topic, _key(batch, error.row), wanted)
        if error.why == RowError.NO_PARTITION:
            return faults.unknown_partition(where, error.detail)
        return faults.too_large(where, f"it has about {error.detail} bytes")


def encode_one(topic: str, key: bytes, value: bytes) -> Payload:
    """
    Return the batch of a single record for a topic that has one partition.
    """
    return encode_some(topic, [(key, value)])


def encode_some(topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> Payload:
    """
    Return the batch of a few records for a topic that has one partition.
    """
    most = sum(2 * (len(key) + len(value or b"")) + _ONE_RECORD_BYTES for key, value in records)
    encoder = RecordEncoder(most, most, 0)
    rows = ArrowEncoder(topic, lambda _: (1, (0,)), encoder, most)
    keys, values = zip(*records, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    ((_, payload),) = [*rows.full(pa.RecordBatch.from_pydict(columns)), *rows.rest()]
    return payload


_VARIABLE = ("key", "value")
_FIXED = ("partition", "timestamp")


def _array(batch: pa.RecordBatch, name: str) -> Any:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _column(batch: pa.RecordBatch, name: str) -> Column | None:
    found = _array(batch, name)
    return None if found is None else _addresses(found)


def _addresses(found: pa.Array) -> Column:
    """
    Return where the array's own buffers lie, those of nested arrays left out.
    """
    kind, buffers = found.type, found.buffers()
    validity = _address(buffers[0]) if found.null_count else 0
    if pa.types.is_struct(kind):
        return (validity, 0, 0, found.offset, False)
    if pa.types.is_list(kind):
        return (validity, _address(buffers[1]), 0, found.offset, False)
    if pa.types.is_primitive(kind):
        return (validity, 0, _address(buffers[1]), found.offset, False)
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return (validity, _address(buffers[1]), _address(buffers[2]), found.offset, wide)


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)


def _key(batch: pa.RecordBatch, row: int) -> bytes | None:
    column = _array(batch, "key")
    found = None if column is None else column[row].as_py()
    return found.encode() if isinstance(found, str) else found
