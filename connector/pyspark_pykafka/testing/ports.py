"""Picks free ports on the loopback address, outside the range of outgoing connections."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below the ephemeral ports of Linux (from 32768) and macOS (from 49152): a client that connects to
# a stopped broker could otherwise get the broker's port as its own and connect to itself.
MIN_PORT, MAX_PORT = 15_000, 32_000
ATTEMPTS = 500


@functools.cache
def _steps() -> Iterator[int]:
    """Return one number after another, from a random one on.

    Clients remember brokers by their addresses: a new broker at the address of one that has stopped
    would get what they know of the other.
    """
    return itertools.count(random.randrange(MAX_PORT - MIN_PORT))  # noqa: S311 (no secret)


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that are free now, and that this process has not had before.

    Once the process has had all of them, they are given out again.
    """
    ports = []
    with contextlib.ExitStack() as stack:
        for step in itertools.islice(_steps(), ATTEMPTS):
            port = MIN_PORT + step % (MAX_PORT - MIN_PORT)
            bound = _bind(port)
            if bound is not None:
                stack.enter_context(bound)
                ports.append(port)
            if len(ports) == count:
                return ports
    msg = f"Only {len(ports)} of {count} ports between {MIN_PORT} and {MAX_PORT} could be bound."
    raise OSError(msg)


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    bound = _bind(port)
    if bound is None:
        return False
    bound.close()
    return True


def _bind(port: int) -> socket.socket | None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Like Java's servers, which can listen on a port in TIME_WAIT.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        bound.listen(1)
    except OSError:
        bound.close()
        return None
    return bound
