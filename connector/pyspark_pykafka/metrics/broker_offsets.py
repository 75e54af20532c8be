"""
Reads what Spark's progress does not show from the brokers: the current end offsets, the age of the
first unread record, and the growth of the dead-letter topic.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.offsets import LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.schema import SOURCE_TYPES, TIMESTAMP_MS
from pyspark_pykafka.source.factory import fetch_settings, metadata_client
from pyspark_pykafka.source.subscription import matches
from pyspark_pykafka.timestamps import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_pykafka.metrics.query_metrics import QueryMetrics
    from pyspark_pykafka.options import SourceOptions

logger = logging.getLogger("pyspark_pykafka")

_POSITION_AND_TIME = pa.schema([("offset", SOURCE_TYPES["offset"]), ("timestamp", TIMESTAMP_MS)])


class UnreadRecords:
    """
    Reads the timestamps of records that a query has not read yet.
    """

    def __init__(self, options: SourceOptions, now: Callable[[], float] = time.time) -> None:
        # Retention may delete the record before it is read here; that is not an error.
        self._settings = replace(
            fetch_settings(options, _POSITION_AND_TIME), fail_on_data_loss=False
        )
        self._now = now

    def first(self, tp: TopicPartition, position: int) -> tuple[int, float]:
        """
        Return the offset and the timestamp (in seconds) of the first record at or after a position.

        If there is none any more, or it has no timestamp, the position and the current time are
        returned.
        """
        for batch in fetch(OffsetRange(tp, position, LATEST), self._settings):
            if batch.num_rows:
                offset, milliseconds = (column[0].as_py() for column in batch.columns)
                if milliseconds == NO_TIMESTAMP:
                    break
                return offset, milliseconds / 1000
        return position, self._now()


class BrokerOffsets:
    """
    Updates the lags of the partitions that the options subscribe to.

    Each refresh sends one ListOffsets request to each leader. The first unread record of a
    partition is read only if it is older than the known history of end offsets, which happens about
    once per run with a backlog. The end offsets of a ``deadLetterTopic`` are read as well. Raises
    :class:`~pyspark_pykafka.errors.OptionsError` for wrong options.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        metrics: QueryMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        source = parse_stream_source(options)
        self._is_subscribed = partial(matches, source.strategy)
        # Tasks write there, so the driver can count these records only by the topic.
        self._dead_letter_topic = source.formats.dead_letter_topic
        self._client = metadata_client(source)
        self._unread = UnreadRecords(source, now)
        self._metrics = metrics
        self._now = now

    def refresh(self) -> None:
        """
        Read the end offsets, and the timestamps of unread records that are older than the known
        history. Errors of the brokers are raised.
        """
        self._refresh_lags()
        if self._dead_letter_topic is not None:
            tps = self._client.partitions_for([self._dead_letter_topic])
            self._metrics.observe_dead_letter_ends(self._client.end_offsets(tps))

    def _refresh_lags(self) -> None:
        ends = self._client.end_offsets(self._metrics.partitions(self._is_subscribed))
        self._metrics.observe_ends(ends, self._now())
        positions = self._metrics.undated(self._is_subscribed)
        self._metrics.date({tp: self._unread.first(tp, offset) for tp, offset in positions.items()})


class BrokerOffsetsThread:
    """
    Refreshes the lags in the background until it is closed. An outage or another error is logged
    once; the thread continues.
    """

    def __init__(self, offsets: BrokerOffsets, seconds: float) -> None:
        self._offsets = offsets
        self._seconds = seconds
        self._closed = threading.Event()
        self._is_failing = False
        # A daemon thread does not keep the driver alive.
        self._thread = threading.Thread(target=self._run, name="pykafka-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """
        Stop refreshing. A request in flight is not cancelled; it ends by its own timeout.
        """
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            try:
                self._offsets.refresh()
            except Exception as error:
                if not self._is_failing:
                    # The traceback of an error of a broker says nothing.
                    traceback = None if isinstance(error, PykafkaError) else error
                    logger.warning(
                        "The lag cannot be read at the moment: %s", error, exc_info=traceback
                    )
                self._is_failing = True
            else:
                if self._is_failing:
                    logger.info("The lag can be read again")
                self._is_failing = False
