"""
Reaching a broker: its name, its addresses in a race (RFC 8305), and TLS, each step with a limit.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import queue
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.engines.wire.network.racing import LONG_WAIT_SECONDS
from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.engines.wire.network.transport import Transport
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from pyspark_pykafka.settings.wire_config import Address, Tls, WireConfig

logger = logging.getLogger("pyspark_pykafka")

#: How long an address may take to accept a connection, whatever the others do.
SHARE_SECONDS = 10.0
# And one that could not be reached a moment ago.
_KNOWN_SHARE_SECONDS = 2.0

#: When the next address of a name is tried beside those that have not answered yet.
ATTEMPT_DELAY_SECONDS = 1.0

_IN_HANDSHAKE = "; is it a TLS listener, and not a PLAINTEXT one?"
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


def connect(address: Address, config: WireConfig, deadline: Deadline) -> tuple[Transport, Deadline]:
    """
    Return a connected transport, and the deadline of the rest of the connection's setup.

    The addresses of a name overtake each other; those that failed a moment ago come last.
    """
    context = None if config.tls is None else _context(config.tls)
    targets = REACHABILITY.ordered(_resolve(address, config, deadline))
    setup = Deadline.after(deadline.remaining(config.setup_seconds), deadline.now)
    transport = _Dialling(address, config, setup).first_of(targets)
    if context is not None:
        transport.hint = _IN_HANDSHAKE
        transport.secure(context, setup)
    return transport, setup


class _Target(NamedTuple):
    """
    One address of a name, as the system takes it.
    """

    family: int
    sockaddr: tuple[Any, ...]


class _Attempt(NamedTuple):
    target: _Target
    raw: socket.socket
    transport: Transport
    since: float
    until: Deadline


class _Dialling:
    """
    Connects to the first of several addresses that answers, each within its share of the time.
    """

    def __init__(self, address: Address, config: WireConfig, limit: Deadline) -> None:
        self._address = address
        self._config = config
        self._limit = limit
        self._pending: dict[int, _Attempt] = {}
        self._failure: PykafkaError | None = None
        self._tell_at = limit.now() + LONG_WAIT_SECONDS

    def first_of(self, targets: Sequence[_Target]) -> Transport:
        """
        Return the connection; all others are closed.
        """
        try:
            return self._connected(deque(targets))
        finally:
            for attempt in self._pending.values():
                if self._limit.now() - attempt.since >= ATTEMPT_DELAY_SECONDS:
                    REACHABILITY.record_failure(attempt.target)
                attempt.transport.close()

    def _connected(self, targets: deque[_Target]) -> Transport:
        now = self._limit.now
        start_at = now()
        while targets or self._pending:
            if targets and (not self._pending or now() >= start_at):
                self._start(targets.popleft())
                start_at = now() + ATTEMPT_DELAY_SECONDS
            for attempt in self._ready(start_at if targets else math.inf):
                found = self._finished(attempt)
                if found is not None:
                    return found
        raise self._failure or BrokerUnavailableError(
            f"{self._address}: the name has no address; check it"
        )

    def _start(self, target: _Target) -> None:
        try:
            raw = socket.socket(target.family, socket.SOCK_STREAM)
        except OSError as cause:
            msg = f"{self._address}: no socket for this kind of address: {cause.strerror}"
            self._failure = BrokerUnavailableError(msg)
            return
        known = REACHABILITY.is_unreachable(target)
        share = self._limit.remaining(_KNOWN_SHARE_SECONDS if known else SHARE_SECONDS)
        until = Deadline.after(share, self._limit.now)
        transport = Transport(raw, self._address)
        attempt = _Attempt(target, raw, transport, self._limit.now(), until)
        try:
            _tune(raw, self._config)
            raw.settimeout(0)
            error = raw.connect_ex(target.sockaddr)
        except OSError as cause:
            self._failed(attempt, cause)
            return
        if error in {0, errno.EINPROGRESS}:
            self._pending[raw.fileno()] = attempt
        else:
            self._failed(attempt, OSError(error, os.strerror(error)))

    def _ready(self, start_at: float) -> list[_Attempt]:
        """
        Return the attempts that have ended, waiting for the first until there is something to do.
        """
        if not self._pending:
            return []
        now = self._limit.now()
        due = min(start_at, self._tell_at, *(it.until.at for it in self._pending.values()))
        poll = select.poll()
        for number in self._pending:
            poll.register(number, select.POLLOUT)
        ended = [number for number, _ in poll.poll(math.ceil(max(due - now, 0.0) * 1000))]
        self._tell_of_a_long_wait()
        late = [number for number, it in self._pending.items() if it.until.expired]
        return [self._pending.pop(number) for number in dict.fromkeys([*ended, *late])]

    def _tell_of_a_long_wait(self) -> None:
        if self._limit.now() >= self._tell_at:
            self._tell_at = math.inf
            seconds = self._limit.remaining()
            logger.warning("still connecting to %s, for %.0f s at most", self._address, seconds)

    def _finished(self, attempt: _Attempt) -> Transport | None:
        cause = _refusal(attempt.raw)
        if cause is not None:
            self._failed(attempt, cause)
            return None
        REACHABILITY.record_success(attempt.target)
        return attempt.transport

    def _failed(self, attempt: _Attempt, cause: OSError) -> None:
        REACHABILITY.record_failure(attempt.target)
        try:
            with attempt.transport.limited(Deadline.after(1), "connecting"):
                raise cause
        except (BrokerUnavailableError, TimeoutExceededError) as error:
            self._failure = error


def _refusal(raw: socket.socket) -> OSError | None:
    """
    Return why an attempt that has ended did not succeed, or None if it did.
    """
    error = raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        return OSError(error, os.strerror(error))
    try:
        peer = raw.getpeername()
    except OSError:
        return TimeoutError()
    # A port that nobody listens on can be given to our own end, which then meets itself.
    if raw.getsockname() == peer:
        return ConnectionRefusedError(0, "nobody listens there")
    return None


def _context(tls: Tls) -> ssl.SSLContext:
    # Here, since importing ssl takes a worker that needs no TLS some milliseconds.
    from pyspark_pykafka.engines.wire.network.tls import tls_context

    return tls_context(tls)


def _resolve(address: Address, config: WireConfig, deadline: Deadline) -> list[_Target]:
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
    return [_Target(entry[0], entry[4]) for entry in answer]


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


def _tune(raw: socket.socket, config: WireConfig) -> None:
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, config.nodelay)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, config.keepalive)
    # The kernel adapts these by itself, better than most numbers do, unless they are set.
    if config.send_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.receive_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
