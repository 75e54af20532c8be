"""
The number of bytes to request in the next fetch of a range.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# The size of the first fetch of a range, while its record size is unknown: enough for nearly every
# micro-batch in one round trip.
_FIRST_BYTES = 1024 * 1024
# The last fetch requests this much more than the estimate, so that it seldom ends one record short.
_SLACK_BYTES = 16 * 1024
_SLACK = 1.1


@dataclass(slots=True)
class FetchSizing:
    """
    Estimates the bytes that remain in a range; a fetch requests these, but at most ``max_bytes``.

    Without the estimate, each range of a long log would over-fetch by up to a whole fetch.
    """

    max_bytes: int
    _bytes_per_offset: float = field(init=False, default=0.0)

    def record_response(self, offsets: int, size_bytes: int) -> None:
        """
        Record the number of offsets that a response covered, and its size.
        """
        if offsets > 0:
            self._bytes_per_offset = size_bytes / offsets

    def next_fetch_bytes(self, offsets_left: int) -> int:
        """
        Return the number of bytes to request.
        """
        if not self._bytes_per_offset:
            return min(_FIRST_BYTES, self.max_bytes)
        expected = int(offsets_left * self._bytes_per_offset * _SLACK) + _SLACK_BYTES
        return min(expected, self.max_bytes)
