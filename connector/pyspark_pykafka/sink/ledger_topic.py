"""
Creates the topic of an exactly-once stream's ledger if there is none yet, and checks it otherwise.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.error_mapping import are_settings_hidden
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.network.topic_configs import fetch_topic_settings
from pyspark_pykafka.engines.wire.network.topic_replicas import TopicReplicas, fetch_topic_replicas
from pyspark_pykafka.errors import ExactlyOnceError, KafkaClientError, PykafkaError
from pyspark_pykafka.retry import Backoff, retry_until
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_entries import Release
from pyspark_pykafka.sink.ledger_loss import (
    is_truncated,
    ledger_lost_error,
    list_committed_transactional_ids,
    truncated_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.engines.wire.network.cluster import Cluster
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings import KafkaSettings

T = TypeVar("T")

logger = logging.getLogger("pyspark_pykafka")

_POLICY, _COMPACT = "cleanup.policy", "compact"
_UNCLEAN_ELECTION, _MIN_IN_SYNC = "unclean.leader.election.enable", "min.insync.replicas"

#: Compacted, so that a ledger stays small and keeps the last entry of each key. Segments are small
#: so that compaction starts early, since a ledger grows with every micro-batch; open transactions
#: are never compacted, so no compaction lag is needed. An out-of-sync replica never becomes leader.
TOPIC_CONFIG = {
    _POLICY: _COMPACT,
    "segment.bytes": str(16 * 2**20),
    "segment.ms": str(24 * 3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    _UNCLEAN_ELECTION: "false",
    # Enough for the intent of 10,000 tasks, even uncompressed.
    "max.message.bytes": str(4 * 2**20),
}

#: The replication factor on a cluster with at least this many brokers.
MAX_REPLICAS = 3

_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.02, 0.5
# The limit of a lookup before the first batch of a query, which most likely finds nothing.
_OPTIONAL_LOOKUP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LedgerTopic:
    """
    A ledger's topic, and how to create it. None means a default that depends on the number of
    brokers: up to 3 replicas; up to 2 of them must be in sync.
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

    Raises :class:`ExactlyOnceError` if the topic is missing or empty and the query has committed
    before, and for a topic whose entries were deleted, or may be deleted or lost. Raises
    :class:`AuthorizationError` if the topic may not be created, and the other errors of
    :mod:`pyspark_pykafka.errors`.
    """
    with transaction_client(kafka) as transactions:
        replicas = _find_replicas(transactions, topic.name)
        if replicas.replication_factor is None:
            _check_never_existed(transactions, kafka, topic, write)
            if create_ledger_topic(transactions, kafka, topic, replicas.broker_count):
                return
        settings = _read_settings(transactions, topic.name)
        _check_keeps_entries(topic.name, settings)
        _check_complete(transactions, topic.name, write)
        _warn_of_few_in_sync(topic, settings, replicas.replication_factor or 0)
        if replicas.replication_factor == 1 < replicas.broker_count:
            logger.warning(
                "the ledger %s has one replica on a cluster of %d brokers: while that broker is "
                "down no micro-batch commits, and if its disk is lost, so is the record of what is "
                "committed. Add replicas: kafka-reassign-partitions.sh, and min.insync.replicas=2",
                *(topic.name, replicas.broker_count),
            )


def create_ledger_topic(
    transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic, brokers: int
) -> bool:
    """
    Create the topic, and return once brokers know it; return False if it existed already.
    """
    is_new = _create(kafka, topic, brokers)
    if is_new:
        logger.info("created the topic %s, the ledger of an exactly-once stream", topic.name)
    cluster, config = transactions.cluster, transactions.config

    def find() -> None:
        cluster.invalidate_metadata(topic.name)
        cluster.partitions(topic.name, cluster.new_deadline(config.request_seconds))

    deadline = cluster.new_deadline(config.block_seconds)
    retry_until(find, deadline, Backoff(_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS))
    return is_new


def recreate_ledger(transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic) -> None:
    """
    Replace a lost ledger, so that queries can start again; create the topic if it is missing.

    The first entry is a release, which marks the loss as accepted.
    """
    replicas = _find_replicas(transactions, topic.name)
    if replicas.replication_factor is None:
        create_ledger_topic(transactions, kafka, topic, replicas.broker_count)
    ledger = Ledger(transactions.cluster, transactions.config, topic.name)
    ledger.append_command(Release("", ledger.high_watermark(), uuid4().hex), "release")


def ledger_exists(transactions: Transactions, topic: str) -> bool:
    """
    Return whether a ledger's topic exists.
    """
    return _find_replicas(transactions, topic).replication_factor is not None


def _find_replicas(transactions: Transactions, topic: str) -> TopicReplicas:
    return _retry(transactions, lambda cluster, limit: fetch_topic_replicas(cluster, topic, limit))


def _retry(transactions: Transactions, request: Callable[[Cluster, Deadline], T]) -> T:
    """
    Return the response to a request, which is repeated for ``kafka.max.block.ms``.
    """
    cluster, config = transactions.cluster, transactions.config

    def attempt() -> T:
        return request(cluster, cluster.new_deadline(config.request_seconds))

    deadline = cluster.new_deadline(config.block_seconds)
    return retry_until(attempt, deadline, Backoff(_INITIAL_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS))


def _read_settings(transactions: Transactions, topic: str) -> dict[str, str]:
    """
    Return the settings of the topic that are checked, or log a warning and return an empty
    dictionary if the brokers do not report them: a write does not need the permission to read them.
    """
    names = (_POLICY, _UNCLEAN_ELECTION, _MIN_IN_SYNC)

    def read(cluster: Cluster, limit: Deadline) -> dict[str, str]:
        settings = fetch_topic_settings(cluster, [topic], names, limit)[topic]
        if isinstance(settings, PykafkaError):
            raise settings
        return settings

    try:
        return _retry(transactions, read)
    except PykafkaError as error:
        if not are_settings_hidden(error):
            raise
        logger.warning(
            "it is not known whether brokers keep the entries of the ledger %s: %s. Allow "
            "DescribeConfigs on it, or check that its cleanup.policy is compact, and its "
            "unclean.leader.election.enable false",
            *(topic, error),
        )
        return {}


def _check_keeps_entries(topic: str, settings: dict[str, str]) -> None:
    """
    Raise :class:`ExactlyOnceError` unless the topic is compacted and nothing else, and no replica
    that lacks entries may become leader.
    """
    policy = settings.get(_POLICY, _COMPACT)
    if policy != _COMPACT:
        msg = (
            f"the topic {topic}, the ledger of this query, has {_POLICY}={policy}, so brokers may "
            f"delete the record of what is committed; it must be {_COMPACT}. "
            f"{_remedy(topic, _POLICY, _COMPACT)}"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_LEDGER_NOT_COMPACTED", msg)
    if settings.get(_UNCLEAN_ELECTION) == "true":
        msg = (
            f"the topic {topic}, the ledger of this query, has {_UNCLEAN_ELECTION}=true, so a "
            "replica that lacks the record of what is committed may become its leader; it must be "
            f"false. {_remedy(topic, _UNCLEAN_ELECTION, 'false')}"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_LEDGER_UNCLEAN_ELECTION", msg)


def _remedy(topic: str, name: str, value: str) -> str:
    return f"Nothing of this write is visible. Run: {_alter_command(topic, name, value)}"


def _alter_command(topic: str, name: str, value: str) -> str:
    return f"kafka-configs.sh --alter --topic {topic} --add-config {name}={value}"


def _warn_of_few_in_sync(topic: LedgerTopic, settings: dict[str, str], replicas: int) -> None:
    """
    Log a warning if a ledger has enough replicas to require two in sync, but does not, or if it
    requires more in-sync replicas than it has.
    """
    value = settings.get(_MIN_IN_SYNC, "")
    if not value or not replicas:
        return
    in_sync = int(value)
    if in_sync > replicas:
        logger.warning(
            "the ledger %s has min.insync.replicas=%d, but %d replica%s: nothing can be appended "
            "to it, so no batch commits. Add replicas (kafka-reassign-partitions.sh), or run: %s",
            *(topic.name, in_sync, replicas, "" if replicas == 1 else "s"),
            _alter_command(topic.name, _MIN_IN_SYNC, str(max(replicas - 1, 1))),
        )
    wanted = topic.min_insync_replicas or max(min(replicas, MAX_REPLICAS) - 1, 1)
    if in_sync < wanted:
        logger.warning(
            "the ledger %s has %d replicas, but min.insync.replicas=%d: a record of what is "
            "committed may be on so few brokers only, and is lost with their disks. Run: %s",
            *(topic.name, replicas, in_sync),
            _alter_command(topic.name, _MIN_IN_SYNC, str(wanted)),
        )


def _check_complete(transactions: Transactions, topic: str, write: MicroBatchWrite) -> None:
    """
    Raise :class:`ExactlyOnceError` if entries of the topic were deleted.

    An empty topic may have been deleted and created again. Then the coordinators show whether the
    query has committed before.
    """
    ledger = Ledger(transactions.cluster, transactions.config, topic)
    log_start, end = ledger.watermarks()
    if is_truncated(ledger, log_start):
        raise truncated_error(write.prefix, write.query, topic, log_start)
    if log_start == end == 0 and ledger.high_watermark() == 0:
        committed_ids = _list_committed(transactions, write)
        if committed_ids:
            raise ledger_lost_error(write.prefix, write.query, topic, committed_ids[0], "is empty")


def _check_never_existed(
    transactions: Transactions, kafka: KafkaSettings, topic: LedgerTopic, write: MicroBatchWrite
) -> None:
    """
    Raise :class:`ExactlyOnceError` if the query has committed transactions under this prefix.

    Brokers remember them for ``transactional.id.expiration.ms`` (seven days), independently of the
    ledger.
    """
    committed_ids = _list_committed(transactions, write)
    # The broker may not know the topic yet: the controller decides.
    if committed_ids and _create(kafka, topic, 1, validate_only=True):
        raise ledger_lost_error(write.prefix, write.query, topic.name, committed_ids[0], "is gone")


def _list_committed(transactions: Transactions, write: MicroBatchWrite) -> list[str]:
    """
    Return the ids of the query whose last transaction was committed.

    Every broker must answer, except before a query's first batch: nothing was committed before it,
    unless it is a replay.
    """
    max_seconds = _OPTIONAL_LOOKUP_SECONDS if write.is_first else None
    return list_committed_transactional_ids(
        transactions, write.prefix, write.query, max_seconds=max_seconds
    )


def _create(
    kafka: KafkaSettings, topic: LedgerTopic, brokers: int, *, validate_only: bool = False
) -> bool:
    """
    Create the topic, or only validate the request; return False if it exists.
    """
    # Imported here because few tasks need it: a query creates its ledger once.
    from pyspark_pykafka.engines.librdkafka.admin import RetryingAdmin

    # The number of brokers is known, so a broker has responded.
    first_contact.record_contact(kafka)
    factor, in_sync = topic.durability(brokers)
    action = f"creating the topic {topic.name}, the ledger of an exactly-once stream"
    config = {**TOPIC_CONFIG, _MIN_IN_SYNC: str(in_sync)}
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
