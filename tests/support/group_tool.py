"""
Describes consumer groups with Kafka's own kafka-consumer-groups.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.kafka_tool import run


class GroupRow(NamedTuple):
    """
    One partition in the output of ``--describe``.
    """

    current: str
    end: str
    lag: str
    client: str


def describe_group(bootstrap: str, group: str) -> dict[tuple[str, int], GroupRow]:
    """
    Return the output of ``--describe``, by topic and partition.
    """
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    output = run(tool, bootstrap, "--describe", "--group", group)
    rows = [line.split() for line in output.splitlines() if line.startswith(f"{group} ")]
    return {(row[1], int(row[2])): _group_row(row) for row in rows}


def _group_row(row: list[str]) -> GroupRow:
    # GROUP TOPIC PARTITION [LEADER-EPOCH] CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT
    current, end, lag = row[-6:-3]
    return GroupRow(current, end, lag, row[-1])
