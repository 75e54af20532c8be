"""
Opens connections in threads, while the caller works on those that are open.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.network.poll import Wakeup, readable
from pyspark_pykafka.engines.wire.network.racing import ConcurrentAttempts
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError, with_advice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Self

    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.connection_cache import ConnectionCache
    from pyspark_pykafka.engines.wire.network.racing import AttemptResult
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

# The most connections that are opened at the same time, each in its own thread.
_MAX_OPENING = 128


class ConnectionOpener:
    """
    Opens connections in the background, each until its own timeout.

    A broker that does not accept connections, or is silent during the login, delays no other
    broker. A connection whose login has to be renewed counts as one to open. The cache keeps
    connections that are opened too late for the caller. One thread uses an opener, and closes it at
    the end.
    """

    def __init__(
        self,
        connections: ConnectionCache,
        with_hint: Callable[[PykafkaError, Address], PykafkaError],
    ) -> None:
        self._connections = connections
        self._with_hint = with_hint
        self._ended: deque[tuple[Address, Connection | PykafkaError]] = deque()
        self._waiting: deque[Address] = deque()
        self._opening: dict[int, Address] = {}
        # Created with the first thread: often all connections are open, or only one is needed.
        self._wakeup: Wakeup | None = None
        self._attempts: ConcurrentAttempts[Connection] | None = None

    def __repr__(self) -> str:
        return f"<ConnectionOpener {len(self.pending)} pending>"

    @property
    def pending(self) -> list[Address]:
        """
        The brokers whose connection, or the error of opening it, :meth:`take` has not returned.
        """
        return [*(address for address, _ in self._ended), *self._opening.values(), *self._waiting]

    def start_all(self, addresses: Collection[Address], deadline: Deadline) -> None:
        """
        Start to open the connections to brokers that have none.

        The connection to a single broker is opened now, until the deadline.
        """
        if len(addresses) == 1:
            (address,) = addresses
            self._ended.append((address, self._open_now(address, deadline)))
            return
        for address in addresses:
            self.start(address)

    def start(self, address: Address) -> None:
        """
        Start to open the connection to a broker, unless there is one.
        """
        connection = self._connections.get_open(address)
        if connection is None or needs_login(connection):
            self._waiting.append(address)
            self._start_waiting()
        else:
            self._ended.append((address, connection))

    def take(self) -> list[tuple[Address, Connection | PykafkaError]]:
        """
        Return the connections, or the errors of opening them, that are known since the last call.
        """
        if self._wakeup is not None:
            # Cleared before the results are read, so that a later result sets it again.
            self._wakeup.clear()
        while self._attempts is not None and (result := self._attempts.next(0)) is not None:
            address = self._opening.pop(result.attempt)
            self._ended.append((address, self._result(address, result)))
        self._start_waiting()
        ended = list(self._ended)
        self._ended.clear()
        if not self._opening:
            self.close()
        return ended

    def readable(self, connections: Sequence[Connection], seconds: float) -> list[Connection]:
        """
        Return the connections that have input; wait up to ``seconds`` for input, or for a result of
        :meth:`take`.
        """
        return readable(connections, 0.0 if self._ended else seconds, self._wakeup)

    def close(self) -> None:
        """
        Stop waiting for connections; :meth:`start` may be called again afterwards.
        """
        self._waiting.clear()
        self._ended.clear()
        self._opening.clear()
        if self._attempts is not None and self._wakeup is not None:
            self._attempts.stop()
            self._wakeup.close()
            self._attempts = self._wakeup = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._opening) < _MAX_OPENING:
            if self._attempts is None:
                self._wakeup = Wakeup()
                self._attempts = ConcurrentAttempts(
                    self._connections.hand_back, on_result=self._wakeup.set
                )
            address = self._waiting.popleft()
            self._opening[self._attempts.started] = address
            self._attempts.start(self._attempt(address))

    def _attempt(self, address: Address) -> Callable[[], Connection]:
        limit = self._connections.setup_deadline()
        connection = self._connections.get_open(address)
        if connection is None:
            return partial(self._connections.open, address, limit)
        # The connection belongs to the thread until its login is renewed.
        self._connections.detach(connection)
        return partial(_renew_login, connection, limit)

    def _open_now(self, address: Address, deadline: Deadline) -> Connection | PykafkaError:
        try:
            return self._connections.get(address, deadline)
        except PykafkaError as error:
            return self._with_hint(error, address)

    def _result(
        self, address: Address, result: AttemptResult[Connection]
    ) -> Connection | PykafkaError:
        if isinstance(result.error, PykafkaError):
            return self._with_hint(result.error, address)
        return self._connections.add_and_get(result.unwrap())


def needs_login(connection: Connection) -> bool:
    """
    Return whether the next request on a connection would renew its login (KIP-368) first.
    """
    return connection.is_login_due and not connection.in_flight


def not_connected_error(address: Address) -> PykafkaError:
    """
    Return the error for a connection that is not open at the caller's deadline.
    """
    reason = f"{address}: not connected yet"
    return with_advice(TimeoutExceededError, reason, "is the broker up and reachable?")


def _renew_login(connection: Connection, limit: Deadline) -> Connection:
    try:
        connection.renew_login(limit)
    except BaseException:
        # Nothing else holds the connection, not even the cache.
        connection.close()
        raise
    return connection
