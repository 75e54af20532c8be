"""
Reaching a broker: its name, its addresses one after another, and TLS, each step with a limit.
"""

from __future__ import annotations

import queue
import socket
import threading
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.wire.transport import Transport

if TYPE_CHECKING:
    import ssl

    from pyspark_pykafka.client import Address, DirectConfig, Tls

_IN_HANDSHAKE = "; is it a TLS listener, and not a PLAINTEXT one?"
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


def dial(address: Address, config: DirectConfig, deadline: Deadline) -> tuple[Transport, Deadline]:
    """
    Return a connected transport, and the deadline of the rest of the connection's setup.

    A broker with several addresses is tried at each of them; every one has the whole setup time.
    """
    failure: PykafkaError | None = None
    context = None if config.tls is None else _context(config.tls)
    for family, target in _resolve(address, config, deadline):
        setup = Deadline.after(deadline.remaining(config.setup_seconds), deadline.now)
        try:
            transport = _connect(family, target, address, config, setup)
        except (BrokerUnavailableError, TimeoutExceededError) as error:
            failure = error
            continue
        if context is not None:
            transport.hint = _IN_HANDSHAKE
            transport.secure(context, setup)
        return transport, setup
    raise failure or BrokerUnavailableError(f"{address}: the name has no address; check it")


def _context(tls: Tls) -> ssl.SSLContext:
    # Here, since importing ssl takes a worker that needs no TLS some milliseconds.
    from pyspark_pykafka.wire.tls import tls_context

    return tls_context(tls)


def _resolve(
    address: Address, config: DirectConfig, deadline: Deadline
) -> list[tuple[int, tuple[Any, ...]]]:
    family = _FAMILIES[config.address_family]
    answers: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()
    # As bytes where that is the same: for text Python loads the tables of international names.
    host = address.host.encode() if address.host.isascii() else address.host

    def look_up(flags: int = 0) -> None:
        try:
            found = socket.getaddrinfo(host, address.port, family, socket.SOCK_STREAM, flags=flags)
        except (OSError, UnicodeError) as cause:
            answers.put(cause)
        else:
            answers.put(found)

    look_up(socket.AI_NUMERICHOST)
    answer = answers.get_nowait()
    if isinstance(answer, Exception):
        # A look-up cannot be stopped, only left alone.
        threading.Thread(target=look_up, daemon=True).start()
        answer = _answer(answers, address, deadline)
    return [(entry[0], entry[4]) for entry in answer]


def _answer(
    answers: queue.SimpleQueue[list[Any] | Exception], address: Address, deadline: Deadline
) -> list[Any]:
    try:
        answer = answers.get(timeout=deadline.remaining(threading.TIMEOUT_MAX))
    except queue.Empty:
        msg = f"{address}: no answer to the look-up of its name in time; is the name server up?"
        raise TimeoutExceededError(msg) from None
    if isinstance(answer, Exception):
        msg = f"{address}: the name cannot be looked up ({answer}); check it, and the name server"
        raise BrokerUnavailableError(msg) from answer
    return answer


def _connect(
    family: int, target: tuple[Any, ...], address: Address, config: DirectConfig, limit: Deadline
) -> Transport:
    try:
        raw = socket.socket(family, socket.SOCK_STREAM)
    except OSError as cause:
        msg = f"{address}: no socket for this kind of address: {cause.strerror}"
        raise BrokerUnavailableError(msg) from cause
    transport = Transport(raw, address)
    with transport.limited(limit, "connecting"):
        _tune(raw, config)
        raw.connect(target)
        # A port that nobody listens on can be given to our own end, which then meets itself.
        if raw.getsockname() == raw.getpeername():
            raise ConnectionRefusedError(0, "nobody listens there")
    return transport


def _tune(raw: socket.socket, config: DirectConfig) -> None:
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, config.nodelay)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, config.keepalive)
    # The kernel adapts these by itself, better than most numbers do, unless they are set.
    if config.send_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.receive_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
