"""
Runs programs in a fresh process, and returns their output or the modules that they import.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def output_of(program: str) -> str:
    """
    Return the output of a program in a fresh process.
    """
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return result.stdout.strip()


def modules_after(program: str) -> set[str]:
    """
    Return the modules that a fresh process has imported after running a program.
    """
    return set(output_of(f"{program}\nimport sys\nprint(*sys.modules)").split())
