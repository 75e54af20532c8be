"""
The metrics as Prometheus and OpenTelemetry get them, in the log and in the documentation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.query_snapshots import eventful_metrics

from pyspark_pykafka.metrics.docs_table import metrics_table
from pyspark_pykafka.metrics.log_line import log_line
from pyspark_pykafka.metrics.opentelemetry import create_instruments
from pyspark_pykafka.metrics.prometheus import PrometheusCollector
from pyspark_pykafka.metrics.table import METRICS, Kind

if TYPE_CHECKING:
    from pyspark_pykafka.metrics.query_metrics import QueryMetrics
    from pyspark_pykafka.metrics.snapshot import Snapshot

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
BY_PARTITION = {"query_id": "q", "query_name": "flights", "source": "0", "topic": "t"}


@pytest.fixture
def metrics() -> QueryMetrics:
    """
    Return metrics with a sample of each.
    """
    return eventful_metrics()


def prometheus_samples(metrics: QueryMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    """
    Return the samples by name that Prometheus's own parser finds in the exposition.
    """

    def snapshot() -> Snapshot:
        return metrics.snapshot(100.0)

    registry = CollectorRegistry(auto_describe=True)
    registry.register(PrometheusCollector(snapshot))
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def test_exposition_has_each_metric(metrics: QueryMetrics) -> None:
    """
    Each metric of the table has a sample in the exposition, with the labels of the table.
    """
    samples = prometheus_samples(metrics)

    assert sorted(samples) == sorted(metric.name for metric in METRICS)
    for metric in METRICS:
        assert all(set(labels) == set(metric.labels) for labels, _ in samples[metric.name])


def test_values_in_the_exposition(metrics: QueryMetrics) -> None:
    """
    The lag is that of each partition, and counters are those of the query.
    """
    samples = prometheus_samples(metrics)

    assert samples["pykafka_lag_offsets"] == [
        ({**BY_PARTITION, "partition": "0"}, 90.0),
        ({**BY_PARTITION, "partition": "1"}, 0.0),
    ]
    assert samples["pykafka_replayed_batches_total"][0][1] == 1
    (failure,) = samples["pykafka_query_failures_total"]
    assert failure == ({"query_id": "q", "query_name": "flights", "error": "DataLossError"}, 1.0)
    assert samples["pykafka_dead_letters_total"][0][1] == 3
    assert samples["pykafka_lost_offsets_total"][0][1] == 2


def test_series_are_unique(metrics: QueryMetrics) -> None:
    """
    No two samples of a metric have the same labels, even if two queries have the same name.
    """
    other = eventful_metrics("r", "flights")
    snapshots = [metrics.snapshot(100.0), other.snapshot(100.0)]

    for metric in METRICS:
        labels = [labels for snapshot in snapshots for labels, _ in metric.read(snapshot)]
        assert len(set(labels)) == len(labels) or metric.labels[0] in {"auditor", "topic"}


def test_ended_query_has_counters_only(metrics: QueryMetrics) -> None:
    """
    After the end of a query its lag is no longer known; its counters and times remain.
    """
    metrics.end("q", "run", None, 110.0)
    samples = prometheus_samples(metrics)

    gauges = {metric.name for metric in METRICS if metric.kind is Kind.GAUGE}
    assert samples.keys() & gauges == {
        "pykafka_query_running",
        "pykafka_query_failed",
        "pykafka_query_last_event_timestamp_seconds",
        "pykafka_last_batch_timestamp_seconds",
        "pykafka_dead_letter_topic_end_offset",
    }
    assert samples.keys() >= {metric.name for metric in METRICS if metric.kind is Kind.COUNTER}


def test_dead_letters_of_no_query(metrics: QueryMetrics) -> None:
    """
    Dead letters that are written outside a query do not appear as a query.
    """
    metrics.count_dead_letters("", [])
    samples = prometheus_samples(metrics)

    assert [labels["query_id"] for labels, _ in samples["pykafka_query_running"]] == ["q"]


def test_opentelemetry_has_each_metric(metrics: QueryMetrics) -> None:
    """
    The instruments have the names of the table without _total, and the same values.
    """
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    create_instruments(provider.get_meter("test"), lambda: metrics.snapshot(100.0))

    data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    points = {metric.name: list(metric.data.data_points) for metric in scope.metrics}
    assert sorted(points) == sorted(metric.name.removesuffix("_total") for metric in METRICS)
    lags = [
        (dict(point.attributes or {}), point.value)
        for point in points["pykafka_lag_offsets"]
        if isinstance(point, NumberDataPoint)
    ]
    assert lags == prometheus_samples(metrics)["pykafka_lag_offsets"]


def test_log_line(metrics: QueryMetrics) -> None:
    """
    One line names the query, its last micro-batch, its lag, and what went wrong.
    """
    (query,) = metrics.snapshot(100.0).queries

    assert log_line(query) == (
        "query flights: micro-batch 1 took 1.500 s, 20 rows/s; lag 90 offsets, 51.2 s; "
        "replayed batches: 1; lost offsets: 2; data losses: 1; dead letters: 3; failures: 1"
    )


def test_documented_table_is_the_one_of_the_code() -> None:
    """
    The page has the table that `python -m pyspark_pykafka.metrics` prints.
    """
    assert metrics_table() in PAGE.read_text()


def test_names_follow_the_conventions_of_prometheus() -> None:
    """
    Counters end in _total, names are lower case with their unit, and each is described.
    """
    for metric in METRICS:
        assert re.fullmatch(r"pykafka(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.description.endswith(".")
        assert "|" not in metric.description
