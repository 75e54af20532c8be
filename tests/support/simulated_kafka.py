"""
A simulated cluster for tests, with a clock of its own, and requests sent as bytes.
"""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import ApiVersionsResponse
from tests.simulation.kafka import ClusterSettings, SimulatedCluster
from tests.support.kafka_requests import KafkaRequests

if TYPE_CHECKING:
    from collections.abc import Callable


class EventQueue:
    """
    Runs actions in order of time; the clock jumps from one to the next.
    """

    def __init__(self) -> None:
        self._now = 1_700_000_000.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> float:
        return self._now

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), action))

    def step(self) -> bool:
        """
        Run the next action, and return False if there is none.
        """
        if not self._events:
            return False
        self._now, _, action = heapq.heappop(self._events)
        action()
        return True

    def run(self, seconds: float) -> None:
        """
        Run the events within this time.
        """
        end = self._now + seconds
        while self._events and self._events[0][0] <= end:
            self.step()
        self._now = end


class Pending:
    """
    A request that has been sent; ``response`` is None until it has arrived.
    """

    def __init__(self, kind: Any, version: int) -> None:
        self._kind, self._version = kind, version
        self.response: Any = None
        self.closed = False
        self.replies = 0

    @property
    def done(self) -> bool:
        return self.closed or self.response is not None

    def receive(self, content: bytes | None) -> None:
        self.replies += 1
        if content is None:
            self.closed = True
            return
        flexible = self._kind.flexible_version_q(self._version)
        position = 5 if flexible and self._kind is not ApiVersionsResponse else 4
        self.response = self._kind.decode(content[position:], version=self._version, header=False)


class SimulatedKafka(KafkaRequests):
    """
    A cluster with its event queue; leaders and coordinators are as the controller sees them.
    """

    def __init__(self, brokers: int = 3, seed: int = 0, **settings: Any) -> None:
        self.time = EventQueue()
        self.cluster = SimulatedCluster(
            brokers, self.time, random.Random(seed), ClusterSettings(**settings)
        )

    def send(self, node: int, request: Any, version: int) -> Pending:
        """
        Send a request without waiting.
        """
        request.API_VERSION = version
        request.with_header(7, "test")
        frame = bytes(request.encode(version=version, header=True))
        pending = Pending(request.header.get_response_class()[None], version)
        self.cluster.handle(node, frame, pending.receive)
        return pending

    def request(self, node: int, request: Any, version: int) -> Any:
        """
        Send a request, and return its response.
        """
        return self.response(self.send(node, request, version))

    def response(self, pending: Pending) -> Any:
        """
        Run events until the response has arrived, and return it.

        Raises :class:`ConnectionResetError` if the broker closes the connection instead.
        """
        while not pending.done:
            assert self.time.step(), "the cluster has nothing left to do"
        if pending.closed:
            raise ConnectionResetError
        return pending.response

    def now(self) -> float:
        return self.time.now()

    @property
    def leader(self) -> int:
        return self.cluster.leader(self.topic, 0)

    def coordinator(self, name: str) -> int:
        return self.cluster.coordinator(name)

    def send_produce(
        self, *values: bytes, node: int | None = None, version: int = 9, **fields: Any
    ) -> Pending:
        return self.send(node or self.leader, self.produce_request(*values, **fields), version)

    def send_fetch(
        self, offset: int = 0, *, node: int | None = None, version: int = 12, **fields: Any
    ) -> Pending:
        return self.send(node or self.leader, self.fetch_request(offset, **fields), version)
