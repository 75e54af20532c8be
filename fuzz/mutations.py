"""
Mutated record batches, and the invariants that the decoder must keep for any input.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from crc32c import crc32c
from tests.support.record_batches import (
    ATTRIBUTES_AT,
    CODECS,
    HEADER_SIZE,
    Batch,
    Record,
    marker,
    seal,
)

from pyspark_pykafka.engines.wire.records._decoder import (
    MalformedBatch,
    OldFormat,
    RecordDecoder,
    TimestampTooLarge,
    next_offset,
)
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from pyspark_pykafka.engines.wire.records.compression import Decompressor
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.schema import SOURCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCHEMA = pa.schema([pa.field(name, SOURCE_TYPES[name]) for name in SOURCE_TYPES])
MAX_DECOMPRESSED_BYTES = 1 << 20
END = 200

# Lengths, counts and offsets that are likely to break a parser, in zigzag form.
_VARINTS = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x03",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
)


class Choices(Protocol):
    """
    The source of a fuzzer's numbers and bytes.
    """

    def number(self, minimum: int, maximum: int) -> int:
        """
        Return a number from ``minimum`` to ``maximum``.
        """

    def some_bytes(self, max_bytes: int) -> bytes:
        """
        Return at most ``max_bytes`` arbitrary bytes.
        """


def response(choices: Choices) -> tuple[bytes, list[tuple[int, int]]]:
    """
    Return some batches, most of them mutated, and the aborted transactions of the response.
    """
    parts = []
    offset = 0
    for _ in range(choices.number(1, 3)):
        batch = _batch(choices, offset)
        offset = batch.last_offset + 1
        parts.append(mutated(batch.encode(), choices))
    aborted = [
        (choices.number(0, offset), choices.number(0, 2)) for _ in range(choices.number(0, 2))
    ]
    return b"".join(parts) + choices.some_bytes(70), aborted


def _batch(choices: Choices, offset: int) -> Batch:
    if choices.number(0, 7) == 0:
        return marker(offset, choices.number(0, 2), abort=bool(choices.number(0, 1)))
    count = choices.number(0, 4)
    return Batch(
        offset,
        offset + max(count - 1, 0) + choices.number(0, 2),
        tuple(_record(choices, offset + i) for i in range(count)),
        codec=CODECS[choices.number(0, 4)],
        log_append_time=5 if choices.number(0, 3) == 0 else None,
        producer_id=choices.number(-1, 2),
        transactional=bool(choices.number(0, 1)),
        xerial_block=choices.number(0, 30),
    )


def _record(choices: Choices, offset: int) -> Record:
    headers = [(b"h%d" % i, choices.some_bytes(5) or None) for i in range(choices.number(0, 2))]
    return Record(
        offset, 1000 + offset, choices.some_bytes(4) or None, choices.some_bytes(9), tuple(headers)
    )


def mutated(batch: bytes, choices: Choices) -> bytes:
    """
    Return a batch with a few mutations; half the time, checksum and length are corrected.
    """
    mutated_batch = bytearray(batch)
    for _ in range(choices.number(0, 3)):
        # Mostly after the checksum: before it, a wrong length or format hides everything else.
        first = 0 if choices.number(0, 7) == 0 else ATTRIBUTES_AT
        if choices.number(0, 1):
            first = HEADER_SIZE
        _mutate(mutated_batch, min(first, len(mutated_batch) - 1), choices)
    if len(mutated_batch) < HEADER_SIZE or choices.number(0, 1):
        return bytes(mutated_batch)
    return seal(bytes(mutated_batch), length=bool(choices.number(0, 3)))


def _mutate(batch: bytearray, first: int, choices: Choices) -> None:
    position = choices.number(first, len(batch) - 1)
    kind = choices.number(0, 4)
    if kind == 0:
        batch[position] ^= 1 << choices.number(0, 7)
    elif kind == 1:
        batch[position] = choices.number(0, 255)
    elif kind == 2:
        batch[position : position + choices.number(0, 2)] = _VARINTS[
            choices.number(0, len(_VARINTS) - 1)
        ]
    elif kind == 3:
        batch[position:position] = choices.some_bytes(12)
    else:
        del batch[position : position + choices.number(1, 8)]


def decode_mutated(
    records: bytes, aborted: Sequence[tuple[int, int]], choices: Choices
) -> list[pa.RecordBatch]:
    """
    Decode records that may be malformed, and check the invariants.

    Errors other than the three expected ones, and invalid arrays, fail the run.
    """
    start = choices.number(0, 5)
    arrow_decoder = ArrowDecoder(TopicPartition("t", 0), SCHEMA, _decoder(start, choices))
    assert next_offset(exact_copy(records), start) >= start
    decoded: list[pa.RecordBatch] = []
    offset = start
    try:
        for batch in arrow_decoder.batches(exact_copy(records), aborted):
            decoded.append(batch)  # noqa: PERF402 (batches before an error count)
    except (MalformedBatch, OldFormat, TimestampTooLarge) as error:
        offset = error.offset
    assert start <= offset < 2**63
    valid_start = arrow_decoder.position
    decoded += _valid_records(arrow_decoder)
    check(decoded, start, arrow_decoder.position)
    if valid_start + 2 <= END:
        assert [row for batch in decoded for row in _rows(batch)][-2:] == _valid_rows(valid_start)
    return decoded


def _valid_records(arrow_decoder: ArrowDecoder) -> Iterator[pa.RecordBatch]:
    """
    Decode two valid records: nothing of the malformed ones may be left in the columns.
    """
    base = arrow_decoder.position
    headers = ((b"h", None), (b"i", b"1"))
    records = (Record(base, key=b"k", value=None, headers=headers), Record(base + 1))
    yield from arrow_decoder.batches(Batch(base, base + 1, records).encode(), ())
    yield from arrow_decoder.flush()


def _valid_rows(base: int) -> list[tuple[Any, ...]]:
    headers = [{"key": "h", "value": None}, {"key": "i", "value": b"1"}]
    return [(base, b"k", None, headers), (base + 1, None, b"v", None)]


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    names = ("offset", "key", "value", "headers")
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def exact_copy(data: bytes | memoryview) -> memoryview:
    """
    Return a copy in memory of exactly this size, so that a sanitizer detects reads beyond its end.
    """
    return memoryview((ctypes.c_ubyte * len(data)).from_buffer_copy(data)).cast("B")


def _decoder(start: int, choices: Choices) -> RecordDecoder:
    decompress = Decompressor(MAX_DECOMPRESSED_BYTES)
    return RecordDecoder(
        frozenset(SCHEMA.names),
        start,
        END,
        crc32c if choices.number(0, 1) else None,
        lambda codec, compressed: exact_copy(decompress(codec, compressed)),
        choices.number(1, 5),
        choices.number(1, 200),
    )


def check(batches: Sequence[pa.RecordBatch], start: int, position: int) -> None:
    """
    Check that arrays are valid, and that offsets increase within the range.
    """
    assert start <= position <= END
    last = start - 1
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows > 0
        for offset in batch.column("offset").to_pylist():
            assert last < offset < position
            last = offset
