"""
Detects whether a buffer is still in use, so that it can be reused safely.

Responses and decompressed records go into reused buffers, since the page faults of new memory would
cost more than the work itself. Readers need not release a buffer explicitly: Python refuses to
resize an object with exported views, and that refusal is the test.
"""

from __future__ import annotations


def is_viewed(buffer: bytearray) -> bool:
    """
    Return whether a view of the buffer, or of a part of it, exists.
    """
    if not buffer:
        return False
    # Invariant R12 (buffer ownership).
    try:
        last = buffer.pop()
    except BufferError:
        return True
    buffer.append(last)
    return False
