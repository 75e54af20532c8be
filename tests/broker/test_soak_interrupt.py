"""
The soak, interrupted while a round runs: a process of its own with all its servers.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.support.processes import command_line

from pyspark_pykafka.testing.waiting import wait_until

ROOT = Path(__file__).parents[2]
SECONDS = 600
END_SECONDS = 120
MARK = "SOAK_TEST_MARK"


def marked(mark: str) -> list[psutil.Process]:
    """
    Return the processes that have inherited an environment variable, wherever they were started.
    """
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def names(processes: list[psutil.Process]) -> str | None:
    """
    Return the command lines of processes, or None without any.
    """
    return "; ".join(" ".join(command_line(process))[:200] for process in processes) or None


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 3 * END_SECONDS)
def test_interrupted_soak_ends_its_producers_and_servers(tmp_path: Path) -> None:
    """
    After Ctrl-C within a round no process and no file is left.
    """
    mark, log, temporary = uuid.uuid4().hex, tmp_path / "log", tmp_path / "temporary"
    temporary.mkdir()
    results = ("--results", str(tmp_path / "soak.json"))
    with log.open("w") as output:
        soak = subprocess.Popen(
            [sys.executable, "-m", "tests.soak", "--rate", "20", "--seed", "1", *results],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, MARK: mark, "TMPDIR": str(temporary)},
            cwd=ROOT,
            start_new_session=True,
        )

    def missing() -> str | None:
        assert soak.poll() is None, log.read_text()
        # The line after the one with the workloads is the first fault.
        return None if re.search(r"round 0: .*\n.+\n", log.read_text()) else "no fault yet"

    try:
        wait_until(missing, SECONDS)
        assert len(marked(mark)) > 5
        os.killpg(soak.pid, signal.SIGINT)
        soak.wait(END_SECONDS)

        wait_until(lambda: names(marked(mark)), END_SECONDS)
        assert [*temporary.iterdir()] == []
    finally:
        for process in marked(mark):
            with suppress(psutil.Error):
                process.kill()
        soak.wait(END_SECONDS)
