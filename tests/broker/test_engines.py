"""
The contract of both engines for reading an offset range, without Spark: one suite for both.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from tests.support.fetching import SCHEMA, settings

from pyspark_pykafka.engines.contract import BATCH_RECORDS
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    DataLossError,
    OffsetsError,
    TimeoutExceededError,
)
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.testing import KafkaCluster, Record

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINES = ("wire", "librdkafka")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """
    Return the name of each engine in turn.
    """
    return str(request.param)


@pytest.fixture
def batches(kafka_cluster: KafkaCluster, engine: str) -> Callable[..., list[pa.RecordBatch]]:
    """
    Return a function that reads a range of partition 0 with the engine under test.
    """

    def reading(
        topic: str, start: int = EARLIEST, end: int = LATEST, **changes: Any
    ) -> list[pa.RecordBatch]:
        offset_range = OffsetRange(TopicPartition(topic, 0), start, end)
        return list(fetch(offset_range, settings(kafka_cluster.bootstrap, engine, **changes)))

    return reading


@pytest.fixture
def read(batches: Callable[..., list[pa.RecordBatch]]) -> Callable[..., list[dict[str, Any]]]:
    """
    Return a function that reads a range of partition 0 as rows, and validates the Arrow table that
    all batches of the range make up.
    """

    def reading(*args: Any, **changes: Any) -> list[dict[str, Any]]:
        decoded = batches(*args, **changes)
        table = pa.Table.from_batches(decoded, changes.get("schema", SCHEMA))
        table.validate(full=True)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    return reading


def test_records_are_read_completely(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    Keys, values, headers and timestamps are read as written; null and empty stay distinct.
    """
    name = topic()
    headers = (("a", b"1"), ("a", b""), ("", None))
    kafka_cluster.produce(
        name,
        [
            Record(b"v", b"k", 0, 1_700_000_000_123, headers),
            Record(None, b"", 0, 1, ()),
            Record(b"", None, 0, 2**40, (("x", b"\xff" * 300),)),
        ],
    )

    rows = read(name)

    assert [(r["key"], r["value"]) for r in rows] == [(b"k", b"v"), (b"", None), (None, b"")]
    assert [r["headers"] for r in rows] == [
        [{"key": k, "value": v} for k, v in headers],
        None,
        [{"key": "x", "value": b"\xff" * 300}],
    ]
    assert [r["timestamp"].timestamp() for r in rows] == [1_700_000_000.123, 0.001, 2**40 / 1000]
    assert [r["offset"] for r in rows] == [0, 1, 2]
    assert {(r["topic"], r["partition"], r["timestampType"]) for r in rows} == {(name, 0, 0)}


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 17), (99, 100), (0, 100), (50, 50)])
def test_only_the_range_is_read(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
    start: int,
    end: int,
) -> None:
    """
    No record outside [start, end) is returned, although record batches lie across both ends.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"%d" % i) for i in range(100)])

    assert [r["offset"] for r in read(name, start, end)] == list(range(start, end))


def test_only_requested_columns_are_read(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    Columns are returned in the order of the schema; keys and values can be text.
    """
    name = topic()
    kafka_cluster.produce(name, [Record("ä".encode(), b"k")])
    schema = pa.schema([("offset", pa.int64()), ("value", pa.string())])

    assert read(name, schema=schema) == [{"offset": 0, "value": "ä"}]


def test_batches_are_bounded(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    batches: Callable[..., list[pa.RecordBatch]],
) -> None:
    """
    Arrow batches have a maximum of records and of bytes, except for a single larger record.
    """
    name = topic()
    small = [Record(b"x")] * (BATCH_RECORDS + 500)
    large = [Record(b"y" * 300_000)] * 20
    kafka_cluster.produce(name, [*small, *large])

    decoded = batches(name, memory_bytes=4 << 20)

    assert sum(b.num_rows for b in decoded) == len(small) + len(large)
    assert max(b.num_rows for b in decoded) <= BATCH_RECORDS
    assert len(decoded) > 2


