"""
The test builder and the decoder of record batches, each compared with other implementations.
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
from tests.support.record_reading import make_arrow_decoder

from pyspark_pykafka.schema import SOURCE_TYPES

SCHEMA = pa.schema([pa.field(name, SOURCE_TYPES[name]) for name in SOURCE_TYPES])

_DATA = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _DATA), max_size=3)
_TIMES = st.integers(0, MAX_MILLIS)
_RECORDS = st.lists(st.tuples(_TIMES, _DATA, _DATA, _HEADERS), min_size=1, max_size=20)


@settings(max_examples=30)
@given(_RECORDS, st.sampled_from([NONE, GZIP]))
def test_batches_of_kafka_python_are_decoded(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: int,
) -> None:
    """
    Batches of kafka-python's producer are decoded to the original records.
    """
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for time, key, value, headers in records:
        builder.append(timestamp=time, key=key, value=value, headers=headers)
    builder.close()
    arrow_decoder = make_arrow_decoder(SCHEMA, 0, len(records))

    decoded = [*arrow_decoder.batches(builder.buffer(), ()), *arrow_decoder.flush()]

    table = pa.Table.from_batches(decoded)
    table.validate(full=True)
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [r[0] * 1000 for r in records]
    rows = table.select(["key", "value", "headers"]).to_pylist()
    pairs: list[Any] = [[{"key": k, "value": v} for k, v in r[3]] or None for r in records]
    assert [(r["key"], r["value"]) for r in rows] == [(r[1], r[2]) for r in records]
    assert [r["headers"] for r in rows] == pairs


@settings(max_examples=30)
@given(st.integers(0, 2**40).flatmap(lambda base: batches(base, _DATA)))
def test_kafka_python_decodes_built_batches(batch: Batch) -> None:
    """
    kafka-python decodes our builder's batches to the original records.
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
    decoded = MemoryRecords(batch.encode()).next_batch()
    assert [(r.timestamp, [(k.encode(), v) for k, v in r.headers]) for r in decoded] == list(
        zip(times, [list(r.headers) for r in batch.records], strict=True)
    )


def test_kafka_python_recognises_built_markers() -> None:
    """
    kafka-python recognises our markers as commits and aborts.
    """
    for abort in (True, False):
        read = MemoryRecords(marker(5, 9, abort=abort).encode()).next_batch()
        assert (read.is_control_batch, read.is_transactional, read.producer_id) == (True, True, 9)
        assert [(r.offset, r.abort, r.commit) for r in read] == [(5, abort, not abort)]


@pytest.mark.parametrize(("codec", "name"), [(LZ4, "lz4"), (ZSTD, "zstd"), (GZIP, "gzip")])
def test_codecs_agree_with_arrow(codec: int, name: str) -> None:
    """
    Arrow's codecs, which are independent of cramjam's, decompress our builder's data, and our
    decoder decompresses the data of Arrow's codecs.
    """
    plain = b"".join(b"%d," % i for i in range(50_000))
    arrow_codec = pa.Codec(name)

    assert arrow_codec.decompress(compress(plain, codec), len(plain)).to_pybytes() == plain

    batch = batch_of(Record(0, value=plain))
    body = batch.encode()[61:]
    packed = arrow_codec.compress(body).to_pybytes()
    assert _values_of(packed, codec) == [plain]


def test_raw_snappy_agrees_with_arrow() -> None:
    """
    Arrow and our decoder agree on snappy without framing, as librdkafka sends it.
    """
    plain = b"".join(b"%d," % i for i in range(50_000))
    arrow_codec = pa.Codec("snappy")

    assert arrow_codec.decompress(compress(plain, SNAPPY), len(plain)).to_pybytes() == plain
    body = batch_of(Record(0, value=plain)).encode()[61:]
    assert _values_of(arrow_codec.compress(body).to_pybytes(), SNAPPY) == [plain]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40, 491, 492, 5000])
def test_checksum_of_any_size(size: int) -> None:
    """
    Small batches are verified by our own code, which must agree with the library.
    """
    assert crc32c(b"123456789") == 0xE3069283
    batch = batch_of(Record(0, value=bytes(i * 7 % 256 for i in range(size))))
    arrow_decoder = make_arrow_decoder(SCHEMA, 0, 1)

    assert list(arrow_decoder.batches(batch.encode(), ())) == []
    assert arrow_decoder.done


def _values_of(payload: bytes, codec: int) -> list[bytes | None]:
    from tests.support.record_batches import with_payload

    arrow_decoder = make_arrow_decoder(pa.schema([("value", pa.binary())]), 0, 1)
    decoded = arrow_decoder.batches(with_payload(payload, 1, codec=codec), ())
    return [value for b in [*decoded, *arrow_decoder.flush()] for value in b.column(0).to_pylist()]
