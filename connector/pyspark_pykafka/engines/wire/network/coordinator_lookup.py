"""
Finds the coordinators of consumer groups and transactional ids, and caches their addresses.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.engines.wire.protocol.find_coordinator import (
    FIND_COORDINATOR,
    MIN_BATCHED_VERSION,
    find_coordinator_request,
)
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.settings.wire_config import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.find_coordinator import Coordinator
    from pyspark_pykafka.retry import Deadline

logger = logging.getLogger("pyspark_pykafka")

_COORDINATOR_MOVED = frozenset(
    {
        KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaErrorCode.COORDINATOR_NOT_AVAILABLE,
        KafkaErrorCode.NOT_COORDINATOR,
    }
)

#: The most keys in one request: brokers accept 100 MB, and answer a thousand keys in a few
#: milliseconds.
MAX_KEYS_PER_REQUEST = 1_000

# After this time another broker gets the FindCoordinator request.
_LOOKUP_SECONDS = 5.0


def has_moved(code: int) -> bool:
    """
    Return whether an error code means that the coordinator is, or will be, another broker.
    """
    return code in _COORDINATOR_MOVED


@dataclass(slots=True)
class CoordinatorLookup:
    """
    Finds the coordinators of keys, which are the ids of groups or transactional ids.

    ``key_type`` is the type of all keys. ``to_error`` returns the error for one of Kafka's error
    codes, the action that failed and the key.
    """

    cluster: Cluster
    key_type: bytes
    to_error: Callable[[int, str, str], PykafkaError]
    #: The coordinators by key; other lookups may share the dictionary.
    addresses: dict[str, Address] = field(default_factory=dict)

    def find(self, key: str, deadline: Deadline) -> Address:
        """
        Return the coordinator of a key.
        """
        if key not in self.addresses:
            for error in self.find_all([key], deadline).values():
                raise error
        return self.addresses[key]

    def find_all(self, keys: Sequence[str], deadline: Deadline) -> dict[str, PykafkaError]:
        """
        Look up the coordinators of keys; return the errors of keys that have none at the moment.
        """
        connection = self.cluster.any_connection(deadline)
        version = connection.version(FIND_COORDINATOR)
        batched = version >= MIN_BATCHED_VERSION
        size = MAX_KEYS_PER_REQUEST if batched else 1
        errors: dict[str, PykafkaError] = {}
        for start in range(0, len(keys), size):
            requested = keys[start : start + size]
            request = find_coordinator_request(version, self.key_type, requested)
            limit = deadline.within(_LOOKUP_SECONDS)
            response = self.cluster.request(connection, request, limit)
            coordinators = {
                coordinator.key if batched else requested[0]: coordinator
                for coordinator in response.coordinators
            }
            for key in requested:
                error = self._add(key, coordinators.get(key), connection)
                if error is not None:
                    errors[key] = error
        if any(error.retriable for error in errors.values()):
            self._prefer_another_broker(connection.address, deadline)
        return errors

    def invalidate(self, address: Address) -> None:
        """
        Forget a failed broker for all keys that it coordinates, so that its failure costs time only
        once.
        """
        for key in [key for key, cached in self.addresses.items() if cached == address]:
            del self.addresses[key]

    def invalidate_if_moved(self, key: str, code: int) -> None:
        """
        Forget the coordinator of a key if an error code means that it has moved.
        """
        if has_moved(code):
            self.addresses.pop(key, None)

    def _prefer_another_broker(self, address: Address, deadline: Deadline) -> None:
        """
        Let the next lookup go to another broker: this one may be cut off from its controllers.
        """
        # Invariant R18 (no single broker).
        self.cluster.demote(address)
        try:
            self.cluster.addresses(self.cluster.new_deadline(deadline.remaining(_LOOKUP_SECONDS)))
        except PykafkaError as error:
            if not error.retriable:
                raise
            logger.info("no other broker was found for coordinator lookups: %s", error)

    def _add(
        self, key: str, coordinator: Coordinator | None, connection: Connection
    ) -> PykafkaError | None:
        if coordinator is None:
            msg = f"{connection.address} returned no coordinator for {key}"
            return BrokerUnavailableError(msg)
        if coordinator.error_code:
            return self.to_error(coordinator.error_code, f"finding the coordinator of {key}", key)
        self.addresses[key] = Address(coordinator.host, coordinator.port)
        return None
