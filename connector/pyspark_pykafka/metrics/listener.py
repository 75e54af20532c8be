"""
The listener that receives Spark's events of all queries of a session and updates the metrics.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_pykafka.errors import OptionsError, check_values
from pyspark_pykafka.metrics.broker_offsets import BrokerOffsets, BrokerOffsetsThread
from pyspark_pykafka.metrics.log_line import log_line
from pyspark_pykafka.metrics.progress_event import error_line, error_name, parse_batch
from pyspark_pykafka.metrics.query_metrics import QueryMetrics
from pyspark_pykafka.ui.driver_source import driver_page_data
from pyspark_pykafka.ui.server import Content, PageServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_pykafka.audit.report import AuditReport
    from pyspark_pykafka.failures.bisection import FailedRecord
    from pyspark_pykafka.metrics.prometheus import PrometheusCollector
    from pyspark_pykafka.metrics.snapshot import Snapshot
    from pyspark_pykafka.ui.page_data import PageData

    DeadLetterSink = Callable[[Sequence[FailedRecord], int], None]

logger = logging.getLogger("pyspark_pykafka")

_QUERY_ID = "sql.streaming.queryId"

# How often the page adds the current lag to its history.
_PAGE_SECONDS = 5.0


class MetricsListener(StreamingQueryListener):
    """
    Keeps the metrics of all streaming queries of a session, and exports them.

    ::

        spark.streams.addListener(MetricsListener(port=9400))

    Add it before the queries start, once for a session. ``port`` serves a web page at ``/``
    and ``/metrics`` for Prometheus, on ``host``; 0 chooses a free port. ``registry`` is a registry
    of ``prometheus_client`` that your program serves itself, ``meter`` a meter of OpenTelemetry.
    Each running query is logged at most every ``log_seconds`` (None: never).

    If ``options`` are given (the options of a query's ``readStream``), the end offsets are also
    read from the brokers every ``refresh_seconds``. The lag is then current, and also known on
    Spark before 4.2. A query with more than ``max_partitions`` partitions is shown by topic, or by
    source if it also has too many topics.

    Raises :class:`~pyspark_pykafka.errors.OptionsError` for wrong values or options, if a library
    is missing, and if the port is in use.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
        meter: Meter | None = None,
        log_seconds: float | None = 60.0,
        options: Mapping[str, str] | None = None,
        refresh_seconds: float = 15.0,
        max_partitions: int = 1000,
    ) -> None:
        self.log_seconds, self.refresh_seconds = log_seconds, refresh_seconds
        self.max_partitions = max_partitions
        checks = (
            ("log_seconds", log_seconds is None or log_seconds >= 0, "at least 0, or None"),
            ("refresh_seconds", refresh_seconds > 0, "more than 0"),
            ("max_partitions", max_partitions >= 1, "at least 1"),
        )
        check_values(self, checks)
        self._metrics = QueryMetrics(max_partitions)
        self._logged: dict[str, float] = {}
        self._closers: list[Callable[[], None]] = []
        if options is not None:
            offsets = BrokerOffsets(options, self._metrics)
            self._closers.append(BrokerOffsetsThread(offsets, refresh_seconds).close)
        if meter is not None:
            # Not at the top: opentelemetry-api is an extra.
            from pyspark_pykafka.metrics.opentelemetry import create_instruments

            create_instruments(meter, self.snapshot)
        if registry is not None:
            registry.register(_collector(self.snapshot))
        #: The port of the server; None without a server.
        self.port = None if port is None else self._serve(host, port)

    def snapshot(self) -> Snapshot:
        """
        Return the current state of all queries, for exporters of your own.
        """
        return self._metrics.snapshot(time.time())

    def count_dead_letters(self, dead_letter: DeadLetterSink) -> DeadLetterSink:
        """
        Return a dead-letter sink that also counts its records, once they are written.

        ::

            safely = isolate_poison(process, metrics.count_dead_letters(DeadLetterTopic(...)))

        On Spark Connect this does not work: ``foreachBatch`` runs on the server, and the listener
        in the client.
        """

        def write_and_count(records: Sequence[FailedRecord], batch_id: int) -> None:
            dead_letter(records, batch_id)
            self._metrics.count_dead_letters(_current_query(), [record.tp for record in records])

        return write_and_count

    def record_audit(self, report: AuditReport) -> None:
        """
        Count a micro-batch by the most severe verdict, on the whole batch or on a partition.

        ::

            AuditListener(auditor, on_report=metrics.record_audit)
        """
        self._metrics.count_audit(report.name, report.verdict.name.lower())

    def close(self) -> None:
        """
        Stop serving and reading offsets; the metrics remain.
        """
        while self._closers:
            self._closers.pop()()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """
        Count the run.
        """
        self._metrics.start(str(event.id), str(event.runId), event.name or "", time.time())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """
        Record that the query is alive.
        """
        self._metrics.record_idle(str(event.id), time.time())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """
        Count the micro-batch.
        """
        now = time.time()
        batch = parse_batch(event.progress.json)
        self._metrics.add(batch, now)
        self._log(batch.query_id, now)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """
        Count the end of the run, and its error.
        """
        text = event.exception
        error = None
        if text:
            name = error_name(text, getattr(event, "errorClassOnException", None))
            error = (name, error_line(text))
        self._metrics.end(str(event.id), str(event.runId), error, time.time())
        self._logged.pop(str(event.id), None)

    def _log(self, query_id: str, now: float) -> None:
        if self.log_seconds is None or now - self._logged.get(query_id, 0.0) < self.log_seconds:
            return
        self._logged[query_id] = now
        for query in self._metrics.snapshot(now).queries:
            if query.id == query_id:
                logger.info("%s", log_line(query))

    def _serve(self, host: str, port: int) -> int:
        def page() -> PageData:
            return driver_page_data(self.snapshot())

        server = PageServer(
            page, host, port, seconds=_PAGE_SECONDS, metrics=_exposition(self.snapshot)
        )
        self._closers.append(server.close)
        logger.info("Metrics are at %smetrics, and a page at %s", server.url, server.url)
        return server.port

    def __reduce__(self) -> NoReturn:
        """
        Refuse pickling: a copy in another process would count on its own.
        """
        msg = (
            "a MetricsListener cannot leave the driver program; on Spark Connect foreachBatch runs "
            "on the server, so leave count_dead_letters out there"
        )
        raise OptionsError((msg,))


def _collector(snapshot: Callable[[], Snapshot]) -> PrometheusCollector:
    # Not at the top: prometheus-client is an extra.
    try:
        from pyspark_pykafka.metrics.prometheus import PrometheusCollector
    except ImportError as cause:
        msg = (
            "port and registry need the library prometheus-client, which is not installed; install "
            "'pyspark-pykafka[metrics]'"
        )
        raise OptionsError((msg,)) from cause
    return PrometheusCollector(snapshot)


def _exposition(snapshot: Callable[[], Snapshot]) -> Callable[[], Content]:
    """
    Return a function that renders the metrics in Prometheus's text format.
    """
    collector = _collector(snapshot)
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(collector)
    return lambda: Content(CONTENT_TYPE_LATEST, generate_latest(registry))


def _current_query() -> str:
    """
    Return the id of the query whose ``foreachBatch`` is running; empty outside of ``foreachBatch``.
    """
    session = SparkSession.getActiveSession()
    if session is None:
        return ""
    return session.sparkContext.getLocalProperty(_QUERY_ID) or ""
