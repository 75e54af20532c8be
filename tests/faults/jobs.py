"""
Jobs in separate processes, and the signals sent to them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def start_job(script: Path, arguments: Sequence[str], log: Path) -> subprocess.Popen[str]:
    """
    Start a job in its own session; its standard error goes to the log.
    """
    return subprocess.Popen(
        [sys.executable, script, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=log.open("w"),
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def kill_job(job: subprocess.Popen[str]) -> None:
    """
    Kill a job if it still runs.
    """
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(10.0)


def processes_of(job: subprocess.Popen[str]) -> list[psutil.Process]:
    """
    Return the process of a job and all its descendants.
    """
    try:
        parent = psutil.Process(job.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def signal_all(job: subprocess.Popen[str], number: signal.Signals) -> None:
    """
    Send a signal to a job and all its processes.
    """
    for process in processes_of(job):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_all(job: subprocess.Popen[str]) -> None:
    """
    Kill a job and all its processes at once, as a power cut would.
    """
    # Stopped first: otherwise a worker could continue for a moment without its driver.
    processes = processes_of(job)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    job.wait(10.0)
