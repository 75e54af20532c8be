"""
The monitoring page's data for a driver program, from the metrics of its queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.metrics.progress_event import TRIGGER
from pyspark_pykafka.ui.page_data import (
    PageData,
    PageDeadLetters,
    PageError,
    PagePartition,
    PageQuery,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.metrics.snapshot import PartitionSnapshot, QuerySnapshot, Snapshot


def driver_page_data(snapshot: Snapshot) -> PageData:
    """
    Return the page's data for a session's queries, running queries first.
    """
    queries = sorted(snapshot.queries, key=lambda query: not query.is_running)
    return PageData(
        source="driver program",
        queries=tuple(_query(query) for query in queries if query.id),
        errors=tuple(error for query in queries for error in _errors(query)),
        dead_letters=tuple(
            PageDeadLetters(topic, partition, count, query.name or query.id)
            for query in queries
            for (topic, partition), count in query.dead_letters.items()
        ),
    )


def _query(query: QuerySnapshot) -> PageQuery:
    end_state = "failed" if query.has_failed else "ended"
    return PageQuery(
        id=query.id,
        name=query.name or query.id,
        state="running" if query.is_running else end_state,
        partitions=tuple(_partition(query, partition) for partition in query.partitions),
        batch=query.batch_id,
        batch_seconds=query.last_seconds.get(TRIGGER),
        rows_per_second=sum(source.processed_rate for source in query.sources),
        replays=query.replays,
        lost=query.lost,
        dead_letters=query.dead_letter_count,
        failures=sum(query.failures.values()),
        last_event=query.last_event_time,
    )


def _partition(query: QuerySnapshot, partition: PartitionSnapshot) -> PagePartition:
    """
    Return the page's row for a partition. An ended query has no end offset and no lag: nothing
    refreshes them any more.
    """
    label = (partition.topic, partition.partition)
    if not query.is_running:
        return PagePartition(*label, partition.position, None, None, None)
    return PagePartition(
        *label, partition.position, partition.end, partition.lag, partition.lag_seconds
    )


def _errors(query: QuerySnapshot) -> Iterator[PageError]:
    name = query.name or query.id
    for error, count in query.failures.items():
        yield PageError(name, count, error)
    if query.last_error:
        yield PageError(name, 1, f"latest error: {query.last_error}")
