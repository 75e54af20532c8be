"""
Malformed records: each raises an error with its offset, and none is skipped.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.support.record_batches import Record, batch_of, compress, span, varint, with_payload
from tests.support.record_reading import make_arrow_decoder, rows_before

from pyspark_pykafka.engines.wire.records._decoder import MalformedBatch
from pyspark_pykafka.schema import HEADERS


def record(
    *,
    length: int | None = None,
    time: bytes = varint(0),
    delta: bytes = varint(0),
    key: bytes = span(b"k"),
    value: bytes = span(b"v"),
    headers: bytes = varint(0),
) -> bytes:
    """
    Return a record of arbitrary parts; its length is correct unless given.
    """
    body = b"\0" + time + delta + key + value + headers
    return varint(len(body) if length is None else length) + body


ONE = record()

SCHEMA = pa.schema([("key", pa.binary()), ("headers", HEADERS)])

LIES = {
    "no length": (b"", "length"),
    "length 0": (record(length=0), "length"),
    "length -1": (record(length=-1), "length"),
    "length of the least number": (record(length=-(2**31)), "length"),
    "length beyond the batch": (record(length=len(ONE)), "length"),
    "length of 2 GiB": (record(length=2**31 - 1), "length"),
    "length of more than 32 bits": (record(length=2**40), "length"),
    "length in 11 bytes": (b"\x80" * 10 + b"\x01" + b"\0" * 40, "length"),
    "length that does not end": (b"\xff" * 3, "length"),
    "length of its attributes alone": (varint(1) + b"\0", "ends inside its numbers"),
    "length one too small": (
        record(length=len(ONE) - 2),
        "is the last one of a batch that goes on",
    ),
    "time in 11 bytes": (record(time=b"\x80" * 10 + b"\x01"), "ends inside its numbers"),
    "delta in 11 bytes": (record(delta=b"\x80" * 10 + b"\x01"), "ends inside its numbers"),
    "delta beyond 32 bits": (record(delta=varint(2**31)), "ends inside its numbers"),
    "delta beyond the last": (record(delta=varint(1)), "1 offsets from"),
    "delta of the most": (record(delta=varint(2**31 - 1)), "2147483647 offsets from"),
    "negative delta": (record(delta=varint(-1)), "-1 offsets from"),
    "key of -2": (record(key=varint(-2)), "key or value"),
    "key beyond the record": (record(key=varint(100) + b"k"), "key or value"),
    "key of 2 GiB": (record(key=varint(2**31 - 1)), "key or value"),
    "key of more than 32 bits": (record(key=varint(2**62)), "key or value"),
    "value of -2": (record(value=varint(-2)), "key or value"),
    "value beyond the record": (record(value=varint(4) + b"v"), "key or value"),
    "no value": (varint(4) + b"\0\0\0\1", "key or value"),
    "no number of headers": (record(headers=b""), "number of headers"),
    "-1 headers": (record(headers=varint(-1)), "number of headers"),
    "2 Gi headers": (record(headers=varint(2**31 - 1)), "number of headers"),
    "one header too many": (record(headers=varint(2) + span(b"h") + span(b"")), "header key"),
    "one header too few": (
        record(headers=varint(1) + 2 * (span(b"h") + span(b""))),
        "goes on after its last header",
    ),
    "a byte after the headers": (record(headers=varint(0) + b"\0"), "goes on after"),
    "header key of null": (record(headers=varint(1) + span(None) + span(b"")), "header key"),
    "header key beyond": (record(headers=varint(1) + varint(9) + b"h\1"), "header key"),
    "header value of -2": (record(headers=varint(1) + span(b"h") + varint(-2)), "header value"),
    "header value beyond": (
        record(headers=varint(1) + span(b"h") + varint(9) + b"v"),
        "header value",
    ),
}


@pytest.mark.parametrize(("payload", "match"), LIES.values(), ids=LIES)
@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
def test_malformed_record(payload: bytes, match: str, codec: int) -> None:
    """
    A record with impossible numbers raises an error with its offset, compressed or not.
    """
    batch = with_payload(compress(payload, codec), 1, codec=codec)

    assert rows_before(MalformedBatch, batch, f"^offset 0: a record .*{match}") == 0


def test_records_before_a_malformed_one_are_kept() -> None:
    """
    Records before a malformed one are complete in every column; nothing of the malformed one is.
    """
    good = varint(2) + span(b"h") + span(b"1") + span(b"i") + span(None)
    bad = varint(3) + span(b"j") + span(None) + span(b"k") + span(b"2") + span(b"l") + varint(-2)
    payload = record(headers=good) + record(delta=varint(1), headers=bad)
    arrow_decoder = make_arrow_decoder(SCHEMA, 0, 10)

    with pytest.raises(MalformedBatch, match="^offset 1: a record has a header value"):
        list(arrow_decoder.batches(with_payload(payload, 2, last_delta=5), ()))
    (decoded,) = arrow_decoder.flush()

    assert decoded.validate(full=True) is None
    assert decoded.to_pylist() == [
        {"key": b"k", "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]}
    ]
    assert arrow_decoder.position == 1


def test_decoding_continues_after_an_error() -> None:
    """
    After an error, the next response is decoded into consistent columns.
    """
    bad = varint(2) + span(b"j") + span(None) + span(b"k") + varint(-2)
    malformed = with_payload(record(headers=bad), 1)
    arrow_decoder = make_arrow_decoder(SCHEMA, 0, 10)
    with pytest.raises(MalformedBatch, match="^offset 0: "):
        list(arrow_decoder.batches(malformed, ()))

    assert (
        list(arrow_decoder.batches(batch_of(Record(0, headers=((b"m", b"3"),))).encode(), ())) == []
    )
    (decoded,) = arrow_decoder.flush()

    assert decoded.validate(full=True) is None
    assert decoded.column(1).to_pylist() == [[{"key": "m", "value": b"3"}]]


@pytest.mark.parametrize(("second", "offset"), [(0, 3), (2, 3)], ids=["smaller", "same"])
def test_offsets_must_increase(second: int, offset: int) -> None:
    """
    Within a batch, the offset of each record must be larger than the previous one.
    """
    payload = record(delta=varint(2)) + record(delta=varint(second))
    batch = with_payload(payload, 2, last_delta=5)

    match = f"^offset {offset}: a record says it has offset {second}, which is not the next"
    assert rows_before(MalformedBatch, batch, match) == 1
