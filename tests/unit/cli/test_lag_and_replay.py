"""
Durations and sizes in `pykafka lag` and `pykafka replay`, and their rejected arguments.
"""

from __future__ import annotations

import json
import sys
import threading

import pytest

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.cli.lag import format_duration, watch_as_json, watch_on_screen
from pyspark_pykafka.cli.replay import format_bytes
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.metrics.store_lag import PartitionLag


class ProgressingReader:
    """
    A lag reader whose query reads two offsets between two calls; the second call ends the watch.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._offsets = iter((0, 2))

    def read(self) -> list[PartitionLag]:
        offset = next(self._offsets)
        if offset:
            self.stop.set()
        return [
            PartitionLag("t", 0, offset, 9, 9 - offset, 61.0),
            PartitionLag("t", 1, None, 4, None, None),
        ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.9, "59 s"),
        (200, "3 min 20 s"),
        (18_600, "5 h 10 min"),
        (183_600, "2 d 3 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """
    Durations have two units at most.
    """
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    """
    A size is shown in the largest unit in which it is at least 1.
    """
    assert format_bytes(count) == text


def test_watch_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Each reading of the lag is one line of JSON, with the totals.
    """
    reader = ProgressingReader()

    with pytest.raises(StopIteration):
        watch_as_json(reader.read, 0)

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["lag"], line["seconds"]) for line in lines] == [(9, 61.0), (7, 61.0)]
    assert lines[0]["partitions"][1]["lag"] is None


def test_watch_on_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Without a terminal the last table is printed, with the total lag.
    """
    reader = ProgressingReader()

    watch_on_screen(reader.read, 0.01, reader.stop)

    output = capsys.readouterr().out
    assert "1 min 1 s" in output
    assert "total lag 7, reading" in output


def test_watch_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The error names what to install.
    """
    monkeypatch.setitem(sys.modules, "rich.live", None)

    with pytest.raises(OptionsError, match="pip install 'pyspark-pykafka.cli.'"):
        watch_on_screen(ProgressingReader().read, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "use --group, --zookeeper or --topic"),
        (["--topic", "t", "--execute"], "it needs --group or --zookeeper"),
    ],
)
def test_replay_of_nothing(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    """
    A replay needs a topic or a progress store, and only positions in a store can be moved back.
    """
    command = ["replay", "--bootstrap-server", "127.0.0.1:1", "--from", "earliest", *arguments]

    assert main(command) == ExitCode.WRONG_ARGUMENTS
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("position", ["yesterday", "-1", "2026-01-01"])
def test_an_unclear_position(capsys: pytest.CaptureFixture[str], position: str) -> None:
    """
    An unknown or ambiguous position is a wrong argument, and the message names --from.
    """
    with pytest.raises(SystemExit) as caught:
        main(["replay", "--topic", "t", f"--from={position}"])

    assert caught.value.code == ExitCode.WRONG_ARGUMENTS
    assert "argument --from" in capsys.readouterr().err
