"""
Under read_committed, aborted transactions are filtered as by the Java consumer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from tests.support.record_batches import GZIP, HEADER_SIZE, Batch, Record, batch_of, marker, seal
from tests.support.record_reading import decoder

from pyspark_pykafka.engines.wire.records._decoder import MalformedBatch

if TYPE_CHECKING:
    from collections.abc import Sequence


def data(offset: int, producer_id: int, *, transactional: bool = True) -> Batch:
    return batch_of(Record(offset), producer_id=producer_id, transactional=transactional)


def offsets(
    log: Sequence[Batch], aborted: Sequence[tuple[int, int]] = (), start: int = 0
) -> list[int]:
    """
    Return the offsets that are read from a log.
    """
    reading = decoder(start)
    reading.feed(b"".join(batch.encode() for batch in log), aborted)
    assert not reading.fill()
    assert reading.position == log[-1].last_offset + 1
    rows, _, _, packed_offsets, *_ = reading.take()
    assert packed_offsets is not None
    return list(struct.unpack(f"={rows}q", packed_offsets))


def test_aborted_transaction_is_filtered() -> None:
    """
    Records are filtered from a transaction's first record to its marker, and read after it.
    """
    log = [data(0, 1), data(1, 1), marker(2, 1, abort=True), data(3, 1), marker(4, 1, abort=False)]

    assert offsets(log, [(0, 1)]) == [3]


def test_only_the_aborting_producers_records_are_filtered() -> None:
    """
    Of interleaved transactions, only the aborted ones lose their records.
    """
    log = [
        *(data(0, 1), data(1, 2), data(2, 3), marker(3, 1, abort=True), data(4, 1)),
        *(marker(5, 2, abort=False), data(6, 2), marker(7, 1, abort=False), data(8, 1)),
        *(marker(9, 3, abort=False), marker(10, 2, abort=True), marker(11, 1, abort=True)),
    ]

    assert offsets(log, [(8, 1), (0, 1), (6, 2)]) == [1, 2, 4]


def test_records_without_a_transaction_are_read() -> None:
    """
    Records that a producer sends outside its aborted transaction are not part of it.
    """
    log = [data(0, 1), data(1, 1, transactional=False), data(2, -1, transactional=False)]

    assert offsets([*log, marker(3, 1, abort=True)], [(0, 1)]) == [1, 2]


def test_uncommitted_records_are_read_without_markers() -> None:
    """
    If the broker names no aborted transaction, all records are read; markers are never rows.
    """
    log = [data(0, 1), marker(1, 1, abort=True), data(2, 2), marker(3, 2, abort=False)]

    assert offsets(log) == [0, 2]


def test_aborted_transaction_begun_before_the_response_is_filtered() -> None:
    """
    The broker also names aborted transactions that began before the response.
    """
    log = [data(50, 1), marker(51, 1, abort=True), data(52, 1), marker(53, 1, abort=False)]

    assert offsets(log, [(3, 1)], start=50) == [52]


def test_batch_with_the_first_offset_belongs_to_the_transaction() -> None:
    """
    A transaction starts with the batch whose last offset reaches its first offset.
    """
    batch = batch_of(Record(0), Record(9), producer_id=1, transactional=True)

    assert offsets([batch, marker(10, 1, abort=True)], [(9, 1)]) == []
    assert offsets([batch, marker(10, 1, abort=True)], [(10, 1)]) == [0, 9]


def test_compressed_marker_is_read() -> None:
    """
    A compressed marker ends its transaction; no broker writes one, but the format allows it.
    """
    plain = marker(1, 1, abort=True)
    compressed = batch_of(
        *plain.records, codec=GZIP, producer_id=1, transactional=True, control=True
    )

    assert offsets([data(0, 1), compressed, data(2, 1)], [(0, 1)]) == [2]


def test_other_control_records_end_no_transaction() -> None:
    """
    Control records of other kinds (a leader change) end no transaction.
    """
    leader_change = Record(1, key=struct.pack(">hh", 0, 2))
    log = [data(0, 1), batch_of(leader_change, producer_id=1, control=True), data(2, 1)]

    assert offsets(log, [(0, 1)]) == []


def test_unreadable_marker_is_an_error() -> None:
    """
    A marker that cannot be read is an error: if it were ignored, aborted records could be returned
    or committed ones hidden.
    """
    good = marker(0, 1, abort=True).encode()
    for size in range(HEADER_SIZE, len(good) - 10):
        reading = decoder()
        reading.feed(seal(good[:size]), [(0, 1)])
        with pytest.raises(MalformedBatch, match="^offset 0: a control record has no readable"):
            reading.fill()


def test_emptied_control_batch_ends_no_transaction() -> None:
    """
    A control batch whose record was compacted away is not an abort: filtering continues.
    """
    emptied = Batch(1, 1, (), producer_id=1, transactional=True, control=True)
    data = batch_of(Record(2), producer_id=1, transactional=True)
    reading = decoder()
    reading.feed(emptied.encode() + data.encode(), [(0, 1)])

    assert (reading.fill(), reading.rows, reading.position) == (False, 0, 3)
