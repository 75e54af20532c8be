"""
Pages name existing tests, each name is unambiguous, and CONTRIBUTING.md names existing files.
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


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PATHS = sorted(set(re.findall(r"`((?:[\w.]+/)+(?:[\w.]+)?|\w+\.py)`", CONTRIBUTING)))


@pytest.mark.parametrize("path", PATHS)
def test_each_named_file_exists(path: str) -> None:
    """
    Every file and folder that CONTRIBUTING.md names exists.
    """
    assert any((top / path).exists() for top in (ROOT, ROOT / "connector" / "pyspark_pykafka"))


def test_contributing_names_files() -> None:
    """
    The search above finds the paths in CONTRIBUTING.md.
    """
    assert len(PATHS) > 30
