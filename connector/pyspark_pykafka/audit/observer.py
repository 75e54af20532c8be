"""
The audit of a streaming query: compares the records that leave it with those that entered.

With the source's options, the entered records are computed from the offsets of a micro-batch;
without them, the source is observed as well.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.audit.record_ids import SHIFT
from pyspark_pykafka.audit.report import WHOLE_BATCH, AuditReport, Checksum, report
from pyspark_pykafka.audit.source_progress import parse_sources
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

#: The columns that make up a record's id. The audit adds no column for the id, since Spark would
#: copy each row.
ID_COLUMNS = ("topic", "partition", "offset")

#: The columns for a query of one topic: hashing the topic's name would double the cost of an id.
SINGLE_TOPIC_ID_COLUMNS = ID_COLUMNS[1:]

#: The points at which an auditor observes a query: the last part of an observation's name.
_POINT = re.compile(r"source|sink|dropped-[0-9]+")


class Auditor:
    """
    Observes a query at its sink, to check that every record that entered has left exactly once.

    ::

        auditor = Auditor("flights", options=options)
        spark.streams.addListener(AuditListener(auditor, on_report=print))

        frame = auditor.source(spark.readStream.format("pykafka").options(**options).load())
        frame = auditor.filter(frame, "cast(value as string) like '%long%'")
        auditor.sink(frame).writeStream.format("delta").start("/data/flights")

    ``name`` distinguishes the audits of a session. With ``options``, those of the query's
    ``readStream``, the driver computes the entered records from offsets; without them the source is
    observed, too, which doubles the cost. ``partitions`` are audited one by one, besides the whole
    batch; each costs two sums per record. With ``enabled=False`` all frames are returned as they
    are. Raises :class:`~pyspark_pykafka.errors.OptionsError` for wrong options.
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
        include_topic = self.source_tally is None or self.source_tally.include_topic
        self._columns = ID_COLUMNS if include_topic else SINGLE_TOPIC_ID_COLUMNS
        self._filter_numbers = itertools.count()

    def __repr__(self) -> str:
        observed = "source and sink" if self.source_tally is None else "sink"
        return f"Auditor({self.name!r}, observes {observed}, enabled={self.enabled})"

    def source(self, frame: DataFrame) -> DataFrame:
        """
        Return the frame of ``readStream``, observed if the auditor has no options.

        Raises :class:`~pyspark_pykafka.errors.OptionsError` if an id column is missing.
        """
        if not self.enabled:
            return frame
        if self.source_tally is None:
            return self._observe(frame, "source", None)
        self._check_columns(frame)
        return frame

    def filter(self, frame: DataFrame, condition: Column | str) -> DataFrame:
        """
        Return the rows that meet the condition; observe the others, so that they do not count as
        missing.
        """
        if not self.enabled:
            return frame.filter(condition)
        condition = _column(condition)
        dropped = ~sf.coalesce(condition, sf.expr("false"))
        name = f"dropped-{next(self._filter_numbers)}"
        return self._observe(frame, name, dropped).filter(condition)

    def sink(self, frame: DataFrame, once: Column | str | None = None) -> DataFrame:
        """
        Observe the rows that leave; ``topic``, ``partition`` and ``offset`` must be those of the
        source.

        If a record becomes several rows, ``once`` must be true for exactly one of them, for example
        ``col("pos") == 0`` after ``posexplode``. Raises
        :class:`~pyspark_pykafka.errors.OptionsError` if an id column is missing.
        """
        if not self.enabled:
            return frame
        return self._observe(frame, "sink", None if once is None else _column(once))

    def _check_columns(self, frame: DataFrame) -> None:
        missing = [name for name in self._columns if name not in frame.columns]
        if missing:
            msg = (
                f"the audit needs the columns {', '.join(missing)}, which the frame lacks; keep "
                "the source's columns until after sink()"
            )
            raise OptionsError((msg,))

    def _observe(self, frame: DataFrame, point: str, condition: Column | None) -> DataFrame:
        self._check_columns(frame)
        metrics = [self._metrics(WHOLE_BATCH, condition)]
        for tp in self.partitions:
            in_partition = sf.col("partition") == tp.partition
            if "topic" in self._columns:
                in_partition &= sf.col("topic") == tp.topic
            rows = in_partition if condition is None else in_partition & condition
            metrics.append(self._metrics(str(tp), rows))
        return frame.observe(f"{self.name}.{point}", *itertools.chain.from_iterable(metrics))

    def _metrics(self, scope: str, condition: Column | None) -> tuple[Column, Column]:
        record_id = sf.shiftright(sf.xxhash64(*self._columns), SHIFT)
        count = sf.count(sf.lit(1)) if condition is None else sf.count_if(condition)
        ids = record_id if condition is None else sf.when(condition, record_id)
        # Not sum(), which would fail the query on an overflow. Only duplicated records can cause an
        # overflow, and the count shows those.
        return count.alias(f"count {scope}"), sf.try_sum(ids).alias(f"sum {scope}")


