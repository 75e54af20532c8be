"""
The metadata of the package agree with each other.
"""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_oldest_python_is_the_same_everywhere() -> None:
    """
    `requires-python`, the classifiers, the pages, the Makefile and `.ci/run` name the same oldest
    Python.
    """
    oldest = PROJECT["requires-python"].removeprefix(">=")
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))

    assert min(versions, key=lambda name: int(name.partition(".")[2])) == oldest
    for page in ("README.md", "CONTRIBUTING.md", "Makefile", ".ci/run"):
        promised = set(re.findall(r"Python (3\.\d+)", (ROOT / page).read_text()))
        assert promised == {oldest}, page


def test_no_newest_python_is_required() -> None:
    """
    `requires-python` has no upper bound, because with one pip would install an older version of the
    connector that lacks the bound; the classifiers name the tested versions of Python.
    """
    assert re.fullmatch(r">=3\.\d+", PROJECT["requires-python"])


def test_dependencies_are_checked_for_each_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    `make installs` looks for wheels on each Python of the classifiers, for each dependency but
    Spark, which has none.
    """
    nox = pytest.importorskip("nox", reason="nox is for development")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(nox, "session", lambda function: function)

    names = runpy.run_path(str(ROOT / "noxfile.py"))

    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert names["PYTHONS"] == versions
    unchecked = [need for need in PROJECT["dependencies"] if need not in names["NEED_WHEELS"]]
    assert [need.partition(">")[0] for need in unchecked] == ["pyspark"]
