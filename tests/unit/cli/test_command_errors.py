"""
How commands report a missing group or topic, unreachable brokers and wrong options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.engines import first_contact

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """
    The address of a cluster without topics, and so without recorded offsets.
    """
    with StubCluster(Behaviour(topics={})) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize(
    "command", [["lag"], ["lag", "--json"], ["progress", "show"], ["progress", "export"]]
)
def test_a_misspelt_group_is_an_error(
    bootstrap: str, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """
    A group without recorded offsets is reported as missing, not as one without lag.
    """
    code = main([*command, "--bootstrap-server", bootstrap, "--group", "misspelt"])

    output = capsys.readouterr()
    assert code == ExitCode.NOT_FOUND
    assert "the consumer group 'misspelt' does not exist" in output.err
    assert output.out == ""


@pytest.mark.parametrize("action", ["list", "replay"])
def test_a_misspelt_dead_letter_topic_is_an_error(
    bootstrap: str, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    """
    A missing dead-letter topic is reported, not shown as an empty one.
    """
    code = main(["deadletter", action, "--bootstrap-server", bootstrap, "--topic", "misspelt"])

    output = capsys.readouterr()
    assert code == ExitCode.NOT_FOUND
    assert "the brokers do not have the topic 'misspelt'" in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    "command",
    [
        ["lag", "--group", "g"],
        ["progress", "show", "--group", "g"],
        ["deadletter", "list", "--topic", "t"],
        ["topic", "create", "t"],
        ["topic", "delete", "t", "--execute"],
        ["produce", "--topic", "t", "v"],
        ["peek", "--topic", "t"],
        ["schema", "infer", "t"],
        ["replay", "--topic", "t", "--from", "earliest"],
        ["ui"],
        ["ui", "--group", "g", "--json"],
        ["transactions", "list", "--prefix", "p"],
        ["transactions", "release", "--prefix", "p"],
    ],
)
def test_unreachable_brokers_are_reported_with_their_address(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    """
    Every command fails with the exit code of unreachable brokers, and the error says that nothing
    listens at the address.
    """
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_MS", 500)
    monkeypatch.setattr(first_contact, "_reached", set())

    code = main([*command, "--bootstrap-server", "127.0.0.1:1"])

    assert code == ExitCode.UNAVAILABLE
    assert "127.0.0.1:1: connecting failed: Connection refused" in capsys.readouterr().err


def test_wrong_options_of_a_command_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Two mistakes are reported in one line, after the name of the command.
    """
    code = main(["topic", "describe", "a b", "--bootstrap-server", "kafka://b:1"])

    error = capsys.readouterr().err
    assert code == ExitCode.WRONG_ARGUMENTS
    assert error.startswith("pykafka topic: subscribe is 'a b'; ")
    assert "give host:port only" in error
    assert len(error.splitlines()) == 1
