"""
What commands with --json write: documents to standard output, everything else to standard error.
The brokers are simulated, and can leave the requests of one API without a response.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.support.served_kafka import SilentAccess
from tests.unit.cli.test_commands import PARSERS, WITHOUT_JSON

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Commands that run until they are interrupted, or need Spark; they have tests of their own.
ELSEWHERE = {"pykafka dev", "pykafka verify"}
WITHOUT_BROKERS = {"options", "plain-checkpoint"}

#: The API keys of requests that a broker can leave without a response.
PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP = 0, 1, 2, 8, 9, 11
DESCRIBE_GROUPS, LIST_GROUPS, CREATE_TOPICS, DELETE_TOPICS, DELETE_GROUPS = 15, 16, 19, 20, 42
LIST_TRANSACTIONS = 66

#: A command that waits longer than this ignores --timeout; the defaults are 30, 60 and 120 s. A
#: check of `pykafka doctor` must not wait ten times as long as --timeout.
TIMEOUT, MAX_SECONDS, MAX_DOCTOR_SECONDS = "2", 28.0, 20.0

#: A line of librdkafka's log, wherever it begins.
LINE_OF_LIBRDKAFKA = re.compile(r"%\d\|\d+\.\d+\|[^\n]*\n")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SilentAccess]:
    """
    A cluster with text, JSON and an empty topic, and the progress of a query in the group `g`.
    """
    with SilentAccess() as access:
        for topic in ("text", "json", "empty", "gone"):
            access.create_topic(topic)
        access.produce("text", [Record(b"one"), Record(b"two")])
        access.produce("json", [Record(b'{"a": 1}')])
        arguments = ["progress", "set", "text=0", "--group", "g", "--execute"]
        assert main([*arguments, "--bootstrap-server", access.bootstrap]) == 0
        yield access


class Case(NamedTuple):
    """
    A command, its exit code, and the number of its documents.
    """

    command: str
    code: ExitCode
    documents: int = 1


DONE, FAILED, WRONG, MISSING = (
    *(ExitCode.DONE, ExitCode.FAILED, ExitCode.WRONG_ARGUMENTS, ExitCode.NOT_FOUND),
)
CASES = [
    Case("topic create new", DONE),
    Case("topic create text", FAILED, 0),
    Case("topic create text --if-not-exists", DONE),
    Case("topic describe text", DONE),
    Case("topic describe nowhere", MISSING, 0),
    Case("topic delete text", DONE),
    Case("topic delete gone --execute", DONE),
    Case("topic delete nowhere --execute", MISSING, 0),
    Case("produce --topic empty --partition 9 v", FAILED, 0),
    Case("produce --topic written v w", DONE),
    Case("peek --topic text", DONE, 2),
    Case("peek --topic text --max 1 --hex", DONE),
    Case("peek --topic empty", DONE, 0),
    Case("peek --topic nowhere", MISSING, 0),
    Case("peek --topic text --partition 7", WRONG, 0),
    Case("schema infer json", DONE),
    Case("schema infer text", FAILED, 0),
    Case("schema infer empty", FAILED, 0),
    Case("schema infer nowhere", MISSING, 0),
    Case("progress show --group g", DONE),
    Case("progress show --group nobody", MISSING, 0),
    Case("progress set --group new text=0", DONE),
    Case("progress set --group new text:0=latest --execute", DONE),
    Case("progress set --group g nowhere=0", MISSING, 0),
    Case("progress set --group g nowhere:0=0", MISSING, 0),
    Case("progress set --group g text:9=0", WRONG, 0),
    Case("progress set --group g text:0=9223372036854775808", WRONG, 0),
    Case("progress export --group g", DONE),
    Case("progress export --group nobody", MISSING, 0),
    Case("progress import --group new FILE", DONE),
    Case("progress import --group new FILE.none", WRONG, 0),
    Case("progress reset --group g", DONE),
    Case("progress reset --group nobody", MISSING, 0),
    Case("lag --group g", DONE),
    Case("lag --group nobody", MISSING, 0),
    Case("replay --topic text --from earliest", DONE),
    Case("replay --group g --from earliest --execute", DONE),
    Case("replay --topic nowhere --from earliest", MISSING, 0),
    Case("replay --group nobody --from earliest", MISSING, 0),
    Case("replay --from earliest", WRONG, 0),
    Case("deadletter list --topic text", DONE),
    Case("deadletter list --topic nowhere", MISSING, 0),
    Case("deadletter replay --topic empty", DONE),
    Case("deadletter replay --topic empty --execute", DONE),
    Case("deadletter replay --topic nowhere --execute", MISSING, 0),
    Case("transactions list --prefix p", DONE),
    Case("transactions abort --prefix p --execute", DONE),
    Case("transactions describe --prefix p", MISSING, 0),
    Case("transactions complete --prefix p", MISSING, 0),
    Case("transactions complete --prefix p --execute", MISSING, 0),
    Case("transactions release --prefix p", MISSING, 0),
    Case("transactions release --prefix p --execute", MISSING, 0),
    Case("doctor", DONE),
    Case("doctor --read nowhere", FAILED),
    Case("config", DONE),
    Case("config --cluster none", WRONG, 0),
    Case("ui --group g", DONE),
    Case("ui --group nobody", MISSING, 0),
    Case("options pollTimeoutMs", DONE),
    Case("options nonsense", MISSING),
    Case("plain-checkpoint FOLDER", FAILED, 0),
]


def run(command: str, bootstrap: str, folder: Path, *options: str) -> ExitCode:
    """
    Run a command with --json on a cluster.
    """
    file = folder / "offsets.json"
    file.write_text('{"text": {"0": 1}}')
    arguments = command.replace("FILE", str(file)).replace("FOLDER", str(folder)).split()
    if arguments[0] not in WITHOUT_BROKERS:
        arguments += ["--bootstrap-server", bootstrap]
    return ExitCode(main([*arguments, "--json", *options]))


def lines_of_command(errors: str, bootstrap: str) -> list[str]:
    """
    Return the lines of standard error that clients of this cluster may have written. Clients of
    earlier tests, which a pool has kept, may still log from librdkafka's threads that their broker
    is gone, also in the middle of a line of the command.
    """

    def own(line: re.Match[str]) -> str:
        return line[0] if bootstrap in line[0] else ""

    return LINE_OF_LIBRDKAFKA.sub(own, errors).splitlines()


def test_lines_of_librdkafka_on_this_cluster_are_of_the_command() -> None:
    """
    Only librdkafka's lines about other brokers are left out, also in the middle of another line.
    """
    own_line, other = (
        "%3|1.5|FAIL|c#1| [thrd:h:19]: refused",
        "%3|1.5|FAIL|c#2| [thrd:h:20]: refused",
    )

    assert lines_of_command(
        f"{own_line}\n{other}\npykafka lag:{other}\n no{other}\n\n", "h:19"
    ) == [
        own_line,
        "pykafka lag: no",
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.command)
def test_output_is_json_and_nothing_else(
    cluster: SilentAccess, tmp_path: Path, capfd: pytest.CaptureFixture[str], case: Case
) -> None:
    """
    A command that has done its work, or found nothing, writes its documents and no diagnostics. One
    that fails writes one line to standard error, and no document unless it reports findings.
    """
    if case.command.startswith("produce --topic written"):
        cluster.create_topic("written")
    code = run(case.command, cluster.bootstrap, tmp_path)
    output = capfd.readouterr()
    errors = lines_of_command(output.err, cluster.bootstrap)

    assert (code, len(errors)) == (case.code, 0 if case.documents else code != DONE), output.err
    if errors:
        assert errors[0].startswith(f"pykafka {case.command.split()[0]}: ")
    is_lines = case.command.startswith("peek")
    texts = output.out.splitlines() if is_lines else [output.out] if output.out else []
    assert len([json.loads(text) for text in texts]) == case.documents


def test_every_command_with_json_has_a_case() -> None:
    """
    A new command must be added to the table.
    """
    commands = {parser.prog for parser in PARSERS} - WITHOUT_JSON - ELSEWHERE

    assert {
        prog
        for prog in commands
        if not any(f"pykafka {case.command} ".startswith(f"{prog} ") for case in CASES)
    } == set()


@pytest.mark.parametrize(
    ("key", "command"),
    [
        (CREATE_TOPICS, "topic create newer"),
        (LIST_OFFSETS, "topic describe text"),
        (DELETE_TOPICS, "topic delete text --execute"),
        (PRODUCE, "produce --topic text v"),
        (FETCH, "peek --topic text"),
        (FETCH, "peek --topic text --last 1"),
        (FETCH, "schema infer json"),
        (OFFSET_FETCH, "progress show --group g"),
        (JOIN_GROUP, "progress set --group g text=0 --execute"),
        (OFFSET_COMMIT, "progress import --group g FILE --execute"),
        (OFFSET_FETCH, "progress export --group g"),
        (DELETE_GROUPS, "progress reset --group g --execute"),
        (FETCH, "lag --group g"),
        (LIST_OFFSETS, "replay --topic text --from earliest"),
        (OFFSET_COMMIT, "replay --group g --from latest --execute"),
        (FETCH, "deadletter list --topic text"),
        (DESCRIBE_GROUPS, "deadletter replay --topic text --execute"),
        (LIST_TRANSACTIONS, "transactions list --prefix p"),
        (LIST_TRANSACTIONS, "transactions abort --prefix p"),
        (LIST_TRANSACTIONS, "transactions release --prefix p"),
        (LIST_GROUPS, "ui"),
        (DESCRIBE_GROUPS, "ui --group g"),
        (DESCRIBE_GROUPS, "doctor --group g"),
    ],
)
def test_timeout_limits_every_wait(
    cluster: SilentAccess,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    key: int,
    command: str,
) -> None:
    """
    A broker that does not respond to one kind of request ends the command soon after --timeout.
    """
    cluster.silent_to = frozenset({key})
    started_at = time.monotonic()
    try:
        code = run(command, cluster.bootstrap, tmp_path, "--timeout", TIMEOUT)
    finally:
        cluster.silent_to = frozenset()
    seconds = time.monotonic() - started_at
    output = capfd.readouterr()

    if command.startswith("doctor"):
        assert code == ExitCode.FAILED
        assert json.loads(output.out)["counts"]["failed"] == 1
        assert seconds < MAX_DOCTOR_SECONDS
    else:
        assert (code, output.out) == (ExitCode.UNAVAILABLE, ""), output.err
        assert seconds < MAX_SECONDS
