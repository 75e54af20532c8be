"""
The audit of a streaming query: what enters is observed, what leaves is observed, both compared.
"""

from __future__ import annotations

import itertools
import logging
import threading
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.audit import WHOLE, AuditReport, Tally, report
from pyspark_pykafka.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_pykafka.offsets import TopicPartition

logger = logging.getLogger("pyspark_pykafka")

#: The columns that a record's id is made of; the audit adds none, since each costs a copy of a row.
PLACED = ("topic", "partition", "offset")


class Auditor:
    """
    Observes one query at its source and its sink; ``name`` tells audits of a session apart.

    ``partitions`` are audited one by one, besides the batch as a whole; each costs two sums for
    every record. An auditor that is not ``enabled`` leaves frames as they are.
    """

    def __init__(
        self, name: str, partitions: Iterable[TopicPartition] = (), *, enabled: bool = True
    ) -> None:
        self.name = name
        self.partitions = tuple(partitions)
        self.enabled = enabled
        self._numbers = itertools.count()

    def source(self, frame: DataFrame) -> DataFrame:
        """
        Observe what enters; ``frame`` is what ``readStream`` gave.

        Raises :class:`~pyspark_pykafka.errors.OptionsError` if its columns are not all there.
        """
        return self._observed(frame, "source", None) if self.enabled else frame

    def filter(self, frame: DataFrame, condition: Column | str) -> DataFrame:
        """
        Keep the rows that meet a condition, and observe those that are dropped on purpose.
        """
        if not self.enabled:
            return frame.filter(condition)
        condition = _column(condition)
        dropped = ~sf.coalesce(condition, sf.expr("false"))
        return self._observed(frame, f"dropped-{next(self._numbers)}", dropped).filter(condition)

    def sink(self, frame: DataFrame, once: Column | str | None = None) -> DataFrame:
        """
        Observe what leaves; ``topic``, ``partition`` and ``offset`` must still be as they came.

        Where one record has become several rows, ``once`` must be true for one of them, as
        ``col("pos") == 0`` after ``posexplode``.
        """
        if not self.enabled:
            return frame
        return self._observed(frame, "sink", None if once is None else _column(once))

    def _observed(self, frame: DataFrame, where: str, which: Column | None) -> DataFrame:
        missing = [name for name in PLACED if name not in frame.columns]
        if missing:
            msg = (
                f"the audit needs the columns {', '.join(missing)}, which the frame lacks; keep "
                "what the source gave until after sink()"
            )
            raise OptionsError((msg,))
        tallies = [_tally(WHOLE, which)]
        for tp in self.partitions:
            here = (sf.col("topic") == tp.topic) & (sf.col("partition") == tp.partition)
            tallies.append(_tally(str(tp), here if which is None else here & which))
        return frame.observe(f"{self.name}.{where}", *itertools.chain.from_iterable(tallies))


class AuditListener(StreamingQueryListener):
    """
    Tells of each micro-batch of a query with an :class:`Auditor` whether it was complete.

    ``on_report`` is called for each; what is not complete is logged as well. If a query has neither
    finished a batch nor been idle for ``timeout`` seconds, ``on_timeout`` is called with its id,
    once until it moves again. Add it with ``spark.streams.addListener`` before the query starts.
    """

    def __init__(
        self,
        auditor: Auditor,
        on_report: Callable[[AuditReport], None] = lambda _: None,
        *,
        timeout: float | None = None,
        on_timeout: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._auditor = auditor
        self._on_report = on_report
        self._timeout = timeout
        self._on_timeout = on_timeout
        self._timers: dict[str, threading.Timer] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """
        Begin to wait for the first batch.
        """
        self._wait(str(event.id))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """
        Begin to wait anew: nothing is under way.
        """
        self._wait(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """
        Compare what the batch has observed.
        """
        progress = event.progress
        self._wait(str(progress.id))
        prefix = f"{self._auditor.name}."
        met = {
            name.removeprefix(prefix): _tallies(row)
            for name, row in progress.observedMetrics.items()
            if name.startswith(prefix)
        }
        entered = met.pop("source", None)
        if entered is None:
            return
        found = report(self._auditor.name, progress.batchId, entered, met.values())
        if not found.complete:
            logger.error("%s", found)
        self._on_report(found)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """
        Wait no longer.
        """
        self._stop(str(event.id))

    def _wait(self, query: str) -> None:
        self._stop(query)
        if self._timeout is not None:
            timer = threading.Timer(self._timeout, self._overdue, (query,))
            timer.daemon = True
            self._timers[query] = timer
            timer.start()

    def _stop(self, query: str) -> None:
        timer = self._timers.pop(query, None)
        if timer is not None:
            timer.cancel()

    def _overdue(self, query: str) -> None:
        logger.error(
            "audit %s: query %s has not finished a micro-batch for %.0f s",
            *(self._auditor.name, query, self._timeout),
        )
        self._on_timeout(query)


def find(
    spark: SparkSession, difference: int, tp: TopicPartition, start: int, end: int
) -> int | None:
    """
    Return the offset in ``[start, end)`` of the one record whose id a finding's difference is.

    None if it is no record of them: more than one is missing or doubled, or it lies elsewhere.
    """
    place = (sf.lit(tp.topic), sf.lit(tp.partition).cast("int"), sf.col("id"))
    offsets = spark.range(start, end).filter(sf.xxhash64(*place) == difference).head(1)
    return offsets[0]["id"] if offsets else None


def _column(condition: Column | str) -> Column:
    return sf.expr(condition) if isinstance(condition, str) else condition


def _tally(place: str, which: Column | None) -> tuple[Column, Column]:
    record = sf.xxhash64(*PLACED)
    counted = sf.count(sf.lit(1)) if which is None else sf.count_if(which)
    ids = record if which is None else sf.when(which, record)
    return counted.alias(f"count {place}"), sf.bit_xor(ids).alias(f"xor {place}")


def _tallies(row: Row) -> Mapping[str, Tally]:
    values = row.asDict()
    places = [name.removeprefix("count ") for name in values if name.startswith("count ")]
    return {at: Tally(values[f"count {at}"], values[f"xor {at}"] or 0) for at in places}
