"""
The builder and the decoder of record batches, each held against code that others wrote.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from tests.support.record_batches import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Batch,
    Record,
    batch_of,
    compress,
    marker,
)
from tests.support.record_model import MAX_MILLIS, batches
from tests.support.record_reading import columns_of

from pyspark_pykafka.schema import SOURCE_TYPES

SCHEMA = pa.schema([pa.field(name, SOURCE_TYPES[name]) for name in SOURCE_TYPES])

_DATA = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _DATA), max_size=3)
_TIMES = st.integers(0, MAX_MILLIS)
_RECORDS = st.lists(st.tuples(_TIMES, _DATA, _DATA, _HEADERS), min_size=1, max_size=20)


@settings(max_examples=30)
@given(_RECORDS, st.sampled_from([NONE, GZIP]))
def test_batches_that_kafka_python_built(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: int,
) -> None:
    """
    What kafka-python's producer would send is read as it was given.
    """
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for time, key, value, headers in records:
        builder.append(timestamp=time, key=key, value=value, headers=headers)
    builder.close()
    columns = columns_of(SCHEMA, 0, len(records))

    found = [*columns.batches(builder.buffer(), ()), *columns.flush()]

    table = pa.Table.from_batches(found)
    table.validate(full=True)
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [r[0] * 1000 for r in records]
    rows = table.select(["key", "value", "headers"]).to_pylist()
    pairs: list[Any] = [[{"key": k, "value": v} for k, v in r[3]] or None for r in records]
    assert [(r["key"], r["value"]) for r in rows] == [(r[1], r[2]) for r in records]
    assert [r["headers"] for r in rows] == pairs


@settings(max_examples=30)
@given(st.integers(0, 2**40).flatmap(lambda base: batches(base, _DATA)))
def test_builder_writes_what_kafka_python_reads(batch: Batch) -> None:
    """
    kafka-python finds in our builder's batches what went into them.
    """
    if batch.codec not in {NONE, GZIP}:
        batch = Batch(batch.base_offset, batch.last_offset, batch.records, GZIP)

    read = MemoryRecords(batch.encode()).next_batch()

    assert read.validate_crc()
    assert (read.base_offset, read.last_offset) == (batch.base_offset, batch.last_offset)
    assert [(r.offset, r.key, r.value) for r in read] == [
        (r.offset, r.key, r.value) for r in batch.records
    ]
    times = [r.timestamp for r in batch.records]
    if batch.log_append_time is not None:
        times = [batch.log_append_time] * len(times)
    again = MemoryRecords(batch.encode()).next_batch()
    assert [(r.timestamp, [(k.encode(), v) for k, v in r.headers]) for r in again] == list(
        zip(times, [list(r.headers) for r in batch.records], strict=True)
    )


def test_marker_is_one_to_kafka_python() -> None:
    """
    kafka-python takes our markers for what they are.
    """
    for abort in (True, False):
        read = MemoryRecords(marker(5, 9, abort=abort).encode()).next_batch()
        assert (read.is_control_batch, read.is_transactional, read.producer_id) == (True, True, 9)
        assert [(r.offset, r.abort, r.commit) for r in read] == [(5, abort, not abort)]


@pytest.mark.parametrize(("codec", "name"), [(LZ4, "lz4"), (ZSTD, "zstd"), (GZIP, "gzip")])
def test_codecs_are_those_of_arrow(codec: int, name: str) -> None:
    """
    Arrow's codecs, which are not cramjam's, decompress what our builder compressed, and our
    decoder what they compressed.
    """
    plain = b"".join(b"%d," % i for i in range(50_000))
    theirs = pa.Codec(name)

    assert theirs.decompress(compress(plain, codec), len(plain)).to_pybytes() == plain

    batch = batch_of(Record(0, value=plain))
    body = batch.encode()[61:]
    packed = theirs.compress(body).to_pybytes()
    assert _values_of(packed, codec) == [plain]


def test_raw_snappy_is_that_of_arrow() -> None:
    """
    The same for snappy without a frame, as librdkafka sends it.
    """
    plain = b"".join(b"%d," % i for i in range(50_000))
    theirs = pa.Codec("snappy")

    assert theirs.decompress(compress(plain, SNAPPY), len(plain)).to_pybytes() == plain
    body = batch_of(Record(0, value=plain)).encode()[61:]
    assert _values_of(theirs.compress(body).to_pybytes(), SNAPPY) == [plain]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40, 491, 492, 5000])
def test_checksum_of_any_size(size: int) -> None:
    """
    Small batches are checked by our own code: it must agree with the library that made them.
    """
    assert crc32c(b"123456789") == 0xE3069283
    batch = batch_of(Record(0, value=bytes(i * 7 % 256 for i in range(size))))
    columns = columns_of(SCHEMA, 0, 1)

    assert list(columns.batches(batch.encode(), ())) == []
    assert columns.done


def _values_of(payload: bytes, codec: int) -> list[bytes | None]:
    from tests.support.record_batches import with_payload

    columns = columns_of(pa.schema([("value", pa.binary())]), 0, 1)
    found = columns.batches(with_payload(payload, 1, codec=codec), ())
    return [value for b in [*found, *columns.flush()] for value in b.column(0).to_pylist()]
