"""
Feeds Arrow batches to the compiled encoder: the memory addresses of columns, and each row's topic.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.engines import row_errors
from pyspark_pykafka.engines.wire.records._encoder import RecordEncoder, RowError
from pyspark_pykafka.errors import UnknownTopicError
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_pykafka.engines.wire.records._encoder import Column, Payload
    from pyspark_pykafka.errors import RecordError


# An upper bound for the bytes of a record batch and a record besides the key and the value.
_OVERHEAD_BYTES = 256


class ArrowEncoder:
    """
    Encodes rows, whose schema :func:`schema.check_sink_schema` has accepted, into record batches.

    ``topic`` overrides the rows' topic column. ``partitions`` returns the number of partitions of a
    topic, and the partitions with a leader; if fewer than its second argument are known, it reads
    the metadata again. ``max_open_bytes`` bounds the bytes of batches that are not full yet. Rows
    for ``ledger_topic`` are rejected.
    """

    def __init__(
        self,
        topic: str | None,
        partitions: Callable[[str, int], tuple[int, Sequence[int]]],
        encoder: RecordEncoder,
        max_open_bytes: int,
        *,
        now: Callable[[], float] = time.time,
        ledger_topic: str | None = None,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._encoder = encoder
        self._max_open_bytes = max_open_bytes
        self._now = now
        self._ledger_topic = ledger_topic
        self._topic_numbers: dict[str, int] = {}
        self._slots: list[TopicPartition] = []
        self._constant_numbers = array("i")

    def batches(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Payload]]:
        """
        Encode the rows and yield the full batches; partial batches stay open for more rows.

        Raises :class:`RecordError` for the first row that cannot be written. A partition that is
        not known counts as missing only after the metadata has been read again.
        """
        if not batch.num_rows:
            return
        self._feed(batch)
        while True:
            try:
                slot = self._encoder.fill()
            except RowError as error:
                # The topic may have got partitions since its metadata was read.
                yield from self._add_partitions(batch, error)
                batch = batch.slice(error.row)
                self._feed(batch)
                continue
            if slot < 0:
                break
            yield self._take(slot)
        if self._encoder.open_bytes > self._max_open_bytes:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[TopicPartition, Payload]]:
        """
        Yield the open batches, which are not full.
        """
        for slot in self._encoder.filled():
            yield self._take(slot)

    @property
    def content_hash(self) -> str:
        """
        The hash of all rows so far, independent of their order, if the encoder computes one.
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

    def _add_partitions(
        self, batch: pa.RecordBatch, error: RowError
    ) -> Iterator[tuple[TopicPartition, Payload]]:
        """
        Add the partition of a row if its topic has it by now, and yield the open batches.

        Raises the error for the row if the topic still lacks the partition, or if the row is
        invalid for another reason.
        """
        partition = self._requested_partition(batch, error.row)
        if error.reason != RowError.NO_PARTITION or partition is None or partition < 0:
            raise self._record_error(batch, error) from error
        topic = self._topic_of(batch, error.row)
        count, available = self._read_partitions(topic, partition + 1, batch, error.row)
        if partition >= count:
            where = self._describe_row(batch, error.row)
            raise row_errors.unknown_partition_error(where, count) from error
        # The topic gets new slots: the records before this row must be sent first.
        yield from self.flush()
        self._add_topic(topic, count, available)
        self._constant_numbers = array("i")

    def _topics(self, batch: pa.RecordBatch) -> memoryview:
        """
        Return the number of each row's topic, as assigned by the encoder.
        """
        if self._topic is not None:
            if len(self._constant_numbers) < batch.num_rows:
                self._constant_numbers = (
                    array("i", [self._topic_number(self._topic, batch)]) * batch.num_rows
                )
            return memoryview(self._constant_numbers)[: batch.num_rows]
        column = _array(batch, "topic")
        assert column is not None
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise row_errors.null_topic_error(row, _key(batch, row))
        encoded = column.dictionary_encode()
        numbers = array("i", [self._topic_number(name, batch) for name in _names(batch, encoded)])
        table = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
        topics = table.take(encoded.indices)
        return memoryview(topics.buffers()[1]).cast("B").cast("i")[: batch.num_rows]

    def _topic_number(self, topic: str, batch: pa.RecordBatch) -> int:
        number = self._topic_numbers.get(topic)
        if number is None:
            # The first row for the topic, which errors describe.
            row = 0 if self._topic else batch.column("topic").index(topic).as_py()
            if topic == self._ledger_topic:
                raise row_errors.ledger_row_error(row_errors.describe_row(topic, _key(batch, row)))
            number = self._add_topic(topic, *self._read_partitions(topic, 0, batch, row))
        return number

    def _read_partitions(
        self, topic: str, min_count: int, batch: pa.RecordBatch, row: int
    ) -> tuple[int, Sequence[int]]:
        try:
            return self._partitions(topic, min_count)
        except UnknownTopicError as error:
            where = row_errors.describe_row(topic, _key(batch, row))
            msg = f"{where} cannot be written: {error}"
            raise type(error)(msg) from error

    def _add_topic(self, topic: str, count: int, available: Sequence[int]) -> int:
        number, first_slot = self._encoder.add_topic(count, available, topic.encode())
        assert first_slot == len(self._slots)
        self._slots += [TopicPartition(topic, partition) for partition in range(count)]
        self._topic_numbers[topic] = number
        return number

    def _topic_of(self, batch: pa.RecordBatch, row: int) -> str:
        topic: str = self._topic or batch.column("topic")[row].as_py()
        return topic

    def _requested_partition(self, batch: pa.RecordBatch, row: int) -> int | None:
        column = _array(batch, "partition")
        partition: int | None = None if column is None else column[row].as_py()
        return partition

    def _describe_row(self, batch: pa.RecordBatch, row: int) -> str:
        return row_errors.describe_row(
            self._topic_of(batch, row), _key(batch, row), self._requested_partition(batch, row)
        )

    def _record_error(self, batch: pa.RecordBatch, error: RowError) -> RecordError:
        if error.reason == RowError.TOO_EARLY:
            return row_errors.early_timestamp_error()
        if error.reason == RowError.NO_HEADER_KEY:
            return row_errors.null_header_key_error()
        where = self._describe_row(batch, error.row)
        if error.reason == RowError.NO_PARTITION:
            return row_errors.unknown_partition_error(where, error.detail)
        return row_errors.too_large_error(where, f"it has about {error.detail} bytes")


