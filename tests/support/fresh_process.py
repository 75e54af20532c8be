"""
What a process says, and has imported, that has done nothing else yet.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def said(program: str) -> str:
    """
    Return what a program prints in a fresh process.
    """
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return found.stdout.strip()


def modules_after(program: str) -> set[str]:
    """
    Return what a fresh process has imported when it has run a program.
    """
    return set(said(f"{program}\nimport sys\nprint(*sys.modules)").split())
