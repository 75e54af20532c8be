"""
Decoders of record batches for tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from tests.support.record_model import PARTITION, TOPIC

from pyspark_pykafka.engines.wire.records._decoder import RecordDecoder
from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder
from pyspark_pykafka.engines.wire.records.compression import Decompressor
from pyspark_pykafka.offsets import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

ALL_COLUMNS = frozenset({"key", "value", "offset", "timestamp", "timestampType", "headers"})


def make_arrow_decoder(
    schema: pa.Schema, start: int, end: int, *, max_records: int = 1000, max_bytes: int = 1 << 20
) -> ArrowDecoder:
    """
    Return an ArrowDecoder for the offsets ``[start, end)``; it decompresses at most 1 MiB.
    """
    return ArrowDecoder.of_range(
        TopicPartition(TOPIC, PARTITION),
        start,
        end,
        schema,
        Decompressor(1 << 20),
        max_records=max_records,
        max_bytes=max_bytes,
        check_crcs=True,
    )


def decoder(start: int = 0, end: int = 100, columns: frozenset[str] = ALL_COLUMNS) -> RecordDecoder:
    """
    Return a RecordDecoder that verifies checksums and decompresses.
    """
    return RecordDecoder(columns, start, end, crc32c, Decompressor(1 << 20), 1000, 1 << 20)


def rows_before(error: type[Exception], records: bytes, match: str, start: int = 0) -> int:
    """
    Return the number of records before an error, which must be raised again on the next call.
    """
    record_decoder = decoder(start)
    record_decoder.feed(records)
    for _ in range(2):
        with pytest.raises(error, match=match):
            record_decoder.fill()
    rows, *columns = record_decoder.take()
    assert all(column[0] == rows for column in columns if isinstance(column, tuple))
    return rows
