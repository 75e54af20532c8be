"""
Decoding of record batches to Arrow, compared with a plain model of a log.
"""

from __future__ import annotations

import gc
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.record_batches import Batch, Record, batch_of, marker
from tests.support.record_model import Log, batch_sizes, expected, logs
from tests.support.record_reading import decoder, make_arrow_decoder

from pyspark_pykafka.engines.wire.records._decoder import next_offset
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES, TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder


_SETTINGS = settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def schemas(draw: st.DrawFn, *, text: bool) -> pa.Schema:
    """
    Return some columns in any order, with keys and values as STRING or as BINARY.
    """
    names = draw(st.lists(st.sampled_from(list(SOURCE_TYPES)), min_size=1, unique=True))
    types = {**SOURCE_TYPES}
    if text:
        types |= {"key": pa.string(), "value": pa.string()}
    return pa.schema([pa.field(name, types[name]) for name in names])


@st.composite
def ranges(draw: st.DrawFn, log: Log) -> tuple[int, int]:
    """
    Return a start and an end, which may be before, in or after a log.
    """
    min_start = max(log.batches[0].base_offset - 2, 0)
    start = draw(st.integers(min_start, log.end))
    return start, draw(st.integers(start, log.end + 3))


def responses(
    log: Log, start: int, cuts: Sequence[tuple[int, int]]
) -> list[tuple[list[Batch], bytes]]:
    """
    Split a log into responses: some batches each, then a part of the next batch.
    """
    remaining = [batch for batch in log.batches if batch.last_offset >= start]
    parts: list[tuple[list[Batch], bytes]] = []
    for count, partial in cycle(cuts):
        if not remaining:
            return parts
        next_batch = remaining[count].encode() if len(remaining) > count else b""
        parts.append(
            (
                remaining[:count],
                next_batch[: min(partial, len(next_batch) - 1)] if next_batch else b"",
            )
        )
        remaining = remaining[count:]
    return parts


def read(
    arrow_decoder: ArrowDecoder,
    end: int,
    log: Log,
    parts: list[tuple[list[Batch], bytes]] | None = None,
    *,
    committed: bool = False,
) -> list[pa.RecordBatch]:
    """
    Feed responses as a reader does, and overwrite the memory of each after use.
    """
    decoded: list[pa.RecordBatch] = []
    for batches, partial in [(list(log.batches), b"")] if parts is None else parts:
        if arrow_decoder.done:
            break
        first, last = batches[0].base_offset, batches[-1].last_offset
        records = memoryview(bytearray(b"".join(batch.encode() for batch in batches) + partial))
        after = max(arrow_decoder.position, last + 1)
        assert next_offset(records, arrow_decoder.position) == after
        decoded += arrow_decoder.batches(records, log.aborted(first, last) if committed else ())
        records[:] = b"\xaa" * len(records)
        assert arrow_decoder.position == min(after, end)
    decoded += arrow_decoder.flush()
    return decoded


def plain(column: pa.ChunkedArray) -> list[Any]:
    """
    Return a column's values; times as microseconds, since Python's have a smaller range.
    """
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


@_SETTINGS
@given(st.data(), st.booleans(), st.booleans())
def test_each_visible_record_is_one_row(data: st.DataObject, text: bool, committed: bool) -> None:
    """
    For any log, split into any responses, each visible record is one row.
    """
    log = data.draw(logs(text=text))
    schema = data.draw(schemas(text=text))
    start, end = data.draw(ranges(log))
    cuts = data.draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1))
    max_records, max_bytes = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 5000)))
    arrow_decoder = make_arrow_decoder(
        schema, start, end, max_records=max_records, max_bytes=max_bytes
    )

    parts = responses(log, start, cuts)
    batches = read(arrow_decoder, end, log, parts, committed=committed)
    position, done = arrow_decoder.position, arrow_decoder.done
    del arrow_decoder
    gc.collect(0)

    rows = list(log.visible(start, end, committed=committed))
    assert (position, done) == (min(end, max(start, log.end)), log.end >= end or start == end)
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    for name, values in expected(rows, schema.names).items():
        column = table.column(name)
        if column.type == pa.string() and name != "topic":
            column = column.cast(pa.binary())
        assert plain(column) == values, name
    lengths = [len(batch.bodies()[i]) for batch, i in rows]
    assert [batch.num_rows for batch in batches] == batch_sizes(lengths, max_records, max_bytes)
    assert all(batch.validate(full=True) is None for batch in batches)


def test_range_without_visible_records_has_no_batch() -> None:
    """
    A range without visible records yields no batch.
    """
    arrow_decoder = make_arrow_decoder(pa.schema([("key", pa.binary())]), 0, 2)

    assert read(arrow_decoder, 2, Log((marker(0, 1, abort=False), Batch(1, 5, ())), ())) == []
    assert arrow_decoder.done


def test_record_larger_than_the_limit_is_a_batch() -> None:
    """
    A record that exceeds the limit is a batch by itself, between the batches before and after it.
    """
    values = [b"a" * 10, b"b" * 200, b"c" * 10, b"d" * 10]
    batch = batch_of(*(Record(i, value=value) for i, value in enumerate(values)))
    arrow_decoder = make_arrow_decoder(pa.schema([("value", pa.binary())]), 0, 4, max_bytes=50)

    batches = read(arrow_decoder, 4, Log((batch,), ()))

    assert [b.column(0).to_pylist() for b in batches] == [values[:1], values[1:2], values[2:]]


