"""
`pykafka dev` as a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO

DEV = [sys.executable, "-m", "pyspark_pykafka.cli", "dev"]

_LAST_LINE = "Ctrl-C stops it and deletes all its data.\n"


def start_dev(*options: str) -> subprocess.Popen[str]:
    """
    Start the command; its output and its errors are piped.
    """
    return subprocess.Popen(
        [*DEV, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_address(output: IO[str] | None) -> str:
    """
    Return the brokers' addresses, once the command has printed them.
    """
    assert output is not None
    greeting = ""
    # Also ends when the command does, so that a changed text cannot block the test.
    while _LAST_LINE not in greeting and (line := output.readline()):
        greeting += line
    match = re.search(r"Kafka is ready: +(\S+)\n", greeting)
    assert match is not None, greeting
    return match.group(1)
