"""
The guarantees page names existing tests, and each name is unambiguous.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAME = re.compile(r"`((?:\w+/)*test_\w+\.py)(?:::(test_\w+))?`")
ROWS = [
    line
    for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    if re.search(r"\| `[\w/]*test_", line)
]
NAMED = sorted({name for path in PAGES for name in NAME.findall(path.read_text())})


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_each_named_test_exists_once(file: str, test: str) -> None:
    """
    A test that a page names exists, in one file: its path is given if another has the same name.
    """
    (path,) = TESTS.rglob(file.removeprefix("tests/"))

    assert not test or f"def {test}(" in path.read_text()


def test_every_row_names_one_test() -> None:
    """
    Each row of the guarantees page names exactly one test, and there are more than 50 rows.
    """
    assert len(ROWS) > 50
    assert all(len([test for _, test in NAME.findall(row) if test]) == 1 for row in ROWS)
