"""
Builds wheels of the package from the files that the repository tracks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
# Of these, git tracks neither compiled modules nor the C files that Cython writes.
SOURCES = ("connector", "setup.py", "pyproject.toml", "README.md", "LICENSE")


def copy_sources(folder: Path) -> Path:
    """
    Copy the tracked files of the package into a folder, and return it.
    """
    listed = subprocess.run(
        [str(shutil.which("git")), "ls-files", *SOURCES],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    for name in listed.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def build_wheel(
    source: Path, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[Path, str]:
    """
    Return the wheel that pip builds, and what pip printed.
    """
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir"]
    result = subprocess.run(
        [*command, folder, source],
        check=True,
        timeout=250,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel, result.stdout + result.stderr
