"""
The latest record of each key of a partition, found in two passes over the log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fetching import SCHEMA, settings

from pyspark_pykafka.engines.contract import BATCH_RECORDS
from pyspark_pykafka.errors import RecordError
from pyspark_pykafka.offsets import LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.source.latest_per_key import LatestOffsets, latest_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.engines.contract import FetchSettings

TP = TopicPartition("t", 0)
SETTINGS = settings("b:1", "wire", schema=SCHEMA)

#: A record: its offset, its key and its value.
Record = tuple[int, bytes | None, bytes | None]


@dataclass
class Log:
    """
    A partition that is read in batches of a few records, and that may change between two reads.
    """

    records: list[Record]
    batch: int = 3
    later: list[Record] | None = None
    reads: list[tuple[OffsetRange, list[str]]] = field(default_factory=list)

    def read(self, requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
        if self.reads and self.later is not None:
            self.records = self.later
        self.reads.append((requested, settings.schema.names))
        end = float("inf") if requested.end == LATEST else requested.end
        records = [r for r in self.records if requested.start <= r[0] < end]
        for start in range(0, len(records), self.batch):
            rows = [
                {"offset": offset, "key": key, "value": value, "topic": "t", "partition": 0}
                for offset, key, value in records[start : start + self.batch]
            ]
            yield pa.RecordBatch.from_pylist(rows, settings.schema)

    def latest(self, requested: OffsetRange | None = None) -> list[tuple[int, bytes, bytes]]:
        requested = requested or OffsetRange(TP, 0, LATEST)
        return [
            (row["offset"], row["key"], row["value"])
            for batch in latest_records(requested, SETTINGS, self.read)
            for row in batch.to_pylist()
        ]


records = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.binary(max_size=1),
        st.one_of(st.none(), st.binary(max_size=2)),
    ),
    max_size=40,
)


@given(records, st.integers(1, 7))
def test_each_key_has_its_latest_record(
    steps: list[tuple[int, bytes, bytes | None]], size: int
) -> None:
    """
    The rows are those of a dictionary that each record updates and each tombstone deletes from.
    """
    offset = 0
    log: list[Record] = []
    state: dict[bytes, Record] = {}
    for step, key, value in steps:
        offset += step
        log.append((offset, key, value))
        state[key] = (offset, key, value)
    expected = sorted((row for row in state.values() if row[2] is not None), key=itemgetter(0))

    assert Log(log, size).latest() == expected


@given(st.lists(st.binary(max_size=1), max_size=60), st.integers(0, 40))
def test_offsets_do_not_depend_on_how_often_keys_are_grouped(
    keys: list[bytes], memory: int
) -> None:
    """
    The offsets are the same if keys are grouped after each batch, now and then, or at the end.
    """
    latest = LatestOffsets(TP, memory)
    for offset, key in enumerate(keys):
        latest.add(pa.record_batch({"key": [key], "offset": [offset]}))

    expected = {key: offset for offset, key in enumerate(keys)}
    assert latest.offsets().to_pylist() == sorted(expected.values())


def test_the_first_pass_reads_keys_and_the_second_the_range_of_the_latest_records() -> None:
    """
    The first pass decodes no values, and the second skips the records before the first row.
    """
    log = Log([(1, b"a", b"1"), (2, b"a", b"2"), (3, b"b", b"3"), (7, b"c", None)])

    assert log.latest(OffsetRange(TP, 0, 9)) == [(2, b"a", b"2"), (3, b"b", b"3")]
    assert [(r.start, r.end) for r, _ in log.reads] == [(0, 9), (2, 8)]
    assert log.reads[0][1] == ["key", "offset"]


def test_an_empty_range_is_read_once() -> None:
    """
    Without records there is no second pass.
    """
    log = Log([])

    assert log.latest() == []
    assert len(log.reads) == 1


def test_only_the_requested_columns_are_returned() -> None:
    """
    The second pass reads offsets and values, but a read without these columns does not return them.
    """
    log = Log([(1, b"a", b"1"), (2, b"b", None)])
    keys = settings("b:1", "wire", schema=SCHEMA.empty_table().select(["key", "topic"]).schema)

    (batch,) = latest_records(OffsetRange(TP, 0, LATEST), keys, log.read)

    assert batch.to_pylist() == [{"key": b"a", "topic": "t"}]


def test_rows_of_many_batches_are_joined() -> None:
    """
    Rows from many batches are joined to batches of at most BATCH_RECORDS rows.
    """
    few = Log([(n, b"%d" % (n % 5), b"v") for n in range(10_000)], batch=100)
    many = Log([(n, b"%d" % n, b"v") for n in range(BATCH_RECORDS + 1)], batch=100)

    sizes = [
        [b.num_rows for b in latest_records(OffsetRange(TP, 0, LATEST), SETTINGS, log.read)]
        for log in (few, many)
    ]

    assert sizes == [[5], [BATCH_RECORDS, 1]]


def test_a_record_without_a_key_is_an_error() -> None:
    """
    A record without a key is an error that names the record.
    """
    log = Log([(1, b"a", b"1"), (5, None, b"2")])

    with pytest.raises(RecordError, match="offset 5 of t-0 has no key") as raised:
        log.latest()
    assert raised.value.condition == "LATEST_PER_KEY.RECORD_WITHOUT_KEY"


def test_records_that_compaction_removes_between_the_passes_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    A key whose record was removed has no row, and records after the range are not returned.
    """
    before: list[Record] = [(1, b"a", b"1"), (2, b"b", b"2"), (3, b"c", b"3"), (4, b"d", b"4")]
    log = Log(before, later=[(2, b"b", b"2"), (4, b"d", b"4"), (5, b"a", b"5"), (6, b"c", b"6")])

    with caplog.at_level(logging.WARNING):
        assert log.latest() == [(2, b"b", b"2"), (4, b"d", b"4")]
    assert "2 of the 4 latest records of t-0[1, 5) were removed" in caplog.text
