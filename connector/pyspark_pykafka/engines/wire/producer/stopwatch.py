"""
Measures the time that a sender spends at work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Stopwatch:
    """
    Measures the time that is spent in its context.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = 0.0
        self._total = 0.0

    def __enter__(self) -> None:
        self._since = self._now()

    def __exit__(self, *_: object) -> None:
        self._total = self.seconds()

    def seconds(self) -> float:
        """
        Return the seconds so far; must be called within the context.
        """
        return self._total + self._now() - self._since
