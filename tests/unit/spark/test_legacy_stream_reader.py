"""
The stream reader for Spark 4.0 and 4.1, called in the order in which those versions call it.
"""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pyarrow as pa
import pytest
from tests.support.memory_cluster import Cluster
from tests.unit.source.test_micro_batch_progress import RecordedProgress

from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.spark.stream_reader import _AdmissionStreamReader, _LegacyStreamReader, _Reader

STORED = {
    "kafka.bootstrap.servers": "b:1",
    "subscribe": "t",
    "progressStore": "consumerGroup",
    "kafka.group.id": "g",
}
SCHEMA = pa.schema([pa.field("value", SOURCE_TYPES["value"])])


def reader(cluster: Cluster, **options: str) -> _LegacyStreamReader:
    """
    Return the reader of a new process.
    """
    source_options = {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "t",
        "startingOffsets": "earliest",
    }
    parsed = parse_stream_source({**source_options, "minPartitions": "1", **options})
    stream_reader = _LegacyStreamReader(parsed, SCHEMA)
    stream_reader._stream = MicroBatchStream(parsed, cluster, dict)
    return stream_reader


def planned(stream_reader: _LegacyStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    """
    Return (start, end) of the ranges of a batch.
    """
    return [(p.value.start, p.value.end) for p in stream_reader.partitions(start, end)]


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with a topic of one partition and 30 records.
    """
    new_cluster = Cluster()
    new_cluster.create_topic("t", 30)
    return new_cluster


def test_new_query_is_limited_from_its_first_batch(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A query that calls latestOffset before it plans is new, and limited; the log warns once that an
    availableNow run ends before the latest offsets.
    """
    stream_reader = reader(cluster, maxOffsetsPerTrigger="10")

    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        first = stream_reader.latestOffset()
        assert planned(stream_reader, stream_reader.initialOffset(), first) == [(0, 10)]
        second = stream_reader.latestOffset()
    assert planned(stream_reader, first, second) == [(10, 20)]
    assert caplog.text.count("the next run reads the rest") == 1


def test_restarted_query_is_limited_from_its_first_batch(cluster: Cluster) -> None:
    """
    A restarted query first plans an empty batch at its position, and is limited from there.
    """
    stream_reader = reader(cluster, maxOffsetsPerTrigger="10")
    position = {"t": {"0": 15}}

    assert planned(stream_reader, position, position) == []
    assert planned(stream_reader, position, stream_reader.latestOffset()) == [(15, 25)]


def test_replayed_batch_keeps_its_range(cluster: Cluster) -> None:
    """
    A failed batch is replayed with its own range, whatever the limit is now.
    """
    stream_reader = reader(cluster, maxOffsetsPerTrigger="10")
    position, end = {"t": {"0": 5}}, {"t": {"0": 29}}

    assert planned(stream_reader, end, end) == []
    assert planned(stream_reader, position, end) == [(5, 29)]
    assert planned(stream_reader, end, stream_reader.latestOffset()) == [(29, 30)]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_restart_that_calls_latest_offset_first(cluster: Cluster, starting: str) -> None:
    """
    With Spark's availableNow wrapper a restarted query calls latestOffset before it plans: without
    limits it continues; with limits its end would be wrong, so it fails.
    """
    position = {"t": {"0": 15}}
    stream_reader = reader(cluster, startingOffsets=starting)
    end = stream_reader.latestOffset()
    assert planned(stream_reader, position, position) == []
    assert planned(stream_reader, position, end) == [(15, 30)]

    limited = reader(cluster, startingOffsets=starting, maxOffsetsPerTrigger="10")
    limited.latestOffset()
    with pytest.raises(OffsetsError, match="triggerAvailableNowWrapper.enabled to false"):
        limited.partitions(position, position)


def test_end_of_a_first_batch_has_its_start(cluster: Cluster) -> None:
    """
    A query that calls latestOffset first may be new, so its end includes its start.
    """
    assert reader(cluster).latestOffset()["@initial"]["t"] == {"0": 0}


def test_wrong_start_fails_only_a_new_query(cluster: Cluster) -> None:
    """
    Wrong starting offsets raise OffsetsError when the first batch of a new query is planned; a
    query that continues does not need them.
    """
    stream_reader = reader(cluster, startingOffsets='{"t": {"7": 1}}')

    end = stream_reader.latestOffset()
    assert "@initial" not in end
    with pytest.raises(OffsetsError, match="not assigned: t-7"):
        stream_reader.partitions(stream_reader.initialOffset(), end)
    continued = reader(cluster, startingOffsets='{"t": {"7": 1}}')
    assert planned(continued, {"t": {"0": 15}}, end) == [(15, 30)]


@pytest.mark.parametrize("starting", ['{"t": {"0": 25}}', "earliest"], ids=["offset", "log-start"])
def test_a_new_query_that_starts_beyond_its_end_reads_nothing(
    cluster: Cluster, starting: str
) -> None:
    """
    An end before the start of a new query ends it at its start; that is not data loss.
    """
    cluster.topics["t"] = [(25, 30)]
    stream_reader = reader(cluster, startingOffsets=starting, endingOffsets='{"t": {"0": 20}}')

    end = stream_reader.latestOffset()

    assert end["t"] == {"0": 25}
    assert planned(stream_reader, stream_reader.initialOffset(), end) == []
    assert stream_reader.latestOffset()["t"] == {"0": 25}


def test_a_new_query_from_latest_with_an_end(cluster: Cluster) -> None:
    """
    A new query from latest with an end reads the records that arrive before that end.
    """
    stream_reader = reader(cluster, startingOffsets="latest", endingOffsets='{"t": {"0": 32}}')
    first = stream_reader.latestOffset()
    assert planned(stream_reader, stream_reader.initialOffset(), first) == []
    cluster.topics["t"] = [(0, 40)]

    assert planned(stream_reader, first, stream_reader.latestOffset()) == [(30, 32)]


def test_an_end_must_name_the_partitions_of_a_new_query(cluster: Cluster) -> None:
    """
    A partition without an end is a mistake in the options, and not a deleted partition.
    """
    cluster.create_topic("t", 30, 30)
    stream_reader = reader(cluster, endingOffsets='{"t": {"0": 20}}')

    with pytest.raises(OffsetsError, match="missing: t-1"):
        stream_reader.latestOffset()


@pytest.mark.parametrize("starting", ["earliest", '{"t": {"0": 7}}'])
@pytest.mark.parametrize("position", [5, 15, 20])
def test_restart_with_an_end_that_calls_latest_offset_first(
    cluster: Cluster, starting: str, position: int
) -> None:
    """
    With Spark's availableNow wrapper a restarted query with an end continues up to it, wherever a
    new query would start.
    """
    options = {"startingOffsets": starting, "endingOffsets": '{"t": {"0": 20}}'}
    stream_reader = reader(cluster, **options)
    end = stream_reader.latestOffset()
    stored = {"t": {"0": position}}

    assert planned(stream_reader, stored, stored) == []
    assert planned(stream_reader, stored, end) == ([(position, 20)] if position < 20 else [])


@pytest.mark.parametrize(
    ("starting", "position"),
    [("earliest", 25), ('{"t": {"0": 7}}', 25), ("latest", 25), ("latest", 15)],
)
def test_restart_whose_end_depends_on_the_start_and_calls_latest_offset_first(
    cluster: Cluster, starting: str, position: int
) -> None:
    """
    With Spark's wrapper latestOffset returns the end that a new query would have. A restarted query
    for which that end is wrong is refused: its offset would go back, or it would read records
    beyond its own end. The checkpoint does not have the wrong end yet.
    """
    options = {"startingOffsets": starting, "endingOffsets": '{"t": {"0": 20}}'}
    stream_reader = reader(cluster, **options)
    stream_reader.latestOffset()
    stored = {"t": {"0": position}}

    with pytest.raises(OffsetsError, match="triggerAvailableNowWrapper.enabled to false") as error:
        stream_reader.partitions(stored, stored)
    assert error.value.condition == "UNKNOWN_START_OFFSET"


def test_restart_after_its_end_time_that_calls_latest_offset_first(cluster: Cluster) -> None:
    """
    With Spark's wrapper a restarted query that has reached its end time is refused if its log now
    starts beyond that end.
    """
    first = reader(cluster, endingTimestamp="20")
    end = first.latestOffset()
    assert planned(first, first.initialOffset(), end) == [(0, 20)]
    cluster.topics["t"] = [(25, 40)]

    restarted = reader(cluster, endingTimestamp="20")
    restarted.latestOffset()
    with pytest.raises(OffsetsError, match="UNKNOWN_START_OFFSET"):
        restarted.partitions(end, end)


def test_replay_with_an_end_that_calls_latest_offset_first(cluster: Cluster) -> None:
    """
    With Spark's wrapper a failed batch is replayed before it is known whether the end fits the
    position.
    """
    stream_reader = reader(cluster, endingOffsets='{"t": {"0": 20}}')
    end = stream_reader.latestOffset()

    position = {"t": {"0": 12}}
    assert planned(stream_reader, position, position) == []
    assert planned(stream_reader, {"t": {"0": 5}}, position) == [(5, 12)]
    assert planned(stream_reader, position, end) == [(12, 20)]


@pytest.mark.parametrize("kind", [_LegacyStreamReader, _AdmissionStreamReader])
def test_commit_records_the_completed_batch(cluster: Cluster, kind: type[_Reader]) -> None:
    """
    For every Spark version, commit records the batch with this end as completed.
    """
    stream_reader = kind(parse_stream_source(STORED), SCHEMA)
    recorded = RecordedProgress()
    stream_reader._stream = MicroBatchStream(parse_stream_source(STORED), cluster, dict, recorded)
    end = {"t": {"0": 30}, "@query": {"id": "q", "batch": 4, "store": "consumerGroup g"}}

    stream_reader.commit(end)

    assert recorded.calls == [("completed", 30, "q", 4)]


def test_repr_of_a_reader(cluster: Cluster) -> None:
    """
    The repr of a reader has its stream on the driver; on an executor it has none.
    """
    stream_reader = reader(cluster)
    copy = pickle.loads(pickle.dumps(stream_reader))  # noqa: S301 (our own)

    assert repr(stream_reader).startswith(
        "_LegacyStreamReader(MicroBatchStream(Subscribe(topics=('t',))"
    )
    assert repr(copy) == "_LegacyStreamReader(on an executor)"


def test_a_checkpoint_shows_that_brokers_have_responded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A restarted query waits through an outage as long as the settings say; a new one does not yet.
    """
    monkeypatch.setattr(first_contact, "_reached", set())
    checkpoint = _reader_offset(cluster)
    kafka = KafkaSettings.of({"bootstrap.servers": "b:1"})

    stream_reader = reader(cluster)
    stream_reader.initialOffset()
    before = first_contact.has_contact(kafka)
    stream_reader.partitions(checkpoint, checkpoint)

    assert (before, first_contact.has_contact(kafka)) == (False, True)


def _reader_offset(cluster: Cluster) -> Any:
    """
    Return the initial offset that a former process has left in the checkpoint.
    """
    return reader(cluster).initialOffset()
