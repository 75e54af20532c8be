"""
Open connections, one per broker; no connection is closed because its broker is slow.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.network.racing import TRANSIENT_ERRORS
from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.settings.wire_config import Address, WireConfig


class ConnectionCache:
    """
    The open connections, by address; connections that other threads open arrive through a queue.

    Only one thread may use it, except for :meth:`open` and :meth:`hand_back`.
    """

    def __init__(self, config: WireConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._open: dict[Address, Connection] = {}
        self._returned: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._closed = False

    def __repr__(self) -> str:
        return f"<ConnectionCache {list(self._open.values())}{', closed' if self._closed else ''}>"

    def idle(self) -> dict[Address, Connection]:
        """
        Return the connections with nothing in flight, by address.
        """
        self._take_back()
        return {
            address: connection
            for address, connection in self._open.items()
            if not connection.in_flight and _is_good(connection)
        }

    def get(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker, opened now if there is none.
        """
        connection = self.get_open(address)
        if connection is None:
            connection = self._open[address] = self.open(address, deadline)
        return connection

    def get_open(self, address: Address) -> Connection | None:
        """
        Return the open connection to a broker, or None; one that is no longer usable is closed.
        """
        self._take_back()
        connection = self._open.get(address)
        if connection is None or _is_good(connection):
            return connection
        self.drop(connection)
        return None

    def open(self, address: Address, deadline: Deadline) -> Connection:
        """
        Open a connection that is not cached; any thread may call this.
        """
        try:
            connection = Connection.open(address, self._config, deadline)
        except TRANSIENT_ERRORS:
            REACHABILITY.record_failure(address)
            raise
        REACHABILITY.record_success(address)
        return connection

    def setup_deadline(self) -> Deadline:
        """
        Return the deadline for opening a connection now.

        A caller's deadline does not shorten it: a slow broker's connection can still be used next
        time.
        """
        return Deadline.after(self._config.setup_seconds, self._now)

    def open_in_background(self, address: Address, deadline: Deadline) -> None:
        """
        Open a connection in a thread of its own; it is in the cache once it is open.
        """

        def open_and_hand_back() -> None:
            try:
                self.hand_back(self.open(address, deadline))
            except PykafkaError:
                # Recorded as unreachable; the error is raised when the connection is needed.
                return

        threading.Thread(target=open_and_hand_back, daemon=True).start()

    def add(self, connection: Connection) -> None:
        """
        Cache a connection with nothing in flight; close it if another one to its broker is cached.
        """
        if self.get_open(connection.address) is None:
            self._open[connection.address] = connection
        else:
            connection.close()

    def add_and_get(self, connection: Connection) -> Connection:
        """
        Cache a connection as :meth:`add` does, and return the broker's cached connection.
        """
        self.add(connection)
        return self._open[connection.address]

    def has(self, connection: Connection) -> bool:
        """
        Return whether a connection is cached, so that it belongs to no other thread.
        """
        return self._open.get(connection.address) is connection

    def detach(self, connection: Connection) -> None:
        """
        Remove a connection from the cache; it belongs to the caller.
        """
        if self.has(connection):
            del self._open[connection.address]

    def discard_responses(self, connection: Connection) -> None:
        """
        Receive and discard a connection's remaining responses in the background, and keep it.
        """
        self.detach(connection)

        def receive_rest() -> None:
            limit = Deadline.after(self._config.request_seconds, self._now)
            try:
                while connection.in_flight:
                    connection.discard_response(limit)
            except PykafkaError:
                # The connection is closed, and no caller waits for it.
                return
            self.hand_back(connection)

        threading.Thread(target=receive_rest, daemon=True).start()

    def hand_back(self, connection: Connection) -> None:
        """
        Cache a connection; any thread may call this.
        """
        self._returned.put(connection)
        if self._closed:
            self._close_returned()

    def drop(self, connection: Connection) -> None:
        """
        Close a connection that failed or whose responses are not needed.
        """
        self.detach(connection)
        connection.close()

    def close_idle(self, address: Address) -> None:
        """
        Close the connection to a broker unless requests are in flight.
        """
        connection = self.get_open(address)
        if connection is not None and not connection.in_flight:
            self.drop(connection)

    def close(self) -> None:
        """
        Close every connection, including those that other threads hand back later.
        """
        self._closed = True
        for connection in list(self._open.values()):
            self.drop(connection)
        self._close_returned()

    def _take_back(self) -> None:
        while (connection := _next(self._returned)) is not None:
            if connection.address in self._open or self._closed:
                connection.close()
            else:
                self._open[connection.address] = connection

    def _close_returned(self) -> None:
        while (connection := _next(self._returned)) is not None:
            connection.close()


def _is_good(connection: Connection) -> bool:
    if connection.in_flight:
        return connection.is_usable
    return REACHABILITY.is_trusted(connection.last_response_at) and connection.is_usable


def _next(returned: queue.SimpleQueue[Connection]) -> Connection | None:
    try:
        return returned.get_nowait()
    except queue.Empty:
        return None
