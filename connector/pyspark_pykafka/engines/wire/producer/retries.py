"""
The producer's retry policy: which broker and partition errors are retried, how often, and when.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.error_codes import KafkaErrorCode
from pyspark_pykafka.errors import (
    KafkaClientError,
    MissingTopicError,
    PykafkaError,
    UnknownTopicError,
)
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.records.record_batch import ProducerBatch
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.settings.wire_config import ProducerConfig

logger = logging.getLogger("pyspark_pykafka")

#: How long a missing partition is retried; after that time, every broker knows a new topic.
MISSING_PARTITION_SECONDS = 5.0


class ProducerRetryPolicy:
    """
    Decides for each partition whether an error is retried or raised, and after what backoff.
    """

    def __init__(self, config: ProducerConfig, now: Callable[[], float]) -> None:
        self._retries = config.retries
        self._initial_backoff_seconds = config.wire.retry_backoff_seconds
        self._max_backoff_seconds = config.wire.retry_backoff_max_seconds
        self._now = now
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._missing_since: dict[TopicPartition, float] = {}

    def on_leader_found(self, tp: TopicPartition) -> None:
        """
        Record that a partition has a leader.
        """
        self._missing_since.pop(tp, None)

    def on_success(self, tp: TopicPartition) -> None:
        """
        Reset the backoff of a partition: it has acknowledged a batch.
        """
        self._backoffs.pop(tp, None)

    def raise_if_fatal(self, error: PykafkaError, tp: TopicPartition | None = None) -> None:
        """
        Raise the error if it is fatal; a missing partition becomes fatal after
        :data:`MISSING_PARTITION_SECONDS`.
        """
        if not error.retriable:
            raise error
        if tp is None or not isinstance(error, UnknownTopicError):
            return
        since = self._missing_since.setdefault(tp, self._now())
        if self._now() - since >= MISSING_PARTITION_SECONDS:
            raise MissingTopicError(*error.args) from error

    def next_retry_at(self, tp: TopicPartition) -> float:
        """
        Return when to retry a partition, in seconds on the clock ``now``; each call lengthens the
        next pause, until :meth:`on_success`.
        """
        backoff = self._backoffs.get(tp)
        if backoff is None:
            backoff = self._backoffs[tp] = Backoff(
                self._initial_backoff_seconds, self._max_backoff_seconds
            )
        return self._now() + backoff.next_pause()

    def raise_if_exhausted(
        self, tp: TopicPartition, batch: ProducerBatch, error: PykafkaError
    ) -> None:
        """
        Raise :class:`KafkaClientError` if a batch has used up ``kafka.retries``; otherwise log that
        it is sent again.
        """
        if batch.attempts > self._retries:
            msg = (
                f"{batch.count} records for {tp} were rejected after {batch.attempts} tries "
                f"(kafka.retries): {error}"
            )
            raise KafkaClientError(
                msg, KafkaErrorCode.UNKNOWN_SERVER_ERROR.value, "RETRIES", retriable=True
            )
        logger.info("%s; sending %d records for %s again", error, batch.count, tp)
