"""
Bytes to and from a broker: every wait has a limit, and every failure is one of the connector's.
"""

from __future__ import annotations

import errno
import select
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.wire.tls import tls_failure

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from pyspark_pykafka.client import Address
    from pyspark_pykafka.retry import Deadline

_CUT = (EOFError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_CUT_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


class Transport:
    """
    A socket, plain or TLS; after a failure it is closed, for nobody knows what of it arrived.

    ``hint`` ends the message about a connection that the broker closed: what may be the reason at
    this stage.
    """

    def __init__(self, raw: socket.socket, address: Address) -> None:
        self._socket = raw
        self._address = address
        self.closed = False
        self.hint = ""

    def secure(self, context: ssl.SSLContext, limit: Deadline) -> None:
        """
        Put TLS on the connection; the name is told to the broker, and checked if the context does.
        """
        name = self._address.host.partition("%")[0]
        with self.limited(limit, "the TLS handshake"):
            wrapped = context.wrap_socket(
                self._socket, server_hostname=name, do_handshake_on_connect=False
            )
            self._socket = wrapped
            wrapped.do_handshake()

    def send(self, data: bytes | bytearray, limit: Deadline, doing: str) -> None:
        """
        Send all of the data; ``doing`` says for what, in messages.
        """
        rest = memoryview(data)
        with self.limited(limit, doing):
            while rest:
                self._allow(limit)
                rest = rest[self._socket.send(rest) :]

    def receive_into(self, view: memoryview, limit: Deadline, doing: str) -> None:
        """
        Fill the view.
        """
        with self.limited(limit, doing):
            while view:
                self._allow(limit)
                view = view[self._some(view) :]

    def quiet(self) -> bool:
        """
        Return whether nothing comes in, not even an end, on a connection that nobody waits for.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """
        Close the socket, without TLS's farewell: that could block, and no broker needs it.
        """
        self.closed = True
        self._socket.close()

    @contextmanager
    def limited(self, limit: Deadline, doing: str) -> Iterator[None]:
        """
        Do one step on the socket within the limit.
        """
        if self.closed:
            raise self._failure(EOFError(), doing)
        try:
            self._allow(limit)
            yield
        except (OSError, EOFError) as cause:
            self.close()
            raise self._failure(cause, doing) from cause

    def _allow(self, limit: Deadline) -> None:
        """
        Let the next call on the socket take what is left of the time.
        """
        seconds = limit.remaining()
        # 0 would ask the socket not to wait for anything.
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)

    def _some(self, view: memoryview) -> int:
        count = self._socket.recv_into(view)
        if count == 0:
            raise EOFError
        return count

    def _failure(self, cause: Exception, doing: str) -> PykafkaError:
        if isinstance(cause, TimeoutError) or getattr(cause, "errno", None) == errno.ETIMEDOUT:
            return TimeoutExceededError(
                f"{self._address}: the time for {doing} is over; "
                "is the broker up, reachable, and not overloaded?"
            )
        if isinstance(cause, (*_CUT, *_CUT_TLS)):
            return BrokerUnavailableError(
                f"{self._address}: the connection ended during {doing}{self.hint}"
            )
        if isinstance(cause, ssl.SSLError):
            return tls_failure(cause, self._address)
        said = getattr(cause, "strerror", None) or cause
        return BrokerUnavailableError(
            f"{self._address}: {doing} failed: {said}; is the broker up and reachable?"
        )
