"""
The one table of the metrics: name, labels and meaning, and how each is read from a snapshot.

``docs/monitoring.md`` has the same table: ``python -m pyspark_pykafka.metrics``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark_pykafka.metrics.snapshot import PartitionSnapshot, QuerySnapshot, Snapshot

#: The values of a metric's labels, in order, and its value.
Sample = tuple[tuple[str, ...], float]

QUERY = ("query_id", "query_name")
SOURCE = (*QUERY, "source")
PARTITION = (*SOURCE, "topic", "partition")


class Kind(enum.Enum):
    """
    Whether a metric is a counter or a gauge.
    """

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """
    One metric; ``read`` returns its samples from a snapshot. ``unit`` is that of OpenTelemetry.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    unit: str
    description: str
    read: Callable[[Snapshot], Iterable[Sample]]


def _query_labels(query: QuerySnapshot) -> tuple[str, str]:
    return query.id, query.name


def _of_queries(
    value: Callable[[QuerySnapshot], float | None], *, running: bool = False
) -> Callable[[Snapshot], Iterable[Sample]]:
    """
    Return a function that reads one value of each query, or of each running query.

    A snapshot also has a query with an empty id, which only counts dead letters whose query is not
    known: it has no other metrics.
    """

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for query in snapshot.queries:
            number = value(query)
            if query.id and number is not None and (query.is_running or not running):
                yield _query_labels(query), number

    return read


def _of_keys(
    values: Callable[[QuerySnapshot], Mapping[str, float]], *, running: bool = False
) -> Callable[[Snapshot], Iterable[Sample]]:
    """
    Return a function that reads a value for each query and each key, such as a phase.
    """

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for query in snapshot.queries:
            if query.is_running or not running:
                for key, number in values(query).items():
                    yield (*_query_labels(query), key), number

    return read


def _of_sources(field: str, snapshot: Snapshot) -> Iterator[Sample]:
    # Rates describe a running query only; the counter of rows continues after a run has ended.
    for query in snapshot.queries:
        if query.is_running or field == "rows":
            for source in query.sources:
                yield (*_query_labels(query), str(source.index)), getattr(source, field)


def _of_partitions(
    value: Callable[[PartitionSnapshot], float | None], *, running: bool = True
) -> Callable[[Snapshot], Iterable[Sample]]:
    """
    Return a function that reads one value of each partition, by default of running queries only.
    """

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for query in snapshot.queries:
            if running and not query.is_running:
                continue
            for partition in query.partitions:
                number = value(partition)
                if number is not None:
                    labels = (
                        *_query_labels(query),
                        str(partition.source),
                        partition.topic,
                        partition.partition,
                    )
                    yield labels, number

    return read


def _losses(snapshot: Snapshot) -> Iterator[Sample]:
    for query in snapshot.queries:
        for (source, condition), count in query.losses.items():
            yield (*_query_labels(query), str(source), condition), count


def _dead_letters(snapshot: Snapshot) -> Iterator[Sample]:
    for query in snapshot.queries:
        for (topic, partition), count in query.dead_letters.items():
            yield (*_query_labels(query), topic, partition), count


def _dead_letter_ends(snapshot: Snapshot) -> Iterator[Sample]:
    yield from snapshot.dead_letter_ends.items()


def _audits(snapshot: Snapshot) -> Iterator[Sample]:
    yield from snapshot.audits.items()


