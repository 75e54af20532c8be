"""
`pykafka produce` on a simulated cluster: records from a pipe, and errors; also commands whose
output cannot be written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.testing.plugin import unique_name
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.served_kafka import SimulatedAccess

SECONDS = 60
COMMAND = [sys.executable, "-m", "pyspark_pykafka.cli"]


@pytest.fixture
def topic(cluster: SimulatedAccess, request: pytest.FixtureRequest) -> str:
    """
    A new topic of one partition.
    """
    return cluster.create_topic(unique_name(request.node.name))


@pytest.fixture
def start(cluster: SimulatedAccess, topic: str) -> Callable[..., subprocess.Popen[bytes]]:
    """
    Start `pykafka produce` with pipes for its input, its output and its errors.
    """

    def start_process(*arguments: str, topic: str = topic) -> subprocess.Popen[bytes]:
        place = ["--bootstrap-server", cluster.bootstrap, "--topic", topic]
        return subprocess.Popen(
            [*COMMAND, "produce", *place, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return start_process


def write_lines(process: subprocess.Popen[bytes], lines: bytes) -> None:
    """
    Write lines to a process, which can read them at once.
    """
    assert process.stdin is not None
    process.stdin.write(lines)
    process.stdin.flush()


def await_count(cluster: SimulatedAccess, topic: str, count: int) -> None:
    """
    Wait until a topic has a number of records.
    """

    def missing() -> str | None:
        seen = len(cluster.consume(topic))
        return None if seen == count else f"{topic} has {seen} records of {count}"

    wait_until(missing, SECONDS)


def test_lines_do_not_wait_for_later_ones(
    cluster: SimulatedAccess, topic: str, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """
    Lines of a pipe that stays open are written as they arrive; an interrupted command says how many
    records were sent.
    """
    process = start()
    write_lines(process, b"a\nb\nc")
    await_count(cluster, topic, 2)
    write_lines(process, b"d\r\n")
    await_count(cluster, topic, 3)

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=SECONDS)

    assert process.returncode == ExitCode.INTERRUPTED
    assert (output, errors.count(b"the first 3 records were sent")) == (b"", 1), errors
    assert [record.value for record in cluster.consume(topic)] == [b"a", b"b", b"cd"]


def test_a_long_line_is_one_record(
    cluster: SimulatedAccess, topic: str, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """
    A line that arrives in several pieces is one record, and the last line needs no line end.
    """
    line = b"x" * 500_000

    output, _ = start("--json").communicate(b"\n" + line + b"\n" + line, timeout=SECONDS)

    assert json.loads(output)["records"] == 3
    assert [record.value for record in cluster.consume(topic)] == [b"", line, line]


def test_a_wrong_line_is_named(
    cluster: SimulatedAccess, topic: str, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """
    The error names the record without a separator and the number of those sent before, so that the
    rest can be sent without duplicates.
    """
    process = start("--key-separator", ":")
    write_lines(process, b"a:1\nb:2\n")
    await_count(cluster, topic, 2)

    _, errors = process.communicate(b"c:3\nd\n", timeout=SECONDS)

    assert process.returncode == ExitCode.WRONG_ARGUMENTS
    assert b"record 4 does not contain it" in errors
    assert b"at least the first 2 records were sent" in errors
    assert len(cluster.consume(topic)) == 2


def test_arguments_may_be_any_bytes(
    cluster: SimulatedAccess, topic: str, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """
    Values, keys and headers need not be text.
    """
    raw = os.fsdecode(b"caf\xe9")

    process = start("--key", raw, "--header", f"h={raw}", raw)
    process.communicate(timeout=SECONDS)

    (record,) = cluster.consume(topic)
    assert (record.key, record.value, record.headers) == (*[b"caf\xe9"] * 2, (("h", b"caf\xe9"),))


def test_a_partition_beyond_32_bits_is_a_wrong_argument(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """
    The error gives the range of partitions.
    """
    process = start("--partition", "9999999999", "v")
    _, errors = process.communicate(timeout=SECONDS)

    assert process.returncode == ExitCode.WRONG_ARGUMENTS
    assert b"must be a whole number from 0 to 2147483647" in errors


@pytest.mark.parametrize(
    ("redirection", "code", "error"),
    [
        (">&-", 0, ""),
        pytest.param(
            "> /dev/full",
            1,
            "pykafka options: [Errno 28] No space left on device\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only"),
        ),
    ],
)
def test_output_that_cannot_be_written(redirection: str, code: int, error: str) -> None:
    """
    A closed output is ignored, and a full disk is an error of one line.
    """
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {redirection}', "sh", *COMMAND, "options", "pollTimeoutMs"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (done.returncode, done.stderr) == (code, error)


def test_a_terminal_without_a_character_shows_its_code() -> None:
    """
    Characters that the output's encoding lacks are escaped.
    """
    script = (
        "import sys; from pyspark_pykafka.cli import main\n"
        "main(['options', 'pollTimeoutMs']); print('\\u00e9')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=True,
    )

    assert done.stdout.endswith(b"\\xe9\n")
