"""
The blocks of code in a page of the documentation, and a user who pastes them.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import textwrap
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyspark_pykafka.cli import main, make_parser
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_pykafka.testing import KafkaCluster

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^ *```(python|sh|sql)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: The brokers that the pages use.
_ADDRESS = re.compile(r"\b(?:localhost|broker):9092\b")
#: Folders that the pages write to, in the current folder of Spark or in the root.
_FOLDERS = re.compile(r'"/?(lake|checkpoints|data)/')
#: The commands and flags that run until Ctrl-C.
_ENDLESS = frozenset({"dev", "ui", "--follow", "--watch"})


@dataclass(frozen=True, slots=True)
class Block:
    """
    A block of Python, shell commands or SQL.
    """

    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """
    Return the blocks of a page in their order. ``page`` is its path from the root of the project.
    """
    text = (ROOT / page).read_text()
    return [Block(language, textwrap.dedent(code)) for language, code in _BLOCK.findall(text)]


def delete_topics(cluster: KafkaCluster, names: Iterable[str]) -> None:
    """
    Delete those topics that exist, and wait until the broker no longer knows them.
    """
    admin, chosen = cluster.admin(), frozenset(names)

    def left() -> list[str]:
        return sorted(chosen.intersection(admin.list_topics(timeout=30).topics))

    if left():
        for future in admin.delete_topics(left()).values():
            future.result(30)
        wait_until(lambda: f"still there: {left()}" if left() else None, 30)


@contextmanager
def topics_of_page(cluster: KafkaCluster, *names: str) -> Iterator[None]:
    """
    Create the topics that a page names, empty, and delete them at the end.
    """
    delete_topics(cluster, names)
    for name in names:
        cluster.create_topic(name)
    try:
        yield
    finally:
        delete_topics(cluster, names)


@dataclass
class PageReader:
    """
    A user with one Python session (``names`` are its variables), one shell, the broker of the test
    and a new folder.
    """

    bootstrap: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)

    def paste(self, block: Block) -> str:
        """
        Run a block of Python, of commands or of SQL, and return its output.
        """
        if block.language == "sql":
            self.names["spark"].sql(_ADDRESS.sub(self.bootstrap, block.text))
            return ""
        if block.language == "sh":
            lines = block.text.replace("\\\n", " ").splitlines()
            return "".join(map(self._run, lines))
        code = _FOLDERS.sub(rf'"{self.folder}/\1/', _ADDRESS.sub(self.bootstrap, block.text))
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, self.names)  # noqa: S102 (our own page)
        return printed.getvalue()

    def _run(self, line: str) -> str:
        """
        Run a line that sets a variable or calls pykafka, which must succeed; skip any other line.
        """
        words = shlex.split(_ADDRESS.sub(self.bootstrap, line), comments=True)
        if not words or words[0] not in {"export", "pykafka"}:
            return ""
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            os.environ[name] = value
            return ""
        if _ENDLESS.intersection(words):
            # Only parsed: separate tests run and end these commands, and this test already has a
            # broker.
            make_parser().parse_args(words[1:])
            return ""
        words, source = _redirected(words, "<")
        words, target = _redirected(words, ">")
        stdin = io.TextIOWrapper(io.BytesIO((self.folder / source).read_bytes() if source else b""))
        printed = io.StringIO()
        with redirect_stdout(printed), patch("sys.stdin", stdin):
            assert main(words[1:]) == 0, line
        if target:
            (self.folder / target).write_text(printed.getvalue())
        return printed.getvalue()


def _redirected(words: list[str], sign: str) -> tuple[list[str], str]:
    """
    Return the words of a command, and the file that it reads or writes, or an empty name.
    """
    if sign not in words:
        return words, ""
    index = words.index(sign)
    return words[:index] + words[index + 2 :], words[index + 1]
