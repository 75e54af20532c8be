"""
`pykafka deadletter` on a simulated cluster: interrupted replays, missing targets, and letters with
control characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_pykafka.cli import deadletter, main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.failures.dead_letters import replay_dead_letters
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.plugin import unique_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.served_kafka import SimulatedAccess

HOSTILE = "\x1b[2J\rof the terminal"


@pytest.fixture
def letters(cluster: SimulatedAccess, request: pytest.FixtureRequest) -> str:
    """
    A dead-letter topic with the letters v0 to v4, whose records came from the topic of the same
    name with the suffix `.source`.
    """
    name = unique_name(request.node.name)
    cluster.create_topic(name)
    cluster.create_topic(f"{name}.source")
    cluster.produce(name, [letter(b"v%d" % n, f"{name}.source") for n in range(5)])
    return name


def letter(value: bytes, source: str, partition: int = 0, message: str = "no") -> Record:
    """
    Return a dead letter.
    """
    reason = {
        "topic": source,
        "partition": str(partition),
        "offset": "7",
        "error.class": "E",
        "error.message": message,
    }
    return Record(
        value,
        headers=tuple((f"pykafka.deadletter.{k}", v.encode()) for k, v in reason.items()),
    )


@pytest.fixture
def run(cluster: SimulatedAccess, letters: str) -> Callable[..., int]:
    """
    Run an action of `pykafka deadletter` on the topic of this test.
    """

    def run_action(*arguments: str) -> int:
        action, *others = arguments
        place = ["--bootstrap-server", cluster.bootstrap, "--topic", letters]
        return main(["deadletter", action, *place, *others])

    return run_action


def test_an_interrupted_replay_continues(
    cluster: SimulatedAccess,
    letters: str,
    run: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A replay that is interrupted again and again makes progress: at most the letters of the last
    chunk are sent twice.
    """
    monkeypatch.setattr(deadletter, "_CHUNK", 2)
    sent = []

    def interrupted(*arguments: Any) -> None:
        replay_dead_letters(*arguments)
        sent.append(len(arguments[0]))
        # After the second chunk of a run: by then the position of the first one is recorded.
        if len(sent) in {2, 4}:
            raise KeyboardInterrupt

    monkeypatch.setattr(deadletter, "replay_dead_letters", interrupted)

    codes = [run("replay", "--execute") for _ in range(4)]

    assert codes == [ExitCode.INTERRUPTED, ExitCode.INTERRUPTED, ExitCode.DONE, ExitCode.DONE]
    values = [record.value for record in cluster.consume(f"{letters}.source")]
    assert values == [b"v0", b"v1", b"v2", b"v3", b"v2", b"v3", b"v4", b"v4"]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (letter(b"v", "gone"), "do not have the topic 'gone'"),
        (letter(b"v", "{letters}.source", 3), "do not have the partition {letters}.source-3"),
    ],
    ids=["topic", "partition"],
)
@pytest.mark.parametrize("execute", [["--execute"], []], ids=["executed", "dry run"])
def test_a_missing_target_sends_nothing(
    cluster: SimulatedAccess,
    letters: str,
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    missing: Record,
    message: str,
    execute: list[str],
) -> None:
    """
    If one target is missing, no letter is sent, not even one before it; another target may be
    named.
    """
    headers = [(k, (v or b"").decode().format(letters=letters)) for k, v in missing.headers or ()]
    cluster.produce(letters, [Record(b"v", headers=tuple((k, v.encode()) for k, v in headers))])

    assert run("replay", *execute) == ExitCode.NOT_FOUND
    assert message.format(letters=letters) in capsys.readouterr().err
    assert cluster.consume(f"{letters}.source") == []
    cluster.create_topic(f"{letters}.other")
    assert run("replay", "--to", f"{letters}.other", *execute) == ExitCode.DONE
    assert len(cluster.consume(f"{letters}.other")) == (6 if execute else 0)


@pytest.mark.parametrize("action", ["list", "replay"])
def test_control_characters_are_escaped(
    cluster: SimulatedAccess,
    letters: str,
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    action: str,
) -> None:
    """
    Control characters in the texts of a dead letter are escaped before they reach the terminal:
    error messages quote records, and any producer can write a dead letter.
    """
    cluster.produce(letters, [letter(b"v", HOSTILE, message=HOSTILE)])

    run(action)

    output = "".join(capsys.readouterr())
    assert "\\x1b[2J\\rof the terminal" in output
    assert all(char.isprintable() or char == "\n" for char in output)
