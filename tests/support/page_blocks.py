"""
The blocks of code in a page of the documentation, and a user who pastes them.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import textwrap
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_pykafka.cli import main, make_parser

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^ *```(python|sh|sql)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: The brokers that the pages use.
_ADDRESS = re.compile(r"\b(?:localhost|broker):9092\b")
#: Folders that the pages write to, in the current folder of Spark or in the root.
_FOLDERS = re.compile(r'"/?(lake|checkpoints|data)/')


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
        if words[1] == "dev":
            # The test already has a broker, and `pykafka dev` has its own tests.
            make_parser().parse_args(words[1:])
            return ""
        words, file = _redirected(words)
        printed = io.StringIO()
        with redirect_stdout(printed):
            assert main(words[1:]) == 0, line
        if file:
            (self.folder / file).write_text(printed.getvalue())
        return printed.getvalue()


def _redirected(words: list[str]) -> tuple[list[str], str]:
    """
    Return the words of a command, and the file that receives its output, or an empty name.
    """
    if ">" not in words:
        return words, ""
    index = words.index(">")
    return words[:index], words[index + 1]
