"""
Starts and stops Spark's own servers on loopback: a master, workers, a Spark Connect server.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
_STOP_SECONDS = 60.0


@contextmanager
def spark_process(
    log: Path, command: str, words: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """
    Run a command of Spark's ``bin`` folder that becomes a JVM, and stop it at the end.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / command), *words],
            env=environment,
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
