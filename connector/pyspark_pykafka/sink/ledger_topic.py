"""
Making the topic that an exactly-once stream keeps its ledger in, where there is none yet.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.network.topic_replicas import TopicReplicas, fetch_topic_replicas
from pyspark_pykafka.errors import KafkaClientError
from pyspark_pykafka.retry import Backoff, Deadline, retry_until
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_entries import Release
from pyspark_pykafka.sink.ledger_loss import ledger_lost_error, list_committed_task_ids

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.settings import KafkaSettings

logger = logging.getLogger("pyspark_pykafka")

#: One partition, for its order; compacted, so that it stays small and never forgets a last entry.
#: The rest lets that happen soon, since a ledger grows with every micro-batch; what is not ended
#: yet is never compacted, so there is no lag. A replica that is behind never becomes its leader.
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 2**20),
    "segment.ms": str(24 * 3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    "unclean.leader.election.enable": "false",
    # The intent of 10,000 tasks, compressed or not.
    "max.message.bytes": str(4 * 2**20),
}

#: Where the cluster has so many brokers.
MAX_REPLICAS = 3

_LEAST_PAUSE, _MOST_PAUSE = 0.02, 0.5
# For a look that is not needed for certain.
_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LedgerTopic:
    """
    A ledger's topic, and how it is made; None is what the cluster allows, up to 3 and 2.
    """

    name: str
    replication_factor: int | None = None
    min_insync_replicas: int | None = None

    def durability(self, brokers: int) -> tuple[int, int]:
        """
        Return the replication factor and ``min.insync.replicas`` of a new one.

        One replica may be away, where there is more than one.
        """
        factor = self.replication_factor or max(min(brokers, MAX_REPLICAS), 1)
        return factor, self.min_insync_replicas or max(min(factor - 1, MAX_REPLICAS - 1), 1)


@dataclass(frozen=True, slots=True)
class MicroBatchWrite:
    """
    Which micro-batch is about to be written: of a later one than the first, there are earlier ones.
    """

    prefix: str
    query: str
    is_first: bool


# Asked by every task; once there is one, it stays.
@lru_cache(maxsize=16)
def ensure_ledger_topic(kafka: KafkaSettings, topic: LedgerTopic, write: MicroBatchWrite) -> None:
    """
    Return once the brokers have the topic, made if it was missing and never there.

    Raises :class:`ExactlyOnceError` if the query has committed something before, of which the topic
    would tell, :class:`AuthorizationError` if the brokers do not let us make it, and the other
    errors of :mod:`pyspark_pykafka.errors`.
    """
    with transaction_client(kafka) as transactions:
        found = _look(transactions, topic.name)
        if found.replication_factor is None:
            _check_never_there(transactions, kafka, topic, write)
            create_ledger_topic(transactions, kafka, topic, found.broker_count)
        elif found.replication_factor == 1 < found.broker_count:
            logger.warning(
                "the ledger %s has one replica on a cluster of %d brokers: while that broker is "
                "away no micro-batch commits, and if its disk is lost, so is what the query has "
                "committed. Give it more: kafka-reassign-partitions.sh, and min.insync.replicas=2",
                *(topic.name, found.broker_count),
            )


def create_ledger_topic(
    transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic, brokers: int
) -> None:
    """
    Make the topic, and return once brokers know it.
    """
    _create(kafka, topic, brokers)
    logger.info("made the topic %s, the ledger of an exactly-once stream", topic.name)
    cluster, config = transactions.cluster, transactions.config

    def find() -> None:
        cluster.invalidate_metadata(topic.name)
        cluster.partitions(topic.name, Deadline.after(config.request_seconds))

    deadline = Deadline.after(config.block_seconds)
    retry_until(find, deadline, Backoff(_LEAST_PAUSE, _MOST_PAUSE))


def recreate_ledger(transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic) -> None:
    """
    Let queries start again with a ledger that was lost, made anew if it is missing.

    The entry that it begins with says that this was meant.
    """
    found = _look(transactions, topic.name)
    if found.replication_factor is None:
        create_ledger_topic(transactions, kafka, topic, found.broker_count)
    Ledger(transactions.cluster, transactions.config, topic.name).append(Release(""))


def ledger_exists(transactions: Transactions, topic: str) -> bool:
    """
    Return whether the brokers have a ledger.
    """
    return _look(transactions, topic).replication_factor is not None


def is_ledger_empty(transactions: Transactions, topic: str) -> bool:
    """
    Return whether a ledger is missing, or nothing is committed in it.
    """
    if not ledger_exists(transactions, topic):
        return True
    ledger = Ledger(transactions.cluster, transactions.config, topic)
    return not ledger.read_committed(*ledger.watermarks())


def _look(transactions: Transactions, topic: str) -> TopicReplicas:
    def ask() -> TopicReplicas:
        limit = Deadline.after(transactions.config.request_seconds)
        return fetch_topic_replicas(transactions.cluster, topic, limit)

    deadline = Deadline.after(transactions.config.block_seconds)
    return retry_until(ask, deadline, Backoff(_LEAST_PAUSE, _MOST_PAUSE))


def _check_never_there(
    transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic, write: MicroBatchWrite
) -> None:
    """
    Raise :class:`ExactlyOnceError` if the query has committed transactions under this prefix.

    Brokers know them for ``transactional.id.expiration.ms``, seven days, whatever becomes of the
    ledger. All brokers have to answer, but for a query's first batch, which has nothing before it
    unless it is a replay.
    """
    max_seconds = _LOOK_SECONDS if write.is_first else None
    known = list_committed_task_ids(
        transactions, write.prefix, write.query, max_seconds=max_seconds
    )
    # A broker that has not heard of the topic yet is not the last word: the controller is.
    if known and _create(kafka, topic, 1, validate_only=True):
        raise ledger_lost_error(write.prefix, write.query, topic.name, known[0], "is gone")


def _create(
    kafka: KafkaSettings, topic: LedgerTopic, brokers: int, *, validate_only: bool = False
) -> bool:
    """
    Make the topic, or only look whether that could be done; False if it is there.
    """
    # Once in the life of a query, and an import that every other task can do without.
    from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin

    factor, in_sync = topic.durability(brokers)
    doing = f"making the topic {topic.name}, the ledger of an exactly-once stream"
    config = {**CONFIG, "min.insync.replicas": str(in_sync)}
    try:
        return RetryingAdmin(kafka).create_topic(
            topic.name, config, doing, replication_factor=factor, validate_only=validate_only
        )
    except KafkaClientError as error:
        if error.name != "INVALID_REPLICATION_FACTOR":
            raise
        msg = (
            f"{error.message}: fewer than {factor} brokers are up; start them, or set "
            "ledgerReplicationFactor"
        )
        raise KafkaClientError(msg, error.code, error.name, retriable=True) from error
