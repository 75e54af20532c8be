"""
In-flight produce requests by connection, and when each times out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
    from pyspark_pykafka.offsets import TopicPartition

    #: The batches of one request.
    Batches = dict[TopicPartition, ProducerBatch]


# The leaders of a request without a response are checked when the request has this age, and each
# time that its age has doubled: a broker that is cut off from its controllers waits for replicas
# that no longer fetch from it.
_CHECK_SECONDS = 3.0


@dataclass(slots=True)
class _Request:
    batches: Batches
    sent_at: float
    expires_at: float
    check_at: float


class InFlight:
    """
    Requests by connection, in the order in which they were sent and will be answered.

    Times are those of the caller's clock, in seconds.
    """

    def __init__(self, request_seconds: float) -> None:
        self._seconds = request_seconds
        self._requests: dict[Connection, list[_Request]] = {}

    @property
    def connections(self) -> list[Connection]:
        """
        The connections with requests in flight.
        """
        return list(self._requests)

    def count(self, connection: Connection) -> int:
        """
        Return the number of requests in flight on a connection.
        """
        return len(self._requests.get(connection, ()))

    def add(self, connection: Connection, batches: Batches, now: float) -> None:
        """
        Add a request that is being sent.
        """
        request = _Request(batches, now, now + self._seconds, now + _CHECK_SECONDS)
        self._requests.setdefault(connection, []).append(request)

    def pop_oldest(self, connection: Connection) -> Batches:
        """
        Remove the oldest request, which has been answered, and return its batches.
        """
        requests = self._requests[connection]
        request = requests.pop(0)
        if not requests:
            del self._requests[connection]
        return request.batches

    def pop_all(self, connection: Connection) -> list[Batches]:
        """
        Remove all requests of a lost connection, and return their batches.
        """
        return [request.batches for request in self._requests.pop(connection)]

    def check_at(self, connection: Connection) -> float:
        """
        Return when to check whether the broker still leads the oldest request's partitions.
        """
        return self._requests[connection][0].check_at

    def due_checks(self, now: float) -> dict[Connection, Batches]:
        """
        Return the batches of the oldest requests whose check is due, and schedule the next check.
        """
        due = {}
        for connection, (oldest, *_) in self._requests.items():
            if oldest.check_at <= now:
                oldest.check_at = now + (now - oldest.sent_at)
                due[connection] = oldest.batches
        return due

    def expires_at(self, connection: Connection) -> float:
        """
        Return when the oldest request times out.

        A broker that throttles a client does not read its requests (KIP-219).
        """
        throttled = connection.throttled_until + self._seconds
        return max(self._requests[connection][0].expires_at, throttled)

    def expired(self, now: float) -> list[Connection]:
        """
        Return the connections whose oldest request has timed out.
        """
        return [connection for connection in self._requests if self.expires_at(connection) <= now]
