"""
Determines from the history of a partition's end offset when its records arrived, without reading
them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

_MAX_OBSERVATIONS = 128


@dataclass(slots=True)
class EndOffsetHistory:
    """
    Observations of a partition's end offset, each with its time, oldest first.

    A record arrived between the last observation that does not include it and the first that does.
    Its arrival is interpolated between the two, so the error is at most the time between them. If
    there are too many observations, every second one is dropped.
    """

    _ends: list[int] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _has_first_arrival: bool = False

    def observe(self, end: int, time: float) -> bool:
        """
        Add the observation that the log ended at ``end`` at ``time``; return whether it counts.

        An observation with an earlier time than the last one does not count, unless its end is
        greater: then the clock was set back, and the times of the history are set back, too. An end
        before the last one starts a new history: the topic was recreated, or its log was truncated.
        """
        if self._times and time < self._times[-1]:
            if end <= self._ends[-1]:
                return False
            self._set_back(self._times[-1] - time)
        if self._ends and end < self._ends[-1]:
            self._ends, self._times, self._has_first_arrival = [], [], False
        if len(self._ends) >= 2 and self._ends[-2] == end:
            self._times[-1] = time
            return True
        self._ends.append(end)
        self._times.append(time)
        if len(self._ends) > _MAX_OBSERVATIONS:
            self._thin_out()
        return True

    def record_arrival(self, offset: int, time: float) -> None:
        """
        Extend the history back to the record at ``offset``, which arrived at ``time``.

        A time after the first observation, from a producer whose clock is fast, is ignored.
        """
        self._has_first_arrival = True
        if offset < self._ends[0] and time <= self._times[0]:
            self._ends.insert(0, offset + 1)
            self._times.insert(0, time)

    def needs_arrival(self, position: int) -> bool:
        """
        Whether the first unread record, which is at ``position``, is older than the history, and
        :meth:`record_arrival` has not been called for this history yet.
        """
        return bool(self._ends) and not self._has_first_arrival and position < self._ends[0]

    def forget_before(self, position: int) -> None:
        """
        Drop the observations that are not needed to date records from ``position`` on.
        """
        count = max(bisect_right(self._ends, position) - 1, 0)
        del self._ends[:count], self._times[:count]

    def arrival(self, offset: int) -> float | None:
        """
        Return the time at which the record at ``offset`` arrived; None if it has not arrived.

        For a record older than the history, the time of the first observation is returned: the
        record is at least that old.
        """
        # The first observation whose end is greater than the offset includes the record.
        index = bisect_right(self._ends, offset)
        if index == len(self._ends):
            return None
        if index == 0:
            return self._times[0]
        before, after = self._ends[index - 1], self._ends[index]
        share = (offset + 1 - before) / (after - before)
        return self._times[index - 1] + share * (self._times[index] - self._times[index - 1])

    def _set_back(self, seconds: float) -> None:
        """
        Make all observations older by ``seconds``, so that the last one is not in the future.
        """
        self._times = [time - seconds for time in self._times]

    def _thin_out(self) -> None:
        """
        Drop every second observation, but keep the first and the last.
        """
        del self._ends[1:-1:2], self._times[1:-1:2]
