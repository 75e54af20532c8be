"""
Picks free ports on the loopback address, outside the range for outgoing connections.
"""

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
# a stopped broker could otherwise get the broker's port as its local port and connect to itself.
MIN_PORT, MAX_PORT = 15_000, 32_000
ATTEMPTS = 500

# Each process leases blocks of ports: a broker that is restarted needs its former port, which
# another process might take while the broker is stopped.
BLOCK_PORTS = 100

_leases: list[socket.socket] = []


@functools.cache
def _candidates() -> Iterator[int]:
    """
    Return the ports of one leased block after another, forever.

    All ports are returned once before one is returned again: clients remember brokers by their
    addresses, and would mistake a new broker for a stopped one that had the same address.
    """
    blocks = [*range(MIN_PORT, MAX_PORT, BLOCK_PORTS)]
    random.shuffle(blocks)
    leased = (block for block in blocks if _lease(block))
    return itertools.cycle(port for block in leased for port in range(block, block + BLOCK_PORTS))


def _lease(block: int) -> bool:
    """
    Lease a block of ports until this process ends; return False if another process has it.
    """
    # The lease is a UDP socket: no server here uses UDP. Without SO_REUSEADDR it is exclusive.
    lease = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        lease.bind(("127.0.0.1", block))
    except OSError:
        lease.close()
        return False
    _leases.append(lease)
    return True


def free_ports(count: int) -> list[int]:
    """
    Return `count` different ports that are free now, and that were not returned before.

    Other processes that call this function get other ports. Ports are returned again once this
    process has used up all blocks that it can lease.
    """
    ports = []
    with contextlib.ExitStack() as stack:
        for port in itertools.islice(_candidates(), ATTEMPTS):
            bound = _bind(port)
            if bound is not None:
                stack.enter_context(bound)
                ports.append(port)
            if len(ports) == count:
                return ports
    msg = f"Only {len(ports)} of {count} ports between {MIN_PORT} and {MAX_PORT} could be bound."
    raise OSError(msg)


def is_free(port: int) -> bool:
    """
    Return whether a server could listen on this port now.
    """
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
