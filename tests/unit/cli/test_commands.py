"""
What all commands have in common, and the commands that need no brokers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.cli import COMMANDS, exit_codes, main, make_parser
from pyspark_pykafka.cli.exit_codes import ExitCode, exit_code
from pyspark_pykafka.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnavailableError,
    ConcurrentWriteError,
    ExactlyOnceError,
    OptionsError,
    ProgressError,
    StalledReadError,
    TimeoutExceededError,
    TlsError,
    UnknownTopicError,
)
from pyspark_pykafka.testing import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT_JSON = {"pykafka completion"}
WITHOUT_BROKERS = {
    *("pykafka completion", "pykafka dev", "pykafka options"),
    "pykafka plain-checkpoint",
}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """
    Yield the parsers of commands and actions that can be run.
    """
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in nested:
        for inner in action.choices.values():
            yield from parsers(inner)
    if not nested:
        yield parser


BASH = shutil.which("bash")
PARSERS = list(parsers(make_parser()))


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_every_command_has_the_common_arguments(parser: argparse.ArgumentParser) -> None:
    """
    All commands but `pykafka completion` have --json, and those that need brokers have the
    arguments for their address and for a timeout.
    """
    names = {name for action in parser._actions for name in action.option_strings}

    if parser.prog not in WITHOUT_JSON:
        assert "--json" in names
    if parser.prog not in WITHOUT_BROKERS:
        assert {"--bootstrap-server", "--cluster", "--command-config", "--timeout"} <= names


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """
    `pykafka --version` prints the version of the distribution.
    """
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"pykafka {version('pyspark-pykafka')}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionsError(("o",)), ExitCode.WRONG_ARGUMENTS),
        (UnknownTopicError("t"), ExitCode.NOT_FOUND),
        (ProgressError("PROGRESS_NOT_FOUND", "p"), ExitCode.NOT_FOUND),
        (ExactlyOnceError("EXACTLY_ONCE_PREFIX_NOT_FOUND", "p"), ExitCode.NOT_FOUND),
        (ProgressError("PROGRESS_OTHER", "p"), ExitCode.FAILED),
        (BrokerUnavailableError("b"), ExitCode.UNAVAILABLE),
        (StalledReadError("b"), ExitCode.UNAVAILABLE),
        (TimeoutExceededError("t"), ExitCode.UNAVAILABLE),
        (AuthenticationError("u"), ExitCode.REFUSED),
        (AuthorizationError("u"), ExitCode.REFUSED),
        (TlsError("c"), ExitCode.REFUSED),
        (ConcurrentWriteError("CONDITION", "text"), ExitCode.FAILED),
        (ServerError("s"), ExitCode.FAILED),
    ],
)
def test_exit_codes_distinguish_errors(error: Exception, code: ExitCode) -> None:
    """
    Missing topics, unreachable brokers, missing permissions and failures have an exit code each.
    """
    assert exit_code(error) == code


WITHOUT_COMPILED = """
import sys
for module in ("_decoder", "_encoder"):
    sys.modules[f"pyspark_pykafka.engines.wire.records.{module}"] = None
from pyspark_pykafka.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--version"], ExitCode.DONE, ""),
        (["doctor"], ExitCode.DONE, ""),
        (
            ["transactions", "list", "--prefix", "p", "--bootstrap-server", "b:1"],
            ExitCode.WRONG_ARGUMENTS,
            "transactions need the compiled modules (_decoder: ",
        ),
    ],
)
def test_commands_without_compiled_modules(arguments: list[str], code: ExitCode, text: str) -> None:
    """
    Without the compiled modules, only the commands that need them fail, and the error gives the
    reason.
    """
    command = [sys.executable, "-c", WITHOUT_COMPILED, *arguments]

    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert result.returncode == code, result.stderr
    assert text in result.stderr
    if arguments == ["doctor"]:
        assert "WARNING  compiled modules: _decoder: " in result.stdout
        assert "the slower engine librdkafka" in result.stdout


