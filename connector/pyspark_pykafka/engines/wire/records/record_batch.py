"""
Record batches on their way to a broker: header, checksum, codec; and cutting one in two.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.records.checksum import crc32c
from pyspark_pykafka.engines.wire.records.compression import CODECS, Decompressor, compress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from pyspark_pykafka.engines.wire.records._encoder import Payload

_HEADER = 61
_CHECKED_AT = 21
# Base offset, length, leader's epoch, magic, checksum.
_FRONT = struct.Struct(">qiibI")
# Attributes, last offset delta, base and maximum timestamp, producer id and epoch, sequence, count.
_CHECKED = struct.Struct(">hiqqqhii")
_AFTER_LENGTH = 12
_NO_EPOCH, _MAGIC, _TRANSACTIONAL = -1, 2, 0x10

_SEQUENCES = 2**31


class ProducerIdAndEpoch(NamedTuple):
    """
    Who writes: what the broker tells duplicates by.
    """

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """
    One batch of a partition; ``records`` are compressed if there is a codec.

    ``sequence`` is the number of its first record; it stays once the batch was sent, so that the
    broker recognises it. ``created`` is on the monotonic clock.
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
        Return the batch of encoded records.
        """
        records = memoryview(payload)[_HEADER:]
        return cls(
            _compressed(CODECS[codec], level, records),
            CODECS[codec],
            payload.count,
            payload.base_timestamp,
            payload.max_timestamp,
            created,
        )

    @property
    def size(self) -> int:
        """
        How many bytes it takes in a request.
        """
        return _HEADER + len(self.records)

    def encode(self, identity: ProducerIdAndEpoch, *, transactional: bool = False) -> list[Buffer]:
        """
        Return the batch as it goes out: its header, and its records as they are.
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
        front = _FRONT.pack(0, self.size - _AFTER_LENGTH, _NO_EPOCH, _MAGIC, checksum)
        return [front + checked, self.records]

    def halves(self, level: int, limit: int) -> tuple[ProducerBatch, ProducerBatch]:
        """
        Return the batch as two, which together have its sequence numbers; it must hold two records.

        ``limit`` bounds what its records may decompress to.
        """
        parts = list(_parts(_decompressed(self.codec, self.records, limit)))
        middle = len(parts) // 2
        first = self._part(parts[:middle], level, self.sequence)
        second_sequence = None if self.sequence is None else after(self.sequence, middle)
        return first, self._part(parts[middle:], level, second_sequence)

    def key(self, index: int, limit: int) -> bytes | None:
        """
        Return the key of one of its records, for messages.
        """
        return list(_parts(_decompressed(self.codec, self.records, limit)))[index].key

    def _part(self, parts: Sequence[_Part], level: int, sequence: int | None) -> ProducerBatch:
        records = b"".join(part.encode(at) for at, part in enumerate(parts))
        times = [self.base_timestamp + part.time_delta for part in parts]
        return ProducerBatch(
            _compressed(self.codec, level, memoryview(records)),
            self.codec,
            len(parts),
            self.base_timestamp,
            max(times),
            self.created,
            sequence,
        )


def after(sequence: int, records: int) -> int:
    """
    Return the sequence number so many records later; behind the largest comes 0.
    """
    return (sequence + records) % _SEQUENCES


def _compressed(codec: int, level: int, records: memoryview) -> memoryview:
    return memoryview(compress(codec, level, records)) if codec else records


def _decompressed(codec: int, records: memoryview, limit: int) -> memoryview:
    return Decompressor(limit)(codec, records) if codec else records


class _Part(NamedTuple):
    """
    One record in pieces: only where it lies in its batch changes when that is cut.
    """

    attributes: int
    time_delta: int
    key: bytes | None
    rest: bytes

    def encode(self, at: int) -> bytes:
        body = bytes([self.attributes]) + _varint(self.time_delta) + _varint(at) + self.rest
        return _varint(len(body)) + body


def _parts(records: memoryview) -> Iterator[_Part]:
    at = 0
    while at < len(records):
        size, at = _read_varint(records, at)
        end = at + size
        attributes = records[at]
        time_delta, place = _read_varint(records, at + 1)
        _, rest = _read_varint(records, place)
        key_size, key_at = _read_varint(records, rest)
        key = None if key_size < 0 else bytes(records[key_at : key_at + key_size])
        yield _Part(attributes, time_delta, key, bytes(records[rest:end]))
        at = end


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    bits, shift = 0, 0
    while view[at] & 0x80:
        bits |= (view[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    bits |= view[at] << shift
    return (bits >> 1) ^ -(bits & 1), at + 1


def _varint(value: int) -> bytes:
    bits = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while bits >= 0x80:
        encoded.append(bits & 0x7F | 0x80)
        bits >>= 7
    encoded.append(bits)
    return bytes(encoded)
