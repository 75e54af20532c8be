"""
Runs Kafka's own command-line tools, as their scripts do.
"""

from __future__ import annotations

import os
import subprocess

from pyspark_pykafka.testing import KAFKA_VERSION, find_java
from pyspark_pykafka.testing.jars import kafka_tools_jars

SECONDS = 120


def run(tool: str, bootstrap: str, *arguments: str, lines: str | None = None) -> str:
    """
    Run a tool by its Java class, with optional lines for its standard input, and return its output;
    a failure raises an error with the whole output.
    """
    command = [
        *(str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-cp", os.pathsep.join(map(str, kafka_tools_jars(KAFKA_VERSION)))),
        *(tool, "--bootstrap-server", bootstrap, *arguments),
    ]
    result = subprocess.run(
        command,
        input=lines,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, f"{tool}: {result.stdout}{result.stderr}"
    return result.stdout
