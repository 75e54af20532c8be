"""
Rows of Arrow batches, in the types that librdkafka's producer accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pykafka.engines import row_errors

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Header(TypedDict):
    key: str | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Row:
    """
    One row, in the types that librdkafka's producer accepts.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp_ms: int | None
    headers: list[tuple[str, bytes | None]] | None

    @property
    def description(self) -> str:
        """
        The row's destination, for messages.
        """
        return row_errors.describe_row(self.topic, self.key, self.partition)


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[Row]:
    """
    Yield the rows of a batch whose schema :func:`schema.check_sink_schema` has accepted.
    """
    partitions: list[int | None] = _column(batch, "partition").to_pylist()
    for index, values in enumerate(
        zip(
            _topics(batch, topic),
            _bytes(batch, "key"),
            _bytes(batch, "value"),
            partitions,
            _timestamps(batch),
            _headers(batch),
            strict=True,
        )
    ):
        destination, key, value, partition, timestamp, headers = values
        if destination is None:
            raise row_errors.null_topic_error(index, key)
        yield Row(destination, key, value, partition, timestamp, _header_pairs(headers))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    index = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows) if index < 0 else batch.column(index)


def _topics(batch: pa.RecordBatch, topic: str | None) -> list[str | None]:
    if topic is not None:
        return [topic] * batch.num_rows
    column = _column(batch, "topic")
    try:
        topics: list[str | None] = column.to_pylist()
    except UnicodeDecodeError as cause:
        raise row_errors.undecodable_topic_error(column, _column(batch, "key")) from cause
    return topics


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    column = _column(batch, name)
    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values


def _timestamps(batch: pa.RecordBatch) -> list[int | None]:
    micros = _column(batch, "timestamp").cast(pa.int64())
    earliest = pc.min(micros).as_py()
    if earliest is not None and earliest < row_errors.MIN_TIMESTAMP_US:
        raise row_errors.early_timestamp_error()
    return [None if m is None else m // 1000 for m in micros.to_pylist()]


def _headers(batch: pa.RecordBatch) -> list[list[_Header | None] | None]:
    column = _column(batch, "headers")
    try:
        headers: list[list[_Header | None] | None] = column.to_pylist()
    except UnicodeDecodeError as cause:
        raise row_errors.undecodable_header_key_error(column) from cause
    return headers


def _header_pairs(
    headers: list[_Header | None] | None,
) -> list[tuple[str, bytes | None]] | None:
    return None if headers is None else [_header_pair(header) for header in headers]


def _header_pair(header: _Header | None) -> tuple[str, bytes | None]:
    if header is None or header["key"] is None:
        raise row_errors.null_header_key_error()
    return (header["key"], header["value"])
