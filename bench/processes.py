"""
What Spark's processes cost: CPU seconds of the driver's JVM and its Python, peak memory of workers.

Spark's Python daemon ignores the end of its workers, so Linux does not add their times to its own.
A thread therefore looks at all of them from time to time, and remembers those that end.
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

    from typing_extensions import Self

#: Seconds between two looks; what a process uses between the last one and its end is lost.
LOOK_SECONDS = 0.25
END_SECONDS = 10.0


class Cpu:
    """
    Adds up, while the context is open, the CPU seconds of a process and all below it.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._used: dict[psutil.Process, float] = {}
        self._before: dict[psutil.Process, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def seconds(self) -> float:
        """
        Return the user's and the system's seconds, of ended processes too.
        """
        return sum(used - self._before.get(one, 0.0) for one, used in self._used.items())

    def __enter__(self) -> Self:
        self._look()
        self._before = dict(self._used)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for one in [self._root, *self._root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                self._used[one] = times.user + times.system


def workers(jvm_pid: int) -> list[psutil.Process]:
    """
    Return Spark's Python workers: the children of its daemons, which are the JVM's children.
    """
    found: list[psutil.Process] = []
    for daemon in psutil.Process(jvm_pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += daemon.children()
    return found


def end_workers(jvm_pid: int) -> None:
    """
    End the idle workers, so that the next read starts in new ones; Spark notices by itself.
    """
    idle = workers(jvm_pid)
    for one in idle:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(idle, timeout=END_SECONDS)


def worker_peak(jvm_pid: int) -> int | None:
    """
    Return the bytes of the largest resident set that any living worker ever had, on Linux.
    """
    if sys.platform != "linux":
        return None
    peaks = [peak for one in workers(jvm_pid) if (peak := _peak_of(one.pid))]
    return max(peaks, default=None)


def _peak_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
