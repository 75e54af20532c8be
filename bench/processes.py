"""
CPU seconds of the driver's JVM with its Python processes, and peak memory of workers.

Spark's Python daemon does not wait for its workers, so Linux does not add their times to its own. A
thread therefore samples all processes regularly, and keeps the times of those that end.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

#: Time between two samples; CPU time after the last sample of a process is lost.
SAMPLE_SECONDS = 0.25
END_SECONDS = 10.0


class Cpu:
    """
    Sums the CPU seconds of a process and its descendants while the context is open.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._used: dict[psutil.Process, float] = {}
        self._before: dict[psutil.Process, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def seconds(self) -> float:
        """
        User and system seconds, including those of ended processes.
        """
        return sum(used - self._before.get(process, 0.0) for process, used in self._used.items())

    def __enter__(self) -> Self:
        self._sample()
        self._before = dict(self._used)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        for process in [self._root, *self._root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._used[process] = times.user + times.system


def workers(jvm_pid: int) -> list[psutil.Process]:
    """
    Return Spark's Python workers: children of its daemons, which are children of the JVM.
    """
    processes: list[psutil.Process] = []
    for daemon in psutil.Process(jvm_pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            processes += daemon.children()
    return processes


def end_workers(jvm_pid: int) -> None:
    """
    Kill all workers, between reads, so that the next read starts new ones; Spark notices that they
    are gone.
    """
    running = workers(jvm_pid)
    for worker in running:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
    psutil.wait_procs(running, timeout=END_SECONDS)


def worker_peak(jvm_pid: int) -> int | None:
    """
    Return the largest peak resident set of the running workers in bytes, on Linux.
    """
    if sys.platform != "linux":
        return None
    peaks = [peak for worker in workers(jvm_pid) if (peak := _peak_of(worker.pid))]
    return max(peaks, default=None)


def _peak_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
