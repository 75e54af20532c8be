"""
Bytes to and from a broker: every wait has a limit, and every failure is one of the connector's.
"""

from __future__ import annotations

import errno
import select
from collections import deque
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

# As many as every system takes at once (IOV_MAX is 1,024 on Linux).
_MOST_PIECES = 512

_CUT = (EOFError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


class Transport:
    """
    A socket, plain or TLS; after a failure it is closed, for nobody knows what of it arrived.

    ``hint`` ends the message about a connection that the broker closed: what may be the reason at
    this stage.
    """

    def __init__(self, raw: socket.socket, address: Address) -> None:
        self._socket = raw
        self._tls: ssl.SSLSocket | None = None
        self._secured = False
        self._address = address
        self.closed = False
        self.hint = ""

    def secure(self, context: ssl.SSLContext, limit: Deadline) -> None:
        """
        Put TLS on the connection; the name is told to the broker, and checked if the context does.
        """
        name = self._address.host.partition("%")[0]
        self._secured = True
        with self.limited(limit, "the TLS handshake"):
            self._socket = self._tls = context.wrap_socket(
                self._socket, server_hostname=name, do_handshake_on_connect=False
            )
            self._tls.do_handshake()

    def send(self, pieces: Sequence[Buffer], limit: Deadline, doing: str) -> None:
        """
        Send all pieces, one behind the other; ``doing`` says for what, in messages.
        """
        rest = deque(memoryview(piece).cast("B") for piece in pieces)
        with self.limited(limit, doing):
            while rest:
                self._allow(limit)
                _drop(rest, self._send_some(rest))

    @property
    def has_buffered_input(self) -> bool:
        """
        Whether bytes wait in TLS's own buffer, which no poll of the socket would tell of.
        """
        return self._tls is not None and self._tls.pending() > 0

    def fileno(self) -> int:
        """
        Return what the socket can be polled by.
        """
        return self._socket.fileno()

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

    def _send_some(self, rest: deque[memoryview]) -> int:
        if self._tls is not None:
            return self._tls.send(rest[0])
        return self._socket.sendmsg(list(islice(rest, _MOST_PIECES)))

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
        if isinstance(cause, _CUT):
            return self._ended(doing)
        if self._secured:
            # Here, since importing ssl takes a worker that needs no TLS some milliseconds.
            from pyspark_pykafka.engines.wire.network.tls import ENDED, tls_failure

            if isinstance(cause, ENDED):
                return self._ended(doing)
            failure = tls_failure(cause, self._address)
            if failure is not None:
                return failure
        said = getattr(cause, "strerror", None) or cause
        return BrokerUnavailableError(
            f"{self._address}: {doing} failed: {said}; is the broker up and reachable?"
        )

    def _ended(self, doing: str) -> BrokerUnavailableError:
        msg = f"{self._address}: the connection ended during {doing}{self.hint}"
        return BrokerUnavailableError(msg)


def _drop(rest: deque[memoryview], sent: int) -> None:
    """
    Take off what was sent.
    """
    while rest and sent >= len(rest[0]):
        sent -= len(rest.popleft())
    if sent:
        rest[0] = rest[0][sent:]
