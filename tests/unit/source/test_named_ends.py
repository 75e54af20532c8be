"""
Streams whose options set an end for each topic or partition, some of which are deleted meanwhile.
"""

from __future__ import annotations

import pytest
from tests.support.memory_cluster import Cluster
from tests.support.stepped_query import SteppedQuery

from pyspark_pykafka.errors import DataLossError, OffsetsError

TIME = "1970-01-01T00:00:01Z"

NUMBERS = {"endingOffsets": '{"a":{"0":100,"1":100},"ab":{"0":100}}'}

with_named_ends = pytest.mark.parametrize(
    "end_options",
    [
        NUMBERS,
        {"endingOffsets": f'{{"a":{{"0":"{TIME}","1":"{TIME}"}},"ab":{{"0":"{TIME}"}}}}'},
        {"endingOffsets": f'{{"a":"{TIME}","ab":"{TIME}"}}'},
        {"endingOffsetsByTimestamp": '{"a":{"0":1000,"1":1000},"ab":{"0":1000}}'},
    ],
    ids=["offsets", "times", "topics", "timestamps"],
)


@pytest.fixture
def cluster() -> Cluster:
    """
    Return a cluster with the topics a, of two partitions, and ab, of one.
    """
    new_cluster = Cluster()
    new_cluster.create_topic("a", 3, 3)
    new_cluster.create_topic("ab", 3)
    return new_cluster


def query_of(
    cluster: Cluster, end_options: dict[str, str], *, fail_on_data_loss: bool = False
) -> SteppedQuery:
    """
    Return a stream of both topics with these ends.
    """
    options = {
        "kafka.bootstrap.servers": "b:1",
        "subscribePattern": "a",
        "startingOffsets": "earliest",
        "failOnDataLoss": str(fail_on_data_loss).lower(),
        "fetchOffset.retryIntervalMs": "0",
    }
    return SteppedQuery(cluster, {**options, **end_options})


def step(query: SteppedQuery) -> list[str]:
    """
    Run one micro-batch, and return its ranges.
    """
    return [str(offset_range) for offset_range in query.next_ranges()]


@with_named_ends
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_deleted_topic_leaves_the_ends_of_others(
    cluster: Cluster, end_options: dict[str, str], *, restarted: bool
) -> None:
    """
    With failOnDataLoss=false a stream reads on after a topic with an end was deleted.
    """
    query = query_of(cluster, end_options)
    assert step(query) == ["a-0[0, 3)", "a-1[0, 3)", "ab-0[0, 3)"]
    del cluster.topics["ab"]
    cluster.topics["a"] = [(0, 200), (0, 3)]
    if restarted:
        query.restart()

    end = 100 if end_options == NUMBERS else 200
    assert step(query) == [f"a-0[3, {end})"]
    query.restart()
    assert step(query) == []


@with_named_ends
def test_a_recreated_topic_may_have_fewer_partitions(
    cluster: Cluster, end_options: dict[str, str]
) -> None:
    """
    The partitions that the new topic has are read up to the ends in the options.
    """
    query = query_of(cluster, end_options)
    step(query)
    cluster.create_topic("a", 5)

    assert step(query) == ["a-0[0, 5)"]


@with_named_ends
def test_a_deleted_topic_is_data_loss(cluster: Cluster, end_options: dict[str, str]) -> None:
    """
    With failOnDataLoss=true the query ends with the error of deleted partitions.
    """
    query = query_of(cluster, end_options, fail_on_data_loss=True)
    step(query)
    del cluster.topics["ab"]

    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*ab-0"):
        step(query)


@pytest.mark.parametrize(
    ("end_options", "message"),
    [
        (
            {"endingOffsets": '{"a":{"0":9,"1":9},"ab":{"0":9,"1":9}}'},
            "KAFKA_END_OFFSET_DOES_NOT_MATCH_ASSIGNED.*endingOffsets.*not assigned: ab-1",
        ),
        (
            {"endingOffsets": '{"a":{"0":9},"ab":{"0":9}}'},
            "KAFKA_END_OFFSET_DOES_NOT_MATCH_ASSIGNED.*endingOffsets.*missing: a-1",
        ),
        (
            {"endingOffsets": f'{{"a":"{TIME}","abc":"{TIME}"}}'},
            "KAFKA_END_OFFSET_DOES_NOT_MATCH_ASSIGNED.*endingOffsets is given for abc",
        ),
        (
            {"endingOffsetsByTimestamp": '{"a":{"0":9,"1":9},"ab":{"1":9}}'},
            "KAFKA_TIMESTAMP_OFFSET.*endingOffsetsByTimestamp.*missing: ab-0; not assigned: ab-1",
        ),
    ],
)
def test_a_new_query_needs_the_end_of_each_partition(
    cluster: Cluster, end_options: dict[str, str], message: str
) -> None:
    """
    The error of a new query names the option, and the partitions that are missing in it or that no
    topic has.
    """
    query = query_of(cluster, end_options)

    with pytest.raises(OffsetsError, match=message):
        step(query)
