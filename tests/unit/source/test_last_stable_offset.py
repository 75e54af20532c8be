"""
A position beyond the last stable offset: an open transaction is not data loss (invariant R9).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

import pytest
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.errors import DataLossError
from pyspark_pykafka.offsets import Document, TopicPartition
from pyspark_pykafka.options import AtTime, parse_stream_source
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.source.offset_limits import resolve_end

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a log of 120 records with a transaction that is open since record 60, and an empty log.
    """
    new_cluster = Cluster()
    new_cluster.create_topic("t", 120, 0)
    new_cluster.open_transactions[T0] = 60
    return new_cluster


@dataclass
class Query:
    """
    A stream of committed records that starts at offset 100 of the first log.
    """

    cluster: Cluster
    fail_on_data_loss: bool = True
    start: int = 100
    stream: MicroBatchStream = field(init=False)
    position: Document = field(init=False)

    def __post_init__(self) -> None:
        self.begin()
        self.position = self.stream.initial_offset()

    def begin(self) -> None:
        """
        Start a process of the query.
        """
        options = {
            "kafka.bootstrap.servers": "b:1",
            "subscribe": "t",
            "startingOffsets": json.dumps({"t": {"0": self.start, "1": 0}}),
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "fetchOffset.retryIntervalMs": "0",
        }
        self.stream = MicroBatchStream(
            parse_stream_source(options), self.cluster, lambda offsets: dict.fromkeys(offsets, 1e6)
        )

    def step(self) -> list[str]:
        """
        Run one micro-batch, and return its ranges.
        """
        end = json.loads(json.dumps(self.stream.latest_offset(self.position)))
        plan = self.stream.plan(self.position, end)
        self.position = end
        return [str(r) for r in plan.ranges]


@pytest.mark.parametrize("fail", [True, False])
def test_a_stream_keeps_its_position(cluster: Cluster, fail: bool) -> None:
    """
    The stream stays at its position until the transaction has ended; nothing is lost or repeated.
    """
    query = Query(cluster, fail)

    assert query.step() == []
    assert query.position["t"]["0"] == 100
    cluster.topics["t"][1] = (0, 7)
    assert query.step() == ["t-1[0, 7)"]
    assert query.position["t"]["0"] == 100
    del cluster.open_transactions[T0]
    cluster.topics["t"][0] = (0, 121)
    assert query.step() == ["t-0[100, 121)"]


def test_a_stream_that_waits_for_a_transaction_says_so_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A warning names the partition, the position and the last stable offset, and is not repeated.
    """
    query = Query(cluster)

    query.step()
    query.step()

    texts = [text for _, level, text in caplog.record_tuples if level == logging.WARNING]
    assert len(texts) == 1
    assert "t-0" in texts[0]
    assert "100" in texts[0]
    assert "60" in texts[0]


def test_an_available_now_run_ends_at_the_position(cluster: Cluster) -> None:
    """
    An availableNow run reads the other partitions, and leaves this one at its position.
    """
    query = Query(cluster)
    cluster.topics["t"][1] = (0, 7)
    query.begin()
    query.stream.prepare_for_available_now()
    query.position = query.stream.initial_offset()

    assert query.step() == ["t-1[0, 7)"]
    assert query.position["t"]["0"] == 100


def test_before_spark_4_2_a_new_query_keeps_its_start(cluster: Cluster) -> None:
    """
    On Spark versions that do not pass the start, too, the end of a new query's first batch is not
    before the start of that batch.
    """
    query = Query(cluster)

    end = query.stream.latest_without_start()

    assert end["t"]["0"] == 100
    assert query.stream.plan(query.position, end).ranges == ()


def test_the_log_is_shorter_than_the_position(cluster: Cluster) -> None:
    """
    A log whose uncommitted records end before the position has lost records, transaction or not;
    records that were read before are not read again.
    """
    query = Query(cluster)
    cluster.topics["t"][0] = (0, 90)

    with pytest.raises(DataLossError, match="t-0 was changed from 100 to 90"):
        query.stream.latest_offset(query.position)


def test_the_end_of_a_batch_at_a_later_time(cluster: Cluster) -> None:
    """
    A batch that starts beyond the last stable offset, and ends at a time after all records, ends
    at its start; one that starts beyond the log's end does not.
    """
    limit = AtTime(1_000_000)

    assert resolve_end(limit, [T0, T1], cluster, starts={T0: 100}) == {T0: 100, T1: 0}
    assert resolve_end(limit, [T0], cluster, starts={T0: 121}) == {T0: 120}


def test_a_log_that_went_back_is_reported_before_it_is_in_the_checkpoint(cluster: Cluster) -> None:
    """
    An end before the start is an error while Spark requests the end, before it writes the end into
    the checkpoint: so the query goes on once the log has the offset again.
    """
    cluster.open_transactions.clear()
    query = Query(cluster, start=1000)

    with pytest.raises(DataLossError, match="t-0 was changed from 1000 to 120"):
        query.stream.latest_offset(query.position)

    cluster.topics["t"][0] = (0, 2000)
    query.begin()
    assert query.step() == ["t-0[1000, 2000)"]
