"""
The report of `pykafka verify`: outcome, exit code, text and JSON.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_pykafka.verify.checker import Verdict
from pyspark_pykafka.verify.report import Report


def report(**values: Any) -> Report:
    """
    Return the report of a clean run, with some values changed.
    """
    clean: dict[str, Any] = {
        "guarantee": "exactly-once",
        "written": 100,
        "acknowledged": 80,
        "aborted": 20,
        "unknown": 0,
        "read": 80,
        "verdict": Verdict(),
        "restarts": 1,
        "longest_pause": 2.34,
        "max_lag": 12,
    }
    return Report(**{**clean, **values})


PAGE = Path(__file__).parents[3] / "docs/verify.md"
LOST = Verdict({"lost": [("t", 1, 7)]})


@pytest.mark.parametrize(
    ("values", "outcome", "code"),
    [
        ({}, "clean", 0),
        ({"verdict": LOST}, "anomaly", 1),
        ({"verdict": LOST, "read": 0}, "anomaly", 1),
        ({"read": 0, "verdict": Verdict({"stuck": [("t", 0, 0)]})}, "void", 2),
        ({"acknowledged": 0, "read": 0}, "void", 2),
    ],
)
def test_outcome_and_exit_code(values: dict[str, Any], outcome: str, code: int) -> None:
    """
    A run without progress is void rather than clean; a lost record is an anomaly in any run.
    """
    result = report(**values)

    assert (result.outcome, result.exit_code) == (outcome, code)


def test_text_ends_with_the_verdict_and_names_the_records() -> None:
    """
    Each anomaly is shown with partition and number, and the last line is the verdict.
    """
    lines = report(verdict=LOST, error="it failed").lines()

    assert "lost: partition 1 record 7" in lines
    assert "the query ended: it failed" in lines
    assert lines[-1] == "verdict: anomaly (exactly-once did not hold)"
    assert report().lines()[-1] == "verdict: clean (exactly-once held)"


def test_json_has_the_same_figures() -> None:
    """
    The document has every figure, and the place of each anomaly.
    """
    document = json.loads(json.dumps(report(verdict=LOST).to_json()))

    assert document["verdict"] == "anomaly"
    assert document["anomalies"] == {"lost": [{"partition": 1, "record": 7}]}
    assert (document["acknowledged"], document["read"], document["lost"]) == (80, 80, 1)
    assert (document["longest_pause_seconds"], document["maximum_lag"]) == (2.3, 12)


def test_the_report_on_the_page() -> None:
    """
    The excerpt on the page has the first lines and the last line of a clean report.
    """
    counts = {"written": 4700, "acknowledged": 3800, "aborted": 900, "read": 3800}
    (excerpt,) = re.findall(r"^```\n(written .*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    *first, dots, verdict = excerpt.splitlines()
    lines = report(**counts).lines()

    assert first == lines[: len(first)]
    assert (dots, verdict) == ("...", lines[-1])
