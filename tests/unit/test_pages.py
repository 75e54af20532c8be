"""
Examples in the pages define the options that they use.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
NAME = "options"


def uses_undefined(blocks: list[str]) -> bool:
    """
    Return whether a block uses `options` before it or an earlier block has defined them.
    """
    for block in blocks:
        names = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Name)]
        contexts = [node.ctx for node in names if node.id == NAME]
        if any(isinstance(context, ast.Store) for context in contexts):
            return False
        if contexts:
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_options_are_defined_where_they_are_used(page: Path) -> None:
    """
    The Python blocks of a page, pasted in their order, define `options` before they use it.
    """
    blocks = [textwrap.dedent(block) for block in PYTHON.findall(page.read_text())]

    assert not uses_undefined(blocks)


def test_undefined_options_are_found() -> None:
    """
    The check finds a use without a definition, and accepts one after it.
    """
    assert uses_undefined(["spark.read.options(**options)"])
    assert not uses_undefined(["x = 1", "options = {}", "read(options)"])
