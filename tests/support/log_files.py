"""
What lies on a broker's disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LENGTH_AT, _AFTER_LENGTH = 8, 12


def stored(data_folder: Path, topic: str) -> Iterator[bytes]:
    """
    Yield a topic's record batches, or its messages of a format from before them, as they are.
    """
    for segment in data_folder.glob(f"{topic}-*/*.log"):
        data, at = segment.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at + _LENGTH_AT : at + _AFTER_LENGTH], "big")
            yield data[at : at + _AFTER_LENGTH + length]
            at += _AFTER_LENGTH + length
