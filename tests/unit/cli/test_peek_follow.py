"""
`pykafka peek --follow` on a topic that gets partitions, and on one that is deleted and recreated.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.cli import main, peek
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest
    from tests.support.served_kafka import SimulatedAccess


class Steps(threading.Event):
    """
    Runs one step instead of each wait for the next poll, and then ends.
    """

    def __init__(self, steps: Sequence[Callable[[], object]]) -> None:
        super().__init__()
        self._steps = [*steps]

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 (Event has it)
        if not self._steps:
            return True
        self._steps.pop(0)()
        return False


def follow(
    monkeypatch: pytest.MonkeyPatch,
    cluster: SimulatedAccess,
    topic: str,
    steps: Sequence[Callable[[], object]],
    *arguments: str,
) -> None:
    """
    Run the command, with a step before each poll.
    """
    monkeypatch.setattr(peek, "_follow", partial(peek._follow, stop=Steps(steps)))
    command = ["peek", "--topic", topic, "--follow", "--bootstrap-server", cluster.bootstrap]
    assert main([*command, *arguments]) == 0


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """
    Return the positions and values that were shown, and the lines of the standard error.
    """
    output = capsys.readouterr()
    lines = [line.split("  ") for line in output.out.splitlines()]
    return [f"{cells[0]} {cells[3]}" for cells in lines], output.err.splitlines()


def test_new_partitions_are_followed(
    monkeypatch: pytest.MonkeyPatch, cluster: SimulatedAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The records of a partition that is added later are shown from its start, unless one partition
    is selected.
    """
    name = cluster.create_topic("grown", 1)

    def grow() -> None:
        count = len(cluster.admin().list_topics(name, timeout=10).topics[name].partitions) + 1
        cluster.call(lambda simulated: simulated.add_partitions(name, 1))
        wait_until(lambda: missing(cluster, name, count), 30)
        cluster.produce(name, [Record(b"new", partition=count - 1)])

    follow(monkeypatch, cluster, name, [grow, lambda: None], "--from-end")
    assert shown(capsys) == (["1@0 new"], [])

    follow(monkeypatch, cluster, name, [grow, lambda: None], "--from-end", "--partition", "0")
    assert shown(capsys) == ([], [])


def missing(cluster: SimulatedAccess, name: str, count: int) -> str | None:
    partitions = cluster.admin().list_topics(name, timeout=10).topics[name].partitions
    has_leaders = all(partition.leader >= 0 for partition in partitions.values())
    return None if len(partitions) == count and has_leaders else "the partition is missing"


def test_a_recreated_topic_is_followed_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, cluster: SimulatedAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    All records of a topic that was recreated under the name are shown, and a line on the standard
    error says so; the same holds if the topic was missing for a while in between.
    """
    name = cluster.create_topic("recreated", 1)
    cluster.produce(name, [Record(b"old"), Record(b"old")])

    def recreate() -> None:
        cluster.delete_topic(name)
        cluster.create_topic(name, 1)
        cluster.produce(name, [Record(b"first"), Record(b"second"), Record(b"third")])

    def create() -> None:
        cluster.create_topic(name, 1)
        cluster.produce(name, [Record(b"last")])

    steps = [recreate, lambda: cluster.delete_topic(name), lambda: None, create, lambda: None]
    follow(monkeypatch, cluster, name, steps)

    records, events = shown(capsys)
    assert records == ["0@0 old", "0@1 old", "0@0 first", "0@1 second", "0@2 third", "0@0 last"]
    recreated = "the topic recreated was deleted and recreated; continuing at its beginning"
    assert events == [
        f"pykafka peek: {recreated}",
        "pykafka peek: the topic recreated was deleted; waiting until it exists again",
        f"pykafka peek: {recreated}",
    ]


def test_a_selected_partition_that_a_recreated_topic_lacks(
    monkeypatch: pytest.MonkeyPatch, cluster: SimulatedAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    If the topic is recreated without the selected partition, a line on the standard error says so.
    """
    name = cluster.create_topic("shrunk", 2)

    def recreate() -> None:
        cluster.delete_topic(name)
        cluster.create_topic(name, 1)

    follow(monkeypatch, cluster, name, [recreate, lambda: None], "--partition", "1")
    text = "the topic shrunk was recreated without partition 1; waiting until it has that partition"
    assert shown(capsys) == ([], [f"pykafka peek: {text}"])
