"""
Record batches as stored in a log: their bytes, and the fields of their header (magic 2).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import cramjam
from crc32c import crc32c
from tests.simulation.kafka.codes import Code, RequestError
from tests.support.record_batches import (
    ATTRIBUTES_AT,
    CRC_AT,
    GZIP,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LZ4,
    MAGIC_AT,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    batch_of,
    compress,
    seal,
    varint,
)
from tests.support.record_batches import CONTROL as CONTROL_BIT
from tests.support.record_batches import TRANSACTIONAL as TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_CODEC_MASK = 0x07
_LENGTH_END = 12
_EPOCH_AT = 12
_PRODUCER_AT, _COUNT_AT = 43, 57
# attributes, last offset delta, base and maximum timestamp, producer id, epoch, sequence, count.
_FIELDS = struct.Struct(">hiqqqhii")
_MAX_SEQUENCE = 2**31 - 1

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16


class StoredRecord(NamedTuple):
    """
    A record with its absolute offset and timestamp in milliseconds.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """
    A batch; the header in ``data`` has the same base offset and leader epoch as the fields.
    """

    data: bytes
    base_offset: int
    leader_epoch: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    last_offset: int = field(init=False)
    next_offset: int = field(init=False)
    last_sequence: int = field(init=False)
    transactional: bool = field(init=False)
    control: bool = field(init=False)

    def __post_init__(self) -> None:
        last = self.base_offset + self.last_delta
        for name, value in (
            ("last_offset", last),
            ("next_offset", last + 1),
            ("last_sequence", (self.base_sequence + self.last_delta) & _MAX_SEQUENCE),
            ("transactional", bool(self.attributes & TRANSACTIONAL_BIT)),
            ("control", bool(self.attributes & CONTROL_BIT)),
        ):
            object.__setattr__(self, name, value)

    @property
    def coordinator_epoch(self) -> int:
        """
        The epoch of the coordinator that wrote this control batch.
        """
        (record,) = self.records()
        return int(struct.unpack(">hi", record.value or b"")[1])

    @property
    def commits(self) -> bool:
        """
        Whether this control batch commits its transaction.
        """
        (kind,) = struct.unpack(">h", (next(iter(self.records())).key or b"")[2:4])
        return bool(kind)

    def records(self) -> Iterator[StoredRecord]:
        codec = self.attributes & _CODEC_MASK
        body = _DECOMPRESS[codec](self.data[HEADER_SIZE:]) if self.count else b""
        reader = _Varints(body)
        for _ in range(self.count):
            reader.next()
            reader.position += 1
            timestamp, offset = self.base_timestamp + reader.next(), reader.next()
            if self.attributes & LOG_APPEND_TIME:
                timestamp = self.max_timestamp
            key, value = reader.span(), reader.span()
            for _ in range(reader.next()):
                reader.span()
                reader.span()
            yield StoredRecord(self.base_offset + offset, timestamp, key, value)

    def placed(self, base_offset: int, leader_epoch: int) -> StoredBatch:
        """
        Return the batch with this base offset and leader epoch, which the checksum does not cover.
        """
        data = bytearray(self.data)
        struct.pack_into(">q", data, 0, base_offset)
        struct.pack_into(">i", data, _EPOCH_AT, leader_epoch)
        return replace(self, data=bytes(data), base_offset=base_offset, leader_epoch=leader_epoch)

    def retaining(self, offsets: Collection[int]) -> StoredBatch:
        """
        Return the batch with these records only and the same offset range, as the log cleaner
        writes it.
        """
        bodies = [body for offset, body in self._bodies() if offset in offsets]
        codec = self.attributes & _CODEC_MASK
        payload = compress(b"".join(varint(len(body)) + body for body in bodies), codec)
        data = bytearray(self.data[:HEADER_SIZE] + (payload if bodies else b""))
        attributes = self.attributes if bodies else self.attributes & ~_CODEC_MASK
        struct.pack_into(">h", data, ATTRIBUTES_AT, attributes)
        struct.pack_into(">i", data, _COUNT_AT, len(bodies))
        return replace(self, data=seal(bytes(data)), attributes=attributes, count=len(bodies))

    def _bodies(self) -> Iterator[tuple[int, bytes]]:
        codec = self.attributes & _CODEC_MASK
        reader = _Varints(_DECOMPRESS[codec](self.data[HEADER_SIZE:]) if self.count else b"")
        for record in self.records():
            size = reader.next()
            yield record.offset, reader.data[reader.position : reader.position + size]
            reader.position += size


def parse_batch(data: bytes) -> StoredBatch:
    """
    Return the only batch of a Produce request.

    Raises :class:`RequestError` if a broker would reject it.
    """
    if len(data) < HEADER_SIZE:
        raise RequestError(Code.CORRUPT_MESSAGE, "the batch is shorter than its header")
    (length,) = struct.unpack_from(">i", data, LENGTH_AT)
    if data[MAGIC_AT] != 2:
        raise RequestError(Code.INVALID_RECORD, "the batch does not have magic 2")
    if length + _LENGTH_END > len(data):
        raise RequestError(Code.CORRUPT_MESSAGE, "the batch is incomplete")
    if length + _LENGTH_END < len(data):
        raise RequestError(Code.INVALID_RECORD, "there is more than one batch")
    (checksum,) = struct.unpack_from(">I", data, CRC_AT)
    if checksum != crc32c(data[ATTRIBUTES_AT:]):
        raise RequestError(Code.CORRUPT_MESSAGE, "the checksum is wrong")
    batch = _stored(data)
    if batch.count <= 0 or batch.last_delta + 1 != batch.count or batch.control:
        raise RequestError(Code.INVALID_RECORD, "a client's batch holds records without gaps")
    return batch


def marker_batch(
    producer_id: int, epoch: int, timestamp: int, *, commit: bool, coordinator_epoch: int = 0
) -> StoredBatch:
    """
    Return the control batch that ends a transaction in a partition.
    """
    key = struct.pack(">hh", 0, int(commit))
    record = Record(0, timestamp, key, struct.pack(">hi", 0, coordinator_epoch))
    encoded = batch_of(record, producer_id=producer_id, transactional=True, control=True).encode()
    data = bytearray(encoded)
    struct.pack_into(">h", data, _PRODUCER_AT + 8, epoch)
    return _stored(seal(bytes(data)))


def _stored(data: bytes) -> StoredBatch:
    (base_offset,) = struct.unpack_from(">q", data)
    (epoch,) = struct.unpack_from(">i", data, _EPOCH_AT)
    return StoredBatch(bytes(data), base_offset, epoch, *_FIELDS.unpack_from(data, ATTRIBUTES_AT))


class _Varints:
    """
    Reads zigzag varints, and bytes that follow their length.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def next(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def span(self) -> bytes | None:
        size = self.next()
        if size < 0:
            return None
        self.position += size
        return self.data[self.position - size : self.position]


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    pieces, position = [], _XERIAL_HEADER_SIZE
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        pieces.append(
            bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))
        )
        position += 4 + size
    return b"".join(pieces)


_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: lambda data: bytes(cramjam.gzip.decompress(data)),
    SNAPPY: _unsnappy,
    LZ4: lambda data: bytes(cramjam.lz4.decompress(data)),
    ZSTD: lambda data: bytes(cramjam.zstd.decompress(data)),
}
