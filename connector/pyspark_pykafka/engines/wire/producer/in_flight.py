"""
The requests of a writer that are under way, and until when they must be answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
    from pyspark_pykafka.offsets import TopicPartition

    Batches = dict[TopicPartition, ProducerBatch]


class _Request(NamedTuple):
    batches: Batches
    expires: float


class InFlight:
    """
    Requests by connection, in the order in which they are answered; times are the caller's clock's.
    """

    def __init__(self, request_seconds: float) -> None:
        self._seconds = request_seconds
        self._requests: dict[Connection, list[_Request]] = {}

    @property
    def connections(self) -> list[Connection]:
        """
        Those that owe an answer.
        """
        return list(self._requests)

    def count(self, connection: Connection) -> int:
        """
        Return how many answers a connection owes.
        """
        return len(self._requests.get(connection, ()))

    def add(self, connection: Connection, batches: Batches, now: float) -> None:
        """
        Take a request that is being sent.
        """
        request = _Request(batches, now + self._seconds)
        self._requests.setdefault(connection, []).append(request)

    def pop_oldest(self, connection: Connection) -> Batches:
        """
        Return what was in the oldest request, which has its answer.
        """
        requests = self._requests[connection]
        request = requests.pop(0)
        if not requests:
            del self._requests[connection]
        return request.batches

    def pop_all(self, connection: Connection) -> list[Batches]:
        """
        Return what was in all requests of a connection, none of which will have an answer.
        """
        return [request.batches for request in self._requests.pop(connection)]

    def expires_at(self, connection: Connection) -> float:
        """
        Return until when the oldest request must be answered.

        A broker whose quota is used up does not read what it has been sent (KIP-219).
        """
        throttled = connection.throttled_until + self._seconds
        return max(self._requests[connection][0].expires, throttled)

    def expired(self, now: float) -> list[Connection]:
        """
        Return the connections whose oldest request has not been answered in time.
        """
        return [it for it in self._requests if self.expires_at(it) <= now]
