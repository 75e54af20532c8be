"""
Writes records that cannot be decoded to a dead-letter topic, for ``onBadRecord=deadletter``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pykafka.engines.row_errors import MIN_TIMESTAMP_US
from pyspark_pykafka.errors import DeadLetterError, PykafkaError, RecordError
from pyspark_pykafka.formats.bad_records import DEAD_LETTER_COLUMNS, UNDECODABLE
from pyspark_pykafka.schema import SOURCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.engines.contract import FetchSettings
    from pyspark_pykafka.offsets import TopicPartition

_SCHEMA = pa.schema([(name, SOURCE_TYPES[name]) for name in DEAD_LETTER_COLUMNS])


class BadRecordTopic:
    """
    Buffers the bad records of a task and writes them with additional headers.

    Everything else in a record is unchanged, except that a timestamp below
    :data:`MIN_TIMESTAMP_US` becomes the time of writing.

    ``batch`` is the micro-batch's id, or -1. ``settings`` are the fetch settings of the read.
    """

    def __init__(self, topic: str, tp: TopicPartition, settings: FetchSettings, batch: int) -> None:
        self._topic = topic
        self._tp = tp
        self._settings = settings
        self._batch = batch
        self._letters: list[pa.RecordBatch] = []
        self.nbytes = 0

    def add(self, records: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        """
        Buffer the bad records of a batch; ``reasons`` maps their rows to the reasons.
        """
        letters = _select_rows(records, sorted(reasons))
        times = letters.column("timestamp").cast(pa.int64()).to_pylist()
        headers = [
            [*(original or ()), *self._provenance(offset, micros, reasons[row])]
            for row, original, offset, micros in zip(
                sorted(reasons),
                letters.column("headers").to_pylist(),
                letters.column("offset").to_pylist(),
                times,
                strict=True,
            )
        ]
        columns = {name: letters.column(name) for name in DEAD_LETTER_COLUMNS}
        columns["headers"] = pa.array(headers, SOURCE_TYPES["headers"])
        columns["timestamp"] = pa.array(map(_writable, times), SOURCE_TYPES["timestamp"])
        self._letters.append(pa.RecordBatch.from_arrays([*columns.values()], schema=_SCHEMA))
        self.nbytes += self._letters[-1].nbytes

    def _provenance(self, offset: int, micros: int | None, reason: str) -> list[Any]:
        # Imported here because only a task with bad records needs these modules.
        from pyspark_pykafka.sink.dead_letter_headers import provenance_headers

        return provenance_headers(
            self._tp,
            offset,
            None if micros is None else micros // 1000,
            # Other headers already have the record's position.
            RecordError(UNDECODABLE, reason),
            batch=self._batch,
            attempts=1,
        )

    def write(self) -> None:
        """
        Write the buffered records; return once the brokers have acknowledged them.

        Raises :class:`DeadLetterError` if they cannot be written.
        """
        if not self._letters:
            return
        from pyspark_pykafka.engines.selection import produce

        letters, self._letters, self.nbytes = self._letters, [], 0
        count = sum(batch.num_rows for batch in letters)
        try:
            produce(letters, self._settings.kafka, self._topic, self._settings.engine)
        except PykafkaError as cause:
            msg = (
                f"{count} bad records of {self._tp} cannot be written to the dead-letter topic "
                f"'{self._topic}', so the task fails instead of losing them: {cause}"
            )
            raise DeadLetterError("KAFKA_DEAD_LETTER_NOT_WRITTEN", msg) from cause


def _writable(micros: int | None) -> int | None:
    # Records of old clients may have the timestamp 0 or -1, which cannot be written.
    return None if micros is None or micros < MIN_TIMESTAMP_US else micros


def _select_rows(records: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    names = (*DEAD_LETTER_COLUMNS, "offset")
    return records.select(names).take(pa.array(rows, pa.int64()))
