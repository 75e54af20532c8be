"""
`pykafka lag`, `pykafka ui` and `pykafka replay` for topics that were deleted and recreated, for
partitions without a record, and for logs without unread records.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.support.memory_store import MemoryStore, Server
from tests.support.record_batches import marker
from tests.support.stub_brokers import Behaviour, StubCluster, record_batch

from pyspark_pykafka.cli import main, replay
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress import factory
from pyspark_pykafka.progress.record import ProgressRecord
from pyspark_pykafka.ui import cluster_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.progress.store import Records

#: The timestamp of all records.
TIMESTAMP_SECONDS = 1_700_000_000
#: The number of records in each partition.
COUNTS = {("a", 0): 40, ("b", 0): 5, ("b", 1): 3}
A0, B0, C0 = (TopicPartition(topic, 0) for topic in "abc")


class Shown(NamedTuple):
    """
    The total lag, and the recorded offset, lag and seconds of each partition.
    """

    total: int | None
    partitions: dict[tuple[str, int], tuple[Any, ...]]


class ShortenedLog(Behaviour):
    """
    Two topics; the first record of ``b`` has aged out.
    """

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        error, offset = super().offsets(node, topic, partition, timestamp)
        return error, max(offset, 1) if topic == "b" else offset


BEHAVIOUR = ShortenedLog(
    topics={"a": 1, "b": 2, "c": 1},
    logs={
        **{tp: [record_batch(0, [b"v"] * count)] for tp, count in COUNTS.items()},
        ("c", 0): [record_batch(0, [b"v"] * 2), marker(2, 1, abort=False).encode()],
    },
)


def topic_id(topic: str) -> str:
    """
    Return a topic's id in Kafka's text form.
    """
    return base64.urlsafe_b64encode(BEHAVIOUR.topic_id(topic).bytes).decode().rstrip("=")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """
    The address of the cluster.
    """
    with StubCluster(BEHAVIOUR) as cluster:
        yield cluster.bootstrap


@pytest.fixture(params=["lag", "ui"])
def shown_lag(
    request: pytest.FixtureRequest,
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Records], Shown]:
    """
    Return a function that runs one of the two commands on a store with the given records, and
    returns the lag that the command prints.
    """
    command: str = request.param

    def run(records: Records) -> Shown:
        for module in (factory, cluster_source):
            monkeypatch.setattr(
                module, "make_progress_store", lambda _: MemoryStore(Server({**records}))
            )
        assert main([command, "--json", "--bootstrap-server", bootstrap, "--group", "g"]) == 0
        document = json.loads(capsys.readouterr().out)
        if command == "ui":
            (document,) = document["queries"]
            names = ("position", "lag", "lag_seconds")
        else:
            names = ("offset", "lag", "seconds")
        partitions = {
            (partition["topic"], int(partition["partition"])): tuple(
                partition[name] for name in names
            )
            for partition in document["partitions"]
        }
        return Shown(document["lag"], partitions)

    return run


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(ProgressRecord(1000, topic_id="another"), 4, id="recreated, long record"),
        pytest.param(ProgressRecord(2, topic_id="another"), 4, id="recreated, short record"),
        pytest.param(ProgressRecord(2, topic_id=topic_id("b")), 3, id="the same topic"),
        pytest.param(ProgressRecord(1000), 0, id="unknown id"),
        pytest.param(None, None, id="no record"),
    ],
)
def test_lag_of_a_topic(
    shown_lag: Callable[[Records], Shown], record: ProgressRecord | None, expected: int | None
) -> None:
    """
    The lag of a recreated topic counts from its start. No partition's lag is below 0, which would
    hide the lag of others, and a partition without a record is not in the total.
    """
    records: Records = {A0: ProgressRecord(30, topic_id=topic_id("a"))}
    if record is not None:
        records[B0] = record

    total, partitions = shown_lag(records)

    assert partitions[A0][1] == 10
    assert (B0 in partitions) == (record is not None)
    offset, lag, seconds = partitions.get(B0, (None, None, None))
    assert (offset, lag) == (record and record.offset, expected)
    assert partitions.get(TopicPartition("b", 1), (None,) * 3) == (None,) * 3
    assert total == 10 + (expected or 0)
    assert seconds == (expected and pytest.approx(time.time() - TIMESTAMP_SECONDS, abs=600))


def test_lag_without_known_offsets(shown_lag: Callable[[Records], Shown]) -> None:
    """
    If no partition that exists has a record, the total is unknown, and not 0.
    """
    total, partitions = shown_lag({TopicPartition("b", 7): ProgressRecord(5)})

    assert total is None
    assert {lag for _, lag, _ in partitions.values()} == {None}


def test_lag_of_control_records(shown_lag: Callable[[Records], Shown]) -> None:
    """
    A query whose unread offsets hold only control records has a lag of 0 s.
    """
    _, partitions = shown_lag({C0: ProgressRecord(2)})

    assert partitions[C0] == (2, 1, 0)


@pytest.mark.parametrize(
    ("record", "end"),
    [
        pytest.param(ProgressRecord(4, topic_id=topic_id("b")), 4, id="the same topic"),
        pytest.param(ProgressRecord(1000, topic_id=topic_id("b")), 5, id="truncated"),
        pytest.param(ProgressRecord(4, topic_id="another"), 1, id="recreated"),
    ],
)
def test_replay_ends_at_the_position_in_the_log(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    record: ProgressRecord,
    end: int,
) -> None:
    """
    A replay reads no offsets beyond the log's end, and none of a topic that was recreated since:
    the query has read no record of the new topic.
    """
    server = Server({B0: record})
    monkeypatch.setattr(factory, "make_progress_store", lambda _: MemoryStore(server))
    command = ["replay", "--json", "--bootstrap-server", bootstrap, "--group", "g"]

    assert main([*command, "--topic", "b", "--from", "earliest"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["startingOffsets"] == {"b": {"0": 1}}
    assert report["endingOffsets"] == {"b": {"0": end}}
    assert report["offsets"] == end - 1


def test_replay_skips_no_records(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A recorded offset before the position stays, and a partition without one gets none: otherwise
    unread records would be skipped.
    """
    server = Server(
        {
            A0: ProgressRecord(2, topic_id=topic_id("a")),
            B0: ProgressRecord(5, topic_id=topic_id("b")),
        }
    )
    monkeypatch.setattr(factory, "make_progress_store", lambda _: MemoryStore(server))
    monkeypatch.setattr(replay, "make_progress_store", lambda _: MemoryStore(server))
    command = ["replay", "--json", "--bootstrap-server", bootstrap, "--group", "g"]

    assert main([*command, "--from", "3", "--execute"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["startingOffsets"] == {"a": {"0": 2}, "b": {"0": 3}}
    assert report["offsets"] == 2
    assert {tp: record.offset for tp, record in server.records.items()} == {A0: 2, B0: 3}


def test_replay_of_a_topic_without_recorded_offsets(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A topic that the query has not read has no position to move back, so naming it is an error.
    """
    server = Server({B0: ProgressRecord(5, topic_id=topic_id("b"))})
    monkeypatch.setattr(factory, "make_progress_store", lambda _: MemoryStore(server))
    command = ["replay", "--bootstrap-server", bootstrap, "--group", "g", "--from", "earliest"]

    assert main([*command, "--topic", "a", "--topic", "b"]) == ExitCode.NOT_FOUND

    assert "has no recorded offsets of 'a'; correct" in capsys.readouterr().err
