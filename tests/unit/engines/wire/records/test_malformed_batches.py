"""
Record batches that contradict themselves: each is named with its offset, and none is skipped.
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

# A record of no bytes at all: length, attributes, time, offset, key, value, number of headers.
ONE = varint(6) + b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(0)

GOOD = batch_of(Record(10), Record(11), Record(13, headers=((b"h", b"1"), (b"h", None))))
# Read whole before the one that lies: its records must be there all the same.
BEFORE = batch_of(Record(0), Record(1))


@pytest.mark.parametrize(
    ("count", "match", "rows"),
    [
        (0, "of 68 bytes says it has 0 records", 0),
        (-1, "of 68 bytes says it has -1 records", 0),
        (2, "a record says its length wrongly", 1),
        (10, "a record says its length wrongly", 1),
        (11, "says it has 11 records at offsets 0 to 9", 0),
        (2**31 - 1, "says it has 2147483647 records at offsets 0 to 9", 0),
    ],
)
def test_record_count_that_lies(count: int, match: str, rows: int) -> None:
    """
    A batch has exactly as many records as its header says, and no more of them than offsets.
    """
    batch = patched(with_payload(ONE, 1, last_delta=9), COUNT_AT, ">i", count)

    assert rows_before(MalformedBatch, batch, match) == rows


def test_record_count_one_too_low() -> None:
    """
    The last record that is counted must end where the batch does.
    """
    batch = with_payload(ONE + ONE[:3] + varint(1) + ONE[4:], 1, last_delta=1)

    assert rows_before(MalformedBatch, batch, "^offset 0: a record is the last one of a batch") == 0


def test_checksum_names_the_offset() -> None:
    """
    A flipped bit anywhere that the checksum covers is found, and nothing of the batch is used.
    """
    batch = GOOD.encode()
    for at in range(ATTRIBUTES_AT, len(batch)):
        flipped = bytearray(batch)
        flipped[at] ^= 0x10
        match = "^offset 10: a record batch has the checksum"
        assert rows_before(MalformedBatch, BEFORE.encode() + flipped, match) == 2


def test_checksum_of_a_large_batch() -> None:
    """
    A batch of more than a few bytes is checked too, and one that is read from its middle.
    """
    batch = bytearray(batch_of(*(Record(i, value=b"v" * 100) for i in range(50))).encode())
    batch[-1] ^= 1

    assert rows_before(MalformedBatch, bytes(batch), "^offset 20: .* checksum", start=20) == 0


def test_checksums_can_be_trusted() -> None:
    """
    Without a checksum to compute, none is compared.
    """
    batch = patched(GOOD.encode(), CRC_AT, ">I", 1)[:CRC_AT] + b"1234" + GOOD.encode()[CRC_AT + 4 :]
    reading = RecordDecoder(ALL_COLUMNS, 0, 100, None, Decompressor(1), 1000, 1 << 20)
    reading.feed(batch)

    assert (reading.fill(), reading.rows) == (False, 3)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_length_too_small_for_a_header(length: int) -> None:
    """
    A batch is at least as long as its header.
    """
    batch = patched(GOOD.encode(), LENGTH_AT, ">i", length)

    match = f"^offset 2: a record batch says it has {length + 12} bytes"
    assert rows_before(MalformedBatch, BEFORE.encode() + batch, match) == 2
    assert next_offset(BEFORE.encode() + batch, 0) == 2


@pytest.mark.parametrize("length", [49, 60])
def test_length_that_cuts_records_off(length: int) -> None:
    """
    A batch that is cut within its records is malformed, though its checksum is right.
    """
    batch = seal(GOOD.encode()[: length + 12])

    assert rows_before(MalformedBatch, batch, "^offset 1[0-3]: a record says its length") <= 2


@pytest.mark.parametrize("length", [0, 2**31 - 1], ids=["one more", "most"])
def test_length_beyond_the_answer(length: int) -> None:
    """
    A batch that is longer than what has come is the part of one that answers end with.
    """
    batch = GOOD.encode()
    longer = patched(batch, LENGTH_AT, ">i", length or len(batch) - 12 + 1)
    reading = decoder()
    reading.feed(BEFORE.encode() + longer)

    assert (reading.fill(), reading.rows, reading.position) == (False, 2, 2)
    assert next_offset(BEFORE.encode() + longer, 0) == 2


def test_part_of_a_batch_at_the_end() -> None:
    """
    However little or much of a batch an answer ends with, it is left for the next answer.
    """
    whole, part = BEFORE.encode(), GOOD.encode()
    for size in range(len(part)):
        reading = decoder()
        reading.feed(whole + part[:size])
        assert (reading.fill(), reading.rows, reading.position) == (False, 2, 2)
        assert next_offset(whole + part[:size], 0) == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [17, 40, 1000])
def test_old_format(magic: int, size: int) -> None:
    """
    A message of the formats before record batches is known by its magic, as small as it may be.
    """
    message = bytearray(size)
    struct.pack_into(">qi", message, 0, 2, size - 12)
    message[MAGIC_AT] = magic

    assert rows_before(OldFormat, BEFORE.encode() + message, rf"\(2, {magic}\)") == 2


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_unknown_format(magic: int) -> None:
    """
    A format that is newer than all we know is not taken for an old one.
    """
    batch = bytearray(GOOD.encode())
    batch[MAGIC_AT] = magic

    match = f"^offset 0: a record batch has the unknown format {magic}"
    assert rows_before(MalformedBatch, bytes(batch), match) == 0


@pytest.mark.parametrize(
    ("base", "last_delta"),
    [(-1, 0), (-(2**63), 0), (LAST + 1, 0), (LAST, 1), (2**63 - 2**31, 2**31 - 1), (10, -1)],
)
def test_offsets_that_cannot_be(base: int, last_delta: int) -> None:
    """
    A batch's offsets are not negative, and the one after the last is a number of 64 bits.
    """
    batch = patched(GOOD.encode(), LAST_DELTA_AT, ">i", last_delta)
    batch = patched(batch, 0, ">q", base)

    match = f"^offset 2: a record batch says it holds offsets {base} to "
    assert rows_before(MalformedBatch, BEFORE.encode() + batch, match) == 2
    assert next_offset(BEFORE.encode() + batch, 0) == 2


def test_last_offset_that_can_be() -> None:
    """
    The greatest offset is read, and its range can be ended.
    """
    batch = batch_of(Record(LAST))
    reading = decoder(LAST - 1, LAST + 1)
    reading.feed(batch.encode())

    assert (reading.fill(), reading.rows) == (False, 1)
    assert (reading.position, reading.done) == (LAST + 1, True)
    assert next_offset(batch.encode(), 0) == LAST + 1


@pytest.mark.parametrize("base", [0, 1])
def test_batches_that_go_back(base: int) -> None:
    """
    A batch that begins before the last one ended is damage, since its base has no checksum.
    """
    again = batch_of(Record(base), Record(8)).encode()

    match = f"^offset 2: a record batch says it holds offsets {base} to "
    assert rows_before(MalformedBatch, BEFORE.encode() + again, match) == 2


def test_answer_that_begins_too_early() -> None:
    """
    The first batch of an answer holds the offset that was asked for, or lies behind it.
    """
    early, fitting, behind = (batch_of(Record(at), Record(at + 1)).encode() for at in (1, 2, 9))

    match = "^offset 3: the first record batch of the answer ends at offset 2"
    assert rows_before(MalformedBatch, early + behind, match, start=3) == 0
    for first in (fitting, behind):
        reading = decoder(3)
        reading.feed(first)
        assert not reading.fill()
        assert reading.rows > 0


@pytest.mark.parametrize("base", [0, 1])
def test_answers_that_go_back(base: int) -> None:
    """
    The first batch of an answer begins after the last one of the answer before.
    """
    reading = decoder()
    reading.feed(BEFORE.encode())
    assert not reading.fill()
    reading.feed(batch_of(Record(base), Record(8)).encode())

    with pytest.raises(MalformedBatch, match=f"holds offsets {base} to .*after one that ends at 1"):
        reading.fill()
    assert (reading.rows, reading.position) == (2, 2)


def test_log_that_was_truncated_may_go_back() -> None:
    """
    Where a reader is to go on in another log, its batches need not fit to those before.
    """
    reading = decoder()
    reading.feed(BEFORE.encode())
    assert not reading.fill()
    reading.log_changed()
    reading.feed(batch_of(Record(1), Record(8)).encode())

    assert not reading.fill()
    assert (reading.rows, reading.position) == (3, 9)


@pytest.mark.parametrize("millis", [2**63 - 1, -(2**63), (2**63 - 1) // 1000 + 1])
def test_time_too_large(millis: int) -> None:
    """
    A time that microseconds cannot hold is named, if it is asked for; of the batch or the record.
    """
    by_record = batch_of(Record(5), Record(6, millis))
    by_batch = batch_of(Record(5), log_append_time=millis)

    assert rows_before(TimestampTooLarge, by_record.encode(), rf"\(6, {millis}\)") == 1
    assert rows_before(TimestampTooLarge, by_batch.encode(), rf"\(5, {millis}\)") == 0
    reading = decoder(columns=ALL_COLUMNS - {"timestamp"})
    reading.feed(by_record.encode())
    assert (reading.fill(), reading.rows) == (False, 2)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    """
    A codec that Kafka does not have is named.
    """
    batch = patched(GOOD.encode(), ATTRIBUTES_AT, ">h", codec)

    match = f"^offset 10: a record batch has the unknown compression codec {codec}"
    assert rows_before(MalformedBatch, batch, match) == 0


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("payload", [b"", b"\0", b"no such thing" * 9, b"\xff" * 99])
def test_bytes_that_do_not_decompress(codec: int, payload: bytes) -> None:
    """
    What is no output of its codec is malformed, and not empty.
    """
    batch = with_payload(payload, 1, codec=codec)

    assert rows_before(MalformedBatch, batch, "^offset 0: ") == 0
