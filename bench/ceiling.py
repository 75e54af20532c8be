"""
The ceiling: a Python data source that yields one Arrow batch repeatedly, and drops written rows.

No connector on Spark's Python Data Source API can be faster. The distance to the ceiling is the
cost of reading and decoding, or of encoding and writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from bench.cases import CEILING_FORMAT
from bench.figures import check_records
from bench.values import samples
from pyspark_pykafka.schema import SOURCE_TYPES
from pyspark_pykafka.spark.worker import freeze_loaded_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)
KEY_BYTES = 8
#: The limits of a batch in rows and in bytes.
ROWS, BYTES = 10_000, 4 * 1024 * 1024


class Ceiling(DataSource):
    """
    The data source; its options are `records`, `size` (of a value, in bytes) and `partitions`.

    A writer needs only `records`, the expected number of rows.
    """

    @classmethod
    def name(cls) -> str:
        """
        Return the name for ``.format(...)``.
        """
        return CEILING_FORMAT

    def schema(self) -> str:
        """
        Return the default columns of both connectors.
        """
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        """
        Return the reader of a batch query.
        """
        return _BatchReader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """
        Return the reader of a streaming query.
        """
        return _StreamReader(self.options)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        """
        Return the writer of a batch query.
        """
        return _Writer(int(self.options["records"]))


class _Records:
    """
    Records of one size; the common part of both readers.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.records = int(options["records"])
        self.size = int(options["size"])
        self.partition_count = int(options["partitions"])

    def split(self, total: int) -> list[InputPartition]:
        """
        Divide the records among the partitions.
        """
        remainder = total % self.partition_count
        shares = [
            total // self.partition_count + (number < remainder)
            for number in range(self.partition_count)
        ]
        return [InputPartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """
        Yield one batch repeatedly, and then the remaining rows.
        """
        freeze_loaded_modules()
        batch = ceiling_batch(self.size)
        full_batches, remainder = divmod(partition.value, batch.num_rows)
        for _ in range(full_batches):
            yield batch
        if remainder:
            yield batch.slice(0, remainder)


class _BatchReader(_Records, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return self.split(self.records)


class _StreamReader(_Records, DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"records": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002, N802
        return {"records": self.records}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self.split(end["records"] - start["records"])


@dataclass(frozen=True, slots=True)
class _Dropped(WriterCommitMessage):
    """
    The number of rows that a task received.
    """

    records: int


class _Writer(DataSourceArrowWriter):
    """
    Drops its rows; the write fails unless Spark passes ``records`` rows.
    """

    def __init__(self, records: int) -> None:
        self._records = records

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Dropped:
        freeze_loaded_modules()
        return _Dropped(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        received = sum(message.records for message in messages if isinstance(message, _Dropped))
        check_records("Spark", self._records, received)


@cache
def ceiling_batch(size: int) -> pa.RecordBatch:
    """
    Return a batch large enough to keep Spark's overhead low, created once in each worker.
    """
    rows = max(1, min(ROWS, BYTES // (size + KEY_BYTES)))
    values = samples(size)
    columns = {
        "key": [b"k-%06d" % number for number in range(rows)],
        "value": [values[number % len(values)] for number in range(rows)],
        "topic": ["bench-ceiling"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)] * rows,
        "timestampType": [0] * rows,
    }
    arrays = [pa.array(column, SOURCE_TYPES[name]) for name, column in columns.items()]
    return pa.record_batch(arrays, names=list(columns))
