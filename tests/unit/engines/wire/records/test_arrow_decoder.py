"""
Record batches to Arrow, held against a plain model of what a log means.
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
from tests.support.record_reading import columns_of, decoder

from pyspark_pykafka.engines.wire.records._decoder import next_offset
from pyspark_pykafka.schema import HEADERS, SOURCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.records.arrow_decoder import ArrowDecoder


_SETTINGS = settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def schemas(draw: st.DrawFn, *, text: bool) -> pa.Schema:
    """
    Return some of the columns in some order, keys and values as STRING or as BINARY.
    """
    names = draw(st.lists(st.sampled_from(list(SOURCE_TYPES)), min_size=1, unique=True))
    types = {**SOURCE_TYPES}
    if text:
        types |= {"key": pa.string(), "value": pa.string()}
    return pa.schema([pa.field(name, types[name]) for name in names])


@st.composite
def ranges(draw: st.DrawFn, log: Log) -> tuple[int, int]:
    """
    Return a start and an end that may lie before, in and behind a log.
    """
    low = max(log.batches[0].base_offset - 2, 0)
    start = draw(st.integers(low, log.end))
    return start, draw(st.integers(start, log.end + 3))


def answers(
    log: Log, start: int, cuts: Sequence[tuple[int, int]]
) -> list[tuple[list[Batch], bytes]]:
    """
    Cut a log into answers: some batches each, and a part of the next one behind them.
    """
    rest = [batch for batch in log.batches if batch.last_offset >= start]
    cut = []
    for count, partial in cycle(cuts):
        if not rest:
            return cut
        behind = rest[count].encode() if len(rest) > count else b""
        cut.append((rest[:count], behind[: min(partial, len(behind) - 1)] if behind else b""))
        rest = rest[count:]
    return cut


def read(
    columns: ArrowDecoder,
    end: int,
    log: Log,
    cut: list[tuple[list[Batch], bytes]] | None = None,
    *,
    committed: bool = False,
) -> list[pa.RecordBatch]:
    """
    Feed answers as a reader does, and spoil the memory of each as soon as it is used up.
    """
    found: list[pa.RecordBatch] = []
    for batches, partial in [(list(log.batches), b"")] if cut is None else cut:
        if columns.done:
            break
        first, last = batches[0].base_offset, batches[-1].last_offset
        records = bytearray(b"".join(batch.encode() for batch in batches) + partial)
        after = max(columns.position, last + 1)
        assert next_offset(records, columns.position) == after
        found += columns.batches(records, log.aborted(first, last) if committed else ())
        records[:] = b"\xaa" * len(records)
        assert columns.position == min(after, end)
    found += columns.flush()
    return found


def plain(column: pa.ChunkedArray) -> list[Any]:
    """
    Return a column's values; times as microseconds, since Python's have a smaller range.
    """
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


@_SETTINGS
@given(st.data(), st.booleans(), st.booleans())
def test_a_log_becomes_the_table_that_it_means(
    data: st.DataObject, text: bool, committed: bool
) -> None:
    """
    Whatever is in the log, and however it is cut into answers, each visible record is one row.
    """
    log = data.draw(logs(text=text))
    schema = data.draw(schemas(text=text))
    start, end = data.draw(ranges(log))
    cuts = data.draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1))
    max_records, max_bytes = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 5000)))
    columns = columns_of(schema, start, end, max_records=max_records, max_bytes=max_bytes)

    cut = answers(log, start, cuts)
    found = read(columns, end, log, cut, committed=committed)
    position, done = columns.position, columns.done
    del columns
    gc.collect(0)

    rows = list(log.visible(start, end, committed=committed))
    assert (position, done) == (min(end, max(start, log.end)), log.end >= end or start == end)
    table = pa.Table.from_batches(found, schema)
    table.validate(full=True)
    for name, values in expected(rows, schema.names).items():
        column = table.column(name)
        if column.type == pa.string() and name != "topic":
            column = column.cast(pa.binary())
        assert plain(column) == values, name
    lengths = [len(batch.bodies()[i]) for batch, i in rows]
    assert [batch.num_rows for batch in found] == batch_sizes(lengths, max_records, max_bytes)
    assert all(batch.validate(full=True) is None for batch in found)


def test_no_record_is_no_batch() -> None:
    """
    A range of which nothing is visible gives no batch at all.
    """
    columns = columns_of(pa.schema([("key", pa.binary())]), 0, 2)

    assert read(columns, 2, Log((marker(0, 1, abort=False), Batch(1, 5, ())), ())) == []
    assert columns.done


def test_record_larger_than_the_bound_comes_alone() -> None:
    """
    A record that alone exceeds the bound is a batch, and so are those on both its sides.
    """
    values = [b"a" * 10, b"b" * 200, b"c" * 10, b"d" * 10]
    batch = batch_of(*(Record(i, value=value) for i, value in enumerate(values)))
    columns = columns_of(pa.schema([("value", pa.binary())]), 0, 4, max_bytes=50)

    found = read(columns, 4, Log((batch,), ()))

    assert [b.column(0).to_pylist() for b in found] == [values[:1], values[1:2], values[2:]]


def test_headers_count_for_the_bound() -> None:
    """
    Headers fill a batch as well as values do, wanted or not: their ends are 32 bit numbers too.
    """
    headers = ((b"h" * 30, b"v" * 30),)
    batch = batch_of(*(Record(i, headers=headers) for i in range(5)))
    columns = columns_of(pa.schema([("headers", HEADERS)]), 0, 5, max_bytes=200)

    assert [b.num_rows for b in read(columns, 5, Log((batch,), ()))] == [2, 2, 1]


@pytest.mark.parametrize(("rows", "size"), [(0, 1), (-1, 1), (1, 0), (1, (1 << 30) + 1)])
def test_bounds_that_bound_nothing(rows: int, size: int) -> None:
    """
    Columns have 32 bit ends, so that a bound above 1 GiB is refused from the start.
    """
    with pytest.raises(ValueError, match="cannot bound a batch"):
        columns_of(pa.schema([("key", pa.binary())]), 0, 2, max_records=rows, max_bytes=size)


def test_text_that_is_no_utf8() -> None:
    """
    A STRING keeps the bytes as CAST does; a header's key is replaced in part, as Java does it.
    """
    headers = ((b"ok", b"\xff"), (b"caf\xe9", None))
    batch = batch_of(Record(0, key=b"\xff\xfe", headers=headers), Record(1))
    columns = columns_of(pa.schema([("key", pa.string()), ("headers", HEADERS)]), 0, 2)

    (found,) = read(columns, 2, Log((batch,), ()))

    assert found.column(0).cast(pa.binary()).to_pylist() == [b"\xff\xfe", None]
    assert found.column(1).validate(full=True) is None
    pairs = [{"key": "ok", "value": b"\xff"}, {"key": "caf\ufffd", "value": None}]
    assert found.column(1).to_pylist() == [pairs, None]


def test_arrays_outlive_the_reader() -> None:
    """
    An array keeps its memory when its siblings, the reader and the answer are gone.
    """
    values = [b"%d" % i * 50 for i in range(1000)]
    batch = batch_of(*(Record(i, key=b"k", value=v) for i, v in enumerate(values)))
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])

    (found,) = read(columns_of(schema, 0, 1000), 1000, Log((batch,), ()))
    array = found.column(1)
    del found
    gc.collect()
    read(columns_of(schema, 0, 1000), 1000, Log((batch,), ()))

    assert array.to_pylist() == values


def test_skipping_goes_forward_only() -> None:
    """
    A reader can be told that there is nothing before an offset, but not to go back.
    """
    reading = decoder(5, 10)

    positions = []
    for offset in (3, 7, 6, 99):
        reading.skip_to(offset)
        positions.append(reading.position)

    assert positions == [5, 7, 7, 10]
    assert reading.done


def test_reader_lets_go_of_an_answer() -> None:
    """
    The memory of an answer is free again when it is used up, and when there is a next one.
    """
    reading = decoder(0, 100)
    answer = bytearray(batch_of(Record(0)).encode())
    reading.feed(answer)
    with pytest.raises(BufferError, match="cannot be re-sized"):
        answer.clear()
    assert not reading.fill()
    answer.clear()
    assert not reading.fill()
