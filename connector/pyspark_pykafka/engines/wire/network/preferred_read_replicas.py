"""
The preferred read replicas (KIP-392) that could not be read from, and when each is tried again.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.errors import PykafkaError

logger = logging.getLogger("pyspark_pykafka")

# The first pause, and the longest one: the default of the Java client's metadata.max.age.ms.
_MIN_SECONDS, _MAX_SECONDS = 10.0, 300.0


@dataclass(slots=True)
class _Failures:
    backoff: Backoff
    retry_at: float = 0.0
    is_reconnecting: bool = False


@dataclass(slots=True)
class PreferredReadReplicas:
    """
    The replicas that failed, by node id, for all partitions that a process reads.

    Such a replica is connected to in the background, while its partitions are read from their
    leaders: no read waits for it twice.
    """

    now: Callable[[], float]
    #: Whether the connection to a broker is open.
    is_connected: Callable[[int], bool]
    #: Opens the connection to a broker in the background.
    connect: Callable[[int], None]
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    _failed: dict[int, _Failures] = field(init=False, default_factory=dict)

    def is_usable(self, node: int) -> bool:
        """
        Return whether to read from a replica now; reconnects to it once its pause is over.
        """
        failures = self._failed.get(node)
        if failures is None:
            return True
        if self.now() < failures.retry_at and not failures.is_reconnecting:
            return False
        if self.is_connected(node):
            return True
        if self.now() >= failures.retry_at:
            failures.is_reconnecting = True
            failures.retry_at = self.now() + failures.backoff.next_pause()
            self.connect(node)
        return False

    def retry_at(self, node: int) -> float:
        """
        Return when a replica that is not usable may be usable again.
        """
        failures = self._failed.get(node)
        return self.now() if failures is None else failures.retry_at

    def record_failure(self, node: int, address: str, error: PykafkaError) -> None:
        """
        Record that a replica could not be reached or did not answer; the first failure is logged.
        """
        failures = self._failed.get(node)
        is_first = failures is None
        if failures is None:
            backoff = Backoff(_MIN_SECONDS, _MAX_SECONDS, jitter=self.jitter)
            failures = self._failed[node] = _Failures(backoff)
        failures.is_reconnecting = False
        failures.retry_at = self.now() + failures.backoff.next_pause()
        if is_first:
            logger.warning(
                "cannot read from broker %d at %s, which leaders name as the replica in this "
                "client's rack; its partitions are read from their leaders meanwhile, across "
                "racks. Make %s reachable from here (advertised.listeners, firewall), or set no "
                "rack (kafka.client.rack, clientRackEnv, clientRackProvider). The error: %s",
                *(node, address, address, error),
            )

    def record_success(self, node: int) -> None:
        """
        Record that a replica has returned records.
        """
        self._failed.pop(node, None)
