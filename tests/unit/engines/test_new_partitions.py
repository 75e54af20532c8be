"""
Rows for partitions that are added to a topic while a process writes to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.producing import batch_of, write
from tests.support.stub_behaviour import METADATA
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.errors import RecordError
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

#: Shorter than the timeouts of the tests, and long enough for the metadata to be read again.
TIMEOUTS = {"max_block_ms": 20_000, "delivery_timeout_ms": 20_000, "request_timeout_ms": 5_000}


class GrowingTopic(Behaviour):
    """
    Three brokers; those in ``stale`` have not learned of the added partitions yet.
    """

    old_count = 1
    stale: tuple[int, ...] = ()

    def topics_of(self, node: int) -> dict[str, int]:
        return {"t": self.old_count} if node in self.stale else self.topics


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    Return three brokers with an empty topic of one partition.
    """
    with StubCluster(GrowingTopic(brokers=3, topics={"t": 1}, high_watermark=0)) as cluster:
        yield cluster


def row(partition: int) -> pa.RecordBatch:
    """
    Return an Arrow batch with one row for a partition.
    """
    return batch_of([Record(b"v", b"k", partition)])


def batch_counts(stubs: StubCluster) -> dict[int, int]:
    """
    Return the number of record batches that each partition has received.
    """
    return {partition: len(log) for (_, partition), log in stubs.get("logs").items()}


@pytest.mark.parametrize("stale", [(), (0,), (0, 1)])
def test_a_later_task_writes_to_new_partitions(stubs: StubCluster, stale: tuple[int, ...]) -> None:
    """
    The process has cached the topic's partitions, and some brokers do not know the new ones yet:
    the metadata is read again before a row is refused.
    """
    write(stubs.all_brokers, [row(0)], "t", "wire", **TIMEOUTS)
    stubs.set(topics={"t": 4}, stale=stale)

    written = write(stubs.all_brokers, [row(3), row(0), row(2)], "t", "wire", **TIMEOUTS)

    assert written == 3
    assert batch_counts(stubs) == {0: 2, 2: 1, 3: 1}


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_task_writes_to_partitions_that_are_added_meanwhile(
    stubs: StubCluster, engine: str
) -> None:
    """
    The topic gets partitions between two batches of rows of one task.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        yield row(0)
        stubs.set(topics={"t": 2})
        yield row(1)
        stubs.set(topics={"t": 5})
        yield row(4)

    assert write(stubs.all_brokers, batches(), "t", engine, **TIMEOUTS) == 3
    assert batch_counts(stubs) == {0: 1, 1: 1, 4: 1}


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_partition_that_no_broker_has_is_refused(stubs: StubCluster, engine: str) -> None:
    """
    The metadata is read again, and the error names the topic's new number of partitions.
    """
    write(stubs.all_brokers, [row(0)], "t", engine, **TIMEOUTS)
    stubs.set(topics={"t": 4})

    with pytest.raises(RecordError, match=r"partition 4 cannot .* partitions 0 to 3") as caught:
        write(stubs.all_brokers, [row(4)], "t", engine, **TIMEOUTS)

    assert caught.value.condition == "UNKNOWN_PARTITION"


def test_a_negative_partition_is_refused_without_a_refresh(stubs: StubCluster) -> None:
    """
    No topic has a partition -1, so no metadata is requested for it.
    """
    write(stubs.all_brokers, [row(0)], "t", "wire", **TIMEOUTS)
    before = stubs.stats()["requests"][METADATA]

    with pytest.raises(RecordError, match="partition -1"):
        write(stubs.all_brokers, [row(-1)], "t", "wire", **TIMEOUTS)

    assert stubs.stats()["requests"][METADATA] == before
