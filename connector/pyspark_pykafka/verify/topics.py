"""
The topics and transactions of a run: created before it, removed after it.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin
from pyspark_pykafka.engines.selection import metadata_backend, transaction_client
from pyspark_pykafka.engines.wire.transactions.values import TransactionState
from pyspark_pykafka.sink.ledger_entries import ledger_topic
from pyspark_pykafka.sink.transactional_ids import prefix_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_pykafka.settings import KafkaSettings

_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE)
_REQUEST_SECONDS = 10.0


class Names(NamedTuple):
    """
    The id of a run and the names that it uses, which begin with the user's prefix.
    """

    run: str
    source: str
    output: str
    transactional_id_prefix: str

    @classmethod
    def of(cls, prefix: str) -> Names:
        """
        Return unique names for a new run.
        """
        run = uuid.uuid4().hex[:8]
        stem = f"{prefix}-{run}"
        return cls(run, f"{stem}-input", f"{stem}-output", stem)

    @property
    def topics(self) -> tuple[str, ...]:
        """
        All topics, including the ledger.
        """
        return (self.source, self.output, ledger_topic(self.transactional_id_prefix))


def create_topics(
    kafka: KafkaSettings, names: Names, partitions: int, replication_factor: int
) -> None:
    """
    Create the input and the output topic.
    """
    for topic in (names.source, names.output):
        RetryingAdmin(kafka).create_topic(
            topic,
            {},
            f"creating the topic {topic}",
            partitions=partitions,
            replication_factor=replication_factor,
        )


def delete_topics(kafka: KafkaSettings, names: Names) -> None:
    """
    Delete the topics that exist.
    """
    check_reachable(kafka)
    for topic in names.topics:
        RetryingAdmin(kafka).delete_topic(topic)


def check_reachable(kafka: KafkaSettings) -> None:
    """
    Raise an error if no broker responds, without librdkafka's log of each attempt.
    """
    metadata_backend(kafka, "read_uncommitted", "auto").describe_topics(())


def abort_open(kafka: KafkaSettings, names: Names) -> None:
    """
    Abort the transactions that the query has left open; unused ids expire on the brokers.
    """
    with transaction_client(kafka) as transactions:
        pattern = prefix_pattern(names.transactional_id_prefix)
        transactions.abort_ids(transactions.list_ids(pattern, _OPEN))


class EndOffsets:
    """
    The end offsets of topics, read by a plain admin client.
    """

    def __init__(self, config: Mapping[str, Any], partitions: int) -> None:
        self._admin = AdminClient({**config, "log_level": 0})
        self._partitions = partitions

    def of(self, topic: str) -> dict[int, int]:
        """
        Return the high watermarks of the partitions without an open transaction. Return an empty
        dict if brokers do not respond.
        """
        try:
            stable = self._ends(topic, IsolationLevel.READ_COMMITTED)
            high_watermarks = self._ends(topic, IsolationLevel.READ_UNCOMMITTED)
        except (KafkaException, TimeoutError):
            return {}
        return {n: end for n, end in stable.items() if end == high_watermarks[n]}

    def _ends(self, topic: str, isolation: IsolationLevel) -> dict[int, int]:
        specs = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(self._partitions)}
        futures = self._admin.list_offsets(
            specs, isolation_level=isolation, request_timeout=_REQUEST_SECONDS
        )
        return {
            int(tp.partition): int(future.result(2 * _REQUEST_SECONDS).offset)
            for tp, future in futures.items()
        }