def test_record_larger_than_a_fetch_is_read(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    A record larger than the fetch size is read.
    """
    name = topic()
    values = [b"a", b"b" * 9_000_000, b"c"]
    kafka_cluster.produce(name, [Record(v) for v in values])

    assert [r["value"] for r in read(name, memory_bytes=1 << 20)] == values


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
    codec: str,
) -> None:
    """
    Record batches are read, whether the producer has compressed them or the broker.
    """
    values = [b"%d" % i * 50 for i in range(500)]
    by_client, by_broker = topic(), topic(compression_type=codec)
    kafka_cluster.produce(by_client, [Record(v) for v in values], {"compression.type": codec})
    kafka_cluster.produce(by_broker, [Record(v) for v in values])

    for name in (by_client, by_broker):
        assert [r["value"] for r in read(name, 7, 493)] == values[7:493]


def test_log_append_time_is_read(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    If the broker sets the timestamp, all records of a batch have it, with its timestamp type.
    """
    name = topic(message_timestamp_type="LogAppendTime")
    before = time.time() - 60
    kafka_cluster.produce(name, [Record(b"x", timestamp=5)] * 3)

    rows = read(name)

    assert {r["timestampType"] for r in rows} == {1}
    assert all(r["timestamp"].timestamp() > before for r in rows)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    settled: Callable[[str], None],
    read: Callable[..., list[dict[str, Any]]],
    isolation: str,
) -> None:
    """
    Aborted records are returned under read_uncommitted only.
    """
    name = topic()
    writers = [transactional(kafka_cluster, f"{name}-{i}") for i in range(3)]
    for step in range(6):
        for number, writer in enumerate(writers):
            writer.begin_transaction()
            write(writer, name, f"{number}-{step}-first")
        for number, writer in enumerate(writers):
            write(writer, name, f"{number}-{step}-second")
            end = writer.abort_transaction if (number + step) % 3 else writer.commit_transaction
            end(30)
    settled(name)

    values = [r["value"].decode() for r in read(name, isolation_level=isolation)]

    expected = [
        f"{number}-{step}-{part}"
        for step in range(6)
        for part in ("first", "second")
        for number in range(3)
        if isolation == "read_uncommitted" or not (number + step) % 3
    ]
    assert values == expected


def transactional(cluster: KafkaCluster, name: str) -> Producer:
    """
    Return a producer that is ready for transactions.
    """
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(30)
    return producer


def write(producer: Producer, topic: str, value: str) -> None:
    """
    Write one value and wait for its acknowledgement.
    """
    producer.produce(topic, value=value, partition=0)
    assert producer.flush(30) == 0


def test_range_that_ends_in_hidden_records(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    settled: Callable[[str], None],
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    A range whose last offsets are aborted records and transaction markers ends without a wait.
    """
    name = topic()
    writer = transactional(kafka_cluster, name)
    writer.begin_transaction()
    write(writer, name, "seen")
    writer.commit_transaction(30)
    writer.begin_transaction()
    write(writer, name, "hidden")
    writer.abort_transaction(30)
    settled(name)

    for end in (2, 3, 4, LATEST):
        rows = read(name, 0, end, isolation_level="read_committed")
        assert [r["value"] for r in rows] == [b"seen"]
    assert read(name, 2, 4, isolation_level="read_committed") == []


def test_aged_out_start_is_data_loss(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Offsets before the log start are reported as data loss, or logged and skipped.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"%d" % i) for i in range(50)])
    age_out(kafka_cluster, name, 30)

    rows = read(name, 10, 40, fail_on_data_loss=False)

    assert [r["offset"] for r in rows] == list(range(30, 40))
    assert "Up to 20 records from offset 10" in caplog.text
    assert read(name, 10, 20, fail_on_data_loss=False) == []
    with pytest.raises(DataLossError, match=r"offset 10 is out of range.*\[30, 50\)"):
        read(name, 10, 40)


def test_a_range_before_the_log_start_is_data_loss(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    A range from earliest to an offset before the log start is data loss, or empty.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"%d" % i) for i in range(50)])
    age_out(kafka_cluster, name, 30)

    assert read(name, EARLIEST, 20, fail_on_data_loss=False) == []
    assert read(name, EARLIEST, 30) == []
    with pytest.raises(DataLossError, match="the log starts at offset 30. Up to 20 records"):
        read(name, EARLIEST, 20)


def age_out(cluster: KafkaCluster, topic: str, before: int) -> None:
    """
    Delete the records before an offset.
    """
    # Without a reference, the client would be closed with its requests.
    admin = cluster.admin()
    for future in admin.delete_records([Position(topic, 0, before)]).values():
        future.result(30)


def test_records_aged_out_during_a_read_are_data_loss(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    engine: str,
) -> None:
    """
    A read that is overtaken by retention reports data loss instead of ending early.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"v" * 50_000)] * 400)
    offset_range = OffsetRange(TopicPartition(name, 0), 0, 400)
    reading = fetch(offset_range, settings(kafka_cluster.bootstrap, engine, memory_bytes=1 << 20))
    next(reading)
    age_out(kafka_cluster, name, 399)

    with pytest.raises(DataLossError, match=r"out of range, the log has \[399, 400\)"):
        list(reading)


