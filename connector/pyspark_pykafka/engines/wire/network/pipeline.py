"""
Many requests to several brokers: pipelined on one connection each, all polled together.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark_pykafka.engines.wire.network.connection_opener import not_connected_error
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TimeoutExceededError

K = TypeVar("K")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.network.connection_opener import ConnectionOpener
    from pyspark_pykafka.engines.wire.protocol.request import ApiSpec, Request
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings.wire_config import Address

    #: Makes a request in a version that the broker of the connection supports.
    RequestFactory = Callable[[Connection], Request[R]]

logger = logging.getLogger("pyspark_pykafka")

# The most requests in flight per broker.
_MAX_IN_FLIGHT = 100

# The pause between a broker's last response and the requests that are repeated.
_REPEAT_SECONDS = 1.0

# A longer wait is logged.
_LOG_AFTER_SECONDS = 5.0


@dataclass(eq=False, repr=False)
class PipelineResult(Generic[K, R]):
    """
    The responses by the keys of the requests, and the errors of brokers that failed.
    """

    responses: dict[K, R]
    errors: dict[Address, PykafkaError]


def repeat_none(_key: object, _response: object) -> bool:
    """
    Repeat no request.
    """
    return False


def request_pipelined(
    cluster: Cluster,
    requests: Mapping[Address, Sequence[tuple[K, RequestFactory[R]]]],
    deadline: Deadline,
    request_seconds: float,
    now: Callable[[], float] = time.monotonic,
    *,
    is_repeated: Callable[[K, R], bool] = repeat_none,
) -> PipelineResult[K, R]:
    """
    Send each broker its requests, all brokers at the same time, and return the last responses.

    While other brokers have not responded, a request is repeated every second if ``is_repeated``
    returns true for its key and response.

    A broker that cannot be reached, is silent during the login, or sends nothing for
    ``request_seconds`` or until the deadline, does not delay the other brokers' responses.
    """

    def new_pipeline(connection: Connection) -> _BrokerPipeline[K, R]:
        to_send = requests[connection.address]
        return _BrokerPipeline(
            *(connection, to_send, deadline, request_seconds, now), is_repeated=is_repeated
        )

    with cluster.connect_all(requests, deadline) as opener:
        pipelines = _Pipelines(cluster, opener, new_pipeline, deadline)
        try:
            pipelines.run()
        except BaseException:
            pipelines.drop_all()
            raise
    return pipelines.result


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
        *,
        is_repeated: Callable[[K, R], bool],
    ) -> None:
        self.connection = connection
        self._waiting = deque(requests)
        self._in_flight: deque[tuple[K, RequestFactory[R], ApiSpec[R]]] = deque()
        # The requests to repeat, and when.
        self._repeated: list[tuple[K, RequestFactory[R]]] = []
        self._repeat_at = 0.0
        self._is_repeated = is_repeated
        self._deadline = deadline
        self._request_seconds = request_seconds
        self._now = now
        self._last_response_at = now()
        self._is_logged = False

    def resume(self, connection: Connection) -> None:
        """
        Send the rest of the requests on a connection whose login was renewed.
        """
        self.connection = connection
        self._last_response_at = self._now()

    @property
    def needs_login(self) -> bool:
        """
        Whether the login has to be renewed before anything else is sent.
        """
        return not self._in_flight and bool(self._waiting) and self.connection.is_login_due

    @property
    def is_done(self) -> bool:
        """
        Whether every request has a response; some may be repeated.
        """
        return not self._waiting and not self._in_flight

    @property
    def has_repeated(self) -> bool:
        """
        Whether there are requests to repeat.
        """
        return bool(self._repeated)

    @property
    def pause(self) -> float:
        """
        The seconds for which there is nothing to do but receive.
        """
        if self.is_done:
            return max(min(self._repeat_at - self._now(), self._deadline.remaining()), 0.0)
        seconds = self._request_seconds if self._is_logged else _LOG_AFTER_SECONDS
        due = self._last_response_at + seconds
        if not self._in_flight:
            due = min(due, self.connection.throttled_until)
        return max(min(due - self._now(), self._deadline.remaining()), 0.0)

    def send(self) -> None:
        """
        Send as many requests as the broker accepts now.
        """
        if self._repeated and self.is_done and self._now() >= self._repeat_at:
            self._waiting.extend(self._repeated)
            self._repeated.clear()
            self._last_response_at = self._now()
        while self._waiting and len(self._in_flight) < _MAX_IN_FLIGHT:
            if self.connection.throttled_until > self._now():
                self._last_response_at = self._now()
                return
            if self.connection.is_login_due:
                # Invariant R14 (re-authentication).
                return
            key, make_request = self._waiting[0]
            request = make_request(self.connection)
            self.connection.send(request, self._limit())
            self._waiting.popleft()
            if not self._in_flight:
                self._last_response_at = self._now()
            self._in_flight.append((key, make_request, request.api))

    def receive(self) -> tuple[K, R]:
        """
        Return the next response, and the key of its request.

        Raises :class:`BrokerUnavailableError` if the connection ended while nothing was in flight:
        in the broker's throttle time, or during the pause before requests are repeated.
        """
        if not self._in_flight:
            address = self.connection.address
            msg = f"{address}: the connection ended while no request was in flight"
            raise BrokerUnavailableError(msg)
        key, make_request, api = self._in_flight[0]
        response = self.connection.receive(api, self._limit())
        self._last_response_at = self._now()
        self._in_flight.popleft()
        if self._is_repeated(key, response):
            self._repeated.append((key, make_request))
            self._repeat_at = self._last_response_at + _REPEAT_SECONDS
        return key, response

    def check(self) -> None:
        """
        Raise :class:`TimeoutExceededError` once the broker has been silent for too long.
        """
        if self.is_done:
            return
        silent = self._now() - self._last_response_at
        count = len(self._in_flight) + len(self._waiting)
        if silent >= _LOG_AFTER_SECONDS and not self._is_logged:
            self._is_logged = True
            address = self.connection.address
            logger.info("%s: still waiting for %d responses", address, count)
        if silent >= self._request_seconds or self._deadline.expired:
            msg = (
                f"{self.connection.address}: {count} requests have no response, "
                f"the oldest for {silent:.1f} s"
            )
            raise TimeoutExceededError(msg)

    def _limit(self) -> Deadline:
        return self._deadline.within(self._request_seconds)


class _Pipelines(Generic[K, R]):
    """
    The pipelines to several brokers; each begins when its connection is open.
    """

    def __init__(
        self,
        cluster: Cluster,
        opener: ConnectionOpener,
        new_pipeline: Callable[[Connection], _BrokerPipeline[K, R]],
        deadline: Deadline,
    ) -> None:
        self._cluster = cluster
        self._opener = opener
        self._new_pipeline = new_pipeline
        self._deadline = deadline
        # The pipelines whose connection is open.
        self._active: dict[Address, _BrokerPipeline[K, R]] = {}
        # The pipelines whose login is being renewed.
        self._paused: dict[Address, _BrokerPipeline[K, R]] = {}
        self.result: PipelineResult[K, R] = PipelineResult({}, {})

    def run(self) -> None:
        """
        Return once every broker has sent its responses or failed.
        """
        while True:
            self._begin_connected()
            if self._deadline.expired:
                self._give_up_connecting()
            is_done = all(pipeline.is_done for pipeline in self._active.values())
            if is_done and not self._opener.pending:
                return
            self._poll()

    def drop_all(self) -> None:
        """
        Close the connections with requests in flight.
        """
        for pipeline in self._active.values():
            self._cluster.drop(pipeline.connection)

    def _begin_connected(self) -> None:
        for address, connection in self._opener.take():
            if isinstance(connection, PykafkaError):
                self.result.errors[address] = connection
                continue
            pipeline = self._paused.pop(address, None) or self._new_pipeline(connection)
            pipeline.resume(connection)
            self._active[address] = pipeline

    def _give_up_connecting(self) -> None:
        for address in self._opener.pending:
            self.result.errors[address] = not_connected_error(address)
        self._opener.close()

    def _poll(self) -> None:
        """
        Send and receive without blocking; wait for the first response or connection.
        """
        for address, pipeline in list(self._active.items()):
            if pipeline.needs_login:
                self._paused[address] = self._active.pop(address)
                self._opener.start(address)
            else:
                self._step(address, pipeline.send)
        by_connection = {pipeline.connection: pipeline for pipeline in self._active.values()}
        for connection in self._opener.readable(list(by_connection), self._pause()):
            self._step(connection.address, partial(self._receive, by_connection[connection]))
        for address, pipeline in list(self._active.items()):
            self._step(address, pipeline.check)

    def _pause(self) -> float:
        """
        Return how many seconds to wait for input; 0 if no broker is left.
        """
        if not self._active and not self._opener.pending:
            return 0.0
        pauses = [pipeline.pause for pipeline in self._active.values()]
        return min(pauses, default=self._deadline.remaining(_LOG_AFTER_SECONDS))

    def _receive(self, pipeline: _BrokerPipeline[K, R]) -> None:
        key, response = pipeline.receive()
        self.result.responses[key] = response

    def _step(self, address: Address, step: Callable[[], None]) -> None:
        """
        Run one step of a pipeline, which ends if it is done or fails.
        """
        pipeline = self._active[address]
        try:
            step()
        except PykafkaError as error:
            self.result.errors[address] = error
            self._cluster.drop(pipeline.connection)
            del self._active[address]
        else:
            if pipeline.is_done and not pipeline.has_repeated:
                del self._active[address]
