"""
The age of the first unread record, and the thread that reads it; the brokers are stand-ins.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_pykafka.cli import lag
from pyspark_pykafka.metrics import broker_offsets
from pyspark_pykafka.metrics.broker_offsets import (
    BrokerOffsets,
    BrokerOffsetsThread,
    UnreadRecords,
)
from pyspark_pykafka.metrics.query_metrics import QueryMetrics
from pyspark_pykafka.offsets import Assignment, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.record import Record
from pyspark_pykafka.timestamps import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TP = TopicPartition("t", 0)
OPTIONS = parse_stream_source({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})

# The year 55000, as of a producer that takes microseconds for milliseconds.
NO_DATE_MS = 1_673_000_000_000_000


@pytest.fixture(params=[NO_DATE_MS])
def unread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let each fetch return one record at offset 7 whose timestamp is no date in Python.
    """
    values = {"offset": [7], "timestamp": [request.param]}

    def fetch(_: object, settings: Any) -> Iterator[pa.RecordBatch]:
        columns = [pa.array(values[field.name], field.type) for field in settings.schema]
        yield pa.record_batch(columns, schema=settings.schema)

    for module in (broker_offsets, lag):
        monkeypatch.setattr(module, "fetch", fetch)


@pytest.mark.usefixtures("unread")
def test_unread_record_with_a_timestamp_that_is_no_date() -> None:
    """
    The first unread record may have any timestamp.
    """
    assert UnreadRecords(OPTIONS).first(TP, 5) == (7, NO_DATE_MS / 1000)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("unread", [NO_TIMESTAMP], indirect=True)
def test_unread_record_without_a_timestamp() -> None:
    """
    Its age is unknown, so nothing is said about the time before the present.
    """
    assert UnreadRecords(OPTIONS, lambda: 9.0).first(TP, 5) == (5, 9.0)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("unread", "now", "age"),
    [
        (NO_DATE_MS, 0.0, 0.0),
        (NO_DATE_MS, 2e12, 2e12 - 1_673_000_000_000),
        (NO_TIMESTAMP, 2e12, None),
    ],
    indirect=["unread"],
)
def test_lag_with_a_timestamp_that_is_no_date(
    monkeypatch: pytest.MonkeyPatch, now: float, age: float | None
) -> None:
    """
    `pykafka lag` shows an age of 0 for records from the future, and none for those without a
    timestamp.
    """

    class Brokers:
        def existing(self, _: object) -> Assignment:
            return Assignment((TP,), {})

        def end_offsets(self, _: object) -> dict[TopicPartition, int]:
            return {TP: 9}

        def log_start_offsets(self, _: object) -> dict[TopicPartition, int]:
            return {TP: 0}

    monkeypatch.setattr(lag, "metadata_client", lambda _: Brokers())
    monkeypatch.setattr(lag, "existing_records", lambda _: {TP: Record(5)})

    reader = lag.LagReader(OPTIONS, lambda: now)
    assert [(each.lag, each.seconds) for each in reader.read()] == [(4, age)]


class FailingOnce:
    """
    A lag whose first refresh fails with an error that the connector does not know.
    """

    def __init__(self) -> None:
        self.refreshes = 0
        self.refreshed = threading.Event()

    def refresh(self) -> None:
        self.refreshes += 1
        if self.refreshes == 1:
            raise OverflowError("date value out of range")
        self.refreshed.set()


def test_thread_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """
    Any error is logged, and the next refresh takes place.
    """
    offsets: Any = FailingOnce()
    with caplog.at_level(logging.INFO, "pyspark_pykafka"):
        thread = BrokerOffsetsThread(offsets, 0.01)
        assert offsets.refreshed.wait(10)
        thread.close()

    assert "cannot be read at the moment: date value out of range" in caplog.text


class Brokers:
    """
    Brokers that know some partitions by their end offsets.
    """

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        self.ends = ends

    def partitions_for(self, topics: Iterable[str]) -> list[TopicPartition]:
        names = set(topics)
        return [tp for tp in self.ends if tp.topic in names]

    def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in tps}


def test_growth_of_the_dead_letter_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The end offsets of the options' `deadLetterTopic` are read again at each refresh.
    """
    brokers = Brokers({TP: 9, TopicPartition("dead", 0): 3, TopicPartition("dead", 1): 0})
    monkeypatch.setattr(broker_offsets, "metadata_client", lambda _: brokers)
    metrics = QueryMetrics(max_partitions=100)
    letters = {"valueFormat": "json", "onBadRecord": "deadletter", "deadLetterTopic": "dead"}
    offsets = BrokerOffsets(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **letters}, metrics
    )

    offsets.refresh()
    assert metrics.snapshot(0.0).dead_letter_ends == {("dead", "0"): 3, ("dead", "1"): 0}
    brokers.ends[TopicPartition("dead", 1)] = 1
    offsets.refresh()
    assert metrics.snapshot(0.0).dead_letter_ends == {("dead", "0"): 3, ("dead", "1"): 1}


def test_a_dead_letter_topic_with_many_partitions() -> None:
    """
    Beyond `max_partitions` its end offsets are summed, as those of sources are.
    """
    metrics = QueryMetrics(max_partitions=2)
    metrics.observe_dead_letter_ends({TopicPartition("dead", n): n for n in range(3)})

    assert metrics.snapshot(0.0).dead_letter_ends == {("dead", ""): 3}
