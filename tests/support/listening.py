"""
Listening sockets of tests, on ports that the operating system assigns to no other process.

A client that reconnects to a stopped stub must not reach another server on the same ephemeral port:
Spark would take the client for a Python worker with a wrong secret, and the query would fail.
"""

from __future__ import annotations

import socket

from pyspark_pykafka.testing.ports import free_ports

_ATTEMPTS = 10


def listen(host: str = "127.0.0.1", *, port: int = 0, backlog: int = 128) -> socket.socket:
    """
    Return a socket that listens on this port, or on a free one below the ephemeral ports.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(_ATTEMPTS):
        address = (host, port or free_ports(1)[0])
        try:
            return socket.create_server(address, family=family, backlog=backlog)
        except OSError as error:
            # Another process may have taken the port since it was found free.
            if port:
                raise
            reason = error
    raise reason


def unused_address() -> tuple[str, int]:
    """
    Return a loopback address on which nothing listens.
    """
    return ("127.0.0.1", free_ports(1)[0])
