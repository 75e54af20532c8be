"""
Record batches to produce: header, checksum, compression, and splitting a batch in two.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.records.checksum import crc32c
from pyspark_pykafka.engines.wire.records.compression import CODECS, Decompressor, compress
from pyspark_pykafka.varint import zigzag_varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from pyspark_pykafka.engines.wire.records._encoder import Payload

_HEADER_BYTES = 61
# Base offset, length, leader epoch, magic, checksum.
_FRONT = struct.Struct(">qiibI")
# Covered by the checksum: attributes, last offset delta, base and maximum timestamp, producer id
# and epoch, base sequence, record count.
_CHECKED = struct.Struct(">hiqqqhii")
# The bytes that the batch's length field does not count: the base offset and the field itself.
_BYTES_BEFORE_LENGTH_END = 12
_NO_EPOCH, _MAGIC, _TRANSACTIONAL = -1, 2, 0x10

_SEQUENCE_NUMBERS = 2**31


class ProducerIdAndEpoch(NamedTuple):
    """
    The identity of a producer, by which brokers recognise duplicate batches (KIP-98).
    """

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """
    One record batch for a partition; ``records`` are compressed unless ``codec`` is 0.

    ``sequence`` is the sequence number of the first record. It must not change once the batch has
    been sent, or the broker could not recognise a duplicate. ``created`` is a monotonic time in
    seconds.
    """

    records: memoryview
    codec: int
    count: int
    base_timestamp: int
    max_timestamp: int
    created: float
    sequence: int | None = None
    attempts: int = 0

    @classmethod
    def of(cls, payload: Payload, codec: str, level: int, created: float) -> ProducerBatch:
        """
        Return a batch of the encoder's records, compressed.
        """
        records = memoryview(payload)[_HEADER_BYTES:]
        return cls(
            _compressed(CODECS[codec], level, records),
            CODECS[codec],
            payload.count,
            payload.base_timestamp,
            payload.max_timestamp,
            created,
        )

    @property
    def size_bytes(self) -> int:
        """
        The size of the batch in a request.
        """
        return _HEADER_BYTES + len(self.records)

    def encode(self, identity: ProducerIdAndEpoch, *, transactional: bool = False) -> list[Buffer]:
        """
        Return the batch in two buffers: its header, and its records without a copy.
        """
        assert self.sequence is not None
        checked = _CHECKED.pack(
            self.codec | (_TRANSACTIONAL if transactional else 0),
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            *identity,
            self.sequence,
            self.count,
        )
        checksum = crc32c(self.records, crc32c(checked))
        front = _FRONT.pack(
            0, self.size_bytes - _BYTES_BEFORE_LENGTH_END, _NO_EPOCH, _MAGIC, checksum
        )
        return [front + checked, self.records]

    def split(self, level: int, max_bytes: int) -> tuple[ProducerBatch, ProducerBatch]:
        """
        Return two batches with the sequence numbers of this one, which has two or more records.

        ``max_bytes`` bounds the decompressed size of the records.
        """
        records = list(_split_records(_decompressed(self.codec, self.records, max_bytes)))
        middle = len(records) // 2
        first = self._part(records[:middle], level, self.sequence)
        second_sequence = None if self.sequence is None else next_sequence(self.sequence, middle)
        return first, self._part(records[middle:], level, second_sequence)

    def record_key(self, index: int, max_bytes: int) -> bytes | None:
        """
        Return the key of one record, for error messages.
        """
        return list(_split_records(_decompressed(self.codec, self.records, max_bytes)))[index].key

    def _part(self, records: Sequence[_Record], level: int, sequence: int | None) -> ProducerBatch:
        encoded = b"".join(record.encode(index) for index, record in enumerate(records))
        times = [self.base_timestamp + record.timestamp_delta for record in records]
        return ProducerBatch(
            _compressed(self.codec, level, memoryview(encoded)),
            self.codec,
            len(records),
            self.base_timestamp,
            max(times),
            self.created,
            sequence,
        )


def next_sequence(sequence: int, records: int) -> int:
    """
    Return the sequence number after that many more records; after the largest (2**31 - 1) comes 0.
    """
    return (sequence + records) % _SEQUENCE_NUMBERS


def _compressed(codec: int, level: int, records: memoryview) -> memoryview:
    return memoryview(compress(codec, level, records)) if codec else records


def _decompressed(codec: int, records: memoryview, max_bytes: int) -> memoryview:
    return Decompressor(max_bytes)(codec, records) if codec else records


class _Record(NamedTuple):
    """
    One record; splitting its batch changes only its offset delta.

    ``rest`` has the bytes after the offset delta: key, value and headers.
    """

    attributes: int
    timestamp_delta: int
    key: bytes | None
    rest: bytes

    def encode(self, offset_delta: int) -> bytes:
        body = (
            bytes([self.attributes])
            + zigzag_varint(self.timestamp_delta)
            + zigzag_varint(offset_delta)
            + self.rest
        )
        return zigzag_varint(len(body)) + body


def _split_records(records: memoryview) -> Iterator[_Record]:
    position = 0
    while position < len(records):
        size, position = _read_zigzag_varint(records, position)
        end = position + size
        attributes = records[position]
        timestamp_delta, delta_at = _read_zigzag_varint(records, position + 1)
        _, key_length_at = _read_zigzag_varint(records, delta_at)
        key_size, key_at = _read_zigzag_varint(records, key_length_at)
        key = None if key_size < 0 else bytes(records[key_at : key_at + key_size])
        yield _Record(attributes, timestamp_delta, key, bytes(records[key_length_at:end]))
        position = end


def _read_zigzag_varint(view: memoryview, position: int) -> tuple[int, int]:
    bits, shift = 0, 0
    while view[position] & 0x80:
        bits |= (view[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    bits |= view[position] << shift
    return (bits >> 1) ^ -(bits & 1), position + 1
