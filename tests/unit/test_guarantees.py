"""
The page of guarantees, held against the tests that it names.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_each_named_test_exists(file: str, test: str) -> None:
    """
    A guarantee is worth what its test is: one that was renamed or removed shows here.
    """
    paths = (ROOT / "tests").rglob(file)

    assert any(f"def {test}(" in path.read_text() for path in paths)


def test_the_page_names_tests() -> None:
    """
    The search above finds the page's rows, so that it cannot pass for want of them.
    """
    rows = [line for line in PAGE.splitlines() if "| `test_" in line]

    assert len(rows) > 50
    assert all(len(re.findall(r"`test_\w+\.py::test_\w+`", row)) == 1 for row in rows)
