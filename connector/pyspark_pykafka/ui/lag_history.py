"""
The lag of each query over time, in bounded memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_pykafka.ui.page_data import PageData

#: The time, the lag in offsets and in seconds.
Point = tuple[float, int | None, float | None]

_MAX_POINTS = 600


class LagHistory:
    """
    Keeps the points of all shown queries. When a query has too many points, every second point of
    the older half is dropped.
    """

    def __init__(self) -> None:
        self._points: dict[str, list[Point]] = {}

    def add(self, data: PageData, now: float) -> None:
        """
        Add the current lag of each query, and drop queries that are no longer shown.
        """
        self._points = {query.id: self.points(query.id) for query in data.queries}
        for query in data.queries:
            points = self._points[query.id]
            points.append((now, query.lag, query.lag_seconds))
            if len(points) > _MAX_POINTS:
                del points[1 : _MAX_POINTS // 2 : 2]

    def points(self, query_id: str) -> list[Point]:
        """
        Return the points of a query, oldest first.
        """
        return self._points.get(query_id, [])
