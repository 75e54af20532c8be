"""
Batch ranges from earliest to a fixed end: only records that the log had at planning can be lost.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.errors import DataLossError
from pyspark_pykafka.offsets import EARLIEST, LATEST
from pyspark_pykafka.options import parse_batch_source
from pyspark_pykafka.spark.batch_reader import KafkaBatchReader

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG_END = 500


class AgingLog(Behaviour):
    """
    A log from ``log_start`` to 500; the timestamp of each record in ms is its offset.
    """

    log_start = 100

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:  # noqa: ARG002
        if timestamp in {EARLIEST, LATEST}:
            return 0, self.log_start if timestamp == EARLIEST else LOG_END
        return 0, max(timestamp, self.log_start) if timestamp < LOG_END else -1

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if offset < self.log_start:
            return FetchAnswer(1, -1)
        return super().fetch(node, topic, partition, offset)


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    Return a cluster with a topic of one such log.
    """
    with StubCluster(AgingLog(high_watermark=LOG_END)) as cluster:
        yield cluster


def reader(stubs: StubCluster, **options: str) -> KafkaBatchReader:
    """
    Return a reader of the topic from earliest.
    """
    defaults = {"kafka.bootstrap.servers": stubs.bootstrap, "subscribe": "t"}
    return KafkaBatchReader(parse_batch_source({**defaults, **options}), fetching.VALUES)


def rows(planned: KafkaBatchReader, partitions: list[Any]) -> int:
    """
    Return the number of records that the tasks of a plan read.
    """
    return sum(batch.num_rows for part in partitions or [None] for batch in planned.read(part))


SPLIT = {"maxRecordsPerPartition": "1000"}


@pytest.mark.parametrize("split", [{}, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize(
    "end",
    [
        {"endingTimestamp": "50"},
        {"endingTimestamp": "100"},
        {"endingOffsets": "1970-01-01T00:00:00.050Z"},
        {"endingOffsets": '{"t":"-1000 offsets"}'},
        {"endingOffsetsByTimestamp": '{"t":{"0":50}}'},
    ],
)
def test_a_range_without_records_loses_none(
    stubs: StubCluster, end: dict[str, str], split: dict[str, str]
) -> None:
    """
    If an end that is given as a time or a count resolves to the log start at planning, nothing is
    lost later.
    """
    planned = reader(stubs, **end, **split)
    partitions = planned.partitions()
    stubs.set(log_start=101)

    assert rows(planned, partitions) == 0


@pytest.mark.parametrize("split", [{}, SPLIT], ids=["whole", "split"])
def test_only_the_records_of_the_plan_are_lost(stubs: StubCluster, split: dict[str, str]) -> None:
    """
    Data loss names the first record that the log had at planning, and counts from there.
    """
    planned = reader(stubs, endingTimestamp="130", **split)
    partitions = planned.partitions()
    stubs.set(log_start=200)

    with pytest.raises(DataLossError, match="Up to 30 records from offset 100 on have aged out"):
        rows(planned, partitions)


def test_an_end_that_the_user_gives_as_an_offset(stubs: StubCluster) -> None:
    """
    All records before an end that is given as an offset belong to the read, whenever they aged out.
    """
    planned = reader(stubs, endingOffsets=json.dumps({"t": {"0": 90}}))

    with pytest.raises(DataLossError, match="Up to 90 records from offset 0 on have aged out"):
        rows(planned, planned.partitions())
