"""
The record batches in a broker's log files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LENGTH_START, _LENGTH_END = 8, 12


def stored_batches(data_folder: Path, topic: str) -> Iterator[bytes]:
    """
    Yield a topic's record batches, or its messages in an older format, as bytes.
    """
    for segment in data_folder.glob(f"{topic}-*/*.log"):
        data, position = segment.read_bytes(), 0
        while position < len(data):
            length = int.from_bytes(data[position + _LENGTH_START : position + _LENGTH_END], "big")
            yield data[position : position + _LENGTH_END + length]
            position += _LENGTH_END + length
