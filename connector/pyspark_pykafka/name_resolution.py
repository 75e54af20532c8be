"""
Resolves host names by a deadline, which ``socket.getaddrinfo`` cannot do.
"""

from __future__ import annotations

import queue
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.retry import LONG_WAIT_SECONDS, Deadline, log_long_wait

if TYPE_CHECKING:
    #: The forms in which ``socket.getaddrinfo`` returns addresses.
    SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


class HostAddress(NamedTuple):
    """
    One address of a host name, in the form that sockets take.
    """

    family: int
    sockaddr: SocketAddress


class ResolutionTimeoutError(TimeoutError):
    """
    The DNS server did not respond before the deadline.
    """


def resolve(
    host: str, port: int, deadline: Deadline, family: int = socket.AF_UNSPEC
) -> list[HostAddress]:
    """
    Return the addresses of a host, in the system's order. An IP address needs no DNS server.

    Raises :class:`ResolutionTimeoutError` at the deadline, and OSError if the name has no address
    or is not a valid host name.
    """
    results: queue.SimpleQueue[list[HostAddress] | OSError] = queue.SimpleQueue()

    def look_up(flags: int = 0) -> None:
        results.put(_look_up(host, port, family, flags))

    look_up(socket.AI_NUMERICHOST)
    result = results.get_nowait()
    if isinstance(result, OSError):
        # A lookup cannot be cancelled, so it gets a thread that can be abandoned.
        threading.Thread(target=look_up, daemon=True).start()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        result = _await_lookup(results, address, deadline)
    if isinstance(result, OSError):
        raise result
    return result


def _look_up(host: str, port: int, family: int, flags: int) -> list[HostAddress] | OSError:
    # ASCII names are passed as bytes: for str, Python would load the IDNA tables.
    name = host.encode() if host.isascii() else host
    try:
        entries = socket.getaddrinfo(name, port, family, socket.SOCK_STREAM, flags=flags)
    except OSError as error:
        return error
    except UnicodeError as error:
        return socket.gaierror(socket.EAI_NONAME, f"not a valid host name: {error}")
    return [HostAddress(entry[0], entry[4]) for entry in entries]


def _await_lookup(
    results: queue.SimpleQueue[list[HostAddress] | OSError], address: str, deadline: Deadline
) -> list[HostAddress] | OSError:
    """
    Return the result of a lookup, and log a long wait.
    """
    try:
        return results.get(timeout=deadline.remaining(LONG_WAIT_SECONDS))
    except queue.Empty:
        seconds = deadline.remaining(threading.TIMEOUT_MAX)
    if seconds:
        log_long_wait("%s: still waiting for the DNS server, for %.0f s at most", address, seconds)
    try:
        return results.get(timeout=seconds)
    except queue.Empty:
        msg = "the lookup of its host name timed out"
        raise ResolutionTimeoutError(msg) from None
