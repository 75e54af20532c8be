"""
Whether memory is in use, by Python's own count of the views of it.

What is received or decompressed goes into memory that is used again, since the page faults of new
memory would cost more than the work itself. Nobody has to keep to a rule about when: an object
whose memory is exported cannot be resized, so who asks knows.
"""

from __future__ import annotations


def is_viewed(buffer: bytearray) -> bool:
    """
    Return whether anybody has a view of the memory, or of a part of it.
    """
    if not buffer:
        return False
    try:
        last = buffer.pop()
    except BufferError:
        return True
    buffer.append(last)
    return False
