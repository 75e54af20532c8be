"""
Which observed metrics an audit listener takes for its auditor's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from pyspark.sql import Row

from pyspark_pykafka import AuditListener, Auditor
from pyspark_pykafka.audit.report import Verdict

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent

    from pyspark_pykafka.audit.report import AuditReport


def progressed(query: str, *points: str, count: int = 3) -> QueryProgressEvent:
    """
    Return the event of a micro-batch with these observed metrics, each of ``count`` records.
    """
    metrics = {point: Row(**{"count the batch": count, "sum the batch": count}) for point in points}
    progress = SimpleNamespace(id=query, batchId=0, observedMetrics=metrics)
    return cast("QueryProgressEvent", SimpleNamespace(progress=progress))


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
