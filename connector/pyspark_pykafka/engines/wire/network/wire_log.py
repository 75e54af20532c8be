"""
The debug log of a connection (``kafka.debug``): requests, responses, logins; no payload or secret.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from typing_extensions import Buffer

    from pyspark_pykafka.settings.wire_config import Address

logger = logging.getLogger("pyspark_pykafka.wire")


class WireLog:
    """
    Logs one connection at DEBUG; ``contexts`` are the values of ``kafka.debug``.

    ``protocol`` logs requests and responses, ``broker`` connections, ``security`` logins, and
    ``all`` everything::

        kafka-1:9092: connected with SASL_SSL in 12.3 ms
        kafka-1:9092: logged in with SCRAM-SHA-256, for 3600 s
        kafka-1:9092: sent Fetch v11, correlation id 7, 112 bytes
        kafka-1:9092: received Fetch v11, correlation id 7, 1048612 bytes after 4.2 ms
        kafka-1:9092: closed with 0 requests in flight
    """

    def __init__(self, address: Address, contexts: Collection[str]) -> None:
        self._address = address
        self._connections = not {"broker", "all"}.isdisjoint(contexts)
        self._logins = not {"security", "all"}.isdisjoint(contexts)
        self._requests = not {"protocol", "all"}.isdisjoint(contexts)

    def connected(self, protocol: str, seconds: float) -> None:
        """
        Log that the socket is connected, with TLS if that is configured.
        """
        if self._connections:
            ms = seconds * 1000
            logger.debug("%s: connected with %s in %.1f ms", self._address, protocol, ms)

    def logged_in(self, mechanism: str, lifetime_seconds: float) -> None:
        """
        Log a SASL login, and for how long it is valid (KIP-368).
        """
        if self._logins:
            lifetime = f", for {lifetime_seconds:.0f} s" if lifetime_seconds else ""
            logger.debug("%s: logged in with %s%s", self._address, mechanism, lifetime)

    def sent(self, api: str, version: int, correlation_id: int, buffers: Sequence[Buffer]) -> None:
        """
        Log a request; only the size of its buffers is read.
        """
        if self._requests:
            size = sum(memoryview(buffer).nbytes for buffer in buffers)
            logger.debug(
                "%s: sent %s v%d, correlation id %d, %d bytes",
                *(self._address, api, version, correlation_id, size),
            )

    def received(
        self, api: str, version: int, correlation_id: int, size_bytes: int, seconds: float
    ) -> None:
        """
        Log a response, and how long after its request it was received.
        """
        if self._requests:
            logger.debug(
                "%s: received %s v%d, correlation id %d, %d bytes after %.1f ms",
                *(self._address, api, version, correlation_id, size_bytes, seconds * 1000),
            )

    def closed(self, in_flight: int) -> None:
        """
        Log, only once, that we closed the connection, and the number of requests in flight.
        """
        if self._connections:
            logger.debug("%s: closed with %d requests in flight", self._address, in_flight)
            self._connections = False
