"""
Imports the compiled modules of an installed wheel; run by cibuildwheel in each wheel's environment.
"""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from pathlib import Path


def compiled_modules() -> list[str]:
    """
    Return the names of the compiled modules that pyproject.toml lists.
    """
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    return [module["name"] for module in project["tool"]["setuptools"]["ext-modules"]]


def main() -> int:
    """
    Import each module, and print its path.
    """
    for name in compiled_modules():
        print(import_module(name).__file__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
