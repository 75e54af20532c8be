"""
Which queries and observed metrics an audit listener attributes to its auditor.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import Row

from pyspark_pykafka import AuditListener, Auditor
from pyspark_pykafka.audit.report import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import QueryProgressEvent

    from pyspark_pykafka.audit.report import AuditReport


class ManualTimer:
    """
    A timer that expires when a test says so.
    """

    running: list[ManualTimer]

    def __init__(self, _: float, function: Callable[..., None], arguments: tuple[str, ...]) -> None:
        self._function = function
        self._arguments = arguments

    def start(self) -> None:
        self.running.append(self)

    def cancel(self) -> None:
        if self in self.running:
            self.running.remove(self)

    @classmethod
    def expire_all(cls) -> None:
        while cls.running:
            timer = cls.running.pop()
            timer._function(*timer._arguments)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> type[ManualTimer]:
    """
    Return the class that stands in for ``threading.Timer``.
    """
    ManualTimer.running = []
    monkeypatch.setattr(threading, "Timer", ManualTimer)
    return ManualTimer


def progressed(query: str, *points: str, count: int = 3, run: str = "run") -> QueryProgressEvent:
    """
    Return the event of a micro-batch with these observed metrics, each of ``count`` records.
    """
    metrics = {point: Row(**{"count the batch": count, "sum the batch": count}) for point in points}
    progress = SimpleNamespace(id=query, runId=run, batchId=0, observedMetrics=metrics)
    return cast("QueryProgressEvent", SimpleNamespace(progress=progress))


def event_of(query: str, run: str = "run") -> Any:
    """
    Return an event of a query's run, for its start, an idle trigger or its end.
    """
    return SimpleNamespace(id=query, runId=run)


def test_metrics_of_an_auditor_with_a_longer_name_are_ignored() -> None:
    """
    The names of two auditors can begin alike.
    """
    reports: list[AuditReport] = []
    listener = AuditListener(Auditor("flights"), reports.append)
    points = ("flights.source", "flights.sink", "flights.late.source", "flights.late.sink")

    listener.onQueryProgress(progressed("q", *points))
    listener.onQueryProgress(progressed("q", "flights.late.source", "flights.late.sink"))

    (report,) = reports
    assert report.whole_batch.verdict is Verdict.COMPLETE


def test_a_query_without_an_observed_source_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Records that leave a query whose source is not observed cannot be audited: an error says so
    once, with the remedy. A batch without records does not show that the source is not observed.
    """
    reports: list[AuditReport] = []
    listener = AuditListener(Auditor("flights"), reports.append)

    listener.onQueryProgress(progressed("q", "flights.sink", count=0))
    assert not caplog.records
    for _ in range(2):
        listener.onQueryProgress(progressed("q", "flights.sink"))

    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "audit flights" in record.getMessage()
    assert "source()" in record.getMessage()
    assert not reports


def test_all_points_of_the_auditor_are_compared() -> None:
    """
    Records leave at the sink and at every filter.
    """
    reports: list[AuditReport] = []
    listener = AuditListener(Auditor("flights"), reports.append)

    listener.onQueryProgress(
        progressed("q", "flights.source", "flights.sink", "flights.dropped-0", "flights.dropped-12")
    )

    assert (reports[0].whole_batch.entered, reports[0].whole_batch.left) == (3, 9)


def test_timeout_of_other_queries_ends_with_their_first_batch(timers: type[ManualTimer]) -> None:
    """
    A micro-batch without the auditor's metrics belongs to a query that it does not audit.
    """
    overdue: list[str] = []
    listener = AuditListener(Auditor("flights"), timeout=60.0, on_timeout=overdue.append)
    for query in ("audited", "other"):
        listener.onQueryStarted(event_of(query))
    listener.onQueryProgress(progressed("audited", "flights.source", "flights.sink"))
    for _ in range(2):
        listener.onQueryProgress(progressed("other", "flights.late.sink"))
        listener.onQueryIdle(event_of("other"))

    timers.expire_all()

    assert overdue == ["audited"]


def test_timeout_of_the_first_batch(timers: type[ManualTimer]) -> None:
    """
    Until a query's first micro-batch nothing shows whether the query is audited, so the timeout
    applies to it. The same holds for a new run of the query.
    """
    overdue: list[str] = []
    listener = AuditListener(Auditor("flights"), timeout=60.0, on_timeout=overdue.append)
    listener.onQueryStarted(event_of("q"))
    timers.expire_all()
    listener.onQueryProgress(progressed("q"))
    listener.onQueryTerminated(event_of("q"))
    timers.expire_all()

    listener.onQueryStarted(event_of("q"))
    listener.onQueryIdle(event_of("q"))
    timers.expire_all()

    assert overdue == ["q", "q"]


def test_batch_without_metrics_keeps_the_timeout(timers: type[ManualTimer]) -> None:
    """
    A function of ``foreachBatch`` can skip a batch; the query is audited nevertheless.
    """
    overdue: list[str] = []
    listener = AuditListener(Auditor("flights"), timeout=60.0, on_timeout=overdue.append)
    listener.onQueryProgress(progressed("q", "flights.source", "flights.sink"))
    listener.onQueryProgress(progressed("q"))
    timers.expire_all()

    listener.onQueryProgress(progressed("q"))
    listener.onQueryTerminated(event_of("q"))
    timers.expire_all()

    assert overdue == ["q"]


def test_late_end_of_an_earlier_run_keeps_the_timeout(timers: type[ManualTimer]) -> None:
    """
    The last events of a run may be reported after the start of the next one, whose first batch
    keeps its timeout.
    """
    overdue: list[str] = []
    reports: list[AuditReport] = []
    listener = AuditListener(
        Auditor("flights"), reports.append, timeout=60.0, on_timeout=overdue.append
    )
    listener.onQueryStarted(event_of("q", "first"))
    listener.onQueryStarted(event_of("q", "second"))
    listener.onQueryProgress(progressed("q", "flights.source", "flights.sink", run="first"))
    listener.onQueryTerminated(event_of("q", "first"))
    assert len(timers.running) == 1
    assert len(reports) == 1

    timers.expire_all()

    assert overdue == ["q"]


def test_late_batch_of_an_earlier_run_does_not_end_the_timeout(timers: type[ManualTimer]) -> None:
    """
    Whether a run is audited is known from its own batches only.
    """
    listener = AuditListener(Auditor("flights"), timeout=60.0)
    listener.onQueryStarted(event_of("q", "first"))
    listener.onQueryStarted(event_of("q", "second"))
    listener.onQueryProgress(progressed("q", run="first"))
    listener.onQueryTerminated(event_of("q", "first"))
    listener.onQueryIdle(event_of("q", "second"))
    assert len(timers.running) == 1

    listener.onQueryTerminated(event_of("q", "second"))

    assert timers.running == []
