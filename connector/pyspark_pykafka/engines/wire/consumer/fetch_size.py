"""
How many bytes the next fetch of a range may bring.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# A range of unknown record size starts with this: one round trip for nearly every micro-batch.
_FIRST_BYTES = 1024 * 1024
# What a fetch at the tail asks for beyond the estimate, so that it is seldom one record short.
_SLACK_BYTES = 16 * 1024
_SLACK = 1.1


@dataclass(slots=True)
class FetchSizing:
    """
    Asks for ``most`` bytes while the range is long, and for what is left at its tail.

    Without that, each range of a long log would be over-fetched by up to a whole fetch.
    """

    most: int
    _bytes_per_offset: float = field(init=False, default=0.0)

    def record_response(self, offsets: int, size: int) -> None:
        """
        Note that a response covered so many offsets with so many bytes.
        """
        if offsets > 0:
            self._bytes_per_offset = size / offsets

    def next_fetch_bytes(self, offsets_left: int) -> int:
        """
        Return how many bytes to ask for.
        """
        if not self._bytes_per_offset:
            return min(_FIRST_BYTES, self.most)
        expected = int(offsets_left * self._bytes_per_offset * _SLACK) + _SLACK_BYTES
        return min(expected, self.most)
