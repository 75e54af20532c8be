"""
Reads the timestamps of the first records that a query has not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pyspark_pykafka.engines.selection import fetch_many
from pyspark_pykafka.schema import SOURCE_TYPES, TIMESTAMP_MS
from pyspark_pykafka.source.factory import fetch_settings
from pyspark_pykafka.timestamps import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_pykafka.offsets import OffsetRange
    from pyspark_pykafka.options import SourceOptions

_POSITION_AND_TIME = pa.schema([("offset", SOURCE_TYPES["offset"]), ("timestamp", TIMESTAMP_MS)])
# Only one record of each partition is needed.
_MEMORY_BYTES = 1 << 20


class FirstRecord(NamedTuple):
    """
    A record's offset, and its timestamp in seconds since 1970, or None if it has no timestamp.
    """

    offset: int
    seconds: float | None


class UnreadRecords:
    """
    Reads the timestamps of records that a query has not read yet.
    """

    def __init__(self, options: SourceOptions) -> None:
        # Retention may delete the record before it is read here; that is not an error.
        self._settings = replace(
            fetch_settings(options, _POSITION_AND_TIME),
            memory_bytes=_MEMORY_BYTES,
            fail_on_data_loss=False,
        )

    def first(self, unread: Collection[OffsetRange]) -> dict[OffsetRange, FirstRecord]:
        """
        Return the first record of each range that has one.

        The other ranges have only control records, or gaps that compaction or retention left. One
        request to a leader covers many partitions.
        """
        return {
            offset_range: _first_of(batch)
            for offset_range, batch in fetch_many(unread, self._settings, max_records=1)
            if batch.num_rows
        }


def _first_of(batch: pa.RecordBatch) -> FirstRecord:
    offset, milliseconds = (column[0].as_py() for column in batch.columns)
    return FirstRecord(offset, None if milliseconds == NO_TIMESTAMP else milliseconds / 1000)
