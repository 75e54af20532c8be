"""
`pykafka verify` reports its verdict as text, JSON and exit code; the run itself is a stub here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.cli import main
from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.verify import run
from pyspark_pykafka.verify.checker import Verdict
from pyspark_pykafka.verify.errors import CannotRunError
from pyspark_pykafka.verify.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.verify.nemesis import Nemesis

COMMAND = ["verify", "--bootstrap-server", "127.0.0.1:1"]


def stub(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> list[run.RunArguments]:
    """
    Give each run this verdict, and return the given of the runs.
    """
    given: list[run.RunArguments] = []

    def verify(
        arguments: run.RunArguments, on_event: Callable[[str], None], nemesis: Nemesis | None
    ) -> Report:
        assert nemesis is None
        on_event("running")
        given.append(arguments)
        return Report(arguments.guarantee, 10, 8, 2, 0, 8, verdict, 0, 0.5, 3)

    monkeypatch.setattr(run, "verify", verify)
    return given


@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict(), 0), (Verdict({"duplicate": [("t", 0, 1)]}), 1)]
)
def test_exit_code_follows_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verdict: Verdict,
    code: int,
) -> None:
    """
    0 means clean and 1 an anomaly; with --json the standard output is one document.
    """
    stub(monkeypatch, verdict)

    assert main([*COMMAND, "--json"]) == code
    output = capsys.readouterr()
    assert json.loads(output.out)["verdict"] == ("anomaly" if code else "clean")
    assert output.err == "running\n"


def test_options_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The arguments of the run have the user's choices, and defaults for the others.
    """
    given = stub(monkeypatch, Verdict())

    assert main([*COMMAND, "--seconds", "7", "--guarantee", "at-least-once", "--keep"]) == 0
    (arguments,) = given
    assert (arguments.seconds, arguments.rate, arguments.partitions) == (7, 500, 3)
    assert (arguments.guarantee, arguments.keep) == ("at-least-once", True)
    assert arguments.options == {"kafka.bootstrap.servers": "127.0.0.1:1"}


def test_a_run_that_cannot_be_made_is_void(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The exit code is 2, and the reason is on both outputs.
    """

    def verify(*_: object) -> Report:
        raise CannotRunError("no Java")

    monkeypatch.setattr(run, "verify", verify)

    assert main([*COMMAND, "--json"]) == 2
    output = capsys.readouterr()
    assert json.loads(output.out) == {"verdict": "void", "error": "no Java"}
    assert output.err == "pykafka verify: no Java\n"


def test_an_unexpected_error_is_void(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Any other error is not a verdict on the guarantee, so its exit code is not that of an anomaly.
    """

    def verify(*_: object) -> Report:
        raise RuntimeError("Java gateway process exited")

    monkeypatch.setattr(run, "verify", verify)

    assert main([*COMMAND, "--json"]) == 2
    output = capsys.readouterr()
    text = "unexpected error: RuntimeError: Java gateway process exited"
    assert json.loads(output.out) == {"verdict": "void", "error": text}
    assert output.err.startswith("Traceback")
    assert output.err.endswith(f"pykafka verify: {text}\n")


def test_unreachable_brokers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Without brokers nothing can be verified: the exit code is 2, and the address is named.
    """
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_MS", 500)
    monkeypatch.setattr(first_contact, "_reached", set())

    assert main(COMMAND) == 2
    assert "127.0.0.1:1: connecting failed" in capsys.readouterr().err


def test_too_many_records_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """
    The error names the options whose records would not fit into memory.
    """
    assert main([*COMMAND, "--seconds", "86400", "--rate", "1000"]) == 2
    assert "--rate times --seconds is 86400000; it must be at most" in capsys.readouterr().err


def test_a_run_needs_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Without brokers, given or configured, the exit code is that of wrong arguments.
    """
    assert main(["verify"]) == 2
    assert "no brokers are given; use --bootstrap-server" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [*COMMAND, "--nemesis"],
        [*COMMAND, "--partitions", "0"],
        [*COMMAND, "--topic-prefix", "a b"],
    ],
)
def test_wrong_arguments(arguments: list[str]) -> None:
    """
    The nemesis is rejected for the user's own brokers, as are invalid numbers and names.
    """
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2


@pytest.mark.parametrize("arguments", [[], ["--json"]])
@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict(), 2), (Verdict({"duplicate": [("t", 0, 1)]}), 1)]
)
def test_a_report_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verdict: Verdict,
    code: int,
    arguments: list[str],
) -> None:
    """
    A report that cannot be written is an error without a traceback. A clean run is void then, not
    an anomaly; an anomaly remains one.
    """
    stub(monkeypatch, verdict)
    with Path("/dev/full").open("w") as full_disk:
        monkeypatch.setattr("sys.stdout", full_disk)

        assert main([*COMMAND, *arguments]) == code

    error = capsys.readouterr().err
    assert "the report cannot be written: [Errno 28]" in error
    assert "Traceback" not in error


def test_a_run_on_a_full_disk_is_void(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    A run that cannot write its files is void, with the reason instead of a traceback.
    """

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "verify", fail)

    assert main(COMMAND) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "Traceback" not in error


def test_an_interrupted_run_has_the_exit_code_of_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Ctrl-C, also during the cleanup, ends with 130.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "verify", interrupt)

    assert main(COMMAND) == 130
