"""
The data of the page, as values: the same for a driver program and for a cluster.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark_pykafka.metrics.lag import longest_lag, total_lag


@dataclass(frozen=True, slots=True)
class PagePartition:
    """
    One partition of a query, or several aggregated. Unknown values are None.
    """

    topic: str
    partition: str
    position: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class PageQuery:
    """
    One query. Unknown values are None.

    ``state`` is running, ended, failed, failing or recorded. A query is "recorded" if its progress
    store does not show whether it runs, and "failing" if its store records failed attempts at a
    micro-batch. ``replays`` counts micro-batches that were read again, or the attempts at the
    micro-batch that is failing. Times are in seconds since 1970.
    """

    id: str
    name: str
    state: str
    partitions: tuple[PagePartition, ...]
    batch: int | None = None
    batch_seconds: float | None = None
    rows_per_second: float | None = None
    replays: int | None = None
    lost: int | None = None
    dead_letters: int | None = None
    failures: int | None = None
    last_event: float | None = None

    @property
    def lag(self) -> int | None:
        """
        The sum of the partitions' known lags, in offsets.
        """
        return total_lag(partition.lag for partition in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """
        The longest of the partitions' known lags, in seconds.
        """
        return longest_lag(partition.lag_seconds for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class PageError:
    """
    An error of a query: how often it occurred, and its text.
    """

    query: str
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class PageDeadLetters:
    """
    How many records of a partition were set aside. On a driver's page the partition belongs to the
    source, and ``text`` names the query. On a cluster's page the partition belongs to the
    dead-letter topic, and ``text`` is the last error.
    """

    topic: str
    partition: str
    records: int
    text: str


@dataclass(frozen=True, slots=True)
class PageData:
    """
    The data of the page at one moment; ``source`` describes where the data comes from.
    """

    source: str
    queries: tuple[PageQuery, ...] = ()
    errors: tuple[PageError, ...] = ()
    dead_letters: tuple[PageDeadLetters, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """
        Return the fields as JSON, with the lags of each query.
        """
        document = asdict(self)
        for fields, query in zip(document["queries"], self.queries, strict=True):
            fields |= {"lag": query.lag, "lag_seconds": query.lag_seconds}
        return document
