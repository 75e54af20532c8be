"""
Connects to a broker: looks up its name, races its addresses (RFC 8305), and starts TLS.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.engines.wire.network.transport import Transport
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
    with_advice,
)
from pyspark_pykafka.name_resolution import HostAddress, ResolutionTimeoutError, resolve
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, Deadline, log_long_wait

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from pyspark_pykafka.settings.wire_config import Address, Tls, WireConfig

#: The connect timeout for each address of a host name.
ADDRESS_TIMEOUT_SECONDS = 10.0
# The connect timeout for an address that could not be reached a moment ago.
_UNREACHABLE_TIMEOUT_SECONDS = 2.0

#: The pause before the next address is tried while earlier ones are still connecting (RFC 8305).
ATTEMPT_DELAY_SECONDS = 1.0

_HANDSHAKE_HINT = "; is it a TLS listener, not a PLAINTEXT one?"
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


class HandshakeEndedError(Exception):
    """
    The other side ended the connection during the TLS handshake, which may mean another protocol.
    """

    def __init__(self, error: BrokerUnavailableError) -> None:
        self.error = error
        super().__init__(error)


def connect(address: Address, config: WireConfig, deadline: Deadline) -> tuple[Transport, Deadline]:
    """
    Return a connected transport, and the deadline for the rest of the connection's setup.

    The addresses of a host name are raced; addresses that failed a moment ago come last.

    Raises :class:`HandshakeEndedError`, and the errors of :mod:`pyspark_pykafka.errors`.
    """
    context = None if config.tls is None else _context(config.tls)
    targets = REACHABILITY.ordered(_resolve(address, config, deadline))
    setup = deadline.within(config.setup_seconds)
    transport = _ConnectRace(address, config, setup).first_of(targets)
    if context is not None:
        transport.hint = _HANDSHAKE_HINT
        try:
            transport.start_tls(context, setup)
        except BrokerUnavailableError as error:
            raise HandshakeEndedError(error) from error
    return transport, setup


class _Attempt(NamedTuple):
    target: HostAddress
    raw: socket.socket
    transport: Transport
    started_at: float
    deadline: Deadline


class _ConnectRace:
    """
    Connects to the first of several addresses that accepts, each within its own timeout.
    """

    def __init__(self, address: Address, config: WireConfig, limit: Deadline) -> None:
        self._address = address
        self._config = config
        self._limit = limit
        self._pending: dict[int, _Attempt] = {}
        self._last_error: PykafkaError | None = None
        self._log_at = limit.now() + LONG_WAIT_SECONDS

    def first_of(self, targets: Sequence[HostAddress]) -> Transport:
        """
        Return the first connection; all other attempts are closed.
        """
        try:
            return self._race(deque(targets))
        finally:
            for attempt in self._pending.values():
                if self._limit.now() - attempt.started_at >= ATTEMPT_DELAY_SECONDS:
                    REACHABILITY.record_failure(attempt.target)
                attempt.transport.close()

    def _race(self, targets: deque[HostAddress]) -> Transport:
        now = self._limit.now
        start_at = now()
        while targets or self._pending:
            if targets and (not self._pending or now() >= start_at):
                self._start(targets.popleft())
                start_at = now() + ATTEMPT_DELAY_SECONDS
            for attempt in self._ready(start_at if targets else math.inf):
                transport = self._finish(attempt)
                if transport is not None:
                    return transport
        reason = f"{self._address}: the host name has no address"
        raise self._last_error or with_advice(BrokerUnavailableError, reason, "check the name")

    def _start(self, target: HostAddress) -> None:
        try:
            raw = socket.socket(target.family, socket.SOCK_STREAM)
        except OSError as cause:
            msg = f"{self._address}: no socket of this address family: {cause.strerror}"
            self._last_error = BrokerUnavailableError(msg)
            return
        is_unreachable = REACHABILITY.is_unreachable(target)
        timeout = _UNREACHABLE_TIMEOUT_SECONDS if is_unreachable else ADDRESS_TIMEOUT_SECONDS
        deadline = self._limit.within(timeout)
        transport = Transport(raw, self._address)
        attempt = _Attempt(target, raw, transport, self._limit.now(), deadline)
        try:
            _tune(raw, self._config)
            raw.settimeout(0)
            error = raw.connect_ex(target.sockaddr)
        except OSError as cause:
            self._record_failure(attempt, cause)
            return
        if error in {0, errno.EINPROGRESS}:
            self._pending[raw.fileno()] = attempt
        else:
            self._record_failure(attempt, OSError(error, os.strerror(error)))

    def _ready(self, start_at: float) -> list[_Attempt]:
        """
        Return the attempts that have ended or expired, waiting for the first until ``start_at``.
        """
        if not self._pending:
            return []
        now = self._limit.now()
        due = min(
            start_at, self._log_at, *(attempt.deadline.at for attempt in self._pending.values())
        )
        poll = select.poll()
        for fileno in self._pending:
            poll.register(fileno, select.POLLOUT)
        ended = [fileno for fileno, _ in poll.poll(math.ceil(max(due - now, 0.0) * 1000))]
        self._log_long_wait()
        expired = [fileno for fileno, attempt in self._pending.items() if attempt.deadline.expired]
        return [self._pending.pop(fileno) for fileno in dict.fromkeys([*ended, *expired])]

    def _log_long_wait(self) -> None:
        if self._limit.now() >= self._log_at:
            self._log_at = math.inf
            seconds = self._limit.remaining()
            log_long_wait("still connecting to %s, for %.0f s at most", self._address, seconds)

    def _finish(self, attempt: _Attempt) -> Transport | None:
        cause = _connect_error(attempt.raw)
        if cause is not None:
            self._record_failure(attempt, cause)
            return None
        REACHABILITY.record_success(attempt.target)
        return attempt.transport

    def _record_failure(self, attempt: _Attempt, cause: OSError) -> None:
        REACHABILITY.record_failure(attempt.target)
        try:
            with attempt.transport.limited(Deadline.after(1), "connecting"):
                raise cause
        except (BrokerUnavailableError, TimeoutExceededError) as error:
            self._last_error = error


def _connect_error(raw: socket.socket) -> OSError | None:
    """
    Return why an attempt failed, or None if it succeeded.
    """
    error = raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        return OSError(error, os.strerror(error))
    try:
        peer = raw.getpeername()
    except OSError:
        return TimeoutError()
    # On loopback our end can get the very port that it connects to, and connect to itself.
    if raw.getsockname() == peer:
        return ConnectionRefusedError(0, "nothing listens there")
    return None


def _context(tls: Tls) -> ssl.SSLContext:
    # Imported here, since importing ssl takes a worker that needs no TLS some milliseconds.
    from pyspark_pykafka.engines.wire.network.tls import tls_context

    return tls_context(tls)


def _resolve(address: Address, config: WireConfig, deadline: Deadline) -> list[HostAddress]:
    family = _FAMILIES[config.address_family]
    try:
        return resolve(address.host, address.port, deadline, family)
    except ResolutionTimeoutError as cause:
        advice = "is the DNS server up?"
        raise with_advice(TimeoutExceededError, f"{address}: {cause}", advice) from None
    except OSError as cause:
        reason = f"{address}: the host name cannot be resolved ({cause})"
        advice = "check it and the DNS server"
        raise with_advice(BrokerUnavailableError, reason, advice) from cause


def _tune(raw: socket.socket, config: WireConfig) -> None:
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, config.nodelay)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, config.keepalive)
    # Unless they are set, the kernel tunes the buffers itself, better than most fixed sizes.
    if config.send_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.receive_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
