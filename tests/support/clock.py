"""
A clock for tests of deadlines, pauses and delays.
"""

from __future__ import annotations


class Clock:
    """
    Time in seconds that passes only when something sleeps, or when a test advances it.
    """

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        """
        Return the current time.
        """
        return self.time

    def sleep(self, seconds: float) -> None:
        """
        Advance the time, and record by how much.
        """
        self.slept.append(seconds)
        self.time += seconds