def test_headers_count_towards_the_limit() -> None:
    """
    Headers count towards the size of a batch, because their Arrow arrays have 32-bit offsets, too.
    """
    headers = ((b"h" * 30, b"v" * 30),)
    batch = batch_of(*(Record(i, headers=headers) for i in range(5)))
    arrow_decoder = make_arrow_decoder(pa.schema([("headers", HEADERS)]), 0, 5, max_bytes=200)

    assert [b.num_rows for b in read(arrow_decoder, 5, Log((batch,), ()))] == [2, 2, 1]


@pytest.mark.parametrize(("rows", "size"), [(0, 1), (-1, 1), (1, 0), (1, (1 << 30) + 1)])
def test_invalid_limits_are_refused(rows: int, size: int) -> None:
    """
    Columns have 32-bit offsets, so a limit above 1 GiB is refused at construction.
    """
    with pytest.raises(ValueError, match="cannot bound a batch"):
        make_arrow_decoder(
            pa.schema([("key", pa.binary())]), 0, 2, max_records=rows, max_bytes=size
        )


def test_invalid_utf8() -> None:
    """
    A STRING keeps invalid UTF-8, as CAST does; in a header key it is replaced, as in Java.
    """
    headers = ((b"ok", b"\xff"), (b"caf\xe9", None))
    batch = batch_of(Record(0, key=b"\xff\xfe", headers=headers), Record(1))
    arrow_decoder = make_arrow_decoder(
        pa.schema([("key", pa.string()), ("headers", HEADERS)]), 0, 2
    )

    (decoded,) = read(arrow_decoder, 2, Log((batch,), ()))

    assert decoded.column(0).cast(pa.binary()).to_pylist() == [b"\xff\xfe", None]
    assert decoded.column(1).validate(full=True) is None
    pairs = [{"key": "ok", "value": b"\xff"}, {"key": "caf\ufffd", "value": None}]
    assert decoded.column(1).to_pylist() == [pairs, None]


def test_arrays_outlive_the_decoder() -> None:
    """
    An array stays valid after its batch, the decoder and the response are freed.
    """
    values = [b"%d" % i * 50 for i in range(1000)]
    batch = batch_of(*(Record(i, key=b"k", value=v) for i, v in enumerate(values)))
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])

    (decoded,) = read(make_arrow_decoder(schema, 0, 1000), 1000, Log((batch,), ()))
    array = decoded.column(1)
    del decoded
    gc.collect()
    read(make_arrow_decoder(schema, 0, 1000), 1000, Log((batch,), ()))

    assert array.to_pylist() == values


@pytest.mark.parametrize("log_append_time", [None, 2**63 - 1])
def test_timestamps_in_milliseconds_are_those_of_the_records(log_append_time: int | None) -> None:
    """
    In milliseconds every timestamp can be read, also those that microseconds cannot hold.
    """
    times = [2**62, -(2**63), 2**63 - 1, -1, 0]
    records = [Record(offset, time) for offset, time in enumerate(times)]
    batch = batch_of(*records, log_append_time=log_append_time)
    schema = pa.schema([("timestamp", TIMESTAMP_MS)])

    (decoded,) = read(make_arrow_decoder(schema, 0, 5), 5, Log((batch,), ()))

    assert decoded.column(0).to_pylist() == (
        times if log_append_time is None else [log_append_time] * 5
    )


def test_skipping_goes_forward_only() -> None:
    """
    skip_to() moves the position forward, never back.
    """
    record_decoder = decoder(5, 10)

    positions = []
    for offset in (3, 7, 6, 99):
        record_decoder.skip_to(offset)
        positions.append(record_decoder.position)

    assert positions == [5, 7, 7, 10]
    assert record_decoder.done


def test_decoder_releases_a_response() -> None:
    """
    The memory of a response is released when it has been decoded.
    """
    record_decoder = decoder(0, 100)
    response = bytearray(batch_of(Record(0)).encode())
    record_decoder.feed(response)
    with pytest.raises(BufferError, match="cannot be re-sized"):
        response.clear()
    assert not record_decoder.fill()
    response.clear()
    assert not record_decoder.fill()


def test_constant_columns_are_shared_by_batches() -> None:
    """
    Batches with slightly more rows than the first one use its topic and partition columns.
    """
    schema = pa.schema([pa.field(name, SOURCE_TYPES[name]) for name in ("topic", "partition")])
    sizes = [100] * 32 + [95] * 68
    records = [Record(offset, value=b"v" * size) for offset, size in enumerate(sizes)]
    arrow_decoder = make_arrow_decoder(schema, 0, len(records), max_bytes=32 * 110)

    first, second, *_ = arrow_decoder.batches(batch_of(*records).encode(), ())

    assert first.num_rows < second.num_rows
    for column, later in zip(first.columns, second.columns, strict=True):
        assert column.buffers()[1].address == later.buffers()[1].address
        assert later.to_pylist() == [later[0].as_py()] * second.num_rows
