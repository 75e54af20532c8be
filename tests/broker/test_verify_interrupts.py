"""
`pykafka verify` that is interrupted, as a process of its own with Spark; the broker is simulated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.served_kafka import SimulatedAccess, values

from pyspark_pykafka.cli import main
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 300
PREFIX = "interrupted"
COMMITTED = {"isolation.level": "read_committed"}
_SMALL = ("--rate", "10", "--partitions", "1", "--seconds", "3600")


@dataclass
class Run:
    """
    A running command, in a session of its own as in a terminal.
    """

    cluster: SimulatedAccess
    process: subprocess.Popen[str]
    log: Path

    def topics(self) -> list[str]:
        """
        Return the names of all topics.
        """
        return sorted(self.cluster.admin().list_topics(timeout=SECONDS).topics)

    def wait_for_java(self) -> None:
        """
        Return when the topics exist and Spark is starting.
        """
        wait_until(
            lambda: (
                None
                if any("SparkSubmit" in command for command in self.processes())
                else self._blocker("no Java")
            ),
            SECONDS,
        )

    def wait_for_copies(self) -> None:
        """
        Return when the query has copied records.
        """
        self.wait_for_java()
        (output,) = [name for name in self.topics() if name.endswith("-output")]
        wait_until(
            lambda: (
                None
                if values(self.cluster, output, **COMMITTED)
                else self._blocker("nothing copied")
            ),
            SECONDS,
        )

    def _blocker(self, text: str) -> str:
        assert self.process.poll() is None, self.log.read_text()
        return text

    def processes(self) -> list[str]:
        """
        Return the command lines of the session's processes; those that have ended have none.
        """
        return [
            folder.joinpath("cmdline").read_text().replace("\0", " ")
            for folder in Path("/proc").glob("[0-9]*")
            if _session(folder) == self.process.pid and _cmdline(folder)
        ]


def _session(folder: Path) -> int | None:
    try:
        # The name of the command, in parentheses, may have spaces. The state, the parent and the
        # group precede the session.
        return int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[3])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _cmdline(folder: Path) -> str:
    try:
        return folder.joinpath("cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextmanager
def running(folder: Path) -> Iterator[Run]:
    """
    Start the command, with a simulated broker; kill its remaining processes at the end.
    """
    log = folder / "log"
    temporary = folder / "temporary"
    temporary.mkdir()
    with SimulatedAccess() as cluster, log.open("w") as errors:
        brokers = ["--bootstrap-server", cluster.bootstrap, "--topic-prefix", PREFIX, "--json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pyspark_pykafka.cli", "verify", *brokers, *_SMALL],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(temporary)},
            text=True,
            start_new_session=True,
        )
        run = Run(cluster, process, log)
        try:
            yield run
        finally:
            if run.processes():
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=SECONDS)


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """
    Interrupt all processes of the session, as a terminal does.
    """
    os.killpg(process.pid, signal.SIGINT)


def hang_up(process: subprocess.Popen[str]) -> None:
    """
    End all processes of the session, as a terminal that is closed does.
    """
    os.killpg(process.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    ("wait", "interrupt"),
    [
        (Run.wait_for_java, subprocess.Popen.terminate),
        pytest.param(Run.wait_for_copies, hang_up, marks=pytest.mark.soak),
        pytest.param(Run.wait_for_copies, ctrl_c, marks=pytest.mark.soak),
        pytest.param(Run.wait_for_java, ctrl_c, marks=pytest.mark.soak),
        pytest.param(Run.wait_for_copies, subprocess.Popen.terminate, marks=pytest.mark.soak),
    ],
)
def test_an_interrupted_run_leaves_nothing_behind(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wait: Callable[[Run], None],
    interrupt: Callable[[subprocess.Popen[str]], None],
) -> None:
    """
    After Ctrl-C, SIGTERM or SIGHUP no topic, group, open transaction, checkpoint or process is
    left, and the log has no error unless Spark's process was ended, too.
    """
    with running(tmp_path) as run:
        wait(run)
        interrupt(run.process)
        output, _ = run.process.communicate(timeout=SECONDS)

        log = run.log.read_text()
        assert (run.process.returncode, output) == (130, ""), log
        if interrupt is not hang_up:
            # A terminal that is closed ends Spark's Java process, too, at any moment of a call.
            assert "Traceback" not in log
            assert "could not" not in log
        assert run.topics() == []
        assert run.cluster.admin().list_consumer_groups().result(SECONDS).valid == []
        brokers = ["--bootstrap-server", run.cluster.bootstrap, "--prefix", PREFIX]
        assert main(["transactions", "list", "--json", *brokers]) == 0
        assert json.loads(capsys.readouterr().out) == []
        assert [*(tmp_path / "temporary").iterdir()] == []
        wait_until(lambda: ", ".join(run.processes()) or None, SECONDS)
