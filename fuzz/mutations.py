"""
Record batches spoilt on purpose, and what must hold of whatever the decoder makes of them.
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
LIMIT = 1 << 20
END = 200

# Lengths, counts and offsets that have broken parsers before, in zigzag form.
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
    Where a fuzzer's numbers and bytes come from.
    """

    def number(self, low: int, high: int) -> int:
        """
        Return a number of at least ``low`` and at most ``high``.
        """

    def some_bytes(self, most: int) -> bytes:
        """
        Return any bytes, at most so many.
        """


def response(choices: Choices) -> tuple[bytes, list[tuple[int, int]]]:
    """
    Return some batches, most of them spoilt, and the aborted transactions of the answer.
    """
    parts = []
    offset = 0
    for _ in range(choices.number(1, 3)):
        batch = _batch(choices, offset)
        offset = batch.last_offset + 1
        parts.append(spoilt(batch.encode(), choices))
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


def spoilt(batch: bytes, choices: Choices) -> bytes:
    """
    Return a batch with a few bytes changed; its checksum and length are made right half the time.
    """
    changed = bytearray(batch)
    for _ in range(choices.number(0, 3)):
        # The checksum hides all else, so that the fields behind it are meant most of the time.
        first = 0 if choices.number(0, 7) == 0 else ATTRIBUTES_AT
        if choices.number(0, 1):
            first = HEADER_SIZE
        _change(changed, min(first, len(changed) - 1), choices)
    if len(changed) < HEADER_SIZE or choices.number(0, 1):
        return bytes(changed)
    return seal(bytes(changed), length=bool(choices.number(0, 3)))


def _change(batch: bytearray, first: int, choices: Choices) -> None:
    at = choices.number(first, len(batch) - 1)
    how = choices.number(0, 4)
    if how == 0:
        batch[at] ^= 1 << choices.number(0, 7)
    elif how == 1:
        batch[at] = choices.number(0, 255)
    elif how == 2:
        batch[at : at + choices.number(0, 2)] = _VARINTS[choices.number(0, len(_VARINTS) - 1)]
    elif how == 3:
        batch[at:at] = choices.some_bytes(12)
    else:
        del batch[at : at + choices.number(1, 8)]


def read_whatever(
    records: bytes, aborted: Sequence[tuple[int, int]], choices: Choices
) -> list[pa.RecordBatch]:
    """
    Decode records that may be spoilt, and check all that must hold even then.

    Any error but the three that are named passes through, and so do wrong arrays.
    """
    start = choices.number(0, 5)
    columns = ArrowDecoder(TopicPartition("t", 0), SCHEMA, _decoder(start, choices))
    assert next_offset(exactly(records), start) >= start
    found: list[pa.RecordBatch] = []
    offset = start
    try:
        for batch in columns.batches(exactly(records), aborted):
            found.append(batch)  # noqa: PERF402 - what came before an error counts.
    except (MalformedBatch, OldFormat, TimestampTooLarge) as error:
        offset = error.offset
    assert start <= offset < 2**63
    after = columns.position
    found += _good_records(columns)
    check(found, start, columns.position)
    if after + 2 <= END:
        assert [row for batch in found for row in _rows(batch)][-2:] == _good_rows(after)
    return found


def _good_records(columns: ArrowDecoder) -> Iterator[pa.RecordBatch]:
    """
    Read two good records after all, since nothing of the bad ones may be left in the columns.
    """
    base = columns.position
    headers = ((b"h", None), (b"i", b"1"))
    records = (Record(base, key=b"k", value=None, headers=headers), Record(base + 1))
    yield from columns.batches(Batch(base, base + 1, records).encode(), ())
    yield from columns.flush()


def _good_rows(base: int) -> list[tuple[Any, ...]]:
    headers = [{"key": "h", "value": None}, {"key": "i", "value": b"1"}]
    return [(base, b"k", None, headers), (base + 1, None, b"v", None)]


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    names = ("offset", "key", "value", "headers")
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def exactly(data: bytes | memoryview) -> memoryview:
    """
    Return a copy in memory of just that size, so that a sanitizer sees a byte read behind it.
    """
    return memoryview((ctypes.c_ubyte * len(data)).from_buffer_copy(data)).cast("B")


def _decoder(start: int, choices: Choices) -> RecordDecoder:
    decompress = Decompressor(LIMIT)
    return RecordDecoder(
        frozenset(SCHEMA.names),
        start,
        END,
        crc32c if choices.number(0, 1) else None,
        lambda codec, packed: exactly(decompress(codec, packed)),
        choices.number(1, 5),
        choices.number(1, 200),
    )


def check(found: Sequence[pa.RecordBatch], start: int, position: int) -> None:
    """
    Check that arrays hold together, and that offsets grow within the range.
    """
    assert start <= position <= END
    last = start - 1
    for batch in found:
        batch.validate(full=True)
        assert batch.num_rows > 0
        for offset in batch.column("offset").to_pylist():
            assert last < offset < position
            last = offset
