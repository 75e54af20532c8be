"""
Header keys of any bytes: both engines return equal headers, or the engine librdkafka fails with an
error that names the record.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from kafka.record import MemoryRecordsBuilder
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.records.checksum import crc32c
from pyspark_pykafka.errors import RecordError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = TopicPartition("t", 0)
PLACEHOLDER = "zzzz"
CRC, ATTRIBUTES = 17, 21
#: The records before the tested one: enough for the interpreter to specialize the calls.
EARLIER_RECORDS = 100

UTF8 = [b"four", "Zoë".encode(), "ab\u0301".encode(), "\U0001f680".encode()]
NOT_UTF8 = [b"\xff\xfe\xfd\xfc", b"ab\xc3(", b"a\xed\xa0\x80", b"abc\xc3"]


def batch_with(key: bytes, offset: int) -> bytes:
    """
    Return a batch of one record at an offset, whose header has this key of four bytes.
    """
    assert len(key) == len(PLACEHOLDER)
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 16, offset=0)
    builder.append(timestamp=1_700_000_000_000, key=None, value=b"v", headers=[(PLACEHOLDER, b"x")])
    builder.close()
    batch = bytearray(builder.buffer())
    position = batch.index(PLACEHOLDER.encode())
    batch[position : position + len(key)] = key
    struct.pack_into(">q", batch, 0, offset)
    struct.pack_into(">I", batch, CRC, crc32c(memoryview(batch)[ATTRIBUTES:]))
    return bytes(batch)


@pytest.fixture(scope="module")
def stubs() -> Iterator[StubCluster]:
    """
    Return a cluster whose topic has one partition.
    """
    with StubCluster(Behaviour()) as cluster:
        yield cluster


def headers(stubs: StubCluster, key: bytes, engine: str) -> list[Any]:
    """
    Return the headers of a record with this header key, read after other records.
    """
    earlier = [batch_with(b"four", offset) for offset in range(EARLIER_RECORDS)]
    stubs.set(logs={T0: [*earlier, batch_with(key, EARLIER_RECORDS)]})
    settings = fetching.settings(stubs.bootstrap, engine)
    batches = fetch(OffsetRange(T0, 0, EARLIER_RECORDS + 1), settings)
    return [row for batch in batches for row in batch["headers"].to_pylist()][EARLIER_RECORDS:]


@pytest.mark.parametrize("key", UTF8)
def test_engines_agree_on_keys_in_utf8(stubs: StubCluster, key: bytes) -> None:
    """
    Both engines return a key in UTF-8 as it is.
    """
    expected = [[{"key": key.decode(), "value": b"x"}]]

    assert headers(stubs, key, "wire") == expected
    assert headers(stubs, key, "librdkafka") == expected


@pytest.mark.parametrize("key", NOT_UTF8)
def test_a_key_that_is_not_utf8(stubs: StubCluster, key: bytes) -> None:
    """
    The engine wire replaces invalid bytes, as Java's client does; librdkafka's client returns no
    such header, so that engine fails with an error that names the record and the other engine.
    """
    ((header,),) = headers(stubs, key, "wire")

    assert "\N{REPLACEMENT CHARACTER}" in header["key"]
    with pytest.raises(RecordError, match="t-0 at offset 100 .*not UTF-8; set engine to wire"):
        headers(stubs, key, "librdkafka")
