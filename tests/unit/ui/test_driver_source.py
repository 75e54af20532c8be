"""
The page of a driver program.
"""

from __future__ import annotations

from tests.support.query_snapshots import eventful_metrics

from pyspark_pykafka.ui.driver_source import driver_page_data


def test_query_of_a_driver() -> None:
    """
    A query has its state, lag, counts and partitions; its errors and dead letters are listed.
    """
    page = driver_page_data(eventful_metrics().snapshot(100.0))

    (query,) = page.queries
    assert (query.name, query.state, query.batch) == ("flights", "running", 1)
    assert (query.lag, query.replays, query.lost) == (90, 1, 2)
    assert (query.failures, query.dead_letters) == (1, 3)
    assert [partition.partition for partition in query.partitions] == ["0", "1"]
    assert [(error.query, error.count, error.text) for error in page.errors] == [
        ("flights", 1, "DataLossError"),
        ("flights", 1, "latest error: records were lost"),
    ]
    assert [(letter.topic, letter.partition, letter.records) for letter in page.dead_letters] == [
        ("t", "0", 3)
    ]


def test_ended_queries_come_last() -> None:
    """
    Running queries come first; a query whose last run has ended without an error has not failed.
    """
    metrics = eventful_metrics()
    metrics.end("q", "run", ("X", "text"), 60.0)
    metrics.start("stopped", "run", "", 70.0)
    metrics.end("stopped", "run", None, 80.0)
    metrics.start("new", "run", "", 90.0)
    metrics.count_dead_letters("", [])

    metrics.start("recovered", "first", "", 91.0)
    metrics.end("recovered", "first", ("X", "text"), 92.0)
    metrics.start("recovered", "second", "", 93.0)
    metrics.end("recovered", "second", None, 94.0)

    states = [(query.name, query.state) for query in driver_page_data(metrics.snapshot(99)).queries]
    assert states == [
        ("new", "running"),
        ("flights", "failed"),
        ("stopped", "ended"),
        ("recovered", "ended"),
    ]


def test_ended_query_has_no_lag() -> None:
    """
    Nobody reads the end offsets of a query that has ended: its lag is unknown, its position stays.
    """
    metrics = eventful_metrics()
    metrics.end("q", "run", None, 60.0)

    (query,) = driver_page_data(metrics.snapshot(100.0)).queries
    assert [(partition.position, partition.end) for partition in query.partitions] == [
        (17, None),
        (5, None),
    ]
    assert (query.lag, query.lag_seconds) == (None, None)
