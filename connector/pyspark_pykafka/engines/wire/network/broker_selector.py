"""
Selects the broker for a request, and hedges requests to a slow broker with the next one.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_pykafka.engines.wire.network.broker_rotation import BrokerRotation
from pyspark_pykafka.engines.wire.network.connection_cache import ConnectionCache
from pyspark_pykafka.engines.wire.network.connection_opener import ConnectionOpener, needs_login
from pyspark_pykafka.engines.wire.network.poll import readable
from pyspark_pykafka.engines.wire.network.racing import TRANSIENT_ERRORS, race
from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, MetadataResponse
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, with_advice
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.settings.wire_config import Address, WireConfig

    #: Makes a request in a version that the broker of the connection supports.
    RequestFactory = Callable[[Connection], Request[MetadataResponse]]

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

# Invariant R19 (slow is not dead).
# After this time without a response the request is also sent to the next broker.
ATTEMPT_DELAY_SECONDS = 1.5

#: The interval at which a connection to one more broker is opened, so that requests can rotate.
SPARE_INTERVAL_SECONDS = 10.0
# The interval while fewer than _MIN_IN_ROTATION brokers are connected.
_MIN_SPARE_INTERVAL_SECONDS = 1.0
_MIN_IN_ROTATION = 2
# The most connections that are kept open for rotation alone.
_MAX_SPARES = 2

# How long the result of opening a connection is kept: its broker may no longer lead any partition,
# so that the result is not used. The connection itself stays in the cache.
_RESULT_SECONDS = 10.0

# How many known brokers are tried before each bootstrap server.
_KNOWN_PER_BOOTSTRAP = 2

_ADVERTISED_LISTENERS = "advertised.listeners"
_MAX_SHOWN = 5


@dataclass(slots=True)
class BrokerSelector:
    """
    Connections to the cluster's brokers; before any metadata, to the bootstrap servers.
    """

    config: WireConfig
    jitter: Callable[[], float] = field(repr=False)
    now: Callable[[], float] = field(default=time.monotonic, repr=False)
    connections: ConnectionCache = field(init=False)
    #: The connections that :meth:`connection_or_none` opens.
    background: ConnectionOpener = field(init=False)
    # The results of ``background``, and when each was known.
    _opened: dict[Address, tuple[float, Connection | PykafkaError]] = field(
        init=False, default_factory=dict
    )
    _advertised: tuple[Address, ...] = field(init=False, default=())
    _rotation: BrokerRotation = field(init=False)
    _last_spare_at: float = field(init=False, default=float("-inf"))
    _spares: list[Address] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.connections = ConnectionCache(self.config, self.now)
        self.background = self.new_opener()
        self._rotation = BrokerRotation(REACHABILITY.is_unreachable, self.jitter, self.now)

    def update_known_brokers(self, addresses: Iterable[Address]) -> None:
        """
        Set the brokers' addresses, as a broker advertises them.
        """
        self._advertised = tuple(addresses)

    def demote(self, address: Address) -> None:
        """
        Try other brokers before this one for a while.
        """
        self._rotation.demote(address)

    def connection(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker, opened now if there is none.
        """
        self._claim_spare(address)
        try:
            return self.connections.get(address, deadline)
        except TRANSIENT_ERRORS as error:
            raise self._with_hint(error, address) from error

    def connect_all(self, addresses: Collection[Address], deadline: Deadline) -> ConnectionOpener:
        """
        Return the connections to brokers, which are opened in the background if there are several.
        """
        opener = self.new_opener()
        for address in addresses:
            self._claim_spare(address)
        opener.start_all(addresses, deadline)
        return opener

    def new_opener(self) -> ConnectionOpener:
        """
        Return an opener that has no connection to open yet.
        """
        return ConnectionOpener(self.connections, self._with_hint)

    def connection_or_none(self, address: Address) -> Connection | None:
        """
        Return the connection to a broker, or None while it is opened in the background.

        Call :meth:`readable` to wait for it. If it cannot be opened, raises the error once; the
        next call tries again.
        """
        result = self._take_opened(address)
        if isinstance(result, PykafkaError):
            raise result
        if result is not None:
            # Returned even if the broker has closed it: the request over it fails, and is retried
            # after a pause.
            return result
        if address not in self.background.pending:
            self._claim_spare(address)
            connection = self.connections.get_open(address)
            if connection is not None and not needs_login(connection):
                return connection
            self.background.start(address)
        return None

    def readable(self, connections: Sequence[Connection], seconds: float) -> list[Connection]:
        """
        Return the connections that have input, waiting up to ``seconds`` for the first of them.

        The wait also ends when :meth:`connection_or_none` has a new result for one broker.
        """
        ready = self.background.readable(connections, seconds)
        # All results are taken, even for brokers that are no longer needed: otherwise they would
        # end each later wait.
        now = self.now()
        self._opened.update((address, (now, result)) for address, result in self.background.take())
        return ready

    def _take_opened(self, address: Address) -> Connection | PykafkaError | None:
        """
        Return a result of opening a connection, unless it is old or the connection is in use.
        """
        opened_at, result = self._opened.pop(address, (0.0, None))
        if result is None or self.now() - opened_at > _RESULT_SECONDS:
            return None
        if isinstance(result, PykafkaError):
            return result
        return result if self.connections.has(result) and not result.closed else None

    def any_connection(self, deadline: Deadline) -> Connection:
        """
        Return a connection to the next broker of the rotation that can be reached.
        """
        idle = self.connections.idle()
        order = self._in_order(idle, ())
        if order[0] in idle:
            self._rotation.record_request(order[0])
            return idle[order[0]]
        attempts = [
            self._attempt(address, partial(self.connections.open, address, deadline))
            for address in order
        ]
        connection = race(
            attempts,
            ATTEMPT_DELAY_SECONDS,
            deadline,
            on_late_result=self.connections.hand_back,
            on_slow_attempt=lambda number: REACHABILITY.record_failure(order[number]),
            names=list(map(str, order)),
            goal=f"a connection to {_format(order)}",
        )
        self._rotation.record_request(connection.address)
        self.connections.add(connection)
        return self.connections.get(connection.address, deadline)

    def request_from_any(
        self, request: RequestFactory, excluded: Collection[Address], deadline: Deadline
    ) -> tuple[Address, MetadataResponse]:
        """
        Return the first response, and its broker; authentication and TLS errors are raised at once.

        After a response from another broker (``excluded``) such errors are only logged: the user's
        credentials are right.

        If a broker does not respond for a while, the request is also sent to the next one, over a
        new connection: the cause that silenced one open connection may have silenced all.
        """
        idle = self.connections.idle()
        order = self._in_order(idle, excluded)
        if not order:
            msg = "no other broker is left to try"
            raise BrokerUnavailableError(msg)
        attempts = [
            self._attempt(address, partial(self._request_on_new, address, request, deadline))
            for address in order
        ]
        names = list(map(str, order))
        if excluded:
            attempts = [partial(_without_fatal_errors, attempt) for attempt in attempts]
        if order[0] in idle:
            response = self._request_on_open(idle[order[0]], request, deadline)
            if response is not None:
                self._rotation.record_request(order[0])
                return order[0], response
            if not idle[order[0]].closed:
                # The broker may only be slow; a new connection to it comes last.
                late_attempt = partial(self._receive_metadata, idle[order[0]])
                attempts = [late_attempt, *attempts[1:], attempts[0]]
                names.append(names[0])
        connection, response = race(
            attempts,
            ATTEMPT_DELAY_SECONDS,
            deadline,
            on_late_result=lambda late: self.connections.hand_back(late[0]),
            # The number of a second attempt at the first broker is beyond ``order``. But that
            # attempt is the last one, which is never overtaken.
            on_slow_attempt=lambda number: REACHABILITY.record_failure(order[number]),
            names=names,
            goal=f"a response from {_format(order)}",
        )
        self._rotation.record_request(connection.address)
        self.connections.add(connection)
        return connection.address, response

    def close(self) -> None:
        """
        Close every connection.
        """
        self.background.close()
        self.connections.close()

    def open_spare_connection(self) -> None:
        """
        Open a connection to one more broker every few seconds, in the background, for rotation.

        Otherwise a reader of one partition would read metadata from its leader only, which may be
        cut off from its controllers.
        """
        now = self.now()
        idle = self.connections.idle()
        unconnected = [address for address in self._advertised if address not in idle]
        seconds = (
            SPARE_INTERVAL_SECONDS if len(idle) >= _MIN_IN_ROTATION else _MIN_SPARE_INTERVAL_SECONDS
        )
        if not unconnected or now - self._last_spare_at < seconds:
            return
        self._last_spare_at = now
        address = self._rotation.ordered(unconnected, ())[0]
        limit = Deadline.after(self.config.setup_seconds, self.now)
        self.connections.open_in_background(address, limit)
        self._spares.append(address)
        if len(self._spares) > _MAX_SPARES:
            self.connections.close_idle(self._spares.pop(0))

    def _claim_spare(self, address: Address) -> None:
        if address in self._spares:
            self._spares.remove(address)

    def _in_order(
        self, idle: Mapping[Address, Connection], excluded: Collection[Address]
    ) -> list[Address]:
        """
        Return the brokers to try: open connections, then other advertised brokers.

        Bootstrap servers come in between, from the third place on: all known brokers may have been
        replaced by others. A bootstrap server comes first if no known broker could be reached a
        moment ago.
        """
        now = self.now()
        # A request over a throttled connection would have to wait.
        ready = {
            address for address, connection in idle.items() if connection.throttled_until <= now
        }
        known = self._rotation.ordered([*idle, *self._advertised], ready)
        unknown = [address for address in self.config.bootstrap if address not in known]
        bootstrap = self._rotation.ordered(unknown, ())
        known = [address for address in known if address not in excluded]
        bootstrap = [address for address in bootstrap if address not in excluded]
        is_lost = all(a not in ready and REACHABILITY.is_unreachable(a) for a in known[:1])
        return _interleave(known, bootstrap, 0 if is_lost else _KNOWN_PER_BOOTSTRAP)

    def _attempt(self, address: Address, attempt: Callable[[], T]) -> Callable[[], T]:
        """
        Return an attempt at a broker; once brokers are known, no error of a bootstrap server is
        fatal.
        """
        is_known = address in self._advertised or not self._advertised
        return attempt if is_known else partial(_without_fatal_errors, attempt)

    def _request_on_open(
        self, connection: Connection, request: RequestFactory, deadline: Deadline
    ) -> MetadataResponse | None:
        """
        Return the response over an open connection, or None if it does not arrive at once.

        Without a response the connection belongs to the caller, unless it is closed.
        """
        try:
            connection.send(request(connection), deadline)
            if readable([connection], deadline.remaining(ATTEMPT_DELAY_SECONDS)):
                return connection.receive(METADATA, deadline)
        except TRANSIENT_ERRORS:
            self.connections.drop(connection)
        except BaseException:
            self.connections.drop(connection)
            raise
        self.connections.detach(connection)
        return None

    def _request_on_new(
        self, address: Address, request: RequestFactory, deadline: Deadline
    ) -> tuple[Connection, MetadataResponse]:
        connection = self.connections.open(address, deadline)
        try:
            connection.send(request(connection), deadline)
        except BaseException:
            connection.close()
            raise
        return self._receive_metadata(connection)

    def _receive_metadata(self, connection: Connection) -> tuple[Connection, MetadataResponse]:
        # The caller's deadline does not apply: after a late response, the connection can still be
        # kept.
        limit = Deadline.after(self.config.request_seconds, self.now)
        try:
            return connection, connection.receive(METADATA, limit)
        except BaseException:
            connection.close()
            raise

    def _with_hint(self, error: PykafkaError, address: Address) -> PykafkaError:
        """
        Return the error; for an address that is not a bootstrap server, say where it comes from.
        """
        if not isinstance(error, TRANSIENT_ERRORS) or address in self.config.bootstrap:
            return error
        if _ADVERTISED_LISTENERS in str(error):
            return error
        advice = (
            f"the brokers themselves advertise this address: their {_ADVERTISED_LISTENERS} must be "
            "addresses that clients can reach"
        )
        return with_advice(type(error), error.without_advice(), advice)


def _without_fatal_errors(attempt: Callable[[], T]) -> T:
    """
    Run an attempt; authentication and TLS errors are logged, and raised as transient errors.
    """
    try:
        return attempt()
    except TRANSIENT_ERRORS:
        raise
    except PykafkaError as error:
        logger.warning("one broker cannot be used, trying other brokers: %s", error)
        raise BrokerUnavailableError(str(error)) from error


def _interleave(
    known: Sequence[Address], bootstrap: Sequence[Address], first: int
) -> list[Address]:
    """
    Return all brokers: ``first`` known ones, a bootstrap server, more known ones, and so on.
    """
    order, rest = list(known[:first]), deque(known[first:])
    for address in bootstrap:
        order.append(address)
        order += [rest.popleft() for _ in range(min(_KNOWN_PER_BOOTSTRAP, len(rest)))]
    return [*order, *rest]


def _format(addresses: Sequence[Address]) -> str:
    suffix = f" or {len(addresses) - _MAX_SHOWN} more" if len(addresses) > _MAX_SHOWN else ""
    return f"{', '.join(map(str, addresses[:_MAX_SHOWN]))}{suffix}"