def test_end_beyond_the_log(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    An end beyond the log is retried, then reported as data loss.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"x")] * 5)

    with pytest.raises(DataLossError, match="the log ends at offset 5.*Up to 4 records"):
        read(name, 0, 9)
    assert len(read(name, 0, 9, fail_on_data_loss=False)) == 5


def test_start_beyond_the_log_is_data_loss(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    """
    A range that starts beyond the log end is data loss, or an OffsetsError if it ends at latest.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"x")] * 5)

    with pytest.raises(DataLossError, match="Up to 2 records from offset 7"):
        read(name, 7, 9)
    with pytest.raises(OffsetsError, match="at offset 7, beyond its end 5"):
        read(name, 7, LATEST)


def test_records_that_arrive_during_the_wait_are_read(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    engine: str,
) -> None:
    """
    If the log soon grows to the end of the range, the whole range is read (KAFKA-7703).
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"x")] * 5)
    offset_range = OffsetRange(TopicPartition(name, 0), 0, 8)
    slow = settings(kafka_cluster.bootstrap, engine, end_retries=100, end_retry_ms=200)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap, "linger.ms": 700})
    for _ in range(3):
        producer.produce(name, b"late", partition=0)

    row_count = sum(b.num_rows for b in fetch(offset_range, slow))

    assert producer.flush(30) == 0
    assert row_count == 8


def test_missing_partition_or_topic_is_data_loss(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    engine: str,
) -> None:
    """
    A missing partition or topic is data loss, but only after no broker has known it for
    pollTimeoutMs.
    """
    name = topic()
    short = settings(kafka_cluster.bootstrap, engine, poll_timeout_ms=3_000)
    for missing in (TopicPartition(name, 5), TopicPartition("never-made", 0)):
        started_at = time.monotonic()
        with pytest.raises(DataLossError, match="no longer exists"):
            list(fetch(OffsetRange(missing, 0, 5), short))
        assert time.monotonic() - started_at > 1.5


def test_no_broker_is_reachable(engine: str) -> None:
    """
    The read ends within its timeout, with an error that names the cause.
    """
    offset_range = OffsetRange(TopicPartition("t", 0), 0, 5)

    with pytest.raises(
        (TimeoutExceededError, BrokerUnavailableError), match=r"reachable|refused|time for"
    ):
        list(fetch(offset_range, settings("127.0.0.1:9", engine, poll_timeout_ms=3000)))


def test_abandoned_read_does_not_affect_the_next(
    topic: Callable[..., str],
    kafka_cluster: KafkaCluster,
    engine: str,
) -> None:
    """
    A read that is abandoned, as under a LIMIT, leaves no state for the next one.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"%d" % i * 1000) for i in range(3000)])
    offset_range = OffsetRange(TopicPartition(name, 0), 0, 3000)
    reading = fetch(offset_range, settings(kafka_cluster.bootstrap, engine, memory_bytes=1 << 20))
    next(reading)
    assert isinstance(reading, Generator)
    reading.close()

    batches = list(fetch(offset_range, settings(kafka_cluster.bootstrap, engine)))

    assert pa.Table.from_batches(batches)["offset"].to_pylist() == list(range(3000))
