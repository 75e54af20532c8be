"""
Waits for input on several connections at once.
"""

from __future__ import annotations

import math
import select
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.network.connection import Connection

_DRAINED_BYTES = 4096


class Wakeup:
    """
    Ends the wait of :func:`readable` from another thread.

    No thread may call :meth:`set` during or after :meth:`close`.
    """

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.settimeout(0)
        self._sender.settimeout(0)

    def __repr__(self) -> str:
        return f"<Wakeup {self._receiver.fileno()}>"

    def fileno(self) -> int:
        """
        Return the file descriptor that has input once :meth:`set` was called.
        """
        return self._receiver.fileno()

    def set(self) -> None:
        """
        End the current wait, or else the next one.
        """
        try:
            self._sender.send(b"\0")
        except BlockingIOError:
            # The socket's buffer is full, so there is input already.
            return

    def clear(self) -> None:
        """
        Forget the calls of :meth:`set` until now.
        """
        try:
            self._receiver.recv(_DRAINED_BYTES)
        except BlockingIOError:
            return

    def close(self) -> None:
        """
        Close the file descriptors.
        """
        self._receiver.close()
        self._sender.close()


def readable(
    connections: Sequence[Connection], seconds: float, wakeup: Wakeup | None = None
) -> list[Connection]:
    """
    Return the connections that have input, waiting up to ``seconds`` for the first of them.

    The wait also ends when ``wakeup`` is set.
    """
    ready = [connection for connection in connections if connection.has_buffered_input]
    by_fileno = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for fileno in by_fileno:
        poll.register(fileno, select.POLLIN)
    if wakeup is not None:
        poll.register(wakeup.fileno(), select.POLLIN)
    # Rounded up: 0 would not wait, and the caller would spin through the last millisecond. Never
    # negative, even if the time has just passed: a negative timeout would wait for ever.
    events = poll.poll(0 if ready else max(math.ceil(seconds * 1000), 0))
    found = [by_fileno[fileno] for fileno, _ in events if fileno in by_fileno]
    return list(dict.fromkeys([*ready, *found]))
