"""
Runs programs in a fresh process, and returns their output or the modules that they import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def output_of(program: str) -> str:
    """
    Return the output of a program in a fresh process.
    """
    return _run(program, {}).stdout.strip()


def errors_of(program: str, variables: Mapping[str, str]) -> list[str]:
    """
    Return the lines on stderr of a program in a fresh process with more environment variables.
    """
    return _run(program, variables).stderr.splitlines()


def modules_after(program: str) -> set[str]:
    """
    Return the modules that a fresh process has imported after running a program.
    """
    return set(output_of(f"{program}\nimport sys\nprint(*sys.modules)").split())


def _run(program: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **variables},
    )
