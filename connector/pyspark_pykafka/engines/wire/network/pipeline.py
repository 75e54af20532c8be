"""
Many requests to several brokers at once: each has some in flight, and all are polled together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark_pykafka.engines.wire.network.connection import readable
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Deadline

K = TypeVar("K")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.request import Request
    from pyspark_pykafka.settings.wire_config import Address

    #: Makes a request in a version that the broker at the other end knows.
    RequestFactory = Callable[[Connection], Request[R]]

logger = logging.getLogger("pyspark_pykafka")

# What a broker is sent before its first answer is taken in.
_MAX_IN_FLIGHT = 100
# Connections that are opened at the same time.
_MAX_CONNECTING = 32

# A wait that is longer is told.
_LOG_AFTER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PipelineResult(Generic[K, R]):
    """
    The answers by the requests' keys, and why brokers have not given the others.
    """

    answers: dict[K, R]
    failed: dict[Address, PykafkaError]


def request_pipelined(
    cluster: Cluster,
    wanted: Mapping[Address, Sequence[tuple[K, RequestFactory[R]]]],
    deadline: Deadline,
    request_seconds: float,
) -> PipelineResult[K, R]:
    """
    Send every broker its requests, all at the same time, and return what they answer.

    A broker that cannot be reached, or is silent for ``request_seconds`` or up to the deadline,
    takes nothing from the others.
    """
    done: PipelineResult[K, R] = PipelineResult({}, {})
    opened = connect_all(cluster, wanted, deadline, done.failed)
    open_ones = [
        _BrokerPipeline(connection, wanted[address], deadline, request_seconds)
        for address, connection in opened.items()
    ]
    try:
        while open_ones:
            open_ones = _turn(cluster, open_ones, done)
    except BaseException:
        for one in open_ones:
            cluster.drop(one.connection)
        raise
    return done


def connect_all(
    cluster: Cluster,
    addresses: Iterable[Address],
    deadline: Deadline,
    failed: dict[Address, PykafkaError],
) -> dict[Address, Connection]:
    """
    Return the connections to these brokers, opened at the same time; ``failed`` gets the errors.
    """
    waiting, opened = deque(addresses), {}
    others: dict[Address, BaseException] = {}

    def work() -> None:
        while waiting:
            try:
                address = waiting.popleft()
            except IndexError:
                return
            try:
                opened[address] = cluster.connection_at(address, deadline)
            except PykafkaError as error:
                failed[address] = error
            except BaseException as error:  # noqa: BLE001 (raised below, in the caller's thread)
                others[address] = error

    threads = [
        threading.Thread(target=work, daemon=True)
        for _ in range(min(len(waiting), _MAX_CONNECTING))
    ]
    for thread in threads[1:]:
        thread.start()
    # One is as good as this thread, and a single broker needs no other.
    work()
    for thread in threads[1:]:
        thread.join()
    for error in others.values():
        raise error
    return opened


class _BrokerPipeline(Generic[K, R]):
    """
    What is said to one broker.
    """

    def __init__(
        self,
        connection: Connection,
        wanted: Sequence[tuple[K, RequestFactory[R]]],
        deadline: Deadline,
        request_seconds: float,
    ) -> None:
        self.connection = connection
        self._waiting = deque(wanted)
        self._in_flight: deque[K] = deque()
        self._deadline = deadline
        self._request_seconds = request_seconds
        self._heard = time.monotonic()
        self._told = False

    @property
    def done(self) -> bool:
        """
        Whether every request is answered.
        """
        return not self._waiting and not self._in_flight

    @property
    def pause(self) -> float:
        """
        How many seconds nothing has to be done but to take in answers.
        """
        until = self._heard + (self._request_seconds if self._told else _LOG_AFTER_SECONDS)
        if not self._in_flight:
            until = min(until, self.connection.throttled_until)
        return max(min(until - time.monotonic(), self._deadline.remaining()), 0.0)

    def send(self) -> None:
        """
        Send as many requests as the broker takes now.
        """
        while self._waiting and len(self._in_flight) < _MAX_IN_FLIGHT:
            if self.connection.throttled_until > time.monotonic():
                self._heard = time.monotonic()
                return
            key, make = self._waiting[0]
            self.connection.send(make(self.connection), self._limit())
            self._waiting.popleft()
            self._in_flight.append(key)

    def receive(self) -> tuple[K, R]:
        """
        Return the next answer, and what it is to.
        """
        answer: R = self.connection.receive(self._limit())
        self._heard = time.monotonic()
        return self._in_flight.popleft(), answer

    def check(self) -> None:
        """
        Raise :class:`TimeoutExceededError` once the broker has been silent for too long.
        """
        silent = time.monotonic() - self._heard
        count = len(self._in_flight) + len(self._waiting)
        if silent >= _LOG_AFTER_SECONDS and not self._told:
            self._told = True
            address = self.connection.address
            logger.info("waiting for %s to answer %d requests on transactions", address, count)
        if silent >= self._request_seconds or self._deadline.expired:
            msg = (
                f"{self.connection.address}: {count} requests on transactions are not answered, "
                f"the oldest for {silent:.1f} s"
            )
            raise TimeoutExceededError(msg)

    def _limit(self) -> Deadline:
        return Deadline.after(self._deadline.remaining(self._request_seconds))


def _turn(
    cluster: Cluster, open_ones: list[_BrokerPipeline[K, R]], done: PipelineResult[K, R]
) -> list[_BrokerPipeline[K, R]]:
    """
    Send and receive what can be now; return the conversations that go on.
    """
    for one in open_ones:
        _step(cluster, one, one.send, done)
    going = [one for one in open_ones if _goes_on(one, done)]
    by_connection = {one.connection: one for one in going}
    pause = min((one.pause for one in going), default=0.0)
    for connection in readable(list(by_connection), pause) if going else ():
        one = by_connection[connection]
        _step(cluster, one, lambda: done.answers.__setitem__(*one.receive()), done)  # noqa: B023
    for one in going:
        if _goes_on(one, done):
            _step(cluster, one, one.check, done)
    return [one for one in going if _goes_on(one, done)]


def _goes_on(one: _BrokerPipeline[K, R], done: PipelineResult[K, R]) -> bool:
    return not one.done and one.connection.address not in done.failed


def _step(
    cluster: Cluster,
    one: _BrokerPipeline[K, R],
    step: Callable[[], None],
    done: PipelineResult[K, R],
) -> None:
    try:
        step()
    except PykafkaError as error:
        done.failed[one.connection.address] = error
        cluster.drop(one.connection)
