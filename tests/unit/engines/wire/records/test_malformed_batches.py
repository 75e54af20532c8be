"""
Inconsistent record batches: each raises an error with its offset, and none is skipped.
"""

from __future__ import annotations

import struct

import pytest
from tests.support.record_batches import (
    ATTRIBUTES_AT,
    COUNT_AT,
    CRC_AT,
    LAST_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    Record,
    batch_of,
    patched,
    seal,
    varint,
    with_payload,
)
from tests.support.record_reading import ALL_COLUMNS, decoder, rows_before

from pyspark_pykafka.engines.wire.records._decoder import (
    MalformedBatch,
    OldFormat,
    RecordDecoder,
    TimestampTooLarge,
    next_offset,
)
from pyspark_pykafka.engines.wire.records.compression import Decompressor

LAST = 2**63 - 2

# An empty record: length, attributes, timestamp, offset, key, value, number of headers.
ONE = varint(6) + b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(0)

GOOD = batch_of(Record(10), Record(11), Record(13, headers=((b"h", b"1"), (b"h", None))))
# A valid batch before the malformed one: its records must be decoded.
BEFORE = batch_of(Record(0), Record(1))


@pytest.mark.parametrize(
    ("count", "match", "rows"),
    [
        (0, "of 68 bytes says it has 0 records", 0),
        (-1, "of 68 bytes says it has -1 records", 0),
        (2, "a record has a wrong length", 1),
        (10, "a record has a wrong length", 1),
        (11, "says it has 11 records at offsets 0 to 9", 0),
        (2**31 - 1, "says it has 2147483647 records at offsets 0 to 9", 0),
    ],
)
def test_wrong_record_count(count: int, match: str, rows: int) -> None:
    """
    A batch must have as many records as its header says, and no more records than offsets.
    """
    batch = patched(with_payload(ONE, 1, last_delta=9), COUNT_AT, ">i", count)

    assert rows_before(MalformedBatch, batch, match) == rows


def test_record_count_one_too_low() -> None:
    """
    The last of the records that the header announces must end at the end of the batch.
    """
    batch = with_payload(ONE + ONE[:3] + varint(1) + ONE[4:], 1, last_delta=1)

    assert rows_before(MalformedBatch, batch, "^offset 0: a record is the last one of a batch") == 0


def test_wrong_checksum_raises_with_the_offset() -> None:
    """
    A flipped bit under the checksum is detected, and no record of the batch is used.
    """
    batch = GOOD.encode()
    for position in range(ATTRIBUTES_AT, len(batch)):
        flipped = bytearray(batch)
        flipped[position] ^= 0x10
        match = "^offset 10: a record batch has the checksum"
        assert rows_before(MalformedBatch, BEFORE.encode() + flipped, match) == 2


def test_checksum_of_a_large_batch() -> None:
    """
    A large batch is verified too, even if it is read from the middle.
    """
    batch = bytearray(batch_of(*(Record(i, value=b"v" * 100) for i in range(50))).encode())
    batch[-1] ^= 1

    assert rows_before(MalformedBatch, bytes(batch), "^offset 20: .* checksum", start=20) == 0


def test_checksum_verification_can_be_off() -> None:
    """
    Without a checksum function, checksums are not verified.
    """
    batch = patched(GOOD.encode(), CRC_AT, ">I", 1)[:CRC_AT] + b"1234" + GOOD.encode()[CRC_AT + 4 :]
    record_decoder = RecordDecoder(ALL_COLUMNS, 0, 100, None, Decompressor(1), 1000, 1 << 20)
    record_decoder.feed(batch)

    assert (record_decoder.fill(), record_decoder.rows) == (False, 3)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_length_too_small_for_a_header(length: int) -> None:
    """
    A batch shorter than its header is malformed.
    """
    batch = patched(GOOD.encode(), LENGTH_AT, ">i", length)

    match = f"^offset 2: a record batch says it has {length + 12} bytes"
    assert rows_before(MalformedBatch, BEFORE.encode() + batch, match) == 2
    assert next_offset(BEFORE.encode() + batch, 0) == 2


@pytest.mark.parametrize("length", [49, 60])
def test_length_that_truncates_records(length: int) -> None:
    """
    A batch truncated within its records is malformed, even with a correct checksum.
    """
    batch = seal(GOOD.encode()[: length + 12])

    assert rows_before(MalformedBatch, batch, "^offset 1[0-3]: a record has a wrong length") <= 2


@pytest.mark.parametrize("length", [0, 2**31 - 1], ids=["one more", "most"])
def test_length_beyond_the_response(length: int) -> None:
    """
    A batch longer than the rest of the response is a partial batch, with which responses may end.
    """
    batch = GOOD.encode()
    longer = patched(batch, LENGTH_AT, ">i", length or len(batch) - 12 + 1)
    record_decoder = decoder()
    record_decoder.feed(BEFORE.encode() + longer)

    assert (record_decoder.fill(), record_decoder.rows, record_decoder.position) == (False, 2, 2)
    assert next_offset(BEFORE.encode() + longer, 0) == 2


def test_partial_batch_at_the_end() -> None:
    """
    A partial batch at the end of a response is ignored and fetched again.
    """
    complete, part = BEFORE.encode(), GOOD.encode()
    for size in range(len(part)):
        record_decoder = decoder()
        record_decoder.feed(complete + part[:size])
        assert (record_decoder.fill(), record_decoder.rows, record_decoder.position) == (
            False,
            2,
            2,
        )
        assert next_offset(complete + part[:size], 0) == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 40, 1000])
