"""
Chooses a wheel's tag by its content; everything else about the package is in pyproject.toml.

The compiled modules are optional. Without a C compiler the wheel has none, and fits every platform.
"""

from __future__ import annotations

import logging
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

NOT_COMPILED = """
*** pyspark-pykafka is built without its compiled modules: is there a C compiler, and Python's
*** headers? Without these modules reads and writes are slower, and exactly-once is impossible.
"""


class BdistWheel(bdist_wheel):
    """
    Builds first, and then decides whether the wheel is for one platform.
    """

    def run(self) -> None:
        """
        Build the modules and pack them.
        """
        self.run_command("build")
        files = Path(self.get_finalized_command("build").build_lib).rglob("*")
        if not any(path.suffix in {".so", ".pyd"} for path in files):
            self.announce(NOT_COMPILED, level=logging.WARNING)
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


setup(cmdclass={"bdist_wheel": BdistWheel})
