"""
`pykafka progress` and `pykafka lag`, on both stores.
"""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.group_tool import describe_group
from tests.support.streams import values

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.progress_store import DIGEST_VARIABLE
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store
from pyspark_pykafka.progress.record import FailedAttempts, Owner, ProgressRecord
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_pykafka.testing import KafkaCluster, ZooKeeper
    from pyspark_pykafka.testing.plugin import TopicFactory


@pytest.fixture(params=["consumerGroup", "zookeeper"])
def location(
    request: pytest.FixtureRequest,
    kafka_cluster: KafkaCluster,
    topic: TopicFactory,
    tmp_path: Path,
) -> tuple[str, list[str]]:
    """
    Return a topic of two partitions with recorded progress, and the arguments that select its
    store.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 20))
    servers = kafka_cluster.bootstrap
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": name,
        "progressStore": request.param,
        "kafka.session.timeout.ms": "3000",
    }
    config = tmp_path / "client.properties"
    config.write_text("# as in Kafka's own files\nsession.timeout.ms = 3000\n\n")
    arguments = ["--bootstrap-server", servers, "--command-config", str(config)]
    if request.param == "consumerGroup":
        options |= {"kafka.group.id": name}
        arguments += ["--group", name]
    else:
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        options |= {"zookeeperHosts": zookeeper.hosts, "zookeeperId": name}
        arguments += ["--zookeeper", zookeeper.hosts, "--id", name]
    _leave_behind(name, options)
    return name, arguments


def _leave_behind(name: str, options: dict[str, str]) -> None:
    store = make_progress_store(parse_stream_source(options))
    owner = store.claim(Owner("q", "1 on x", 0), [name]).owner
    records = {
        TopicPartition(name, 0): ProgressRecord(2, owner, 4, failing=FailedAttempts(5, 3, "boom")),
        TopicPartition(name, 1): ProgressRecord(1, owner, 4),
    }
    store.write(records)
    store.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """
    Return a function that runs the command, which must succeed, and returns its output.
    """

    def running(*arguments: str) -> str:
        assert main(arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return running


def _exported(run: Callable[..., str], arguments: list[str]) -> Any:
    return json.loads(run("progress", "export", *arguments))


def test_show(location: tuple[str, list[str]], run: Callable[..., str]) -> None:
    """
    The output is a table for people, and JSON with every field for programs.
    """
    name, arguments = location

    lines = run("progress", "show", *arguments).splitlines()
    records = json.loads(run("progress", "show", *arguments, "--json"))

    assert [line.split() for line in lines] == [
        ["TOPIC", "PARTITION", "OFFSET", "BATCH", "QUERY", "PROCESS", "ATTEMPTS"],
        [name, "0", "2", "4", "q", "1", "on", "x", "3"],
        [name, "1", "1", "4", "q", "1", "on", "x", "-"],
    ]
    assert [(record["topic"], record["partition"], record["offset"]) for record in records] == [
        (name, 0, 2),
        (name, 1, 1),
    ]
    assert records[0]["failing"] == {"batch": 5, "attempts": 3, "cause": "boom"}


def test_lag(
    location: tuple[str, list[str]], run: Callable[..., str], kafka_cluster: KafkaCluster
) -> None:
    """
    The lag equals the lag that Kafka's own tool shows, where the tool can show it.
    """
    name, arguments = location

    report = json.loads(run("lag", *arguments, "--json"))
    text = run("lag", *arguments)

    lags = {
        (partition["topic"], partition["partition"]): str(partition["lag"])
        for partition in report["partitions"]
    }
    assert report["lag"] == 17
    assert text.splitlines()[-1] == "Total lag: 17"
    if "--group" in arguments:
        groups = describe_group(kafka_cluster.bootstrap, name)
        assert lags == {tp: row.lag for tp, row in groups.items()}


def test_set_needs_execute(location: tuple[str, list[str]], run: Callable[..., str]) -> None:
    """
    Offsets only change with --execute, even backwards; keywords are resolved.
    """
    name, arguments = location
    positions = [f"{name}:0=1", f"{name}:1=latest"]

    output = run("progress", "set", *arguments, *positions)
    before = _exported(run, arguments)
    run("progress", "set", *arguments, *positions, "--execute")
    after = _exported(run, arguments)

    assert "nothing was changed. Use --execute to set these offsets." in output
    assert before == {name: {"0": 2, "1": 1}}
    assert after[name]["0"] == 1
    assert after[name]["1"] > 1


def test_import_restores_an_export(
    location: tuple[str, list[str]],
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    An export is imported from a file and from standard input.
    """
    name, arguments = location
    file = tmp_path / "offsets.json"
    file.write_text(run("progress", "export", *arguments))
    run("progress", "set", *arguments, f"{name}=earliest", "--execute")
    assert _exported(run, arguments) == {name: {"0": 0, "1": 0}}

    run("progress", "import", *arguments, str(file), "--execute")
    assert _exported(run, arguments) == {name: {"0": 2, "1": 1}}

    monkeypatch.setattr("sys.stdin", io.StringIO(f'{{"{name}": {{"1": 7}}}}'))
    run("progress", "import", *arguments, "-", "--execute")
    assert _exported(run, arguments) == {name: {"0": 2, "1": 7}}


