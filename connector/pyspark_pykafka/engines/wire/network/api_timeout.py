"""
Retries within kafka.default.api.timeout.ms, the time limit of the driver's requests.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_pykafka.engines.first_contact import record_contact, request_seconds
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import LONG_WAIT_SECONDS, NEVER, Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.settings import KafkaSettings

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 1.0

# The time limit of the first attempt, doubled for each further one: a silent broker may no longer
# be the leader or the coordinator.
_FIRST_ATTEMPT_SECONDS = 2.0


class Attempt(NamedTuple):
    """
    One attempt of a request: the limit of all attempts, and the seconds for this one.
    """

    limit: Deadline
    seconds: float

    @property
    def deadline(self) -> Deadline:
        """
        The deadline for responses to requests that are sent now.
        """
        return self.limit.within(self.seconds)


def retry_within_api_timeout(
    kafka: KafkaSettings, request: Callable[[Cluster, Attempt], T], deadline: Deadline | None = None
) -> T:
    """
    Return the result of a request, retrying it after retriable errors until the timeout.

    The timeout is that of :func:`request_seconds`, or less if ``deadline`` is earlier. Raises the
    last error that the timeout did not cause.
    """
    backoff = Backoff(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
    attempt_seconds = _FIRST_ATTEMPT_SECONDS
    last_error: PykafkaError | None = None
    with borrowed_cluster(kafka) as cluster:
        limit = _limit(cluster, kafka, deadline)
        log_at = cluster.new_deadline(LONG_WAIT_SECONDS)
        while True:
            try:
                result = request(cluster, Attempt(limit, attempt_seconds))
            except PykafkaError as error:
                if not error.retriable:
                    raise
                # The limit often cuts off the last attempt; its error does not show the cause.
                if last_error is None or not limit.expired:
                    last_error = error
                if limit.expired:
                    raise last_error from error.__cause__
            else:
                record_contact(kafka)
                return result
            pause = limit.remaining(max_seconds=backoff.next_pause())
            # Logged before the pause rather than after it, since this may be the last pause.
            if log_at.remaining() <= pause:
                log_at, seconds = NEVER, limit.remaining()
                logger.warning("%s; retrying for %.0f s at most", last_error, seconds)
            logger.info("%s; retrying", last_error)
            limit.pause(pause)
            attempt_seconds *= 2


def _limit(cluster: Cluster, kafka: KafkaSettings, deadline: Deadline | None) -> Deadline:
    seconds = request_seconds(kafka)
    if deadline is not None:
        seconds = deadline.remaining(max_seconds=seconds)
    return cluster.new_deadline(seconds)
