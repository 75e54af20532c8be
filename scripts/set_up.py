"""
Installs the project and its tools into this virtual environment, and shows pip's progress.

    .venv/bin/python scripts/set_up.py CONSTRAINTS
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque

_COMMAND = ["-m", "pip", "install", "--editable", ".[dev]", "--progress-bar", "off"]
_STEP = re.compile(r"\s*(Collecting|Downloading|Building|Installing)\b(.*)")
_LAST_LINES = 40
_WIDTH = 78


def main() -> None:
    """
    Run pip; if it fails, print the end of its output and exit with its code.
    """
    start, last_lines = time.monotonic(), deque[str](maxlen=_LAST_LINES)
    command = [sys.executable, *_COMMAND, "--constraint", sys.argv[1]]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            last_lines.append(line)
            match = _STEP.match(line)
            if match:
                _show(f"{time.monotonic() - start:4.0f} s  {match[1]}{match[2]}")
    _show("")
    if pip.returncode:
        print("".join(last_lines), file=sys.stderr)
        sys.exit(pip.returncode)


def _show(text: str) -> None:
    """
    Replace the line on a terminal; elsewhere, as in a log, nothing is shown.
    """
    if sys.stdout.isatty():
        print(f"\r\033[K{text[:_WIDTH]}", end="", flush=True)


if __name__ == "__main__":
    main()
