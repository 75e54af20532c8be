"""
Builds record batches in plain Python, from the definition of Kafka's current format (magic 2).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cramjam
from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20

#: The header: base offset, length, leader epoch, magic, checksum; covered by the checksum:
#: attributes, last offset delta, base and maximum timestamp, producer id, epoch, sequence, count.
_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEADER.size
LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 8, 16, 17, 21, 23, 57
_AFTER_LENGTH = 12

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@dataclass(frozen=True, slots=True)
class Record:
    """
    One record with its offset.
    """

    offset: int
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()

    def body(self, base_offset: int, base_timestamp: int) -> bytes:
        """
        Return the encoded record without its length.
        """
        parts = [b"\0", varint(self.timestamp - base_timestamp), varint(self.offset - base_offset)]
        parts += [span(self.key), span(self.value), varint(len(self.headers))]
        parts += [span(part) for header in self.headers for part in header]
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Batch:
    """
    One record batch; compaction may have removed any of its records, or all.
    """

    base_offset: int
    last_offset: int
    records: tuple[Record, ...]
    codec: int = NONE
    log_append_time: int | None = None
    producer_id: int = -1
    transactional: bool = False
    control: bool = False
    #: The block size of snappy in Java's framing; 0 means no framing, as in librdkafka.
    xerial_block: int = 0

    @property
    def base_timestamp(self) -> int:
        return self.records[0].timestamp if self.records else -1

    def bodies(self) -> list[bytes]:
        return [r.body(self.base_offset, self.base_timestamp) for r in self.records]

    def encode(self) -> bytes:
        plain = b"".join(varint(len(body)) + body for body in self.bodies())
        # The log cleaner keeps only the header of an empty batch.
        payload = compress(plain, self.codec, self.xerial_block) if self.records else b""
        return seal(self._header() + payload)

    def _header(self) -> bytes:
        return _HEADER.pack(
            self.base_offset,
            0,
            7,
            2,
            0,
            self._attributes(),
            self.last_offset - self.base_offset,
            self.base_timestamp,
            self._max_timestamp(),
            self.producer_id,
            0 if self.producer_id >= 0 else -1,
            -1,
            len(self.records),
        )

    def _attributes(self) -> int:
        return (
            (self.codec if self.records else NONE)
            | (LOG_APPEND_TIME if self.log_append_time is not None else 0)
            | (TRANSACTIONAL if self.transactional else 0)
            | (CONTROL if self.control else 0)
        )

    def _max_timestamp(self) -> int:
        if self.log_append_time is not None:
            return self.log_append_time
        return max((r.timestamp for r in self.records), default=-1)


def batch_of(*records: Record, **fields: int | bool | None) -> Batch:
    """
    Return a batch of these records without gaps at its ends.
    """
    return Batch(records[0].offset, records[-1].offset, records, **fields)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, *, abort: bool) -> Batch:
    """
    Return the control batch that commits or aborts a producer's transaction.
    """
    record = Record(offset, key=struct.pack(">hh", 0, 0 if abort else 1), value=b"\0" * 6)
    return batch_of(record, producer_id=producer_id, transactional=True, control=True)


def seal(batch: bytes, *, length: bool = True) -> bytes:
    """
    Return a batch with a corrected checksum and, by default, a corrected length.
    """
    sealed = bytearray(batch)
    if length:
        struct.pack_into(">i", sealed, LENGTH_AT, len(batch) - _AFTER_LENGTH)
    struct.pack_into(">I", sealed, CRC_AT, crc32c(sealed[ATTRIBUTES_AT:]))
    return bytes(sealed)


def patched(batch: bytes, position: int, form: str, value: int) -> bytes:
    """
    Return a batch with one header field overwritten and a corrected checksum.
    """
    changed = bytearray(batch)
    struct.pack_into(form, changed, position, value)
    return seal(bytes(changed), length=False)


def with_payload(payload: bytes, count: int, *, codec: int = NONE, last_delta: int = 0) -> bytes:
    """
    Return a batch at offset 0 with arbitrary bytes instead of records.
    """
    header = Batch(0, last_delta, ())._header()
    batch = seal(header + payload)
    batch = patched(batch, COUNT_AT, ">i", count)
    return patched(batch, ATTRIBUTES_AT, ">h", codec)


def varint(number: int) -> bytes:
    """
    Return a zigzag varint; numbers wrap at 64 bits, as in Java.
    """
    wrapped = (number + 2**63) % 2**64 - 2**63
    bits = ((wrapped << 1) ^ (wrapped >> 63)) & (2**64 - 1)
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def span(data: bytes | None) -> bytes:
    """
    Return bytes preceded by their length; null has the length -1.
    """
    return varint(-1) if data is None else varint(len(data)) + data


def compress(plain: bytes, codec: int, xerial_block: int = 0) -> bytes:
    """
    Return the compressed records of a batch.
    """
    if codec == SNAPPY and xerial_block:
        blocks = [plain[i : i + xerial_block] for i in range(0, len(plain), xerial_block)]
        return xerial([_COMPRESS[SNAPPY](block) for block in blocks])
    return _COMPRESS[codec](plain)


def xerial(blocks: Sequence[bytes]) -> bytes:
    """
    Return snappy blocks in the framing of Java's SnappyOutputStream.
    """
    return _XERIAL_HEADER + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


_COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: lambda plain: bytes(cramjam.gzip.compress(plain)),
    SNAPPY: lambda plain: bytes(cramjam.snappy.compress_raw(plain)),
    LZ4: lambda plain: bytes(cramjam.lz4.compress(plain)),
    ZSTD: lambda plain: bytes(cramjam.zstd.compress(plain)),
}
