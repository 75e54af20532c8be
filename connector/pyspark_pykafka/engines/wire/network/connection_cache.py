"""
Connections that stay open, one for each broker; none is closed because its broker is slow.
"""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.network.racing import TRANSIENT_ERRORS, ConcurrentAttempts
from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark_pykafka.settings.wire_config import Address, WireConfig

# Each has a thread while it is opened.
_MOST_OPENED_AT_ONCE = 128


class ConnectionCache:
    """
    For one thread. Those that are opened, or waited for, in others come back through a queue.
    """

    def __init__(self, config: WireConfig) -> None:
        self._config = config
        self._open: dict[Address, Connection] = {}
        self._returned: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._closed = False

    def idle(self) -> dict[Address, Connection]:
        """
        Return those that have no answer under way, by address.
        """
        self._take_back()
        return {
            address: connection
            for address, connection in self._open.items()
            if not connection.in_flight and _is_good(connection)
        }

    def get(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker, made now if there is none.
        """
        known = self.get_open(address)
        if known is not None:
            return known
        made = self.open(address, deadline)
        self._open[address] = made
        return made

    def get_open(self, address: Address) -> Connection | None:
        """
        Return the connection to a broker if there is one; what is of no use any more is closed.
        """
        self._take_back()
        known = self._open.get(address)
        if known is None or _is_good(known):
            return known
        self.drop(known)
        return None

    def open(self, address: Address, deadline: Deadline) -> Connection:
        """
        Open a connection that nobody else has yet; any thread may do so.
        """
        try:
            made = Connection.open(address, self._config, deadline)
        except TRANSIENT_ERRORS:
            REACHABILITY.record_failure(address)
            raise
        REACHABILITY.record_success(address)
        return made

    def get_all(
        self, addresses: Collection[Address], deadline: Deadline
    ) -> Iterator[tuple[Address, Connection | PykafkaError]]:
        """
        Yield a connection to each broker, or the error that there was, as soon as it is there.

        Those that are missing are opened at once; what takes longer is kept when it is there.
        """
        missing = []
        for address in addresses:
            known = self.get_open(address)
            if known is None:
                missing.append(address)
            else:
                yield address, known
        for at in range(0, len(missing), _MOST_OPENED_AT_ONCE):
            yield from self._opened(missing[at : at + _MOST_OPENED_AT_ONCE], deadline)

    def open_in_background(self, address: Address, deadline: Deadline) -> None:
        """
        Open a connection while others work; once it is there it can be asked.
        """

        def opened() -> None:
            try:
                self.hand_back(self.open(address, deadline))
            except PykafkaError:
                # It stays unreachable, which is noted, and is told when it is needed.
                return

        threading.Thread(target=opened, daemon=True).start()

    def add(self, connection: Connection) -> None:
        """
        Keep a connection that has no answer under way, unless there is one to the broker already.
        """
        if self.get_open(connection.address) is None:
            self._open[connection.address] = connection
        else:
            connection.close()

    def detach(self, connection: Connection) -> None:
        """
        Let the caller have a connection for himself.
        """
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]

    def drain(self, connection: Connection) -> None:
        """
        Keep a connection whose answers nobody waits for any more, once they have come.
        """
        self.detach(connection)

        def receive_rest() -> None:
            limit = Deadline.after(self._config.request_seconds)
            try:
                while connection.in_flight:
                    connection.receive(limit)
            except PykafkaError:
                # Nobody waits for it, and it is closed.
                return
            self.hand_back(connection)

        threading.Thread(target=receive_rest, daemon=True).start()

    def hand_back(self, connection: Connection) -> None:
        """
        Keep a connection from now on; any thread may call this.
        """
        self._returned.put(connection)
        if self._closed:
            self._close_returned()

    def drop(self, connection: Connection) -> None:
        """
        Close a connection that failed, or that has an answer under way which nobody wants.
        """
        self.detach(connection)
        connection.close()

    def close_idle(self, address: Address) -> None:
        """
        Close the connection to a broker unless an answer is under way.
        """
        known = self.get_open(address)
        if known is not None and not known.in_flight:
            self.drop(known)

    def close(self) -> None:
        """
        Close every connection, and those that come back later.
        """
        self._closed = True
        for connection in list(self._open.values()):
            self.drop(connection)
        self._close_returned()

    def _opened(
        self, addresses: Collection[Address], deadline: Deadline
    ) -> Iterator[tuple[Address, Connection | PykafkaError]]:
        if len(addresses) == 1:
            (address,) = addresses
            yield address, self._alone(address, deadline)
            return
        attempts: ConcurrentAttempts[Connection] = ConcurrentAttempts(self.hand_back)
        # Not the caller's: who is slow now need not be dialled again the next time.
        limit = Deadline.after(self._config.setup_seconds)
        order = list(addresses)
        for address in order:
            attempts.start(partial(self.open, address, limit))
        left = set(order)
        try:
            while left and (outcome := attempts.next(deadline.remaining())) is not None:
                address = order[outcome.attempt]
                left.discard(address)
                if outcome.error is None:
                    connection = outcome.unwrap()
                    self._open[address] = connection
                    yield address, connection
                elif isinstance(outcome.error, PykafkaError):
                    yield address, outcome.error
                else:
                    raise outcome.error
        finally:
            attempts.stop()
        for address in left:
            yield address, _slow(address)

    def _alone(self, address: Address, deadline: Deadline) -> Connection | PykafkaError:
        try:
            return self.get(address, deadline)
        except PykafkaError as error:
            return error

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


def _slow(address: Address) -> PykafkaError:
    return TimeoutExceededError(f"{address}: not connected yet; is the broker up and reachable?")