def test_old_format(magic: int, size: int) -> None:
    """
    A message of a format before record batches is recognised by its magic, however small.
    """
    message = bytearray(size)
    struct.pack_into(">qi", message, 0, 2, size - 12)
    message[MAGIC_AT] = magic

    assert rows_before(OldFormat, BEFORE.encode() + message, rf"\(2, {magic}\)") == 2


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_unknown_format(magic: int) -> None:
    """
    An unknown newer format is not reported as an old one.
    """
    batch = bytearray(GOOD.encode())
    batch[MAGIC_AT] = magic

    match = f"^offset 0: a record batch has the unknown format {magic}"
    assert rows_before(MalformedBatch, bytes(batch), match) == 0


@pytest.mark.parametrize(
    ("base", "last_delta"),
    [(-1, 0), (-(2**63), 0), (LAST + 1, 0), (LAST, 1), (2**63 - 2**31, 2**31 - 1), (10, -1)],
)
def test_impossible_offsets(base: int, last_delta: int) -> None:
    """
    Offsets are not negative, and the offset after the last one must fit into 64 bits.
    """
    batch = patched(GOOD.encode(), LAST_DELTA_AT, ">i", last_delta)
    batch = patched(batch, 0, ">q", base)

    match = f"^offset 2: a record batch says it holds offsets {base} to "
    assert rows_before(MalformedBatch, BEFORE.encode() + batch, match) == 2
    assert next_offset(BEFORE.encode() + batch, 0) == 2


def test_largest_possible_offset() -> None:
    """
    A record at the largest offset is decoded, and its range ends.
    """
    batch = batch_of(Record(LAST))
    record_decoder = decoder(LAST - 1, LAST + 1)
    record_decoder.feed(batch.encode())

    assert (record_decoder.fill(), record_decoder.rows) == (False, 1)
    assert (record_decoder.position, record_decoder.done) == (LAST + 1, True)
    assert next_offset(batch.encode(), 0) == LAST + 1


@pytest.mark.parametrize("base", [0, 1])
def test_overlapping_batches(base: int) -> None:
    """
    A batch that starts before the end of the previous one is malformed.
    """
    overlapping = batch_of(Record(base), Record(8)).encode()

    match = f"^offset 2: a record batch says it holds offsets {base} to "
    assert rows_before(MalformedBatch, BEFORE.encode() + overlapping, match) == 2


def test_response_that_starts_too_early() -> None:
    """
    The first batch of a response must contain the requested offset or a later one.
    """
    early, fitting, later = (
        batch_of(Record(offset), Record(offset + 1)).encode() for offset in (1, 2, 9)
    )

    match = "^offset 3: the first record batch of the response ends at offset 2"
    assert rows_before(MalformedBatch, early + later, match, start=3) == 0
    for first in (fitting, later):
        record_decoder = decoder(3)
        record_decoder.feed(first)
        assert not record_decoder.fill()
        assert record_decoder.rows > 0


@pytest.mark.parametrize("base", [0, 1])
def test_overlapping_responses(base: int) -> None:
    """
    The first batch of a response must start after the last batch of the previous response.
    """
    record_decoder = decoder()
    record_decoder.feed(BEFORE.encode())
    assert not record_decoder.fill()
    record_decoder.feed(batch_of(Record(base), Record(8)).encode())

    with pytest.raises(MalformedBatch, match=f"holds offsets {base} to .*after one that ends at 1"):
        record_decoder.fill()
    assert (record_decoder.rows, record_decoder.position) == (2, 2)


def test_truncated_log_may_go_back() -> None:
    """
    After allow_log_change(), batches need not follow those decoded before.
    """
    record_decoder = decoder()
    record_decoder.feed(BEFORE.encode())
    assert not record_decoder.fill()
    record_decoder.allow_log_change()
    record_decoder.feed(batch_of(Record(1), Record(8)).encode())

    assert not record_decoder.fill()
    assert (record_decoder.rows, record_decoder.position) == (3, 9)


@pytest.mark.parametrize("millis", [2**63 - 1, -(2**63), (2**63 - 1) // 1000 + 1])
def test_timestamp_too_large(millis: int) -> None:
    """
    A timestamp beyond 64-bit microseconds raises an error if the column is requested.
    """
    by_record = batch_of(Record(5), Record(6, millis))
    by_batch = batch_of(Record(5), log_append_time=millis)

    assert rows_before(TimestampTooLarge, by_record.encode(), rf"\(6, {millis}\)") == 1
    assert rows_before(TimestampTooLarge, by_batch.encode(), rf"\(5, {millis}\)") == 0
    record_decoder = decoder(columns=ALL_COLUMNS - {"timestamp"})
    record_decoder.feed(by_record.encode())
    assert (record_decoder.fill(), record_decoder.rows) == (False, 2)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    """
    An unknown codec is malformed.
    """
    batch = patched(GOOD.encode(), ATTRIBUTES_AT, ">h", codec)

    match = f"^offset 10: a record batch has the unknown compression codec {codec}"
    assert rows_before(MalformedBatch, batch, match) == 0


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("payload", [b"", b"\0", b"no such thing" * 9, b"\xff" * 99])
def test_invalid_compressed_bytes(codec: int, payload: bytes) -> None:
    """
    Bytes that do not decompress are malformed, not empty.
    """
    batch = with_payload(payload, 1, codec=codec)

    assert rows_before(MalformedBatch, batch, "^offset 0: ") == 0
