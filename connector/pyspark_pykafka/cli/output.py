"""
Tables and JSON for standard output.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """
    Print a table with aligned columns; None is shown as a hyphen, and control characters are
    escaped.
    """
    texts = [head, *(["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def print_json(document: Any) -> None:
    """
    Print a document as indented JSON.
    """
    print(json.dumps(document, indent=2), flush=True)


def bytes_to_json(data: bytes) -> str | dict[str, str]:
    """
    Return UTF-8 bytes as text, and other bytes as an object with their base64 text.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def printable(data: bytes) -> str:
    """
    Return bytes as text with control characters escaped.
    """
    return escaped(data.decode(errors="backslashreplace"))


def escaped(text: str, keep: str = "") -> str:
    """
    Return text with control characters escaped, except those to keep.

    Texts from records and brokers may contain control characters, which could change the terminal.
    """
    return "".join(
        char if char.isprintable() or char in keep else ascii(char)[1:-1] for char in text
    )


def discard_output() -> None:
    """
    Keep Python from writing the rest of the output when it exits, which would fail again.
    """
    if sys.stdout is None:
        return
    with Path(os.devnull).open("w") as null_device:
        os.dup2(null_device.fileno(), sys.stdout.fileno())
