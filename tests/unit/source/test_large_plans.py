"""
Plans of thousands of topics and partitions take time in proportion to their number.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.offsets import Assignment, OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_batch_source, parse_stream_source
from pyspark_pykafka.source.added_partitions import ranges_of, with_last_range
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.source.planner import SplitPolicy, split

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE, FACTOR = 2_000, 4
#: The limit is between the factor itself and its square, with room for caches that are too small.
MAX_GROWTH = 10
BROKERS = {"kafka.bootstrap.servers": "b:1"}


@pytest.fixture(autouse=True)
def without_log() -> Any:
    """
    Turn the log off, whose lines are long here.
    """
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def cpu_seconds(work: Callable[[], object]) -> float:
    """
    Return the least CPU time that the work took in three runs.
    """
    seconds = []
    for _ in range(3):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def growth(work_of: Callable[[int], Callable[[], object]]) -> float:
    """
    Return the time for ``FACTOR`` times the size, divided by the time for the size.
    """
    return cpu_seconds(work_of(SIZE * FACTOR)) / cpu_seconds(work_of(SIZE))


def cluster_of(topics: int, partitions: int) -> Cluster:
    """
    Return a cluster with topics of three records in each partition.
    """
    cluster = Cluster()
    for number in range(topics):
        cluster.create_topic(f"t{number:05}", *([3] * partitions))
    return cluster


def by_partition(cluster: Cluster, value: object) -> str:
    """
    Return JSON with a value for each partition of a cluster.
    """
    partitions = {name: dict.fromkeys(range(len(p)), value) for name, p in cluster.topics.items()}
    return json.dumps(partitions)


def stream(cluster: Cluster, **options: str) -> MicroBatchStream:
    """
    Return a stream of a cluster.
    """
    all_options = {
        **BROKERS,
        "startingOffsets": "earliest",
        "fetchOffset.numRetries": "1",
        **options,
    }
    return MicroBatchStream(parse_stream_source(all_options), cluster, lambda _: {})


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_an_end_for_each_partition(option: str) -> None:
    """
    A trigger of a stream with an end for each partition takes time in proportion to them.
    """

    def trigger(size: int) -> Callable[[], object]:
        cluster = cluster_of(1, size)
        query = stream(cluster, subscribe="t00000", **{option: by_partition(cluster, 2)})
        end = query.latest_offset(query.initial_offset())
        return lambda: query.latest_offset(end)

    assert growth(trigger) < MAX_GROWTH


@pytest.mark.parametrize("option", ["assign", "subscribe"])
def test_partitions_that_are_gone(option: str) -> None:
    """
    A plan without half of the partitions takes time in proportion to them.
    """

    def plan(size: int) -> Callable[[], object]:
        cluster = cluster_of(1 if option == "assign" else size, size if option == "assign" else 1)
        value = ",".join(cluster.topics)
        if option == "assign":
            value = json.dumps({"t00000": [*range(size)]})
        query = stream(cluster, failOnDataLoss="false", **{option: value})
        start = query.latest_offset(query.initial_offset())
        if option == "assign":
            del cluster.topics["t00000"][size // 2 :]
        else:
            for name in [*cluster.topics][size // 2 :]:
                del cluster.topics[name]
        return lambda: query.plan(start, query.latest_offset(start))

    assert growth(plan) < MAX_GROWTH


def test_partitions_added_to_many_topics() -> None:
    """
    The last task of a plan that names each topic looks for added partitions in proportion to them.
    """

    def look(size: int) -> Callable[[], object]:
        cluster = cluster_of(size, 2)
        ends = json.dumps(dict.fromkeys(cluster.topics, "latest"))
        starts = json.dumps(dict.fromkeys(cluster.topics, "earliest"))
        limits = {"subscribePattern": "t", "startingOffsets": starts, "endingOffsets": ends}
        options = parse_batch_source({**BROKERS, **limits})
        planned = Assignment(tuple(TopicPartition(name, 0) for name in cluster.topics), cluster.ids)
        return lambda: [
            *ranges_of(with_last_range([], planned, options)[-1], options, lambda: cluster)
        ]

    assert growth(look) < MAX_GROWTH


def test_more_parts_than_offsets() -> None:
    """
    A range has at most one part for each offset, and more requested parts take no more time.
    """
    ranges = [OffsetRange(TopicPartition("t", 0), 0, 1000)]

    def split_into(parts: int) -> Callable[[], object]:
        return lambda: split(ranges, SplitPolicy(parts))

    assert [r.size for r in split(ranges, SplitPolicy(2**31 - 1))] == [1] * 1000
    assert cpu_seconds(split_into(2**31 - 1)) / cpu_seconds(split_into(1000)) < MAX_GROWTH
