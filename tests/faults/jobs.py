"""
Jobs in processes of their own, and the signals that they get.
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
    Start a job in a session of its own; the log gets its errors.
    """
    return subprocess.Popen(
        [sys.executable, script, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=log.open("w"),
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def end(job: subprocess.Popen[str]) -> None:
    """
    End what is left of a job.
    """
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(10.0)


def processes_of(job: subprocess.Popen[str]) -> list[psutil.Process]:
    """
    Return a job's process and all that it has started, wherever they have gone.
    """
    try:
        whole = psutil.Process(job.pid)
        return [whole, *whole.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def stop_all(job: subprocess.Popen[str], number: signal.Signals) -> None:
    """
    Send a signal to a job and to all its processes.
    """
    for process in processes_of(job):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_all(job: subprocess.Popen[str]) -> None:
    """
    Kill a job and all its processes at once, as a power cut would.
    """
    # Stopped first: a worker must not notice that its driver is gone, and go on for a moment.
    processes = processes_of(job)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    job.wait(10.0)
