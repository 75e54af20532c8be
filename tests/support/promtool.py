"""
Runs Prometheus's own promtool on series that a test defines.

The notation of values is promtool's: ``1x3`` is ``1 1 1 1``, ``_x2`` two scrapes without the
series, ``stale`` the end of the series.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: The time between two scrapes, and between two evaluations of the rules.
INTERVAL = "1m"
_SECONDS = 60


class NoPromtoolError(RuntimeError):
    """
    The program promtool is not installed.
    """


class PromtoolError(AssertionError):
    """
    Promtool reports an invalid rule or an expectation that is not met.
    """


def check_configuration(path: Path) -> None:
    """
    Raise :class:`PromtoolError` if a configuration of Prometheus, or a rule that it names, is not
    valid.
    """
    _run("check", "config", str(path))


def check_alert(
    rules: Path,
    folder: Path,
    alert: str,
    minute: int,
    series: Mapping[str, str],
    firing: list[dict[str, Any]],
) -> None:
    """
    Raise :class:`PromtoolError` unless exactly the alerts ``firing`` fire at a minute.

    Each alert in ``firing`` has ``exp_labels`` and ``exp_annotations``. ``series`` holds the values
    of each series, one per minute.
    """
    test = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": firing}
    _run_test(folder, [str(rules)], series, {"alert_rule_test": [test]})


def check_value(
    folder: Path, expression: str, minute: int, series: Mapping[str, str], expected: float
) -> None:
    """
    Raise :class:`PromtoolError` unless an expression has one sample, without labels and with the
    expected value.
    """
    samples = [{"labels": "{}", "value": expected}]
    test = {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}
    _run_test(folder, [], series, {"promql_expr_test": [test]})


def _run_test(
    folder: Path, rules: list[str], series: Mapping[str, str], tests: dict[str, Any]
) -> None:
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    document = {
        "rule_files": rules,
        "evaluation_interval": INTERVAL,
        "tests": [{"interval": INTERVAL, "input_series": inputs, **tests}],
    }
    path = folder / "test.yml"
    # Each JSON document is a YAML document.
    path.write_text(json.dumps(document))
    _run("test", "rules", str(path))


def _run(*arguments: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        msg = "no promtool: install Debian's prometheus"
        raise NoPromtoolError(msg)
    result = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if result.returncode:
        raise PromtoolError(re.sub(r"\n\s*\n", "\n", result.stdout + result.stderr))
