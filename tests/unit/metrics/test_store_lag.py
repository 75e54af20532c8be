"""
The lag of a query according to its progress store, read repeatedly on a cluster in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.support.clock import Clock
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.errors import AuthorizationError
from pyspark_pykafka.metrics.store_lag import LagReader, PartitionLag
from pyspark_pykafka.metrics.unread_records import FirstRecord
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.progress.record import ProgressRecord

if TYPE_CHECKING:
    from collections.abc import Collection

TP = TopicPartition("t", 0)


@dataclass
class Log:
    """
    The records of t-0: each has its offset as timestamp, in seconds. ``read`` has the start of each
    range that was read.
    """

    without_records: set[int] = field(default_factory=set)
    error: Exception | None = None
    read: list[int] = field(default_factory=list)

    def first(self, unread: Collection[OffsetRange]) -> dict[OffsetRange, FirstRecord]:
        self.read += [offset_range.start for offset_range in unread]
        if self.error is not None:
            raise self.error
        first = {}
        for offset_range in unread:
            offsets = {*range(offset_range.start, offset_range.end)} - self.without_records
            if offsets:
                first[offset_range] = FirstRecord(min(offsets), float(min(offsets)))
        return first


@dataclass
class Scene:
    """
    A reader of the lag of a query that reads the topic t, which has 100 records at first.
    """

    cluster: Cluster = field(default_factory=Cluster)
    log: Log = field(default_factory=Log)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.clock.time = 1000.0
        self.cluster.create_topic("t", 100)
        self._reader = LagReader(self.cluster, self.log, self.clock.now)

    def lag(self, offset: int, end: int, topic_id: str | None = None) -> PartitionLag:
        """
        Return the lag with a recorded offset and a log end, ten seconds after the last reading.
        """
        self.clock.sleep(10)
        self.cluster.topics["t"] = [(0, end)]
        (lag,) = self._reader.read({TP: ProgressRecord(offset, topic_id=topic_id)})
        return lag


@pytest.fixture
def scene() -> Scene:
    """
    Return a scene that begins at 1000 s.
    """
    return Scene()


def test_backlog_is_as_old_as_its_first_record(scene: Scene) -> None:
    """
    The first reading shows the age of the first unread record, by its timestamp.
    """
    assert scene.lag(40, 100) == PartitionLag("t", 0, 40, 100, 60, 970.0)


def test_record_of_a_query_that_stands_still_is_read_once(scene: Scene) -> None:
    """
    The age of the same first unread record grows with the clock.
    """
    assert [scene.lag(40, end).seconds for end in (100, 100, 120)] == [970.0, 980.0, 990.0]
    assert scene.log.read == [40]


def test_old_backlog_is_dated_again_as_the_query_reads_it(scene: Scene) -> None:
    """
    While the query reads records from before the first reading, each reading shows the age of the
    first unread record, which may differ much from one to the next.
    """
    assert [scene.lag(offset, 100).seconds for offset in (40, 50, 90)] == [970.0, 970.0, 940.0]
    assert scene.log.read == [40, 50, 90]


def test_records_that_arrive_are_dated_without_reading(scene: Scene) -> None:
    """
    The arrival of records that arrive between two readings is interpolated.
    """
    assert scene.lag(100, 100).seconds == 0.0
    scene.lag(101, 120)
    assert scene.lag(110, 140).seconds == pytest.approx(14.5)
    assert scene.log.read == []


def test_query_with_only_gaps_before_it_is_not_behind(scene: Scene) -> None:
    """
    A query whose unread offsets hold only control records, or records that compaction has removed,
    has a lag of 0 s, however long it stays at its position.
    """
    scene.log.without_records = {98, 99}

    for _ in range(3):
        lag = scene.lag(98, 100)
        assert (lag.lag, lag.seconds) == (2, 0.0)


@pytest.mark.parametrize("end", [50, 500])
def test_recreated_topic_counts_from_its_start(scene: Scene, end: int) -> None:
    """
    The history of the old topic does not date records of the new one.
    """
    old = scene.cluster.ids["t"]
    scene.lag(40, 100, old)
    scene.cluster.ids["t"] = "new"

    lag = scene.lag(90, end, old)

    assert (lag.lag, lag.seconds) == (end, 1020.0)
    assert scene.log.read == [40, 0]


def test_truncated_log_is_dated_again(scene: Scene) -> None:
    """
    The first unread record of a log that was truncated is read again.
    """
    scene.lag(40, 100)

    assert scene.lag(40, 60).seconds == 980.0
    assert scene.log.read == [40, 40]


def test_offset_beyond_the_log_has_no_lag(scene: Scene) -> None:
    """
    A recorded offset beyond the end of the same topic's log has a lag of 0, not a negative one.
    """
    lag = scene.lag(140, 100)

    assert (lag.lag, lag.seconds) == (0, 0.0)


def test_missing_permission_leaves_out_the_seconds(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Without the right to read records the lag in offsets is shown, with one warning, and no more
    records are requested.
    """
    scene.log.error = AuthorizationError("no READ on t")

    lags = [scene.lag(40, 100) for _ in range(2)]

    assert [(lag.lag, lag.seconds) for lag in lags] == [(60, None)] * 2
    assert scene.log.read == [40]
    assert caplog.messages == ["The lag is shown without seconds: no READ on t"]
