"""
The reader for Spark 4.0 and 4.1, in the order in which those versions call it.
"""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from tests.support.memory_cluster import Cluster
from tests.unit.source.test_micro_batch_progress import Told

from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES
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
    Return a reader as a fresh process makes it.
    """
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingOffsets": "earliest"}
    parsed = parse_stream_source({**given, "minPartitions": "1", **options})
    made = _LegacyStreamReader(parsed, SCHEMA)
    made._stream = MicroBatchStream(parsed, cluster, dict)
    return made


def planned(made: _LegacyStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    """
    Return (start, end) of what a batch reads.
    """
    return [(p.value.start, p.value.end) for p in made.partitions(start, end)]


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with a topic of one partition and 30 records.
    """
    made = Cluster()
    made.make("t", 30)
    return made


def test_new_query_is_limited_from_its_first_batch(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A query that asks for its end before it plans anything is new; that a limit leaves something
    for later is said once, since an availableNow run ends there.
    """
    made = reader(cluster, maxOffsetsPerTrigger="10")

    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        first = made.latestOffset()
        assert planned(made, made.initialOffset(), first) == [(0, 10)]
        second = made.latestOffset()
    assert planned(made, first, second) == [(10, 20)]
    assert caplog.text.count("leaves the rest for the next run") == 1


def test_restarted_query_is_limited_from_its_first_batch(cluster: Cluster) -> None:
    """
    A restarted query plans the last batch's end first, and goes on from there.
    """
    made = reader(cluster, maxOffsetsPerTrigger="10")
    stands = {"t": {"0": 15}}

    assert planned(made, stands, stands) == []
    assert planned(made, stands, made.latestOffset()) == [(15, 25)]


def test_replayed_batch_is_read_as_it_was(cluster: Cluster) -> None:
    """
    A failed batch comes again with its own range, whatever the limit is now.
    """
    made = reader(cluster, maxOffsetsPerTrigger="10")
    stands, end = {"t": {"0": 5}}, {"t": {"0": 29}}

    assert planned(made, end, end) == []
    assert planned(made, stands, end) == [(5, 29)]
    assert planned(made, end, made.latestOffset()) == [(29, 30)]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_restart_that_asks_first(cluster: Cluster, starting: str) -> None:
    """
    With Spark's wrapper for availableNow a restarted query asks for its end before it tells where
    it stands: without limits it reads on; with limits its end would be wrong, so it is refused.
    """
    stands = {"t": {"0": 15}}
    made = reader(cluster, startingOffsets=starting)
    end = made.latestOffset()
    assert planned(made, stands, stands) == []
    assert planned(made, stands, end) == [(15, 30)]

    limited = reader(cluster, startingOffsets=starting, maxOffsetsPerTrigger="10")
    limited.latestOffset()
    with pytest.raises(OffsetsError, match="triggerAvailableNowWrapper.enabled to false"):
        limited.partitions(stands, stands)


def test_the_end_of_a_first_batch_tells_where_it_starts(cluster: Cluster) -> None:
    """
    A query that asks for its end before it plans anything is new; Spark keeps no start of it.
    """
    assert reader(cluster).latestOffset()["@initial"]["t"] == {"0": 0}


def test_a_start_that_is_wrong_is_told_when_it_is_asked_for(cluster: Cluster) -> None:
    """
    A query that was started before has no use for it, and is not stopped by it.
    """
    made = reader(cluster, startingOffsets='{"t": {"7": 1}}')

    assert "@initial" not in made.latestOffset()
    with pytest.raises(OffsetsError, match="not assigned: t-7"):
        made.initialOffset()


@pytest.mark.parametrize("kind", [_LegacyStreamReader, _AdmissionStreamReader])
def test_commit_hands_over_what_is_complete(cluster: Cluster, kind: type[_Reader]) -> None:
    """
    Whatever the version of Spark: each calls it with the end of the batch before the one that it
    has just planned.
    """
    made = kind(parse_stream_source(STORED), SCHEMA)
    told = Told()
    made._stream = MicroBatchStream(parse_stream_source(STORED), cluster, dict, told)
    end = {"t": {"0": 30}, "@query": {"id": "q", "batch": 4, "store": "consumerGroup g"}}

    made.commit(end)

    assert told.said == [("completed", 30, "q", 4)]
