"""
Decompression within a limit, for any input.
"""

from __future__ import annotations

import resource
import sys
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_batches import GZIP, LZ4, SNAPPY, ZSTD, compress, varint, xerial

from pyspark_pykafka.engines.wire.records.compression import Decompressor

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}


def decompressed(decompress: Decompressor, codec: int, packed: bytes) -> bytes:
    return bytes(decompress(codec, memoryview(packed)))


def gzip_of_zeros(size: int) -> bytes:
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush, compressed data is self-contained and can be repeated.
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + block * (size // MIB - 1) + packer.flush()


def zstd_of_zeros(size: int) -> bytes:
    # Concatenated frames are one stream, so a gigabyte need not be compressed.
    return bytes(cramjam.zstd.compress(bytes(MIB))) * (size // MIB)


def lz4_of_zeros(size: int) -> bytes:
    return bytes(cramjam.lz4.compress(bytes(MIB))) * (size // MIB)


def peak_bytes() -> int:
    """
    Return the peak memory of this process, including that of libraries.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from(CODECS), st.binary(max_size=50), st.integers(1, 20_000)),
        min_size=1,
        max_size=5,
    )
)
def test_one_buffer_serves_batches_of_all_sizes(
    payloads: list[tuple[int, bytes, int]],
) -> None:
    """
    Each batch is decompressed correctly after larger and smaller ones of any codec.
    """
    decompress = Decompressor(MIB)
    for codec, part, times in payloads:
        plain = part * times if len(part) * times <= MIB else part
        assert decompressed(decompress, codec, compress(plain, codec)) == plain


@pytest.mark.parametrize("block", [1, 100, 100_000])
def test_framed_snappy(block: int) -> None:
    """
    Snappy in framed blocks, as Java's producers write it, is decompressed for any block size.
    """
    plain = bytes(i % 251 for i in range(2000))

    assert decompressed(Decompressor(MIB), SNAPPY, compress(plain, SNAPPY, block)) == plain


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_batch_of_exactly_the_limit(codec: int) -> None:
    """
    A batch of exactly the limit is decompressed; one byte more is refused.
    """
    limit = 200_000
    at_limit, above = compress(bytes(limit), codec), compress(bytes(limit + 1), codec)

    assert decompressed(Decompressor(limit), codec, at_limit) == bytes(limit)
    with pytest.raises(ValueError, match=f"of {NAMES[codec]} cannot be decompressed into the"):
        decompressed(Decompressor(limit), codec, above)


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [(GZIP, gzip_of_zeros), (ZSTD, zstd_of_zeros), (LZ4, lz4_of_zeros)],
    ids=["gzip", "zstd", "lz4"],
)
def test_bomb_is_refused(
    codec: int, bomb: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A gigabyte of compressed zeros is refused in bounded memory, before 4 MiB are decompressed.
    """
    packed = bomb(1024 * MIB)
    decompress = Decompressor(MIB)
    make_buffer, sizes = Decompressor._buffer, list[int]()

    def record(self: Decompressor, size: int) -> memoryview:
        sizes.append(size)
        return make_buffer(self, size)

    monkeypatch.setattr(Decompressor, "_buffer", record)
    before = peak_bytes()

    with pytest.raises(ValueError, match="the 1048576 bytes that a task may use for a batch"):
        decompressed(decompress, codec, packed)

    assert MIB <= sum(sizes) < 4 * MIB
    assert peak_bytes() - before < 64 * MIB


def test_snappy_with_a_huge_claimed_size() -> None:
    """
    Snappy data starts with its decompressed size: nothing is allocated if the sizes of all blocks
    exceed the limit together.
    """
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    parts = xerial([compress(bytes(MIB // 2), SNAPPY)] * 3)

    for packed in (claim, xerial([claim]), parts):
        with pytest.raises(ValueError, match="of snappy cannot be decompressed"):
            decompressed(Decompressor(MIB), SNAPPY, packed)


@pytest.mark.parametrize(
    ("tail", "match"),
    [
        (b"\0", "ends after"),
        (b"\0\0\0", "ends after"),
        (b"\0\0\0\1", "ends after"),
        (b"\xff\xff\xff\xff", "ends after"),
        (b"\0\0\0\0", "cannot be decompressed"),
        (b"\0\0\0\2\xff\xff", "cannot be decompressed"),
    ],
)
def test_invalid_framed_block(tail: bytes, match: str) -> None:
    """
    A block with a wrong length, or an empty one, is refused.
    """
    packed = compress(b"good" * 10, SNAPPY, 100) + tail

    with pytest.raises(ValueError, match=match):
        decompressed(Decompressor(MIB), SNAPPY, packed)


def test_block_shorter_than_its_claimed_size() -> None:
    """
    A block that claims more bytes than it has is an error: it would expose old content of the
    buffer.
    """
    decompress = Decompressor(MIB)
    decompressed(decompress, SNAPPY, compress(b"secret" * 100, SNAPPY))
    short = varint(300)[:2] + b"\x00a"

    with pytest.raises(ValueError, match="cannot be decompressed"):
        decompressed(decompress, SNAPPY, short)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_truncated_or_flipped_bytes(codec: int) -> None:
    """
    Damaged input raises ValueError or gives other bytes, never more than the limit.
    """
    packed = compress(b"".join(b"%d " % i for i in range(300)), codec)
    decompress = Decompressor(4096)
    for position in range(len(packed)):
        flipped = packed[:position] + bytes([packed[position] ^ 0x55]) + packed[position + 1 :]
        for damaged in (packed[:position], flipped):
            with suppress(ValueError):
                assert len(decompressed(decompress, codec, damaged)) <= 4096


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_buffer_in_use_is_not_overwritten(codec: int) -> None:
    """
    While a view of one batch exists, the next batch gets another buffer; otherwise it is reused.
    """
    decompress = Decompressor(MIB)
    first = decompress(codec, memoryview(compress(b"a" * 5000, codec)))
    second = decompress(codec, memoryview(compress(b"b" * 5000, codec)))

    assert (bytes(first), bytes(second)) == (b"a" * 5000, b"b" * 5000)
    buffer_id = id(second.obj)
    del first, second
    assert id(decompress(codec, memoryview(compress(b"c" * 5000, codec))).obj) == buffer_id


def test_memory_of_a_large_batch_is_released() -> None:
    """
    After an unusually large batch, the buffer is small again.
    """
    decompress = Decompressor(64 * MIB)
    for codec in (LZ4, SNAPPY):
        decompressed(decompress, codec, compress(bytes(40 * MIB), codec))
        assert len(decompress._memory) >= 40 * MIB
        decompressed(decompress, codec, compress(b"small", codec))
        assert len(decompress._memory) <= 16 * MIB


@pytest.mark.parametrize("codec", [0, 5, 6, 7, -1])
def test_unknown_codec(codec: int) -> None:
    """
    A codec other than the four of Kafka is refused.
    """
    with pytest.raises(ValueError, match=f"unknown compression codec {codec}$"):
        decompressed(Decompressor(MIB), codec, b"")
