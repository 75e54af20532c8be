"""
Partitions that are added after a batch read was planned, against a cluster in memory.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.support.memory_cluster import Cluster

from pyspark_pykafka.offsets import EARLIEST, LATEST, Assignment, OffsetRange, TopicPartition
from pyspark_pykafka.options import SourceOptions, parse_batch_source
from pyspark_pykafka.source.added_partitions import may_have_added, ranges_of, with_last_range

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
TU = TopicPartition("tu", 0)
ASSIGNED = Assignment((T0, T1), {})
PLAN = [OffsetRange(tp, EARLIEST, LATEST) for tp in ASSIGNED.partitions]


FUTURE_MS = "4102444800000"


def options_of(**changed: Any) -> SourceOptions:
    selection = {} if {"assign", "subscribePattern"} & changed.keys() else {"subscribe": "t"}
    return parse_batch_source({"kafka.bootstrap.servers": "b:1", **selection, **changed})


def grown_cluster() -> Cluster:
    """
    Return a cluster in which t had two partitions, and now has a third one with 50 records; the
    topic tu is new.
    """
    cluster = Cluster()
    cluster.create_topic("t", 10, 20, 50)
    cluster.create_topic("tu", 5)
    return cluster


def added(cluster: Cluster, **limits: Any) -> list[tuple[TopicPartition, int, int]]:
    """
    Return the ranges that the last task of a plan of ``ASSIGNED`` reads besides its own.
    """
    options = options_of(**limits)
    *others, last = with_last_range(PLAN, ASSIGNED, options)
    assert others == PLAN[:1]
    last = pickle.loads(pickle.dumps(last))  # noqa: S301 (pickled here)
    planned, *rest = ranges_of(last, options, lambda: cluster)
    assert planned == PLAN[1]
    return [(r.tp, r.start, r.end) for r in rest]


@pytest.mark.parametrize(
    ("limits", "start"),
    [
        ({}, EARLIEST),
        ({"startingOffsets": "-7"}, 43),
        ({"startingOffsets": "1970-01-01T00:00:00.012Z"}, 12),
        ({"startingTimestamp": "12"}, 12),
        ({"startingTimestamp": "99"}, 50),
        ({"startingTimestamp": FUTURE_MS, "startingOffsetsByTimestampStrategy": "latest"}, 50),
        ({"startingOffsets": "2100-01-01T00:00:00Z"}, 50),
        ({"startingOffsets": '{"t": {"0": 1, "1": 1}}', "startingOffsetsFallback": "earliest"}, -2),
        ({"startingOffsets": '{"t": "-7"}'}, 43),
        ({"endingOffsets": '{"t": "latest"}'}, EARLIEST),
    ],
)
def test_added_partitions_are_read_by_the_last_task(limits: dict[str, str], start: int) -> None:
    """
    The task of the plan's last range also reads partitions that were added since: from the start
    that the options define for them to the end of the log. That start may be in the future: only
    the driver checks it, since the clock of an executor may be behind.
    """
    assert added(grown_cluster(), **limits) == [(T2, start, LATEST)]


def test_topics_that_match_later() -> None:
    """
    With subscribePattern, all partitions of new topics are read, even if the plan was empty.
    """
    cluster, options = grown_cluster(), options_of(subscribePattern="t")

    assert added(cluster, subscribePattern="t") == [(tp, EARLIEST, LATEST) for tp in (T2, TU)]
    (last,) = with_last_range([], Assignment((), {}), options)
    assert [r.tp for r in ranges_of(last, options, lambda: cluster)] == [T0, T1, T2, TU]


def test_partitions_of_a_recreated_topic_are_not_added() -> None:
    """
    Additional partitions of a recreated topic are not read: they belong to another topic.

    A range of an added partition has the id of its topic.
    """
    cluster, options = grown_cluster(), options_of()
    ids = cluster.existing(["t"]).topic_ids

    for known, expected in ((dict(ids), [T2]), ({"t": "id of the deleted topic"}, [])):
        *_, last = with_last_range(PLAN, Assignment((T0, T1), known), options)
        _, *rest = ranges_of(last, options, lambda: cluster)
        assert [r.tp for r in rest] == expected
        assert all(r.topic_id == ids["t"] for r in rest)


def test_nothing_was_added() -> None:
    """
    A plan reads nothing else if no partition was added, or if its topic was deleted.
    """
    cluster = Cluster()
    cluster.create_topic("t", 10, 20)
    assert added(cluster) == []
    assert added(Cluster()) == []


@pytest.mark.parametrize(
    "limits",
    [
        {"assign": '{"t": [0, 1]}'},
        {"startingOffsets": '{"t": {"0": 1, "1": 1}}'},
        {"startingOffsets": "committed", "kafka.group.id": "g"},
        {"startingOffsetsByTimestamp": '{"t": {"0": 1, "1": 1}}'},
        {"endingOffsets": '{"t": {"0": 1, "1": 1}}'},
        {"endingOffsets": "-1 minute"},
        {"endingTimestamp": "99"},
        {"pushDownFilters": "true"},
    ],
)
def test_plans_that_cover_only_their_own_partitions(limits: dict[str, str]) -> None:
    """
    If the options name partitions without a fallback, or fix the end, a plan stays as it is, and
    its tasks send no request. The same holds if the user promises a single query.
    """
    options = options_of(**limits)

    assert with_last_range(PLAN, ASSIGNED, options) == PLAN
    assert not may_have_added(options, ["t"])


def test_the_request_comes_after_the_range() -> None:
    """
    Metadata is requested only once the task has read its own range.
    """
    options = options_of()
    *_, last = with_last_range(PLAN, ASSIGNED, options)
    requests: list[str] = []

    def lookup() -> Cluster:
        requests.append("metadata")
        return grown_cluster()

    ranges = ranges_of(last, options, lookup)
    assert next(ranges) == PLAN[1]
    assert not requests
    assert [r.tp for r in ranges] == [T2]
    assert requests == ["metadata"]
