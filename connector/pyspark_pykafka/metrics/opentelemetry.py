"""
Exports the metrics to OpenTelemetry, as observable instruments of a meter.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Observation

from pyspark_pykafka.metrics.table import METRICS, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.metrics import Meter

    from pyspark_pykafka.metrics.snapshot import Snapshot


def create_instruments(meter: Meter, snapshot: Callable[[], Snapshot]) -> None:
    """
    Create an instrument for each metric. The names of counters lack ``_total``: exporters append
    it.
    """
    for metric in METRICS:
        is_counter = metric.kind is Kind.COUNTER
        create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        create(
            metric.name.removesuffix("_total"),
            callbacks=[partial(_observe, metric, snapshot)],
            unit=metric.unit,
            description=metric.description,
        )


def _observe(
    metric: Metric, snapshot: Callable[[], Snapshot], _: CallbackOptions
) -> Iterator[Observation]:
    for labels, value in metric.read(snapshot()):
        yield Observation(value, dict(zip(metric.labels, labels, strict=True)))
