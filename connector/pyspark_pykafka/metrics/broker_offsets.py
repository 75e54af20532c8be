"""
Reads from the brokers what Spark's progress does not show: the current end offsets, the age of the
first unread record, and the growth of the dead-letter topic.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.first_contact import shared_api_timeout
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.metrics.unread_records import UnreadRecords
from pyspark_pykafka.offsets import OffsetRange
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.source.factory import metadata_client
from pyspark_pykafka.source.subscription import selector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_pykafka.metrics.query_metrics import QueryMetrics, QueryPartition
    from pyspark_pykafka.metrics.unread_records import FirstRecord

logger = logging.getLogger("pyspark_pykafka")


class BrokerOffsets:
    """
    Updates the lags of the partitions that the options subscribe to.

    Each refresh sends one Metadata request, and one ListOffsets request to each leader. The first
    unread record of a partition is read only if it is older than the known history of end offsets,
    which happens about once per run with a backlog. Topics of other clusters are left out: their
    ids differ. The end offsets of a ``deadLetterTopic`` are read as well. Raises
    :class:`~pyspark_pykafka.errors.OptionsError` for wrong options.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        metrics: QueryMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        source = parse_stream_source(options)
        self._is_subscribed = selector(source.strategy)
        # Tasks write to this topic, so the driver can count its records only by the end offsets.
        self._dead_letter_topic = source.formats.dead_letter_topic
        self._kafka = source.kafka
        self._client = metadata_client(source)
        self._unread = UnreadRecords(source)
        self._metrics = metrics
        self._now = now

    def refresh(self) -> None:
        """
        Read the end offsets, and the timestamps of unread records that are older than the known
        history. Errors of the brokers are raised; then the end offsets count as outdated.
        """
        with shared_api_timeout(self._kafka):
            self._refresh()

    def _refresh(self) -> None:
        try:
            self._refresh_lags()
        except Exception:
            self._metrics.expire_ends(self._is_subscribed)
            raise
        if self._dead_letter_topic is not None:
            tps = self._client.partitions_for([self._dead_letter_topic])
            self._metrics.observe_dead_letter_ends(self._client.end_offsets(tps))

    def _refresh_lags(self) -> None:
        partitions = self._existing(self._metrics.partitions(self._is_subscribed))
        by_name = self._client.end_offsets({partition.tp for partition in partitions})
        ends = {
            partition: by_name[partition.tp] for partition in partitions if partition.tp in by_name
        }
        self._metrics.observe_ends(ends, self._now())
        unread = {
            partition: OffsetRange(partition.tp, position, ends[partition])
            for partition, position in self._metrics.without_arrival(ends).items()
            if position < ends[partition]
        }
        first = self._unread.first(set(unread.values())) if unread else {}
        self._metrics.record_arrivals(
            {
                partition: self._arrival(offset_range, first.get(offset_range))
                for partition, offset_range in unread.items()
            }
        )

    def _arrival(self, unread: OffsetRange, first: FirstRecord | None) -> tuple[int, float]:
        """
        Return the offset and the time of the first record of a range.

        If the range has no record any more, or the record has no timestamp, return the range's
        start and the current time.
        """
        if first is None or first.seconds is None:
            return unread.start, self._now()
        return first.offset, first.seconds

    def _existing(self, partitions: Sequence[QueryPartition]) -> list[QueryPartition]:
        """
        Return the partitions whose topics have, as far as is known, the same ids on these brokers.
        """
        ids = self._client.existing({partition.tp.topic for partition in partitions}).topic_ids
        return [
            partition
            for partition in partitions
            if partition.topic_id is None
            or ids.get(partition.tp.topic, partition.topic_id) == partition.topic_id
        ]


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
                    # The traceback of a broker's error would not help.
                    traceback = None if isinstance(error, PykafkaError) else error
                    logger.warning(
                        "The lag cannot be read at the moment: %s", error, exc_info=traceback
                    )
                self._is_failing = True
            else:
                if self._is_failing:
                    logger.info("The lag can be read again")
                self._is_failing = False
