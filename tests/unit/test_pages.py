"""
Examples in the pages define the options that they use, and their commands have the right form.
"""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from contextlib import nullcontext
from pathlib import Path

import pytest

from pyspark_pykafka.cli import make_parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ *(pykafka (?:.*\\\n)*.*)$", re.MULTILINE)
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


def commands_in(text: str) -> list[list[str]]:
    """
    Return the words of each `pykafka` command in a page's blocks, without what a shell interprets.
    """
    commands = []
    for block in FENCE.findall(text):
        for line in COMMAND.findall(block):
            words = shlex.split(line.replace("\\\n", " "), comments=True)
            ends = [words.index(word) for word in ("|", ">", ";", "&&") if word in words]
            commands.append(words[1 : min(ends, default=None)])
    return commands


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=f"{page.stem}-{'-'.join(words[:2])}-{number}")
        for page in PAGES
        for number, words in enumerate(commands_in(page.read_text()))
    ],
)
def test_commands_have_the_right_form(words: list[str]) -> None:
    """
    The command line accepts each command of the pages, also of those that no test runs.
    """
    exits = {"--version", "--help"} & {*words}

    with pytest.raises(SystemExit, match="^0$") if exits else nullcontext():
        make_parser().parse_args(words)


def test_commands_are_found_in_every_kind_of_block() -> None:
    """
    Commands are found in blocks with and without a language, over several lines, before a pipe.
    """
    bare = "```\npykafka lag \\\n  --group g\n```\n"
    page = f"{bare}```sh\npykafka peek t | head  # shown\n```\npykafka\n"

    assert commands_in(page) == [["lag", "--group", "g"], ["peek", "t"]]
