"""
The latest record of each key of a partition, found in two passes over the log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fetching import SCHEMA, settings
from tests.support.record_batches import Record as LogRecord
from tests.support.record_batches import batch_of
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.engines.contract import BATCH_RECORDS
from pyspark_pykafka.engines.log_truncation import LOG_TRUNCATED
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.consumer.topics import format_topic_id
from pyspark_pykafka.errors import DataLossError, RecordError
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_batch_source
from pyspark_pykafka.source.factory import fetch_settings
from pyspark_pykafka.source.latest_per_key import LatestPerKey, latest_records, range_in_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.engines.contract import FetchSettings

TP = TopicPartition("t", 0)
OUT_OF_RANGE, FENCED = 1, 74
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
            for batch in latest_records(requested, SETTINGS, self.read, unchanged)
            for row in batch.to_pylist()
        ]


def unchanged(requested: OffsetRange, _settings: FetchSettings) -> OffsetRange:
    return requested


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
    latest = LatestPerKey(TP, memory)
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

    (batch,) = latest_records(OffsetRange(TP, 0, LATEST), keys, log.read, unchanged)

    assert batch.to_pylist() == [{"key": b"a", "topic": "t"}]


def test_rows_of_many_batches_are_joined() -> None:
    """
    Rows from many batches are joined to batches of at most BATCH_RECORDS rows.
    """
    few = Log([(n, b"%d" % (n % 5), b"v") for n in range(10_000)], batch=100)
    many = Log([(n, b"%d" % n, b"v") for n in range(BATCH_RECORDS + 1)], batch=100)

    whole = OffsetRange(TP, 0, LATEST)
    sizes = [
        [b.num_rows for b in latest_records(whole, SETTINGS, log.read, unchanged)]
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


def test_records_that_are_removed_between_the_passes_are_logged(
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
    assert "(by compaction or retention)" in caplog.text


class Replaceable(Behaviour):
    """
    A partition of 1,000 records with four keys, in leader epoch ``epoch``.

    The first ``kept`` records are from an earlier epoch. Records before ``log_start`` are deleted.
    """

    def __init__(self, **attributes: Any) -> None:
        self.id = uuid4()
        self.epoch = 7
        self.kept = 1000
        self.log_start = 0
        self.requested_epoch = -1
        super().__init__(**attributes)

    def topic_id(self, _topic: str) -> UUID:
        return self.id

    def leader_epoch(self, _topic: str, _partition: int) -> int:
        return self.epoch

    def offsets(self, _node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        return 0, self.log_start if timestamp == EARLIEST else self.end(topic, partition)

    def epoch_end(self, _node: int, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        return epoch, self.end(topic, partition) if epoch == self.epoch else self.kept

    def fetch(self, _node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        end = self.end(topic, partition)
        if self.requested_epoch not in {-1, self.epoch}:
            return FetchAnswer(FENCED, -1)
        if not self.log_start <= offset <= end:
            return FetchAnswer(OUT_OF_RANGE, -1)
        numbers = range(offset, min(offset + 100, end))
        records = [LogRecord(number, key=b"%d" % (number % 4)) for number in numbers]
        content = batch_of(*records).encode() if records else b""
        return FetchAnswer(0, end, content, log_start=self.log_start)

    def _on_1(self, node: int, request: Any) -> Any:
        self.requested_epoch = request.topics[0].partitions[0].current_leader_epoch
        return super()._on_1(node, request)


def latest_offsets(
    stubs: StubCluster,
    engine: str,
    before_pass_2: Callable[[], None] = lambda: None,
    after_pass_1: Callable[[], None] = lambda: None,
    **changes: Any,
) -> list[int]:
    """
    Return the offsets of the latest records of a partition that changes between the passes.
    """
    passes = 0

    def read(requested: OffsetRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
        nonlocal passes
        passes += 1
        if passes == 2:
            before_pass_2()
        yield from fetch(requested, settings)
        if passes == 1:
            after_pass_1()

    fetch_settings = settings(stubs.bootstrap, engine, schema=SCHEMA, end_retry_ms=1, **changes)
    batches = latest_records(OffsetRange(TP, EARLIEST, LATEST), fetch_settings, read)
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_both_passes_read_the_range_as_it_was_at_first(engine: str) -> None:
    """
    Records that are written between the passes are not read.
    """
    with StubCluster(Replaceable()) as stubs:
        offsets = latest_offsets(stubs, engine, lambda: stubs.set(high_watermark=1100))

    assert offsets == [996, 997, 998, 999]


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_topic_that_is_recreated_between_the_passes_is_data_loss(engine: str) -> None:
    """
    Offsets of the deleted topic select no records of the new one.
    """
    with (
        StubCluster(Replaceable()) as stubs,
        pytest.raises(DataLossError, match="deleted or recreated"),
    ):
        latest_offsets(
            stubs,
            engine,
            after_pass_1=lambda: stubs.set(id=uuid4(), epoch=8),
            poll_timeout_ms=3000,
        )


def test_a_topic_that_is_recreated_in_the_second_pass_is_data_loss() -> None:
    """
    The wire engine compares topic ids in each response too.
    """
    with (
        StubCluster(Replaceable()) as stubs,
        pytest.raises(DataLossError, match="deleted or recreated"),
    ):
        latest_offsets(stubs, "wire", lambda: stubs.set(id=uuid4(), epoch=8), poll_timeout_ms=1000)


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_topic_that_is_recreated_before_the_first_pass_is_data_loss(engine: str) -> None:
    """
    The offsets of the new topic are not taken for those of the planned one.
    """
    with StubCluster(Replaceable()) as stubs:
        planned = OffsetRange(TP, EARLIEST, LATEST, format_topic_id(stubs.get("id")))
        stubs.set(id=uuid4(), epoch=8)
        fetch_settings = settings(
            stubs.bootstrap, engine, schema=SCHEMA, end_retry_ms=1, poll_timeout_ms=1000
        )
        with pytest.raises(DataLossError, match="deleted or recreated"):
            list(latest_records(planned, fetch_settings))


class Shorter(Replaceable):
    """
    A topic that is recreated with ``new_end`` records when its end is requested.
    """

    new_end = 0

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        if self.high_watermark != self.new_end:
            self.id, self.high_watermark = uuid4(), self.new_end
        return super().offsets(node, topic, partition, timestamp)


@pytest.mark.parametrize(("start", "new_end"), [(500, 100), (EARLIEST, 0)])
@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_new_topic_without_records_of_the_range_is_data_loss(
    engine: str, start: int, new_end: int
) -> None:
    """
    If the topic is recreated while the range is looked up, and the new topic has no record of the
    range, the loss of the planned topic is reported.
    """
    with StubCluster(Shorter(new_end=new_end)) as stubs:
        planned = OffsetRange(TP, start, LATEST, format_topic_id(stubs.get("id")))
        fetch_settings = settings(
            stubs.bootstrap, engine, schema=SCHEMA, end_retry_ms=1, poll_timeout_ms=1000
        )
        with pytest.raises(DataLossError, match="deleted or recreated"):
            list(latest_records(planned, fetch_settings))


def test_an_allowed_recreation_gives_no_rows(caplog: pytest.LogCaptureFixture) -> None:
    """
    With failOnDataLoss=false the loss is logged.
    """
    with StubCluster(Replaceable()) as stubs, caplog.at_level(logging.WARNING):
        offsets = latest_offsets(
            stubs,
            "librdkafka",
            after_pass_1=lambda: stubs.set(id=uuid4(), epoch=8),
            fail_on_data_loss=False,
            poll_timeout_ms=3000,
        )

    assert offsets == []
    assert "the topic was deleted or recreated" in caplog.text


def test_a_log_that_is_truncated_between_the_passes_is_data_loss() -> None:
    """
    Offsets that were seen before the truncation select no records that replaced them.
    """
    with StubCluster(Replaceable()) as stubs:
        with pytest.raises(DataLossError, match="ends at offset 998 now") as raised:
            latest_offsets(stubs, "wire", lambda: stubs.set(epoch=8, kept=998))
        assert raised.value.condition == LOG_TRUNCATED


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_start_that_is_removed_between_the_passes_is_data_loss(engine: str) -> None:
    """
    If retention deletes the first of the latest records, the read fails unless the loss is allowed.
    """
    with StubCluster(Replaceable()) as stubs:
        with pytest.raises(DataLossError, match="offset 996 is out of range|now starts at"):
            latest_offsets(stubs, engine, lambda: stubs.set(log_start=998))
        stubs.set(log_start=0)
        allowed = latest_offsets(
            stubs, engine, lambda: stubs.set(log_start=998), fail_on_data_loss=False
        )

    assert allowed == [998, 999]


def test_the_range_has_the_topic_id_and_the_leader_epoch_of_its_end() -> None:
    """
    A range beyond the log's end has no epoch: the log up to there was not seen.
    """
    with StubCluster(Replaceable(log_start=5)) as stubs:
        fetch_settings = settings(stubs.bootstrap, "wire")
        topic_id = format_topic_id(stubs.get("id"))

        def in_log(start: int, end: int) -> OffsetRange:
            return range_in_log(OffsetRange(TP, start, end), fetch_settings)

        assert in_log(EARLIEST, LATEST) == OffsetRange(TP, 5, 1000, topic_id, end_epoch=7)
        assert in_log(7, 9) == OffsetRange(TP, 7, 9, topic_id, end_epoch=7)
        assert in_log(7, 1001) == OffsetRange(TP, 7, 1001, topic_id)


@pytest.mark.parametrize("tp", [TopicPartition("missing", 0), TopicPartition("t", 1)])
def test_a_range_of_a_missing_partition_is_left_to_the_engine(tp: TopicPartition) -> None:
    """
    The engine reports a partition that no longer exists, so the range is not changed.
    """
    requested = OffsetRange(tp, EARLIEST, LATEST)
    with StubCluster(Replaceable()) as stubs:
        assert range_in_log(requested, settings(stubs.bootstrap, "wire")) == requested


@pytest.mark.parametrize(
    "rack", [{"kafka.client.rack": "zone-1"}, {"clientRackEnv": "NODE_ZONE"}], ids=min
)
@pytest.mark.parametrize("latest_per_key", [True, False])
def test_only_leaders_are_read(rack: dict[str, str], *, latest_per_key: bool) -> None:
    """
    A rack has no effect: replicas are compacted at different times, so one of them may return an
    older record of a deleted key.
    """
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", **rack}
    source = parse_batch_source({**options, "latestPerKey": str(latest_per_key)})

    of_task = fetch_settings(source, SCHEMA)

    has_rack = of_task.rack_source is not None or of_task.kafka.get("client.rack") is not None
    assert has_rack != latest_per_key
    assert of_task.kafka.get("bootstrap.servers") == "b:1"
