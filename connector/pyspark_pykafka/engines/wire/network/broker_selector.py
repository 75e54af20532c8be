"""
The brokers of a cluster: which of them is asked next, and who overtakes one that is slow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.network.broker_rotation import BrokerRotation
from pyspark_pykafka.engines.wire.network.connection import readable
from pyspark_pykafka.engines.wire.network.connection_cache import ConnectionCache
from pyspark_pykafka.engines.wire.network.racing import TRANSIENT_ERRORS, race
from pyspark_pykafka.engines.wire.network.reachability import REACHABILITY
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.settings.wire_config import Address, WireConfig

    #: Makes a request in a version that the broker at the other end knows.
    RequestFactory = Callable[[Connection], Request[MetadataResponse]]

# Invariant R19 (slow is not dead).
# The next broker is asked beside those that have not answered within this time.
ATTEMPT_DELAY_SECONDS = 1.5

#: How often one more broker is connected to, so that it can be asked in turn.
SPARE_INTERVAL_SECONDS = 10.0
# Where one broker alone is connected to, at once, but not again and again.
_MIN_SPARE_INTERVAL_SECONDS = 1.0
_MIN_IN_ROTATION = 2
# So many of these are kept beside the connections that are of other use.
_MAX_SPARES = 2

_ADVERTISED_LISTENERS = "advertised.listeners"
_SHOWN = 5


@dataclass(slots=True)
class BrokerSelector:
    """
    Connections to all brokers that were heard of; without any, to those of the settings.
    """

    config: WireConfig
    chance: Callable[[], float]
    connections: ConnectionCache = field(init=False)
    _advertised: tuple[Address, ...] = field(init=False, default=())
    _rotation: BrokerRotation = field(init=False)
    _last_spare_at: float = field(init=False, default=float("-inf"))
    _spares: list[Address] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.connections = ConnectionCache(self.config)
        self._rotation = BrokerRotation(REACHABILITY.is_unreachable, self.chance)

    def update_known_brokers(self, addresses: Iterable[Address]) -> None:
        """
        Note where the brokers are, as one of them said.
        """
        self._advertised = tuple(addresses)

    def demote(self, address: Address) -> None:
        """
        Ask other brokers before this one for a while.
        """
        self._rotation.demote(address)

    def connection(self, address: Address, deadline: Deadline) -> Connection:
        """
        Return the connection to a broker that another one has named.
        """
        self._claim_spare(address)
        try:
            return self.connections.get(address, deadline)
        except TRANSIENT_ERRORS as error:
            raise self._with_hint(error, address) from error

    def each(
        self, addresses: Collection[Address], deadline: Deadline
    ) -> Iterator[tuple[Address, Connection | PykafkaError]]:
        """
        Yield the connection to each of several brokers, or the error that there was.
        """
        for address in addresses:
            self._claim_spare(address)
        for address, one in self.connections.get_all(addresses, deadline):
            yield (
                address,
                self._with_hint(one, address) if isinstance(one, TRANSIENT_ERRORS) else one,
            )

    def any_connection(self, deadline: Deadline) -> Connection:
        """
        Return a connection to whichever broker can be reached, each time to another one.
        """
        idle = self.connections.idle()
        order = self._in_order(idle, ())
        if order[0] in idle:
            self._rotation.record_request(order[0])
            return idle[order[0]]
        attempts = [partial(self.connections.open, address, deadline) for address in order]
        made = race(
            attempts,
            ATTEMPT_DELAY_SECONDS,
            deadline,
            on_late_result=self.connections.hand_back,
            on_overtaken=lambda number: REACHABILITY.record_failure(order[number]),
            goal=f"a connection to {_shown(order)}",
        )
        self._rotation.record_request(made.address)
        self.connections.add(made)
        return self.connections.get(made.address, deadline)

    def request_from_any(
        self, request: RequestFactory, excluded: Collection[Address], deadline: Deadline
    ) -> tuple[Address, MetadataResponse]:
        """
        Ask the first broker that answers; authentication and TLS errors are final at once.

        One that says nothing for a while is overtaken by the next, over a new connection: what
        silenced one that was open may have silenced all.
        """
        idle = self.connections.idle()
        order = self._in_order(idle, excluded)
        if not order:
            msg = "no broker is left to ask"
            raise BrokerUnavailableError(msg)
        attempts = [partial(self._request_on_new, address, request, deadline) for address in order]
        if order[0] in idle:
            answer = self._request_on_open(idle[order[0]], request, deadline)
            if answer is not None:
                self._rotation.record_request(order[0])
                return order[0], answer
            if not idle[order[0]].closed:
                # It may be slow only; a new connection to its broker comes last.
                attempts = [partial(self._receive_late, idle[order[0]]), *attempts[1:], attempts[0]]
        connection, found = race(
            attempts,
            ATTEMPT_DELAY_SECONDS,
            deadline,
            on_late_result=lambda answer: self.connections.hand_back(answer[0]),
            # The last attempt may be a second one at the first broker, and is never overtaken.
            on_overtaken=lambda number: REACHABILITY.record_failure(order[number]),
            goal=f"an answer from {_shown(order)}",
        )
        self._rotation.record_request(connection.address)
        self.connections.add(connection)
        return connection.address, found

    def open_spare_connection(self) -> None:
        """
        Connect to one more broker every few seconds, without waiting for it, to be asked in turn.

        A lone leader that is cut off from its controllers would be asked for ever.
        """
        now = time.monotonic()
        idle = self.connections.idle()
        others = [address for address in self._advertised if address not in idle]
        seconds = (
            SPARE_INTERVAL_SECONDS if len(idle) >= _MIN_IN_ROTATION else _MIN_SPARE_INTERVAL_SECONDS
        )
        if not others or now - self._last_spare_at < seconds:
            return
        self._last_spare_at = now
        address = self._rotation.ordered(others, ())[0]
        self.connections.open_in_background(address, Deadline.after(self.config.setup_seconds))
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
        Return whom to ask: open connections, brokers heard of, and at last those of the settings.
        """
        now = time.monotonic()
        # One whose quota is used up would be waited for.
        ready = {address for address, it in idle.items() if it.throttled_until <= now}
        order = self._rotation.ordered([*idle, *self._advertised], ready)
        rest = [address for address in self.config.bootstrap if address not in order]
        order += self._rotation.ordered(rest, ())
        return [address for address in order if address not in excluded]

    def _request_on_open(
        self, connection: Connection, request: RequestFactory, deadline: Deadline
    ) -> MetadataResponse | None:
        """
        Return the answer over an open connection, or None if it does not come at once.

        Then the connection is the caller's, if it is not closed.
        """
        try:
            connection.send(request(connection), deadline)
            if readable([connection], deadline.remaining(ATTEMPT_DELAY_SECONDS)):
                answer: MetadataResponse = connection.receive(deadline)
                return answer
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
        return self._receive_late(connection)

    def _receive_late(self, connection: Connection) -> tuple[Connection, MetadataResponse]:
        # A late answer shows that the connection is well, whoever has stopped waiting meanwhile.
        limit = Deadline.after(self.config.request_seconds)
        try:
            return connection, connection.receive(limit)
        except BaseException:
            connection.close()
            raise

    def _with_hint(self, error: PykafkaError, address: Address) -> PykafkaError:
        """
        Say of an address that only brokers have named where it comes from.
        """
        if address in self.config.bootstrap or _ADVERTISED_LISTENERS in str(error):
            return error
        msg = (
            f"{error} The brokers themselves advertise {address}: their {_ADVERTISED_LISTENERS} "
            "must be addresses that clients can reach"
        )
        return type(error)(msg)


def _shown(addresses: Sequence[Address]) -> str:
    more = f" or {len(addresses) - _SHOWN} more" if len(addresses) > _SHOWN else ""
    return f"{', '.join(map(str, addresses[:_SHOWN]))}{more}"
