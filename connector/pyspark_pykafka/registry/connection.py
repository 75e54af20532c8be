"""
An HTTP connection for one request. All its steps end by a deadline.
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.name_resolution import resolve

if TYPE_CHECKING:
    import ssl

    from pyspark_pykafka.retry import Deadline


class BoundedConnection(http.client.HTTPConnection):
    """
    A connection to a server, with TLS if there is a ``context``. Raises TimeoutError at the
    deadline.

    The timeout of a socket applies to each call: without a deadline, a response that arrives byte
    by byte has no limit.
    """

    def __init__(
        self, host: str, port: int | None, deadline: Deadline, context: ssl.SSLContext | None
    ) -> None:
        self.default_port = http.client.HTTP_PORT if context is None else http.client.HTTPS_PORT
        super().__init__(host, port or self.default_port)
        self._deadline = deadline
        self._context = context

    def connect(self) -> None:
        """
        Connect to the first address of the host that responds, and do the TLS handshake.
        """
        sock = _connected(self.host, self.port, self._deadline)
        if self._context is not None:
            _limit(sock, self._deadline)
            sock = self._context.wrap_socket(sock, server_hostname=self.host)
        self.sock = _BoundedSocket(sock, self._deadline)


class _BoundedSocket:
    """
    The part of a socket that an HTTP connection and its response use, with a deadline.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def sendall(self, data: bytes) -> None:
        """
        Send all bytes.
        """
        _limit(self._sock, self._deadline)
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """
        Return a file that reads from the socket until the deadline.
        """
        assert mode == "rb"
        return io.BufferedReader(_BoundedReader(self._sock, self._deadline))

    def close(self) -> None:
        """
        Close the socket, unless a file still reads from it.
        """
        self._sock.close()


class _BoundedReader(io.RawIOBase):
    """
    Reads from a socket until a deadline.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._sock, self._deadline = sock, deadline
        # This file keeps the socket open: the connection closes it before the response is read.
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """
        Return true: the file can be read.
        """
        return True

    def readinto(self, buffer: Any) -> int | None:
        """
        Read what has arrived, or wait for it until the deadline.
        """
        _limit(self._sock, self._deadline)
        return self._file.readinto(buffer)

    def close(self) -> None:
        """
        Close the file, and with it the socket.
        """
        self._file.close()
        super().close()


def _connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """
    Return a socket that is connected to the first address of a host that responds.

    The remaining time is divided among the remaining addresses. If no address responds, the error
    of the last one is raised.
    """
    addresses = resolve(host, port, deadline)
    for index, (family, address) in enumerate(addresses):
        left = len(addresses) - index
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            _limit(sock, deadline.within(deadline.remaining() / left))
            sock.connect(address)
        except BaseException as error:
            sock.close()
            if left == 1 or not isinstance(error, OSError):
                raise
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    msg = f"{host} has no address"
    raise OSError(msg)


def _limit(sock: socket.socket, deadline: Deadline) -> None:
    """
    Limit the next call of a socket to the time until the deadline.
    """
    seconds = deadline.remaining()
    if not seconds:
        raise TimeoutError("timed out")
    sock.settimeout(seconds)
