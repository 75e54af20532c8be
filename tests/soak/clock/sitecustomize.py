"""
Shifts the wall clock of a Python process by the seconds in a file; Python imports it at start.

libfaketime would shift it for all code of a process, but makes Python's ``time.sleep`` fail.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_FILE = Path(os.environ["SOAK_CLOCK_OFFSET"])
_REREAD_SECONDS = 0.5

_time, _time_ns, _monotonic = time.time, time.time_ns, time.monotonic


class _Offset:
    """
    The seconds in the file, which is read again at most every half second.
    """

    def __init__(self) -> None:
        self.seconds = 0
        self._next_read = 0.0

    def current(self) -> int:
        if _monotonic() >= self._next_read:
            self._next_read = _monotonic() + _REREAD_SECONDS
            self.seconds = int(_FILE.read_text())
        return self.seconds


_offset = _Offset()


def _shifted() -> float:
    return _time() + _offset.current()


def _shifted_ns() -> int:
    return _time_ns() + _offset.current() * 1_000_000_000


time.time, time.time_ns = _shifted, _shifted_ns
