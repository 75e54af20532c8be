"""
Sends and receives bytes: every call has a deadline, and every failure is one of our errors.
"""

from __future__ import annotations

import errno
import math
import select
from collections import deque
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    PykafkaError,
    TimeoutExceededError,
    with_advice,
)
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, log_long_wait

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

# All systems accept this number of buffers in one call (IOV_MAX is 1,024 on Linux).
_MAX_PIECES = 512

_DISCONNECTS = (EOFError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


class Transport:
    """
    A socket, plain or TLS; closed after any failure, since part of the data may have been sent.

    ``hint`` is appended to the error for a connection that the broker closed: the likely reason at
    the current stage of the connection.
    """

    def __init__(self, raw: socket.socket, address: Address) -> None:
        self._socket = raw
        self._tls: ssl.SSLSocket | None = None
        self._secured = False
        self._address = address
        self.closed = False
        self.hint = ""

    def __repr__(self) -> str:
        kind = "TLS" if self._secured else "plaintext"
        return f"<Transport {self._address} {kind}, {'closed' if self.closed else 'open'}>"

    def start_tls(self, context: ssl.SSLContext, limit: Deadline) -> None:
        """
        Perform the TLS handshake, with SNI; the host name is checked if the context requires it.
        """
        name = self._address.host.partition("%")[0]
        self._secured = True
        with self.limited(limit, "the TLS handshake"):
            self._socket = self._tls = context.wrap_socket(
                self._socket, server_hostname=name, do_handshake_on_connect=False
            )
            self._tls.do_handshake()

    def send(self, pieces: Sequence[Buffer], limit: Deadline, action: str) -> None:
        """
        Send all pieces in order; ``action`` is for error messages.
        """
        rest = deque(memoryview(piece).cast("B") for piece in pieces)
        with self.limited(limit, action):
            while rest:
                self._set_timeout(limit)
                _skip(rest, self._send_some(rest))

    @property
    def has_buffered_input(self) -> bool:
        """
        Whether TLS has decrypted bytes that were not read yet; polling the socket misses these.
        """
        return self._tls is not None and self._tls.pending() > 0

    def fileno(self) -> int:
        """
        Return the socket's file descriptor, for polling.
        """
        return self._socket.fileno()

    def receive_into(self, view: memoryview, limit: Deadline, action: str) -> None:
        """
        Fill the view; ``action`` is for error messages.
        """
        max_seconds = LONG_WAIT_SECONDS
        with self.limited(limit, action):
            while view:
                self._set_timeout(limit, max_seconds)
                try:
                    view = view[self._receive_some(view) :]
                except TimeoutError as error:
                    # Only a timeout that the system itself reports has an errno.
                    if error.errno is not None or max_seconds == math.inf or limit.expired:
                        raise
                    max_seconds = math.inf
                    log_long_wait(
                        "%s: still waiting for the response to %s, for %.0f s at most",
                        *(self._address, action, limit.remaining()),
                    )

    def has_no_input(self) -> bool:
        """
        Return whether the socket has nothing to read, not even an end of file.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """
        Close the socket, without TLS's close_notify: it could block, and no broker needs it.
        """
        self.closed = True
        self._socket.close()

    @contextmanager
    def limited(self, limit: Deadline, action: str) -> Iterator[None]:
        """
        Run one step on the socket within the limit.

        A failure closes the socket, and is raised as an error of :mod:`pyspark_pykafka.errors`.
        """
        if self.closed:
            raise self._failure(EOFError(), action)
        try:
            self._set_timeout(limit)
            yield
        except (OSError, EOFError) as cause:
            self.close()
            raise self._failure(cause, action) from cause

    def _set_timeout(self, limit: Deadline, max_seconds: float = math.inf) -> None:
        seconds = limit.remaining(max_seconds)
        # A timeout of 0 would make the socket non-blocking.
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)

    def _send_some(self, rest: deque[memoryview]) -> int:
        if self._tls is not None:
            return self._tls.send(rest[0])
        return self._socket.sendmsg(list(islice(rest, _MAX_PIECES)))

    def _receive_some(self, view: memoryview) -> int:
        count = self._socket.recv_into(view)
        if count == 0:
            raise EOFError
        return count

    def _failure(self, cause: Exception, action: str) -> PykafkaError:
        if isinstance(cause, TimeoutError) or getattr(cause, "errno", None) == errno.ETIMEDOUT:
            reason = f"{self._address}: {action} timed out"
            advice = "is the broker up, reachable, and not overloaded?"
            return with_advice(TimeoutExceededError, reason, advice)
        if isinstance(cause, _DISCONNECTS):
            return self._disconnected(action)
        if self._secured:
            # Imported here: importing ssl takes some milliseconds, and few workers need TLS.
            from pyspark_pykafka.engines.wire.network.tls import DISCONNECTS, tls_error

            if isinstance(cause, DISCONNECTS):
                return self._disconnected(action)
            failure = tls_error(cause, self._address)
            if failure is not None:
                return failure
        reason = f"{self._address}: {action} failed: {getattr(cause, 'strerror', None) or cause}"
        return with_advice(BrokerUnavailableError, reason, "is the broker up and reachable?")

    def _disconnected(self, action: str) -> BrokerUnavailableError:
        msg = f"{self._address}: the connection ended during {action}{self.hint}"
        return BrokerUnavailableError(msg)


def _skip(rest: deque[memoryview], sent: int) -> None:
    """
    Remove the first ``sent`` bytes.
    """
    while rest and sent >= len(rest[0]):
        sent -= len(rest.popleft())
    if sent:
        rest[0] = rest[0][sent:]
