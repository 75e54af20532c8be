"""
Compresses record batches, and decompresses them into a reused buffer of bounded size.
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

# Java's SnappyOutputStream writes this, two version numbers, then each block's length and bytes.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16

_XERIAL_VERSIONS = b"\x00\x00\x00\x01\x00\x00\x00\x01"

#: The number of each codec in the attributes of a record batch.
CODECS = {"none": 0, "gzip": _GZIP, "snappy": _SNAPPY, "lz4": _LZ4, "zstd": _ZSTD}

# These levels compress as well as the Java client's default levels; 0 is lz4's fast mode.
_DEFAULT_LEVELS = {_GZIP: 6, _LZ4: 0, _ZSTD: 3}

_MIN_BUFFER_BYTES = 64 * 1024
# Text often compresses to a quarter; a wrong guess costs another attempt. From the second batch on,
# the ratio of the previous batch with a margin is the better guess.
_INITIAL_RATIO = 4.0
_RATIO_MARGIN = 1.25
# A larger buffer is released after the batch that needed it.
_MAX_KEPT_BYTES = 16 * 1024 * 1024


def compress(codec: int, level: int, records: memoryview) -> Buffer:
    """
    Return the compressed records of a batch; level -1 is the codec's default.

    The framing is what Kafka's readers expect: snappy in the blocks of Java's stream, lz4 with
    independent blocks (KIP-57).
    """
    if level < 0:
        level = _DEFAULT_LEVELS.get(codec, 0)
    return _COMPRESSORS[codec](level, records)


def _gzip(level: int, records: memoryview) -> Buffer:
    return cramjam.gzip.compress(records, level)


def _snappy(_: int, records: memoryview) -> Buffer:
    block = bytes(cramjam.snappy.compress_raw(records))
    return b"".join((_XERIAL_MAGIC, _XERIAL_VERSIONS, len(block).to_bytes(4, "big"), block))


def _lz4(level: int, records: memoryview) -> Buffer:
    # The record batch has its own checksum.
    stream = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    stream.compress(bytes(records))
    return stream.finish()


def _zstd(level: int, records: memoryview) -> Buffer:
    return cramjam.zstd.compress(records, level)


_COMPRESSORS: dict[int, Callable[[int, memoryview], Buffer]] = {
    _GZIP: _gzip,
    _SNAPPY: _snappy,
    _LZ4: _lz4,
    _ZSTD: _zstd,
}


class Decompressor:
    """
    Decompresses record batches into one buffer, reused once no view of it exists.

    A batch that decompresses to more than ``max_bytes`` is rejected: a few bytes can expand to
    gigabytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._memory = bytearray()
        self._ratio = _INITIAL_RATIO

    def __call__(self, codec: int, compressed: memoryview) -> memoryview:
        """
        Return the decompressed records of a batch.

        Raises :class:`ValueError` if they cannot be decompressed within the limit.
        """
        if codec not in _NAMES:
            msg = f"a record batch has the unknown compression codec {codec}"
            raise ValueError(msg)
        if codec == _SNAPPY:
            return self._snappy(compressed)
        return self._decompress(_DECOMPRESSORS[codec], codec, compressed)

    def _decompress(
        self,
        decompress_into: Callable[[memoryview, memoryview], int],
        codec: int,
        compressed: memoryview,
    ) -> memoryview:
        size = max(_MIN_BUFFER_BYTES, int(self._ratio * len(compressed)))
        while True:
            buffer = self._buffer(min(size, self._max_bytes))
            try:
                byte_count = decompress_into(compressed, buffer)
            except cramjam.DecompressionError as cause:
                # The codecs raise the same error for a buffer that is too small.
                if len(buffer) >= self._max_bytes:
                    raise self._error(codec, compressed) from cause
            else:
                self._ratio = max(
                    _INITIAL_RATIO, _RATIO_MARGIN * byte_count / max(len(compressed), 1)
                )
                return buffer[:byte_count]
            size = 2 * len(buffer)
            buffer.release()

    def _snappy(self, compressed: memoryview) -> memoryview:
        try:
            blocks = _snappy_blocks(compressed)
            sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
            if sum(sizes) > self._max_bytes:
                raise self._error(_SNAPPY, compressed)
            buffer = self._buffer(sum(sizes))
            position = 0
            for block, size in zip(blocks, sizes, strict=True):
                position += cramjam.snappy.decompress_raw_into(
                    block, buffer[position : position + size]
                )
        except cramjam.DecompressionError as cause:
            raise self._error(_SNAPPY, compressed) from cause
        return buffer[:position]

    def _buffer(self, size: int) -> memoryview:
        fits = size <= len(self._memory) <= max(size, _MAX_KEPT_BYTES)
        if not fits or is_viewed(self._memory):
            # Released first: otherwise both buffers would be allocated at once.
            self._memory = bytearray()
            self._memory = bytearray(size)
        return memoryview(self._memory)

    def _error(self, codec: int, compressed: memoryview) -> ValueError:
        return ValueError(
            f"{len(compressed)} bytes of {_NAMES[codec]} cannot be decompressed into the "
            f"{self._max_bytes} bytes that a task may use for a batch; the batch is damaged or too "
            "large"
        )


def _snappy_blocks(compressed: memoryview) -> list[memoryview]:
    """
    Return the snappy blocks: one without framing (librdkafka), or several in Java's framing.
    """
    if bytes(compressed[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [compressed]
    blocks = []
    position = _XERIAL_HEADER_BYTES
    while position < len(compressed):
        size = int.from_bytes(compressed[position : position + 4], "big")
        position += 4
        if size > len(compressed) - position:
            msg = "a snappy block ends after its record batch"
            raise ValueError(msg)
        blocks.append(compressed[position : position + size])
        position += size
    return blocks


_DECOMPRESSORS: dict[int, Callable[[memoryview, memoryview], int]] = {
    _GZIP: cramjam.gzip.decompress_into,
    _LZ4: cramjam.lz4.decompress_into,
    _ZSTD: cramjam.zstd.decompress_into,
}