def test_an_unreachable_zookeeper_is_one_line() -> None:
    """
    The error names the servers, and no attempt to connect is logged.
    """
    command = [sys.executable, "-m", "pyspark_pykafka.cli", "lag", "--timeout", "1"]
    store = ["--bootstrap-server", "127.0.0.1:1", "--zookeeper", "127.0.0.1:1", "--id", "x"]

    result = subprocess.run(
        [*command, *store], capture_output=True, text=True, check=False, timeout=120
    )

    assert result.returncode == ExitCode.UNAVAILABLE
    (line,) = result.stderr.splitlines()
    assert line.startswith("pykafka lag: reading /pykafka/x in ZooKeeper at 127.0.0.1:1: ")


@pytest.mark.parametrize("arguments", [["options"], ["options", "--json"]])
def test_a_closed_output_is_no_traceback(arguments: list[str]) -> None:
    """
    If the program that reads the output ends, as head does, the command ends without a message.
    """
    command = [sys.executable, "-m", "pyspark_pykafka.cli", *arguments]
    reading, writing = os.pipe()
    os.close(reading)

    with os.fdopen(writing) as output:
        result = subprocess.run(
            command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )

    assert (result.returncode, result.stderr) == (ExitCode.OUTPUT_CLOSED, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["peek", "--topic", "t", "--max", "0"],
        ["peek", "--topic", "t", "--last=-3"],
        ["topic", "create", "t", "--partitions", "many"],
    ],
)
def test_a_wrong_count_is_a_wrong_argument(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """
    Numbers of records and partitions are at least one.
    """
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == ExitCode.WRONG_ARGUMENTS
    assert "it must be a whole number, at least 1" in capsys.readouterr().err


def test_the_page_lists_the_exit_codes() -> None:
    """
    docs/commands.md has a row for each code.
    """
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()

    assert [code for code in exit_codes.ExitCode if f"| {code.value} |" not in page] == []


def test_options_are_searchable(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Options that mention all words, in any case, are shown; without words, all options are.
    """
    assert main(["options", "GROUP", "lag", "--json"]) == ExitCode.DONE
    (option,) = json.loads(capsys.readouterr().out)
    assert main(["options", "maxbytes"]) == ExitCode.DONE
    text = capsys.readouterr().out
    assert main(["options", "--json"]) == ExitCode.DONE
    everything = json.loads(capsys.readouterr().out)

    assert (option["name"], option["default"]) == ("progressStore", "none")
    assert text.startswith("maxBytesPerTrigger  (streaming read)\n    Value: a number of bytes")
    assert len(everything) > 30


def test_no_option_mentions_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """
    A search without a result says so, and its exit code is NOT_FOUND.
    """
    assert main(["options", "zzz"]) == ExitCode.NOT_FOUND
    assert capsys.readouterr().out == "No option mentions: zzz\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_scripts(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    """
    The script of each shell knows every command.
    """
    assert main(["completion", shell]) == ExitCode.DONE

    script = capsys.readouterr().out
    assert [command.name for command in COMMANDS if command.name not in script] == []


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pykafka", "prog"], {"progress"}),
        (["pykafka", "topic", "d"], {"describe", "delete"}),
        (["pykafka", "peek", "--fol"], {"--follow"}),
    ],
)
def test_bash_completes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], expected: set[str]
) -> None:
    """
    A real bash completes commands, actions and arguments.
    """
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    last = len(words) - 1
    ask = (
        f"source {tmp_path / 'script'}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={last}; "
        "_shtab_pykafka; printf '%s\\n' \"${COMPREPLY[@]}\""
    )

    completion = subprocess.run(
        [str(BASH), "-c", ask], capture_output=True, text=True, check=True, timeout=60
    )

    assert set(completion.stdout.split()) == expected


def test_completion_without_its_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The error names what to install.
    """
    monkeypatch.setitem(sys.modules, "shtab", None)

    assert main(["completion", "bash"]) == ExitCode.WRONG_ARGUMENTS
    assert "pip install 'pyspark-pykafka[cli]'" in capsys.readouterr().err