def encode_record(topic: str, key: bytes, value: bytes) -> Payload:
    """
    Return a batch of one record for a topic with one partition.
    """
    return encode_records(topic, [(key, value)])


def encode_records(topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> Payload:
    """
    Return one batch of all records for a topic with one partition.
    """
    max_bytes = sum(2 * (len(key) + len(value or b"")) + _OVERHEAD_BYTES for key, value in records)
    encoder = RecordEncoder(max_bytes, max_bytes, 0)
    arrow_encoder = ArrowEncoder(topic, lambda *_: (1, (0,)), encoder, max_bytes)
    keys, values = zip(*records, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    ((_, payload),) = [
        *arrow_encoder.batches(pa.RecordBatch.from_pydict(columns)),
        *arrow_encoder.flush(),
    ]
    return payload


_VARIABLE = ("key", "value")
_FIXED = ("partition", "timestamp")


def _names(batch: pa.RecordBatch, topics: pa.DictionaryArray) -> list[str]:
    """
    Return the distinct topics of a batch.
    """
    try:
        names: list[str] = topics.dictionary.to_pylist()
    except UnicodeDecodeError as cause:
        keys = _array(batch, "key")
        raise row_errors.undecodable_topic_error(batch.column("topic"), keys) from cause
    return names


def _array(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _column(batch: pa.RecordBatch, name: str) -> Column | None:
    values = _array(batch, name)
    return None if values is None else _addresses(values)


def _addresses(values: pa.Array) -> Column:
    """
    Return the addresses of the array's own buffers, without those of nested arrays.
    """
    kind, buffers = values.type, values.buffers()
    validity = _address(buffers[0]) if values.null_count else 0
    if pa.types.is_struct(kind):
        return (validity, 0, 0, values.offset, False)
    if pa.types.is_list(kind):
        return (validity, _address(buffers[1]), 0, values.offset, False)
    if pa.types.is_primitive(kind):
        return (validity, 0, _address(buffers[1]), values.offset, False)
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return (validity, _address(buffers[1]), _address(buffers[2]), values.offset, wide)


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)


def _key(batch: pa.RecordBatch, row: int) -> bytes | None:
    column = _array(batch, "key")
    return None if column is None else row_errors.bytes_at(column, row)
