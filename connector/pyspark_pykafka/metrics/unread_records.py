"""
Reads the timestamp of the first record that a query has not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.schema import SOURCE_TYPES, TIMESTAMP_MS
from pyspark_pykafka.source.factory import fetch_settings
from pyspark_pykafka.timestamps import NO_TIMESTAMP

if TYPE_CHECKING:
    from pyspark_pykafka.offsets import OffsetRange
    from pyspark_pykafka.options import SourceOptions

_POSITION_AND_TIME = pa.schema([("offset", SOURCE_TYPES["offset"]), ("timestamp", TIMESTAMP_MS)])
# Only one record of each partition is needed.
_MEMORY_BYTES = 1 << 20


class FirstRecord(NamedTuple):
    """
    A record's offset, and its timestamp in seconds since 1970, None if it has none.
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

    def first(self, unread: OffsetRange) -> FirstRecord | None:
        """
        Return the first record of a range; None if it has no record: only control records, or gaps
        that compaction or retention left.
        """
        for batch in fetch(unread, self._settings):
            if batch.num_rows:
                offset, milliseconds = (column[0].as_py() for column in batch.columns)
                has_time = milliseconds != NO_TIMESTAMP
                return FirstRecord(offset, milliseconds / 1000 if has_time else None)
        return None
