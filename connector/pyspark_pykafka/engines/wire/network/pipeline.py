"""
Many requests to several brokers: pipelined on one connection each, all polled together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark_pykafka.engines.wire.network.poll import readable
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError

K = TypeVar("K")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

    #: Makes a request in a version that the broker of the connection supports.
    RequestFactory = Callable[[Connection], Request[R]]

logger = logging.getLogger("pyspark_pykafka")

# The most requests in flight per broker.
_MAX_IN_FLIGHT = 100
# The most connections that are opened at the same time.
_MAX_CONNECTING = 32

# A longer wait is logged.
_LOG_AFTER_SECONDS = 5.0


@dataclass(eq=False, repr=False)
class PipelineResult(Generic[K, R]):
    """
    The responses by the keys of the requests, and the errors of brokers that failed.
    """

    responses: dict[K, R]
    errors: dict[Address, PykafkaError]


def request_pipelined(
    cluster: Cluster,
    requests: Mapping[Address, Sequence[tuple[K, RequestFactory[R]]]],
    deadline: Deadline,
    request_seconds: float,
    now: Callable[[], float] = time.monotonic,
) -> PipelineResult[K, R]:
    """
    Send each broker its requests, all brokers at the same time, and return the responses.

    A broker that cannot be reached, or sends nothing for ``request_seconds`` or until the deadline,
    does not delay the other brokers' responses.
    """
    result: PipelineResult[K, R] = PipelineResult({}, {})
    opened = connect_all(cluster, requests, deadline, result.errors)
    pipelines = [
        _BrokerPipeline(connection, requests[address], deadline, request_seconds, now)
        for address, connection in opened.items()
    ]
    try:
        while pipelines:
            pipelines = _poll(cluster, pipelines, result)
    except BaseException:
        for pipeline in pipelines:
            cluster.drop(pipeline.connection)
        raise
    return result


def connect_all(
    cluster: Cluster,
    addresses: Iterable[Address],
    deadline: Deadline,
    errors: dict[Address, PykafkaError],
) -> dict[Address, Connection]:
    """
    Return the connections to these brokers, opened concurrently; ``errors`` receives the errors.
    """
    waiting, opened = deque(addresses), {}
    unexpected: dict[Address, BaseException] = {}

    def work() -> None:
        while waiting:
            try:
                address = waiting.popleft()
            except IndexError:
                return
            try:
                opened[address] = cluster.connection_at(address, deadline)
            except PykafkaError as error:
                errors[address] = error
            except BaseException as error:  # noqa: BLE001 (raised below, in the caller's thread)
                unexpected[address] = error

    threads = [
        threading.Thread(target=work, daemon=True)
        for _ in range(min(len(waiting), _MAX_CONNECTING))
    ]
    for thread in threads[1:]:
        thread.start()
    # This thread does the work of one, so that a single broker needs no other thread.
    work()
    for thread in threads[1:]:
        thread.join()
    for error in unexpected.values():
        raise error
    return opened


class _BrokerPipeline(Generic[K, R]):
    """
    The requests to one broker, and when it last responded.
    """

    def __init__(
        self,
        connection: Connection,
        requests: Sequence[tuple[K, RequestFactory[R]]],
        deadline: Deadline,
        request_seconds: float,
        now: Callable[[], float],
    ) -> None:
        self.connection = connection
        self._waiting = deque(requests)
        self._in_flight: deque[tuple[K, ApiSpec[R]]] = deque()
        self._deadline = deadline
        self._request_seconds = request_seconds
        self._now = now
        self._last_response_at = now()
        self._is_logged = False

    @property
    def is_done(self) -> bool:
        """
        Whether every request has its response.
        """
        return not self._waiting and not self._in_flight

    @property
    def pause(self) -> float:
        """
        The seconds for which there is nothing to do but receive.
        """
        seconds = self._request_seconds if self._is_logged else _LOG_AFTER_SECONDS
        due = self._last_response_at + seconds
        if not self._in_flight:
            due = min(due, self.connection.throttled_until)
        return max(min(due - self._now(), self._deadline.remaining()), 0.0)

    def send(self) -> None:
        """
        Send as many requests as the broker accepts now.
        """
        while self._waiting and len(self._in_flight) < _MAX_IN_FLIGHT:
            if self.connection.throttled_until > self._now():
                self._last_response_at = self._now()
                return
            key, make_request = self._waiting[0]
            request = make_request(self.connection)
            self.connection.send(request, self._limit())
            self._waiting.popleft()
            self._in_flight.append((key, request.api))

    def receive(self) -> tuple[K, R]:
        """
        Return the next response, and the key of its request.

        Raises :class:`BrokerUnavailableError` if the connection ended during a throttle time,
        before anything was sent.
        """
        if not self._in_flight:
            address = self.connection.address
            msg = f"{address}: the connection ended during the broker's throttle time"
            raise BrokerUnavailableError(msg)
        key, api = self._in_flight[0]
        response = self.connection.receive(api, self._limit())
        self._last_response_at = self._now()
        self._in_flight.popleft()
        return key, response

    def check(self) -> None:
        """
        Raise :class:`TimeoutExceededError` once the broker has been silent for too long.
        """
        silent = self._now() - self._last_response_at
        count = len(self._in_flight) + len(self._waiting)
        if silent >= _LOG_AFTER_SECONDS and not self._is_logged:
            self._is_logged = True
            address = self.connection.address
            logger.info("%s: still waiting for %d responses on transactions", address, count)
        if silent >= self._request_seconds or self._deadline.expired:
            msg = (
                f"{self.connection.address}: {count} requests on transactions have no response, "
                f"the oldest for {silent:.1f} s"
            )
            raise TimeoutExceededError(msg)

    def _limit(self) -> Deadline:
        return self._deadline.within(self._request_seconds)


def _poll(
    cluster: Cluster, pipelines: list[_BrokerPipeline[K, R]], result: PipelineResult[K, R]
) -> list[_BrokerPipeline[K, R]]:
    """
    Send and receive without blocking, and return the pipelines that are not done.
    """
    for pipeline in pipelines:
        _step(cluster, pipeline, pipeline.send, result)
    active = [pipeline for pipeline in pipelines if _is_active(pipeline, result)]
    by_connection = {pipeline.connection: pipeline for pipeline in active}
    pause = min((pipeline.pause for pipeline in active), default=0.0)
    for connection in readable(list(by_connection), pause) if active else ():
        ready = by_connection[connection]
        _step(cluster, ready, lambda: result.responses.__setitem__(*ready.receive()), result)  # noqa: B023
    for pipeline in active:
        if _is_active(pipeline, result):
            _step(cluster, pipeline, pipeline.check, result)
    return [pipeline for pipeline in active if _is_active(pipeline, result)]


def _is_active(pipeline: _BrokerPipeline[K, R], result: PipelineResult[K, R]) -> bool:
    return not pipeline.is_done and pipeline.connection.address not in result.errors


def _step(
    cluster: Cluster,
    pipeline: _BrokerPipeline[K, R],
    step: Callable[[], None],
    result: PipelineResult[K, R],
) -> None:
    try:
        step()
    except PykafkaError as error:
        result.errors[pipeline.connection.address] = error
        cluster.drop(pipeline.connection)
