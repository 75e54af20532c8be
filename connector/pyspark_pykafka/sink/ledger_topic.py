"""
Creates the topic of an exactly-once stream's ledger if there is none yet.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.network.topic_replicas import TopicReplicas, fetch_topic_replicas
from pyspark_pykafka.errors import KafkaClientError
from pyspark_pykafka.retry import Backoff, retry_until
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_entries import Release
from pyspark_pykafka.sink.ledger_loss import ledger_lost_error, list_committed_task_ids

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

#: Compacted, so that a ledger stays small and keeps the last entry of each key. Segments are small
#: so that compaction starts early, since a ledger grows with every micro-batch; open transactions
#: are never compacted, so no compaction lag is needed. An out-of-sync replica never becomes leader.
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 2**20),
    "segment.ms": str(24 * 3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    "unclean.leader.election.enable": "false",
    # Enough for the intent of 10,000 tasks, even uncompressed.
    "max.message.bytes": str(4 * 2**20),
}

#: The replication factor on a cluster with at least this many brokers.
MAX_REPLICAS = 3

_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.02, 0.5
# For a lookup that is probably not needed.
_OPTIONAL_LOOKUP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LedgerTopic:
    """
    A ledger's topic, and how to create it. None means a default that depends on the number of
    brokers: up to 3 replicas, of which up to 2 must be in sync.
    """

    name: str
    replication_factor: int | None = None
    min_insync_replicas: int | None = None

    def durability(self, brokers: int) -> tuple[int, int]:
        """
        Return the replication factor and ``min.insync.replicas`` of a new topic.

        With more than one replica, one may be unavailable.
        """
        factor = self.replication_factor or max(min(brokers, MAX_REPLICAS), 1)
        return factor, self.min_insync_replicas or max(min(factor - 1, MAX_REPLICAS - 1), 1)


@dataclass(frozen=True, slots=True)
class MicroBatchWrite:
    """
    Identifies the micro-batch that is about to be written.
    """

    prefix: str
    query: str
    is_first: bool


# Called by every task; cached, since a topic that exists is not checked again.
@lru_cache(maxsize=16)
def ensure_ledger_topic(kafka: KafkaSettings, topic: LedgerTopic, write: MicroBatchWrite) -> None:
    """
    Return once the topic exists; create it if it is missing and never existed.

    Raises :class:`ExactlyOnceError` if the topic is missing and the query has committed before,
    :class:`AuthorizationError` if the topic may not be created, and the other errors of
    :mod:`pyspark_pykafka.errors`.
    """
    with transaction_client(kafka) as transactions:
        replicas = _find_replicas(transactions, topic.name)
        if replicas.replication_factor is None:
            _check_never_existed(transactions, kafka, topic, write)
            create_ledger_topic(transactions, kafka, topic, replicas.broker_count)
        elif replicas.replication_factor == 1 < replicas.broker_count:
            logger.warning(
                "the ledger %s has one replica on a cluster of %d brokers: while that broker is "
                "down no micro-batch commits, and if its disk is lost, so is the record of what is "
                "committed. Add replicas: kafka-reassign-partitions.sh, and min.insync.replicas=2",
                *(topic.name, replicas.broker_count),
            )


def create_ledger_topic(
    transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic, brokers: int
) -> None:
    """
    Create the topic, and return once brokers know it.
    """
    _create(kafka, topic, brokers)
    logger.info("created the topic %s, the ledger of an exactly-once stream", topic.name)
    cluster, config = transactions.cluster, transactions.config

    def find() -> None:
        cluster.invalidate_metadata(topic.name)
        cluster.partitions(topic.name, cluster.new_deadline(config.request_seconds))

    deadline = cluster.new_deadline(config.block_seconds)
    retry_until(find, deadline, Backoff(_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS))


def recreate_ledger(transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic) -> None:
    """
    Replace a lost ledger, so that queries can start again; create the topic if it is missing.

    The first entry is a release, which marks the loss as accepted.
    """
    replicas = _find_replicas(transactions, topic.name)
    if replicas.replication_factor is None:
        create_ledger_topic(transactions, kafka, topic, replicas.broker_count)
    Ledger(transactions.cluster, transactions.config, topic.name).append(Release(""))


def ledger_exists(transactions: Transactions, topic: str) -> bool:
    """
    Return whether a ledger's topic exists.
    """
    return _find_replicas(transactions, topic).replication_factor is not None


def _find_replicas(transactions: Transactions, topic: str) -> TopicReplicas:
    def find() -> TopicReplicas:
        limit = transactions.cluster.new_deadline(transactions.config.request_seconds)
        return fetch_topic_replicas(transactions.cluster, topic, limit)

    deadline = transactions.cluster.new_deadline(transactions.config.block_seconds)
    return retry_until(find, deadline, Backoff(_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS))


def _check_never_existed(
    transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic, write: MicroBatchWrite
) -> None:
    """
    Raise :class:`ExactlyOnceError` if the query has committed transactions under this prefix.

    Brokers remember them for ``transactional.id.expiration.ms`` (seven days), independently of the
    ledger. Every broker must answer, except before a query's first batch: nothing was committed
    before it, unless it is a replay.
    """
    max_seconds = _OPTIONAL_LOOKUP_SECONDS if write.is_first else None
    committed_ids = list_committed_task_ids(
        transactions, write.prefix, write.query, max_seconds=max_seconds
    )
    # The broker may not know the topic yet: the controller decides.
    if committed_ids and _create(kafka, topic, 1, validate_only=True):
        raise ledger_lost_error(write.prefix, write.query, topic.name, committed_ids[0], "is gone")


def _create(
    kafka: KafkaSettings, topic: LedgerTopic, brokers: int, *, validate_only: bool = False
) -> bool:
    """
    Create the topic, or only validate the request; return False if it exists.
    """
    # Imported here because few tasks need it: a query creates its ledger once.
    from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin

    # A broker has responded, since the number of brokers is known.
    first_contact.record_contact(kafka)
    factor, in_sync = topic.durability(brokers)
    action = f"creating the topic {topic.name}, the ledger of an exactly-once stream"
    config = {**TOPIC_CONFIG, "min.insync.replicas": str(in_sync)}
    try:
        return RetryingAdmin(kafka).create_topic(
            topic.name, config, action, replication_factor=factor, validate_only=validate_only
        )
    except KafkaClientError as error:
        if error.name != "INVALID_REPLICATION_FACTOR":
            raise
        msg = (
            f"{error.message}: fewer than {factor} brokers are up; start them, or set "
            "ledgerReplicationFactor"
        )
        raise KafkaClientError(msg, error.code, error.name, retriable=True) from error
