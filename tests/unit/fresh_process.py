"""
What a process has imported that has done nothing else yet.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def modules_after(program: str) -> set[str]:
    """
    Return what a fresh process has imported when it has run a program.
    """
    found = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return set(found.stdout.split())
