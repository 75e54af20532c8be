"""
The ends of a simulated query: sources and sinks, the connector's and plain ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.spark.connector import Connector

SINK_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("topic", StringType()),
    ]
)
_SINK_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("topic", pa.string()),
    ]
)


class Row(NamedTuple):
    """
    A row between source and sink; the position is empty in rows that are not Kafka records.
    """

    value: bytes
    key: bytes | None = None
    topic: str = ""
    partition: int = -1
    offset: int = -1


class PlannedSource(Protocol):
    """
    A source within one run of a query; called in the planner's process.
    """

    def initial(self) -> Any:
        """
        Return the start of a new query.
        """

    def latest(self, start: Any) -> Any:
        """
        Return the end of the next micro-batch.
        """

    def prepare_for_available_now(self) -> None:
        """
        Fix the end of the run.
        """

    def commit(self, end: Any) -> None:
        """
        Take note that the batches up to ``end`` are complete.
        """

    def partitions(self, start: Any, end: Any) -> list[Any]:
        """
        Plan a micro-batch.
        """

    def read(self, partition: Any) -> Iterator[list[Row]]:
        """
        Yield the rows of an input partition; called in a task's process.
        """


class Prefetched(NamedTuple):
    """
    An input partition whose rows the driver has read; a task would read ``partition`` instead.
    """

    partition: Any
    rows: list[list[Row]]


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Row]]:
    """
    Yield the rows of Arrow batches of the source's schema.
    """
    for batch in batches:
        columns = [
            batch[name].to_pylist() for name in ("value", "key", "topic", "partition", "offset")
        ]
        yield [Row(*values) for values in zip(*columns, strict=True)]


class KafkaSource:
    """
    The connector's streaming reader, in the planner's process and, as copies, in tasks.
    """

    def __init__(self, connector: Connector, options: dict[str, str]) -> None:
        source = connector.source(options)
        self._limits = connector.module("spark.compat")
        self._reader = source.streamReader(source.schema())

    def initial(self) -> Any:
        return self._reader.initialOffset()

    def latest(self, start: Any) -> Any:
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        self._reader.reportLatestOffset()
        return end

    def prepare_for_available_now(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def commit(self, end: Any) -> None:
        self._reader.commit(end)

    def partitions(self, start: Any, end: Any) -> list[Any]:
        planned = self._reader.partitions(start, end)
        if self._reader.__class__ is type(self._reader):
            return list(planned)
        # Spark takes the records that are attached to the only input partition.
        rows = list(rows_of(self._reader.getCache(start, end)))
        return [Prefetched(planned[0], rows)]

    def read(self, partition: Any) -> Iterator[list[Row]]:
        # What pickling does: the task's copy has no state of the driver.
        kind = type(self._reader)
        copy = object.__new__(kind)
        copy.__dict__.update(self._reader.__getstate__())
        return rows_of(copy.read(partition))


@dataclass
class PlainSource:
    """
    A source that is not the connector's: numbered rows, appended as time passes.
    """

    rows: list[Row] = field(default_factory=list)
    max_rows: int = 40
    splits: int = 3

    def initial(self) -> int:
        return 0

    def latest(self, start: int) -> int:
        return min(len(self.rows), start + self.max_rows)

    def prepare_for_available_now(self) -> None:
        """
        Do nothing: limits are not fixed.
        """

    def commit(self, end: int) -> None:
        """
        Do nothing: rows are kept.
        """

    def partitions(self, start: int, end: int) -> list[Any]:
        count = min(self.splits, end - start)
        bounds = [start + (end - start) * number // count for number in range(count + 1)]
        return list(pairwise(bounds))

    def read(self, partition: tuple[int, int]) -> Iterator[list[Row]]:
        start, end = partition
        for first in range(start, end, 7):
            yield self.rows[first : min(first + 7, end)]


class Sink(Protocol):
    """
    A sink within one run of a query.
    """

    def write(self, rows: Iterator[list[Row]]) -> Any:
        """
        Write a task's rows, in the task's process, and return the commit message.
        """

    def commit(self, messages: Sequence[Any], batch: int) -> None:
        """
        Commit a micro-batch, in the committer's process.
        """

    def abort(self, messages: Sequence[Any], batch: int) -> None:
        """
        Abort a micro-batch, in the committer's process.
        """


class KafkaSink:
    """
    The connector's streaming writer.
    """

    def __init__(self, connector: Connector, options: dict[str, str]) -> None:
        source = connector.source(options)
        self._writer = source.streamWriter(SINK_SCHEMA, False)  # noqa: FBT003 (Spark's call)

    def write(self, rows: Iterator[list[Row]]) -> Any:
        return self._writer.write(_to_arrow(rows))

    def commit(self, messages: Sequence[Any], batch: int) -> None:
        self._writer.commit(list(messages), batch)

    def abort(self, messages: Sequence[Any], batch: int) -> None:
        self._writer.abort(list(messages), batch)


@dataclass
class Collector:
    """
    A sink that keeps the rows of each micro-batch once, as an idempotent sink does.
    """

    batches: dict[int, list[Row]] = field(default_factory=dict)

    def write(self, rows: Iterator[list[Row]]) -> list[Row]:
        return [row for part in rows for row in part]

    def commit(self, messages: Sequence[list[Row]], batch: int) -> None:
        self.batches[batch] = [row for message in messages for row in message]

    def abort(self, messages: Sequence[Any], batch: int) -> None:
        """
        Keep nothing.
        """


class KafkaBatchSink:
    """
    The connector's batch writer.
    """

    def __init__(self, connector: Connector, options: dict[str, str]) -> None:
        source = connector.source(options)
        self._writer = source.writer(SINK_SCHEMA, False)  # noqa: FBT003 (Spark's call)

    def write(self, rows: Iterator[list[Row]]) -> Any:
        return self._writer.write(_to_arrow(rows))

    def commit(self, messages: Sequence[Any]) -> None:
        self._writer.commit(list(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        self._writer.abort(list(messages))


def _to_arrow(rows: Iterator[list[Row]]) -> Iterator[pa.RecordBatch]:
    for part in rows:
        columns = [
            pa.array([row.key for row in part], pa.binary()),
            pa.array([row.value for row in part], pa.binary()),
            pa.nulls(len(part), pa.int32()),
            pa.nulls(len(part), pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_SINK_ARROW)
