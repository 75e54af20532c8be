"""
Kafka's own command-line tools, run as their scripts run them.
"""

from __future__ import annotations

import os
import subprocess

from pyspark_pykafka.testing import KAFKA_VERSION, find_java
from pyspark_pykafka.testing.jars import kafka_tools_jars

SECONDS = 120


def run(tool: str, bootstrap: str, *arguments: str) -> str:
    """
    Return what a tool prints, given its Java class; a failure is an error with all it said.
    """
    command = [
        *(str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-cp", os.pathsep.join(map(str, kafka_tools_jars(KAFKA_VERSION)))),
        *(tool, "--bootstrap-server", bootstrap, *arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{tool}: {done.stdout}{done.stderr}"
    return done.stdout
