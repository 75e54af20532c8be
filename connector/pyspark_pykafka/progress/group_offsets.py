"""
Reads the committed offsets of a consumer group, through one of its members or without joining it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from pyspark_pykafka.engines.error_mapping import map_kafka_error, translating_errors
from pyspark_pykafka.errors import TimeoutExceededError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.progress.record import from_metadata
from pyspark_pykafka.progress.store import chunks
from pyspark_pykafka.settings.librdkafka_config import group_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_pykafka.progress.record import ProgressRecord
    from pyspark_pykafka.progress.store import Records
    from pyspark_pykafka.settings import KafkaSettings

_MAX_FETCH_SIZE = 5_000

# The first request's timeout, doubled with each attempt: librdkafka looks for a coordinator
# forever, and does not report that the user lacks permission for the group.
_FIRST_ATTEMPT_SECONDS = 2.0


class GroupOffsets:
    """
    Fetches the offsets of one group; :meth:`fetch` may be called again after a retriable error.

    ``timeout_seconds`` limits each request. ``member`` is the group's member in this process.
    Without it, a consumer is created, and :meth:`close` closes it. ``check_access`` raises if the
    user lacks permission for the group; it is called after a timeout.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        group: str,
        timeout_seconds: float,
        member: Consumer | None,
        check_access: Callable[[], object],
    ) -> None:
        self._action = f"fetching the offsets of the consumer group {group}"
        self._max_seconds = timeout_seconds
        self._attempt_seconds = _FIRST_ATTEMPT_SECONDS
        self._is_member = member is not None
        with translating_errors("connecting"):
            self._consumer = member or Consumer(group_config(kafka, group))
        self._check_access = check_access

    def fetch(self, tps: Sequence[TopicPartition]) -> Records:
        """
        Return the group's committed offsets of these partitions, except those without one.

        Raises the errors of :mod:`pyspark_pykafka.errors`; after a timeout, the error of
        ``check_access`` takes precedence.
        """
        records: Records = {}
        seconds = min(self._attempt_seconds, self._max_seconds)
        self._attempt_seconds *= 2
        # Not the admin client's list_consumer_group_offsets(): it crashes the process when the
        # coordinator has moved or is loading the group (librdkafka#5040, seen with 2.16).
        for chunk in chunks(tps, _MAX_FETCH_SIZE):
            positions = [KafkaPartition(*tp) for tp in chunk]
            try:
                with translating_errors(self._action):
                    committed = self._consumer.committed(positions, seconds)
            except TimeoutExceededError:
                self._check_access()
                raise
            records.update(self._records(committed))
        return records

    def close(self) -> None:
        """
        Close the consumer, unless it is the group's member.
        """
        if not self._is_member:
            self._consumer.close()

    def _records(
        self, positions: list[KafkaPartition]
    ) -> Iterator[tuple[TopicPartition, ProgressRecord]]:
        for position in positions:
            if position.error is not None:
                raise map_kafka_error(position.error, self._action)
            if position.offset >= 0:
                record = from_metadata(position.offset, position.metadata)
                yield TopicPartition(position.topic, position.partition), record
