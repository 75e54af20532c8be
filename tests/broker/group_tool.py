"""
What Kafka's own kafka-consumer-groups tool shows of a group.
"""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from pyspark_pykafka.testing import KAFKA_VERSION, find_java
from pyspark_pykafka.testing.jars import kafka_tools_jars

SECONDS = 60


class Shown(NamedTuple):
    """
    A line of the tool's table.
    """

    current: str
    end: str
    lag: str
    client: str


def described(bootstrap: str, group: str) -> dict[tuple[str, int], Shown]:
    """
    Return the table of --describe, by topic and partition.
    """
    command = [
        *(str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-cp", os.pathsep.join(map(str, kafka_tools_jars(KAFKA_VERSION)))),
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", bootstrap, "--describe", "--group", group),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    rows = [line.split() for line in answer.stdout.splitlines() if line.startswith(f"{group} ")]
    return {(row[1], int(row[2])): _shown(row) for row in rows}


def _shown(row: list[str]) -> Shown:
    # GROUP TOPIC PARTITION [LEADER-EPOCH] CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT
    current, end, lag = row[-6:-3]
    return Shown(current, end, lag, row[-1])
