"""
Exports the metrics to Prometheus, through the official client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pyspark_pykafka.metrics.snapshot import Snapshot
from pyspark_pykafka.metrics.table import METRICS, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric as Family


class PrometheusCollector(Collector):
    """
    Makes Prometheus's samples from a snapshot at each scrape.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """
        Yield each metric with its current samples.
        """
        snapshot = self._snapshot()
        return (_family(metric, snapshot) for metric in METRICS)

    def describe(self) -> Iterator[Family]:
        """
        Yield each metric without samples; a registry uses them to check for duplicate names.
        """
        return (_family(metric, Snapshot()) for metric in METRICS)


def _family(metric: Metric, snapshot: Snapshot) -> Family:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.description, labels=metric.labels)
    for labels, value in metric.read(snapshot):
        family.add_metric(labels, value)
    return family
