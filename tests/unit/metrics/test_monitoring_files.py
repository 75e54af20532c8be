"""
The Grafana dashboard and the alert rules name metrics that the exposition has; tests/promtool
evaluates them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.query_snapshots import eventful_metrics

from pyspark_pykafka.audit.report import Verdict
from pyspark_pykafka.metrics.prometheus import PrometheusCollector

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[3] / "docs" / "monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
RULES = (FOLDER / "alerts.yml").read_text()

#: A metric, with the selector in braces if there is one.
SELECTOR = re.compile(r"(pykafka_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def exposed_labels() -> dict[str, set[str]]:
    """
    Return the labels of each metric in the exposition, as Prometheus's own parser reads them.
    """
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(lambda: eventful_metrics().snapshot(100.0)))
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def dashboard_expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (
        variable["query"]["query"]
        for variable in DASHBOARD["templating"]["list"]
        if variable["type"] == "query"
    )


def rule_expressions() -> list[str]:
    """
    Return the expressions of the rules: the text after `expr:` up to the next key.
    """
    return re.findall(r"expr: (?:>-\n)?(.*?)\n +(?:for|labels):", RULES, re.DOTALL)


EXPRESSIONS = [*dashboard_expressions(), *rule_expressions()]
#: `up` is Prometheus's own.
OWN_EXPRESSIONS = [expression for expression in EXPRESSIONS if not expression.startswith("up{")]


@pytest.mark.parametrize("expression", OWN_EXPRESSIONS)
def test_metrics_and_labels_exist(expression: str) -> None:
    """
    Each metric that an expression names is in the exposition, and has the labels that it selects
    or groups by.
    """
    labels = exposed_labels()
    selectors = SELECTOR.findall(expression)

    assert selectors
    for metric, selector in selectors:
        assert metric in labels
        assert set(re.findall(r"(\w+)[=!]", selector)) <= labels[metric]
    for grouping in GROUPING.findall(expression):
        assert set(grouping.split(", ")) <= labels[selectors[0][0]]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_brackets_are_balanced(expression: str) -> None:
    """
    The brackets of each expression are closed in the order in which they were opened.
    """
    brackets = "".join(re.findall(r"[(){}\[\]]", re.sub(r'"[^"]*"', "", expression)))
    while (shorter := re.sub(r"\(\)|\{\}|\[\]", "", brackets)) != brackets:
        brackets = shorter

    assert brackets == ""


def test_every_rule_is_found() -> None:
    """
    There are as many expressions as alerts, and each alert has a severity and a summary.
    """
    alerts = RULES.count("- alert: ")

    assert alerts == len(rule_expressions()) == RULES.count("severity: ") >= 8
    assert RULES.count("summary: ") == alerts


def test_verdicts_of_the_rules_exist() -> None:
    """
    The verdicts that raise an alert are those that an audit can have.
    """
    (verdicts,) = set(re.findall(r'verdict=~"([^"]*)"', RULES))

    assert set(verdicts.split("|")) == {
        verdict.name.lower()
        for verdict in Verdict
        if verdict not in {Verdict.COMPLETE, Verdict.UNKNOWN}
    }


def test_panels_do_not_overlap() -> None:
    """
    Panels have distinct ids and places within the 24 columns of a dashboard.
    """
    places: list[tuple[int, int]] = []
    for panel in DASHBOARD["panels"]:
        places += cells(panel["gridPos"])

    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def cells(position: dict[str, Any]) -> list[tuple[int, int]]:
    return [
        (position["x"] + column, position["y"] + row)
        for column in range(position["w"])
        for row in range(position["h"])
    ]