class AuditListener(StreamingQueryListener):
    """
    Reports for each micro-batch of a query with an :class:`Auditor` whether it was complete.

    ::

        def on_report(report: AuditReport) -> None:
            if report.has_mismatch:
                alert(str(report))

        spark.streams.addListener(AuditListener(auditor, on_report, timeout=600))

    Add it before the query starts. ``on_report`` is called for each batch; an incomplete batch is
    logged as well. ``on_timeout`` is called with the query's id, once, if the query neither
    finishes a batch nor reports that it is idle for ``timeout`` seconds. Spark's events name no
    auditor before the first batch. Until then the timeout applies to every query of the session,
    and from then on only to queries whose batches had the auditor's metrics.
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
        # Spark reports a start on the query's thread, and all other events on the thread of the
        # listener bus.
        self._lock = threading.Lock()
        self._timers: dict[str, threading.Timer] = {}
        #: By query, the run that started last. Events of the previous run may arrive after this
        #: start; they do not affect the timeout.
        self._runs: dict[str, str] = {}
        #: By running query, whether a batch had the auditor's metrics; absent before the first one.
        self._is_audited: dict[str, bool] = {}
        #: The queries that were reported as not observed at the source.
        self._without_source: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """
        Start the timeout of the first batch.
        """
        query, run = str(event.id), str(event.runId)
        with self._lock:
            self._runs[query] = run
            self._is_audited.pop(query, None)
        self._start_timer(query, run)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """
        Restart the timeout: an idle query has no batch to finish.
        """
        self._start_timer(str(event.id), str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """
        Compare the records that left a batch with those that entered it.
        """
        query, run = str(event.progress.id), str(event.progress.runId)
        # Computing the entered records may take longer than the timeout.
        self._stop_timer(query, run)
        checksums = self._checksums(event.progress)
        with self._lock:
            if self._is_last_run(query, run):
                self._is_audited[query] = bool(checksums) or self._is_audited.get(query, False)
        try:
            report = self._report(event.progress, checksums)
        except OffsetsError as error:
            logger.error(  # noqa: TRY400 (the message is complete)
                "audit %s: micro-batch %d cannot be audited: %s",
                *(self._auditor.name, event.progress.batchId, error),
            )
            return
        finally:
            self._start_timer(query, run)
        if report is None:
            return
        if not report.is_complete:
            logger.log(logging.ERROR if report.has_mismatch else logging.WARNING, "%s", report)
        self._on_report(report)

    def _checksums(self, progress: StreamingQueryProgress) -> dict[str, Mapping[str, Checksum]]:
        """
        Return the checksums of a batch that the auditor observed, by point.
        """
        prefix = f"{self._auditor.name}."
        return {
            point: _checksums(row)
            for name, row in progress.observedMetrics.items()
            # Another auditor's name can begin with this one's and a dot.
            if name.startswith(prefix) and _POINT.fullmatch(point := name.removeprefix(prefix))
        }

    def _report(
        self, progress: StreamingQueryProgress, observed: dict[str, Mapping[str, Checksum]]
    ) -> AuditReport | None:
        if not observed:
            return None
        name, batch_id, tally = self._auditor.name, progress.batchId, self._auditor.source_tally
        if tally is not None:
            # On clients of Spark Connect before 4.2 the property `sources` has offsets that are not
            # JSON.
            sources = parse_sources(progress.json)
            return tally.report(name, batch_id, sources, tuple(observed.values()))
        entered = observed.pop("source", None)
        if entered is not None:
            return report(name, batch_id, entered, observed.values())
        if any(checksums[WHOLE_BATCH].count for checksums in observed.values()):
            self._warn_without_source(str(progress.id), batch_id)
        return None

    def _warn_without_source(self, query: str, batch_id: int) -> None:
        """
        Log, once for each query, that its batches cannot be audited.
        """
        if query in self._without_source:
            return
        self._without_source.add(query)
        logger.error(
            "audit %s: micro-batch %d cannot be audited, nor can other batches of the query %s: "
            "records were observed where they leave, but not at the source. Pass the frame of "
            "readStream through the auditor's source(), or give the auditor the options of the "
            "readStream",
            *(self._auditor.name, batch_id, query),
        )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """
        Stop the timeout.
        """
        query, run = str(event.id), str(event.runId)
        self._stop_timer(query, run)
        with self._lock:
            if self._is_last_run(query, run):
                self._is_audited.pop(query, None)
                del self._runs[query]

    def _is_last_run(self, query: str, run: str) -> bool:
        # A run without a start began before the listener was added.
        return self._runs.setdefault(query, run) == run

    def _start_timer(self, query: str, run: str) -> None:
        with self._lock:
            if not self._is_last_run(query, run):
                return
            self._cancel_timer(query)
            if self._timeout is not None and self._is_audited.get(query, True):
                timer = threading.Timer(self._timeout, self._on_overdue, (query,))
                timer.daemon = True
                self._timers[query] = timer
                timer.start()

    def _stop_timer(self, query: str, run: str) -> None:
        with self._lock:
            if self._is_last_run(query, run):
                self._cancel_timer(query)

    def _cancel_timer(self, query: str) -> None:
        timer = self._timers.pop(query, None)
        if timer is not None:
            timer.cancel()

    def _on_overdue(self, query: str) -> None:
        logger.error(
            "audit %s: query %s has not finished a micro-batch for %.0f s",
            *(self._auditor.name, query, self._timeout),
        )
        self._on_timeout(query)


def find_offset(
    spark: SparkSession, difference: int, tp: TopicPartition, start: int, end: int
) -> int | None:
    """
    Return the offset in ``[start, end)`` of the missing or duplicated record of a finding.

    ::

        finding = report.by_partition[0]
        find_offset(spark, finding.difference, TopicPartition("flights", 0), 0, 1000)

    None if the difference is not the id of a single record of the range: more than one record is
    missing or duplicated, or the record is outside of the range.
    """
    columns = (sf.lit(tp.partition).cast("int"), sf.col("id"))
    hashes = (sf.xxhash64(sf.lit(tp.topic), *columns), sf.xxhash64(*columns))
    conditions = [
        sf.abs(sf.shiftright(record_hash, SHIFT)) == abs(difference) for record_hash in hashes
    ]
    offsets = spark.range(start, end).filter(conditions[0] | conditions[1]).head(1)
    return offsets[0]["id"] if offsets else None


def _column(condition: Column | str) -> Column:
    return sf.expr(condition) if isinstance(condition, str) else condition


def _checksums(row: Row) -> Mapping[str, Checksum]:
    values = row.asDict()
    scopes = [name.removeprefix("count ") for name in values if name.startswith("count ")]
    return {
        scope: Checksum(values[f"count {scope}"], values[f"sum {scope}"] or 0) for scope in scopes
    }
