"""Picks ports that are free on the loopback address and stay out of other programs' way."""

from __future__ import annotations

import contextlib
import random
import socket

# Below what Linux (32768) and macOS (49152) hand to outgoing connections: a client that knocks
# at a stopped broker's port could otherwise be given that very port and connect to itself.
LOWEST, HIGHEST = 15_000, 32_000
ATTEMPTS = 500


def free_ports(count: int) -> list[int]:
    """Return so many different ports that nobody listens on at this moment."""
    found = []
    with contextlib.ExitStack() as held:
        for port in random.sample(range(LOWEST, HIGHEST), ATTEMPTS):
            taken = _bind(port)
            if taken is not None:
                held.enter_context(taken)
                found.append(port)
            if len(found) == count:
                return found
    msg = f"Only {len(found)} of {count} ports between {LOWEST} and {HIGHEST} could be bound."
    raise OSError(msg)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port now."""
    held = _bind(port)
    if held is None:
        return False
    held.close()
    return True


def _bind(port: int) -> socket.socket | None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As Java's servers do: a port in TIME_WAIT is free to listen on.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        bound.listen(1)
    except OSError:
        bound.close()
        return None
    return bound
