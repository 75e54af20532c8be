"""
A range that starts beyond the last stable offset, and ends at the log's end, has no records yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import OffsetsError
from pyspark_pykafka.offsets import LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.source.latest_per_key import latest_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.engines.contract import FetchSettings

T0 = TopicPartition("t", 0)
READ_COMMITTED = 1


class TaskWriteResult(Behaviour):
    """
    A log of 120 records with a transaction that is open since record 60.
    """

    isolation = 0

    def _on_2(self, node: int, request: Any) -> Any:
        self.isolation = request.isolation_level
        return super()._on_2(node, request)

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        if timestamp == LATEST and self.isolation == READ_COMMITTED:
            return 0, 60
        return super().offsets(node, topic, partition, timestamp)


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    Return a cluster with such a log.
    """
    with StubCluster(TaskWriteResult(high_watermark=120)) as cluster:
        yield cluster


#: librdkafka with a setting that wire does not support, so that librdkafka reads the metadata too.
ALONE = "librdkafka-alone"


def settings(stubs: StubCluster, engine: str) -> FetchSettings:
    """
    Return the settings of a read of committed records.
    """
    kafka = {"bootstrap.servers": stubs.bootstrap}
    if engine == ALONE:
        kafka["topic.blacklist"], engine = "none", "librdkafka"
    return fetching.settings(
        stubs.bootstrap,
        engine,
        schema=fetching.VALUES,
        kafka=KafkaSettings.of(kafka),
        isolation_level="read_committed",
    )


@pytest.mark.parametrize("engine", ["wire", "librdkafka", ALONE])
def test_a_start_beyond_the_last_stable_offset(stubs: StubCluster, engine: str) -> None:
    """
    The range is empty if the log has its start, and an error otherwise.
    """
    reading = settings(stubs, engine)

    assert list(fetch(OffsetRange(T0, 100, LATEST), reading)) == []
    with pytest.raises(OffsetsError, match="at offset 121, beyond its end 120"):
        list(fetch(OffsetRange(T0, 121, LATEST), reading))


def test_the_latest_record_of_each_key_after_such_a_start(stubs: StubCluster) -> None:
    """
    With latestPerKey, too, the range is empty.
    """
    assert list(latest_records(OffsetRange(T0, 100, LATEST), settings(stubs, "wire"))) == []
