"""
`pykafka dev` without servers: brokers that have ended, and a start that fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.dev import DOWN_SECONDS, _until_interrupted
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.testing import FetchError, KafkaCluster, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable


class Brokers:
    """
    A cluster whose nodes end at planned checks; ``sleep`` interrupts after the last check.
    """

    def __init__(self, brokers: int, *checks: dict[int, int]) -> None:
        self.brokers = brokers
        self.checks = [*checks]
        self.restarted: list[int] = []
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self.checks and seconds < DOWN_SECONDS:
            raise KeyboardInterrupt

    def exited_nodes(self) -> dict[int, int]:
        self.ended = self.checks.pop(0)
        return self.ended

    def check(self) -> None:
        if self.ended:
            msg = f"nodes {sorted(self.ended)} have ended"
            raise ServerError(msg)

    def restart(self, node: int) -> None:
        self.restarted.append(node)


def run(brokers: Brokers) -> Callable[[], None]:
    return lambda: _until_interrupted(cast("KafkaCluster", brokers), brokers.sleep)


def test_a_broker_that_ends_is_restarted(capsys: pytest.CaptureFixture[str]) -> None:
    """
    While other brokers run, one that was killed is restarted after a while, and both are said.
    """
    brokers = Brokers(3, {}, {2: -9}, {})

    with pytest.raises(KeyboardInterrupt):
        run(brokers)()

    assert brokers.restarted == [2]
    assert brokers.slept.count(DOWN_SECONDS) == 1
    assert capsys.readouterr().err == (
        "pykafka dev: broker 2 ended with exit code -9, restarting it in 10 s\n"
        "pykafka dev: broker 2 is back\n"
    )


@pytest.mark.parametrize("count", [1, 3])
def test_the_command_ends_if_no_broker_is_left(count: int) -> None:
    """
    If all brokers have ended, this is an error, and none is restarted.
    """
    brokers = Brokers(count, {}, dict.fromkeys(range(1, count + 1), 1))

    with pytest.raises(ServerError, match="have ended"):
        run(brokers)()

    assert brokers.restarted == []


def test_a_download_that_fails_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    If the jars cannot be downloaded, the command prints the reason without a traceback.
    """

    def start(self: KafkaCluster) -> KafkaCluster:
        msg = f"The jars for kafka-{self.version} could not be downloaded."
        raise FetchError(msg)

    monkeypatch.setattr(KafkaCluster, "start", start)

    assert main(["dev", "--version", "9.9.9"]) == ExitCode.FAILED
    assert capsys.readouterr().err == (
        "pykafka dev: The jars for kafka-9.9.9 could not be downloaded.\n"
    )
