"""
The queries of the Grafana dashboard, evaluated by promtool.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.promtool import check_value
from tests.support.query_snapshots import eventful_metrics

from pyspark_pykafka.metrics.prometheus import PrometheusCollector

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.promtool

FILE = Path(__file__).parents[2] / "docs" / "monitoring" / "dashboard.json"
PANELS: list[dict[str, Any]] = json.loads(FILE.read_text())["panels"]

#: Grafana's variables, as it fills them in for a range of an hour and a scrape each minute.
VARIABLES = {"$__rate_interval": "4m", "$__range": "1h", "$query": ".*"}

QUERY = 'query_id="q", query_name="flights"'
PARTITION = f'{QUERY}, topic="orders", partition="0"'
FAILURES = f'pykafka_query_failures_total{{{QUERY}, error="DataLossError"}}'
REPLAYS = f"pykafka_replayed_batches_total{{{QUERY}}}"
LETTERS = f"pykafka_dead_letters_total{{{PARTITION}}}"
LOST = f'pykafka_lost_offsets_total{{{PARTITION}, source="0"}}'
VERDICTS = 'pykafka_audited_batches_total{auditor="copies", verdict="missing"}'


def expression(title: str, ref: str = "A") -> str:
    """
    Return a query of the panel with this title, with Grafana's variables filled in.
    """
    (panel,) = [panel for panel in PANELS if panel["title"] == title]
    (target,) = [target for target in panel["targets"] if target["refId"] == ref]
    return filled(target["expr"])


def filled(text: str) -> str:
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    return text


def exposed_series() -> dict[str, str]:
    """
    Return each series of an eventful query, with ten equal values.
    """
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(lambda: eventful_metrics().snapshot(100.0)))
    return {
        f"{sample.name}{{{_selector(sample.labels)}}}": f"{sample.value}x9"
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def _selector(labels: Mapping[str, str]) -> str:
    return ", ".join(f'{name}="{text}"' for name, text in labels.items())


@pytest.mark.parametrize(
    "query", [target["expr"] for panel in PANELS for target in panel["targets"]]
)
def test_each_query_has_a_result(query: str, tmp_path: Path) -> None:
    """
    Each query is valid, and finds series of a streaming query with every kind of event.
    """
    check_value(tmp_path, f"count({filled(query)}) > bool 0", 9, exposed_series(), 1)


class Panel(NamedTuple):
    """
    A query that counts the events of a range, and the series that it counts.
    """

    title: str
    ref: str
    series: str


EVENTS = "Failures, replays, dead letters, lost offsets"
OVER_RANGE = (
    Panel("Failures in the range", "A", FAILURES),
    Panel("Replayed micro-batches in the range", "A", REPLAYS),
)
OVER_TIME = (
    Panel(EVENTS, "A", FAILURES),
    Panel(EVENTS, "B", REPLAYS),
    Panel(EVENTS, "C", LETTERS),
    Panel(EVENTS, "D", LOST),
    Panel("Audited micro-batches, by verdict", "A", VERDICTS),
)


@pytest.mark.parametrize("panel", [*OVER_RANGE, *OVER_TIME])
def test_the_first_event_is_shown(panel: Panel, tmp_path: Path) -> None:
    """
    The first events of a series are shown, although the series had no value of 0 before them.
    """
    query = f"sum({expression(panel.title, panel.ref)})"

    check_value(tmp_path, query, 72, {panel.series: "_x70 2x9"}, 2)


@pytest.mark.parametrize("panel", [*OVER_RANGE, *OVER_TIME])
def test_the_last_event_of_a_driver_is_shown(panel: Panel, tmp_path: Path) -> None:
    """
    Events are shown even if the driver was scraped only once more before it died.
    """
    query = f"sum({expression(panel.title, panel.ref)})"

    check_value(tmp_path, query, 73, {panel.series: "_x71 1 stale"}, 1)


@pytest.mark.parametrize("panel", [*OVER_RANGE, *OVER_TIME])
def test_events_before_the_range_are_not_shown(panel: Panel, tmp_path: Path) -> None:
    """
    A series whose events are older than the range shows 0.
    """
    query = f"sum({expression(panel.title, panel.ref)})"

    check_value(tmp_path, query, 90, {panel.series: "3x99"}, 0)


@pytest.mark.parametrize("panel", OVER_RANGE)
def test_events_within_the_range_are_counted(panel: Panel, tmp_path: Path) -> None:
    """
    A series that existed before the range shows its events within it.
    """
    query = f"round(sum({expression(panel.title, panel.ref)}))"

    check_value(tmp_path, query, 120, {panel.series: "3x90 5x40"}, 2)


@pytest.mark.parametrize("panel", OVER_RANGE)
def test_events_of_several_drivers_are_added(panel: Panel, tmp_path: Path) -> None:
    """
    If a driver is restarted at its address within the range, the events of both are shown.
    """
    query = f"round(sum({expression(panel.title, panel.ref)}))"

    check_value(tmp_path, query, 79, {panel.series: "_x70 1 2 stale _x2 1x5"}, 3)


def test_bad_records_are_counted_once(tmp_path: Path) -> None:
    """
    Two drivers that watch one dead-letter topic report the same bad records, which are shown once.
    """
    ends = "pykafka_dead_letter_topic_end_offset"
    series = {f'{ends}{{topic="dead", partition="0", job="{job}"}}': "0x70 2x9" for job in "ab"}

    check_value(tmp_path, f"round(sum({expression(EVENTS, 'E')}))", 72, series, 2)