METRICS = (
    Metric(
        "pykafka_query_running",
        Kind.GAUGE,
        QUERY,
        "1",
        "1 while the query runs, 0 after it has ended.",
        _of_queries(lambda query: int(query.is_running)),
    ),
    Metric(
        "pykafka_query_failed",
        Kind.GAUGE,
        QUERY,
        "1",
        "1 if the last run ended with an error and the query was not restarted, else 0.",
        _of_queries(lambda query: int(query.has_failed)),
    ),
    Metric(
        "pykafka_query_starts_total",
        Kind.COUNTER,
        QUERY,
        "{start}",
        "Runs of the query that were started, restarts included.",
        _of_queries(lambda query: query.starts),
    ),
    Metric(
        "pykafka_query_failures_total",
        Kind.COUNTER,
        (*QUERY, "error"),
        "{failure}",
        "Runs that ended with an error, by the connector's error class or Spark's condition.",
        _of_keys(lambda query: query.failures),
    ),
    Metric(
        "pykafka_query_last_event_timestamp_seconds",
        Kind.GAUGE,
        QUERY,
        "s",
        "When the query last finished a micro-batch, or looked for records and found none.",
        _of_queries(lambda query: query.last_event_time),
    ),
    Metric(
        "pykafka_batches_total",
        Kind.COUNTER,
        QUERY,
        "{batch}",
        "Finished micro-batches.",
        _of_queries(lambda query: query.batches),
    ),
    Metric(
        "pykafka_replayed_batches_total",
        Kind.COUNTER,
        QUERY,
        "{batch}",
        "Finished micro-batches that an earlier run had planned and not finished.",
        _of_queries(lambda query: query.replays),
    ),
    Metric(
        "pykafka_last_batch_id",
        Kind.GAUGE,
        QUERY,
        "1",
        "Spark's id of the last finished micro-batch.",
        _of_queries(lambda query: query.batch_id, running=True),
    ),
    Metric(
        "pykafka_last_batch_timestamp_seconds",
        Kind.GAUGE,
        QUERY,
        "s",
        "When the last micro-batch finished.",
        _of_queries(lambda query: query.last_batch_time),
    ),
    Metric(
        "pykafka_last_batch_seconds",
        Kind.GAUGE,
        (*QUERY, "phase"),
        "s",
        "Duration of each of Spark's phases in the last micro-batch; `triggerExecution` is the "
        "total, `walCommit` and `commitOffsets` are the commits.",
        _of_keys(lambda query: query.last_seconds, running=True),
    ),
    Metric(
        "pykafka_batch_seconds_total",
        Kind.COUNTER,
        (*QUERY, "phase"),
        "s",
        "Sum of the durations of each of Spark's phases over all micro-batches.",
        _of_keys(lambda query: query.total_seconds),
    ),
    Metric(
        "pykafka_input_rows_total",
        Kind.COUNTER,
        SOURCE,
        "{row}",
        "Rows that a source has delivered.",
        partial(_of_sources, "rows"),
    ),
    Metric(
        "pykafka_input_rows_per_second",
        Kind.GAUGE,
        SOURCE,
        "{row}/s",
        "Spark's rate at which rows arrived, in the last micro-batch.",
        partial(_of_sources, "input_rate"),
    ),
    Metric(
        "pykafka_processed_rows_per_second",
        Kind.GAUGE,
        SOURCE,
        "{row}/s",
        "Spark's rate at which rows were processed, in the last micro-batch.",
        partial(_of_sources, "processed_rate"),
    ),
    Metric(
        "pykafka_position_offset",
        Kind.GAUGE,
        PARTITION,
        "1",
        "The next offset to read.",
        _of_partitions(lambda partition: partition.position),
    ),
    Metric(
        "pykafka_end_offset",
        Kind.GAUGE,
        PARTITION,
        "1",
        "The latest offset of the partition: that of the last micro-batch's plan, or the one "
        "that the brokers have returned since.",
        _of_partitions(lambda partition: partition.end),
    ),
    Metric(
        "pykafka_lag_offsets",
        Kind.GAUGE,
        PARTITION,
        "{offset}",
        "Offsets between the next offset to read and the latest offset. They include offsets "
        "without a record: transaction markers, and records removed by compaction.",
        _of_partitions(lambda partition: partition.lag),
    ),
    Metric(
        "pykafka_lag_seconds",
        Kind.GAUGE,
        PARTITION,
        "s",
        "How long the oldest unread record has been in the log; 0 if all is read.",
        _of_partitions(lambda partition: partition.lag_seconds),
    ),
    Metric(
        "pykafka_read_offsets_total",
        Kind.COUNTER,
        PARTITION,
        "{offset}",
        "Offsets that finished micro-batches have covered.",
        _of_partitions(lambda partition: partition.read, running=False),
    ),
    Metric(
        "pykafka_lost_offsets_total",
        Kind.COUNTER,
        PARTITION,
        "{offset}",
        "Offsets that were deleted before they were read, if `failOnDataLoss` is false.",
        _of_partitions(lambda partition: partition.lost, running=False),
    ),
    Metric(
        "pykafka_data_losses_total",
        Kind.COUNTER,
        (*SOURCE, "condition"),
        "{loss}",
        "Data losses whose records cannot be counted, by condition, if `failOnDataLoss` is false: "
        "deleted partitions, recreated topics, and logs that end before the query's position.",
        _losses,
    ),
    Metric(
        "pykafka_dead_letters_total",
        Kind.COUNTER,
        (*QUERY, "topic", "partition"),
        "{record}",
        "Records that `isolate_poison` has set aside.",
        _dead_letters,
    ),
    Metric(
        "pykafka_dead_letter_topic_end_offset",
        Kind.GAUGE,
        ("topic", "partition"),
        "1",
        "The end offset of the `deadLetterTopic` in the listener's `options`; it grows by 1 with "
        "each record that is set aside there, by any query.",
        _dead_letter_ends,
    ),
    Metric(
        "pykafka_audited_batches_total",
        Kind.COUNTER,
        ("auditor", "verdict"),
        "{batch}",
        "Micro-batches that an `Auditor` has compared, by the most severe verdict of the report, "
        "on the whole batch or on a partition: a mismatch, else `unknown`, else `complete`.",
        _audits,
    ),
)
