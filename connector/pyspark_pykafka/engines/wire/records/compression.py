"""
Compressing record batches, and decompressing them within a bound, into memory that is used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cramjam

from pyspark_pykafka.engines.wire.records.buffers import is_viewed

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

# The numbers of the codecs in a record batch's attributes (Kafka's CompressionType).
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4

_NAMES = {_GZIP: "gzip", _SNAPPY: "snappy", _LZ4: "lz4", _ZSTD: "zstd"}

# Java's SnappyOutputStream frames its blocks: this, two version numbers, then length and block.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16

_XERIAL_VERSIONS = b"\x00\x00\x00\x01\x00\x00\x00\x01"

#: The numbers by which a record batch names its codec.
CODECS = {"none": 0, "gzip": _GZIP, "snappy": _SNAPPY, "lz4": _LZ4, "zstd": _ZSTD}

# As strong as the Java client compresses where the user gave no level: lz4 in its fast form.
_LEVELS = {_GZIP: 6, _LZ4: 0, _ZSTD: 3}

_LEAST_ROOM = 64 * 1024
# Text often comes down to a quarter; a wrong guess costs one more try. After that the last batch
# is the better guess, with so much to spare.
_USUAL_RATIO = 4.0
_SPARE = 1.25
# Kept between batches; what a larger batch needed is given back.
_ROOM_KEPT = 16 * 1024 * 1024


def compress(codec: int, level: int, records: memoryview) -> Buffer:
    """
    Return the records of a batch compressed; -1 is the codec's usual level.

    In the framing that Kafka's readers expect: snappy's in blocks as Java's stream writes them, and
    lz4's blocks independent of one another (KIP-57).
    """
    if level < 0:
        level = _LEVELS.get(codec, 0)
    return _COMPRESSING[codec](level, records)


def _gzip(level: int, records: memoryview) -> Buffer:
    return cramjam.gzip.compress(records, level)


def _snappy(_: int, records: memoryview) -> Buffer:
    block = bytes(cramjam.snappy.compress_raw(records))
    return b"".join((_XERIAL, _XERIAL_VERSIONS, len(block).to_bytes(4, "big"), block))


def _lz4(level: int, records: memoryview) -> Buffer:
    # The batch has a checksum of its own.
    stream = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    stream.compress(bytes(records))
    return stream.finish()


def _zstd(level: int, records: memoryview) -> Buffer:
    return cramjam.zstd.compress(records, level)


_COMPRESSING: dict[int, Callable[[int, memoryview], Buffer]] = {
    _GZIP: _gzip,
    _SNAPPY: _snappy,
    _LZ4: _lz4,
    _ZSTD: _zstd,
}


class Decompressor:
    """
    Decompresses a record batch into memory that is used again once no view of it is left.

    A batch that would take more than ``limit`` bytes is refused: a few bytes can claim to be
    gigabytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._room = bytearray()
        self._ratio = _USUAL_RATIO

    def __call__(self, codec: int, compressed: memoryview) -> memoryview:
        """
        Return the records of a batch.

        Raises :class:`ValueError` if they cannot be decompressed within the limit.
        """
        if codec not in _NAMES:
            msg = f"a record batch has the unknown compression codec {codec}"
            raise ValueError(msg)
        if codec == _SNAPPY:
            return self._snappy(compressed)
        return self._growing(_INTO[codec], codec, compressed)

    def _growing(
        self, into: Callable[[memoryview, memoryview], int], codec: int, compressed: memoryview
    ) -> memoryview:
        size = max(_LEAST_ROOM, int(self._ratio * len(compressed)))
        while True:
            buffer = self._buffer(min(size, self._limit))
            try:
                used = into(compressed, buffer)
            except cramjam.DecompressionError as cause:
                # The codecs say no more exactly that the buffer was too small.
                if len(buffer) >= self._limit:
                    raise self._refused(codec, compressed) from cause
            else:
                self._ratio = max(_USUAL_RATIO, _SPARE * used / max(len(compressed), 1))
                return buffer[:used]
            size = 2 * len(buffer)
            buffer.release()

    def _snappy(self, compressed: memoryview) -> memoryview:
        try:
            blocks = _blocks(compressed)
            sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
            if sum(sizes) > self._limit:
                raise self._refused(_SNAPPY, compressed)
            buffer = self._buffer(sum(sizes))
            at = 0
            for block, size in zip(blocks, sizes, strict=True):
                at += cramjam.snappy.decompress_raw_into(block, buffer[at : at + size])
        except cramjam.DecompressionError as cause:
            raise self._refused(_SNAPPY, compressed) from cause
        return buffer[:at]

    def _buffer(self, size: int) -> memoryview:
        kept = size <= len(self._room) <= max(size, _ROOM_KEPT)
        if not kept or is_viewed(self._room):
            # The old one goes first, or both would count at once.
            self._room = bytearray()
            self._room = bytearray(size)
        return memoryview(self._room)

    def _refused(self, codec: int, compressed: memoryview) -> ValueError:
        return ValueError(
            f"{len(compressed)} bytes of {_NAMES[codec]} do not decompress, or not into the "
            f"{self._limit} bytes that a task may take for it"
        )


def _blocks(compressed: memoryview) -> list[memoryview]:
    """
    Return the snappy blocks: one without a frame (librdkafka), or those of Java's frame.
    """
    if bytes(compressed[: len(_XERIAL)]) != _XERIAL:
        return [compressed]
    blocks = []
    at = _XERIAL_HEADER
    while at < len(compressed):
        size = int.from_bytes(compressed[at : at + 4], "big")
        at += 4
        if size > len(compressed) - at:
            msg = "a snappy block ends after its record batch"
            raise ValueError(msg)
        blocks.append(compressed[at : at + size])
        at += size
    return blocks


_INTO: dict[int, Callable[[memoryview, memoryview], int]] = {
    _GZIP: cramjam.gzip.decompress_into,
    _LZ4: cramjam.lz4.decompress_into,
    _ZSTD: cramjam.zstd.decompress_into,
}
