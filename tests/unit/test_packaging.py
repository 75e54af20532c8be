"""
The metadata of the package agree with each other.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_oldest_python_is_the_same_everywhere() -> None:
    """
    The requirement of pip, the classifiers and the pages name the same version of Python.
    """
    oldest = PROJECT["requires-python"].removeprefix(">=")
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))

    assert min(versions, key=lambda name: int(name.partition(".")[2])) == oldest
    for page in ("README.md", "CONTRIBUTING.md", "Makefile", ".ci/run"):
        promised = set(re.findall(r"Python (3\.\d+)", (ROOT / page).read_text()))
        assert promised == {oldest}, page
