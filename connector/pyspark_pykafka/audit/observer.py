"""
The audit of a streaming query: what leaves is observed and compared with what entered.

What entered is told by the offsets of a micro-batch where the source's options are known, and is
observed as well where they are not.
"""

from __future__ import annotations

import itertools
import logging
import threading
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.audit.record_ids import SHIFT
from pyspark_pykafka.audit.report import WHOLE_BATCH, AuditReport, Checksum, report
from pyspark_pykafka.audit.source_progress import SourceProgress
from pyspark_pykafka.audit.source_tally import SourceTally
from pyspark_pykafka.errors import OffsetsError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

    from pyspark_pykafka.offsets import TopicPartition

logger = logging.getLogger("pyspark_pykafka")

#: The columns that a record's id is made of; the audit adds none, since each costs a copy of a row.
ID_COLUMNS = ("topic", "partition", "offset")

#: Those of a query that reads one topic: the hash of the name costs as much as all the rest.
SINGLE_TOPIC_ID_COLUMNS = ID_COLUMNS[1:]


class Auditor:
    """
    Observes one query at its sink; ``name`` tells audits of a session apart.

    With ``options``, those of the query's ``readStream``, the driver tells from its offsets what
    entered; without them the source is observed, too. ``partitions`` are audited one by one,
    besides the batch as a whole; each costs two sums for every record. An auditor that is not
    ``enabled`` leaves frames as they are. Raises :class:`~pyspark_pykafka.errors.OptionsError` for
    options that are wrong.
    """

    def __init__(
        self,
        name: str,
        partitions: Iterable[TopicPartition] = (),
        *,
        options: Mapping[str, str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.name = name
        self.partitions = tuple(partitions)
        self.enabled = enabled
        self.source_tally = None if options is None else SourceTally(options, self.partitions)
        named = self.source_tally is None or self.source_tally.include_topic
        self._columns = ID_COLUMNS if named else SINGLE_TOPIC_ID_COLUMNS
        self._numbers = itertools.count()

    def source(self, frame: DataFrame) -> DataFrame:
        """
        Observe what enters, or trust its offsets; ``frame`` is what ``readStream`` gave.

        Raises :class:`~pyspark_pykafka.errors.OptionsError` if its columns are not all there.
        """
        if not self.enabled:
            return frame
        if self.source_tally is None:
            return self._observed(frame, "source", None)
        self._check(frame)
        return frame

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

    def _check(self, frame: DataFrame) -> None:
        missing = [name for name in self._columns if name not in frame.columns]
        if missing:
            msg = (
                f"the audit needs the columns {', '.join(missing)}, which the frame lacks; keep "
                "what the source gave until after sink()"
            )
            raise OptionsError((msg,))

    def _observed(self, frame: DataFrame, where: str, which: Column | None) -> DataFrame:
        self._check(frame)
        tallies = [self._tally(WHOLE_BATCH, which)]
        for tp in self.partitions:
            here = sf.col("partition") == tp.partition
            if "topic" in self._columns:
                here &= sf.col("topic") == tp.topic
            tallies.append(self._tally(str(tp), here if which is None else here & which))
        return frame.observe(f"{self.name}.{where}", *itertools.chain.from_iterable(tallies))

    def _tally(self, place: str, which: Column | None) -> tuple[Column, Column]:
        record = sf.shiftright(sf.xxhash64(*self._columns), SHIFT)
        counted = sf.count(sf.lit(1)) if which is None else sf.count_if(which)
        ids = record if which is None else sf.when(which, record)
        # Not sum(), which would end the query where a sum is too large; it cannot be unless records
        # are doubled, and then the count tells.
        return counted.alias(f"count {place}"), sf.try_sum(ids).alias(f"sum {place}")


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
        Compare what left a batch with what entered it.
        """
        query = str(event.progress.id)
        # To tell what entered may take longer than the time-out.
        self._stop(query)
        try:
            found = self._judged(event.progress)
        except OffsetsError as error:
            logger.error(  # noqa: TRY400 (the text says it all)
                "audit %s: micro-batch %d is not judged: %s",
                *(self._auditor.name, event.progress.batchId, error),
            )
            return
        finally:
            self._wait(query)
        if found is None:
            return
        if not found.is_complete:
            logger.log(logging.ERROR if found.has_mismatch else logging.WARNING, "%s", found)
        self._on_report(found)

    def _judged(self, progress: StreamingQueryProgress) -> AuditReport | None:
        prefix = f"{self._auditor.name}."
        met = {
            name.removeprefix(prefix): _tallies(row)
            for name, row in progress.observedMetrics.items()
            if name.startswith(prefix)
        }
        if not met:
            return None
        name, batch, source_tally = self._auditor.name, progress.batchId, self._auditor.source_tally
        if source_tally is not None:
            return source_tally.report(name, batch, _sources(progress), tuple(met.values()))
        entered = met.pop("source", None)
        return None if entered is None else report(name, batch, entered, met.values())

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


def find_offset(
    spark: SparkSession, difference: int, tp: TopicPartition, start: int, end: int
) -> int | None:
    """
    Return the offset in ``[start, end)`` of the one record whose id is a finding's difference.

    None if it is no record of them: more than one is missing or doubled, or it lies elsewhere.
    """
    in_topic = (sf.lit(tp.partition).cast("int"), sf.col("id"))
    hashes = (sf.xxhash64(sf.lit(tp.topic), *in_topic), sf.xxhash64(*in_topic))
    wanted = [sf.abs(sf.shiftright(each, SHIFT)) == abs(difference) for each in hashes]
    offsets = spark.range(start, end).filter(wanted[0] | wanted[1]).head(1)
    return offsets[0]["id"] if offsets else None


def _column(condition: Column | str) -> Column:
    return sf.expr(condition) if isinstance(condition, str) else condition


def _sources(progress: StreamingQueryProgress) -> list[SourceProgress]:
    return [
        SourceProgress(it.description, it.startOffset, it.endOffset, it.numInputRows)
        for it in progress.sources
    ]


def _tallies(row: Row) -> Mapping[str, Checksum]:
    values = row.asDict()
    places = [name.removeprefix("count ") for name in values if name.startswith("count ")]
    return {at: Checksum(values[f"count {at}"], values[f"sum {at}"] or 0) for at in places}