def test_reset_deletes_all_records(
    location: tuple[str, list[str]], run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Records are only deleted with --execute; then every command says that there are none.
    """
    name, arguments = location

    run("progress", "reset", *arguments)
    assert _exported(run, arguments) == {name: {"0": 2, "1": 1}}
    run("progress", "reset", *arguments, "--execute")

    for command in (["lag"], ["progress", "show"], ["progress", "export"], ["progress", "reset"]):
        assert main([*command, *arguments]) == 3
        output = capsys.readouterr()
        assert "does not exist, or has no recorded offsets; correct" in output.err
        assert output.out == ""


def test_lag_in_seconds(
    topic: TopicFactory, kafka_cluster: KafkaCluster, run: Callable[..., str]
) -> None:
    """
    The lag in seconds is the age of the first record that the group has not read, or 0 if there is
    none.
    """
    name = topic(3)
    hour_ago = int((time.time() - 3600) * 1000)
    old = [Record(b"a", partition=0, timestamp=hour_ago)]
    kafka_cluster.produce(name, [*old, Record(b"b", partition=1)])
    arguments = ["--bootstrap-server", kafka_cluster.bootstrap, "--group", name]
    run("progress", "set", *arguments, f"{name}=earliest", f"{name}:1=latest", "--execute")

    report = json.loads(run("lag", *arguments, "--json"))
    behind = [line.split()[5:] for line in run("lag", *arguments).splitlines()[1:4]]

    first, second, third = (record["seconds"] for record in report["partitions"])
    assert 3600 <= first == report["seconds"]
    assert (second, third) == (0.0, 0.0)
    assert [words[1] for words in behind] == ["h", "s", "s"]


def test_watch_on_a_terminal(
    topic: TopicFactory, kafka_cluster: KafkaCluster, run: Callable[..., str]
) -> None:
    """
    The screen shows the lag and follows it, and Ctrl-C ends it.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 3))
    arguments = ["--bootstrap-server", kafka_cluster.bootstrap, "--group", name]
    run("progress", "set", *arguments, f"{name}=earliest", "--execute")
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "pyspark_pykafka.cli", "lag", *arguments, "--watch", "1"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    watch = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    screen = ""

    def read_until(text: str) -> None:
        nonlocal screen
        while text not in screen:
            screen += os.read(master, 65_536).decode(errors="replace")

    try:
        read_until("total lag 3")
        kafka_cluster.produce(name, values(3, 5))
        read_until("total lag 5")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 130
    finally:
        watch.kill()
        watch.wait()
        os.close(master)
    assert "reading 0 offsets a second" in screen
    assert "Traceback" not in screen


def test_set_to_positions_in_words(
    location: tuple[str, list[str]], run: Callable[..., str]
) -> None:
    """
    A topic or a partition moves to its last offsets, or to a time.
    """
    name, arguments = location

    run("progress", "set", *arguments, f"{name}=-3", f"{name}:1=2020-01-01T00:00Z", "--execute")

    assert _exported(run, arguments) == {name: {"0": 7, "1": 0}}


def test_replay_moves_the_store_back(
    location: tuple[str, list[str]], run: Callable[..., str]
) -> None:
    """
    The estimate shows the records to read again; only --execute moves the recorded offsets.
    """
    name, arguments = location
    run("progress", "set", *arguments, f"{name}=latest", "--execute")

    text = run("replay", *arguments, "--from=-4")
    before = _exported(run, arguments)
    report = json.loads(run("replay", *arguments, "--from=-4", "--execute", "--json"))

    assert before == {name: {"0": 10, "1": 10}}
    assert "To read again: at most 8 records, about" in text
    assert text.splitlines()[-1].startswith("Dry run: nothing was changed.")
    assert (report["offsets"], report["executed"], report["bytes"] > 0) == (8, True, True)
    assert report["startingOffsets"] == _exported(run, arguments) == {name: {"0": 6, "1": 6}}
    assert report["endingOffsets"] == before


def test_replay_of_a_topic(
    topic: TopicFactory, kafka_cluster: KafkaCluster, run: Callable[..., str]
) -> None:
    """
    Without a store the options for reading again are printed, up to the current end.
    """
    name = topic()
    kafka_cluster.produce(name, values(0, 5))

    text = run("replay", "--bootstrap-server", kafka_cluster.bootstrap, "--topic", name, "--from=2")

    assert f'startingOffsets={{"{name}": {{"0": 2}}}}' in text
    assert f'endingOffsets={{"{name}": {{"0": 5}}}}' in text


@pytest.mark.parametrize(
    ("position", "text", "code"),
    [
        (
            "{name}",
            "is not a valid position; it must be: TOPIC:PARTITION=OFFSET or TOPIC=OFFSET",
            2,
        ),
        ("{name}:0=-1", "is not a valid position; '-1' is ambiguous", 2),
        ("{name}:0=yesterday", "is not a valid position; it must be: an offset, earliest", 2),
        ("{name}:7=1", "the brokers do not have {name}-7", 2),
        ("no-such-topic:0=1", "the brokers do not have the topic 'no-such-topic'", 3),
    ],
)
def test_invalid_positions_are_rejected(
    location: tuple[str, list[str]],
    capsys: pytest.CaptureFixture[str],
    position: str,
    text: str,
    code: int,
) -> None:
    """
    The error names the mistake, and nothing changes.
    """
    name, arguments = location

    exit_code = main(["progress", "set", *arguments, position.format(name=name), "--execute"])

    assert exit_code == code
    assert text.format(name=name) in capsys.readouterr().err


def test_missing_zookeeper_id_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """
    The error names the option, and does not show the password.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(DIGEST_VARIABLE, "SECRET")
        code = main(["lag", "--bootstrap-server", "b:1", "--zookeeper", "zk:2181"])

    error = capsys.readouterr().err
    assert code == 2
    assert "zookeeperId is missing" in error
    assert "zookeeperDigest is '***'" in error
    assert "SECRET" not in error
