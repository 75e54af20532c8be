"""
Decompressing within a bound, whatever the bytes claim.
"""

from __future__ import annotations

import resource
import sys
import time
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


def plain_of(decompress: Decompressor, codec: int, packed: bytes) -> bytes:
    return bytes(decompress(codec, memoryview(packed)))


def gzip_of_zeros(size: int) -> bytes:
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the next bytes stand for themselves, so that they can be repeated.
    again = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * (size // MIB - 1) + packer.flush()


def zstd_of_zeros(size: int) -> bytes:
    # Frames one after another are one stream, so that a gigabyte need not be made.
    return bytes(cramjam.zstd.compress(bytes(MIB))) * (size // MIB)


def lz4_of_zeros(size: int) -> bytes:
    return bytes(cramjam.lz4.compress(bytes(MIB))) * (size // MIB)


def peak_bytes() -> int:
    """
    Return the most memory that this process ever had; libraries' own memory counts too.
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
    Each batch comes out as it went in, after larger and after smaller ones, of any codec.
    """
    decompress = Decompressor(MIB)
    for codec, part, times in payloads:
        plain = part * times if len(part) * times <= MIB else part
        assert plain_of(decompress, codec, compress(plain, codec)) == plain


@pytest.mark.parametrize("block", [1, 100, 100_000])
def test_framed_snappy(block: int) -> None:
    """
    Java's producers cut snappy into framed blocks, of which the last one is smaller.
    """
    plain = bytes(i % 251 for i in range(2000))

    assert plain_of(Decompressor(MIB), SNAPPY, compress(plain, SNAPPY, block)) == plain


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_batch_of_exactly_the_limit(codec: int) -> None:
    """
    The limit is what may be taken; one byte more is refused.
    """
    limit = 200_000
    at, above = compress(bytes(limit), codec), compress(bytes(limit + 1), codec)

    assert plain_of(Decompressor(limit), codec, at) == bytes(limit)
    with pytest.raises(ValueError, match=f"of {NAMES[codec]} do not decompress, or not into the"):
        plain_of(Decompressor(limit), codec, above)


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [(GZIP, gzip_of_zeros), (ZSTD, zstd_of_zeros), (LZ4, lz4_of_zeros)],
    ids=["gzip", "zstd", "lz4"],
)
def test_bomb_is_refused(codec: int, bomb: Callable[[int], bytes]) -> None:
    """
    A gigabyte of zeros in a few megabytes or less is refused at once, and in bounded memory.
    """
    packed = bomb(1024 * MIB)
    decompress = Decompressor(MIB)
    before = peak_bytes()
    started = time.process_time()

    with pytest.raises(ValueError, match="the 1048576 bytes that a task may use for a batch"):
        plain_of(decompress, codec, packed)

    assert time.process_time() - started < 0.5
    assert peak_bytes() - before < 64 * MIB


def test_snappy_that_claims_gigabytes() -> None:
    """
    Snappy says its size first: nothing is taken for what is more than the limit, in sum too.
    """
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    parts = xerial([compress(bytes(MIB // 2), SNAPPY)] * 3)

    for packed in (claim, xerial([claim]), parts):
        with pytest.raises(ValueError, match="of snappy do not decompress"):
            plain_of(Decompressor(MIB), SNAPPY, packed)


@pytest.mark.parametrize(
    ("tail", "match"),
    [
        (b"\0", "ends after"),
        (b"\0\0\0", "ends after"),
        (b"\0\0\0\1", "ends after"),
        (b"\xff\xff\xff\xff", "ends after"),
        (b"\0\0\0\0", "do not decompress"),
        (b"\0\0\0\2\xff\xff", "do not decompress"),
    ],
)
def test_framed_block_that_lies(tail: bytes, match: str) -> None:
    """
    A block is as long as it says and has something in it.
    """
    packed = compress(b"good" * 10, SNAPPY, 100) + tail

    with pytest.raises(ValueError, match=match):
        plain_of(Decompressor(MIB), SNAPPY, packed)


def test_block_that_is_shorter_than_it_claims() -> None:
    """
    A block that claims more than it holds must not show what the buffer held before.
    """
    decompress = Decompressor(MIB)
    plain_of(decompress, SNAPPY, compress(b"secret" * 100, SNAPPY))
    short = varint(300)[:2] + b"\x00a"

    with pytest.raises(ValueError, match="do not decompress"):
        plain_of(decompress, SNAPPY, short)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_cut_or_flipped_bytes(codec: int) -> None:
    """
    Damage gives an error or other bytes, never more than the limit and nothing but ValueError.
    """
    packed = compress(b"".join(b"%d " % i for i in range(300)), codec)
    decompress = Decompressor(4096)
    for at in range(len(packed)):
        flipped = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        for damaged in (packed[:at], flipped):
            with suppress(ValueError):
                assert len(plain_of(decompress, codec, damaged)) <= 4096


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
def test_records_that_are_read_stay_as_they_are(codec: int) -> None:
    """
    While one batch's records are looked at, the next batch's go elsewhere; else into the same.
    """
    decompress = Decompressor(MIB)
    first = decompress(codec, memoryview(compress(b"a" * 5000, codec)))
    second = decompress(codec, memoryview(compress(b"b" * 5000, codec)))

    assert (bytes(first), bytes(second)) == (b"a" * 5000, b"b" * 5000)
    used = id(second.obj)
    del first, second
    assert id(decompress(codec, memoryview(compress(b"c" * 5000, codec))).obj) == used


def test_memory_of_a_large_batch_is_given_back() -> None:
    """
    After a batch of an unusual size the buffer is of a usual size again.
    """
    decompress = Decompressor(64 * MIB)
    for codec in (LZ4, SNAPPY):
        plain_of(decompress, codec, compress(bytes(40 * MIB), codec))
        assert len(decompress._memory) >= 40 * MIB
        plain_of(decompress, codec, compress(b"small", codec))
        assert len(decompress._memory) <= 16 * MIB


@pytest.mark.parametrize("codec", [0, 5, 6, 7, -1])
def test_unknown_codec(codec: int) -> None:
    """
    Only the four codecs of Kafka are known.
    """
    with pytest.raises(ValueError, match=f"unknown compression codec {codec}$"):
        plain_of(Decompressor(MIB), codec, b"")
