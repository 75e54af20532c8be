"""
Encodes the keys and values of a task's rows, batch by batch, before the engine sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.engines import row_errors
from pyspark_pykafka.errors import RecordError
from pyspark_pykafka.formats.encoded_column import EncodedColumn, EncodingError
from pyspark_pykafka.schema import SINK_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_pykafka.formats.schema_id_headers import SchemaIdHeaders
    from pyspark_pykafka.formats.write_format import WriteFormat

#: A batch of encoded rows ends when its keys or its values reach this size.
MAX_CHUNK_BYTES = 16 << 20


class RecordEncoder:
    """
    Encodes rows; ``topic`` is the topic of all rows, or None if rows have their own topics.
    """

    def __init__(
        self, format_: WriteFormat, topic: str | None, max_chunk_bytes: int = MAX_CHUNK_BYTES
    ) -> None:
        self._topic = topic
        self._max_bytes = max_chunk_bytes
        self._columns = {column.name: EncodedColumn(column) for column in format_.columns}
        # Headers that name the former schema of an encoded column are removed, so that no reader
        # decodes the new bytes with that schema, even if the column has no id now.
        ids = {column.name: column.schema_id for column in format_.columns}
        has_headers = "headers" in format_.record_schema.names or any(ids.values())
        self._ids = _schema_id_headers(ids) if ids and has_headers else None

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows with encoded keys and values, in one or more batches for each input batch.

        Raises :class:`RecordError` for the first row that cannot be encoded.
        """
        for batch in batches:
            start = 0
            while start < batch.num_rows:
                encoded = self._encode(batch, start)
                yield encoded
                start += encoded.num_rows

    def _encode(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        end = batch.num_rows
        encoded: dict[str, pa.Array] = {}
        for name, column in self._columns.items():
            try:
                values = column.encode(batch.column(name), start, end, self._max_bytes)
            except EncodingError as error:
                raise self._record_error(batch, name, error) from None
            encoded[name] = values
            end = start + len(values)
        rows = end - start
        arrays = {
            name: encoded[name].slice(0, rows)
            if name in encoded
            else batch.column(name).slice(start, rows)
            for name in batch.schema.names
            if name in SINK_COLUMNS
        }
        if self._ids is not None:
            headers = self._ids.headers(arrays.get("headers"), arrays, rows)
            if headers is not None:
                arrays["headers"] = headers
        return pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])

    def _record_error(self, batch: pa.RecordBatch, name: str, error: EncodingError) -> RecordError:
        reason = self._columns[name].describe(error)
        topic = self._topic or _value(batch, "topic", error.row)
        if name == "key":
            where = f"row {error.row} of a batch for topic '{topic}'"
        else:
            where = row_errors.describe_row(str(topic), self._key(batch, error.row))
        return RecordError("KAFKA_UNENCODABLE_RECORD", f"{where} cannot be written: {reason}")

    def _key(self, batch: pa.RecordBatch, row: int) -> bytes | None:
        if "key" in self._columns:
            encoded = self._columns["key"].encode(batch.column("key"), row, row + 1, 1)
            key = encoded[0].as_py()
        else:
            key = _value(batch, "key", row)
        return key.encode() if isinstance(key, str) else key


def _schema_id_headers(ids: dict[str, bytes]) -> SchemaIdHeaders:
    # Imported here because each import delays the start of a task.
    from pyspark_pykafka.formats.schema_id_headers import SchemaIdHeaders

    return SchemaIdHeaders(ids)


def _value(batch: pa.RecordBatch, name: str, row: int) -> Any:
    return batch.column(name)[row].as_py() if name in batch.schema.names else None
