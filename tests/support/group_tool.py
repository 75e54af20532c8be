"""
What Kafka's own kafka-consumer-groups tool shows of a group.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.kafka_tool import run


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
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    answer = run(tool, bootstrap, "--describe", "--group", group)
    rows = [line.split() for line in answer.splitlines() if line.startswith(f"{group} ")]
    return {(row[1], int(row[2])): _shown(row) for row in rows}


def _shown(row: list[str]) -> Shown:
    # GROUP TOPIC PARTITION [LEADER-EPOCH] CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT
    current, end, lag = row[-6:-3]
    return Shown(current, end, lag, row[-1])
