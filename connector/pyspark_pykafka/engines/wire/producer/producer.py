"""
The idempotent producer of the wire engine: writes Arrow batches, each record once (KIP-98).
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from pyspark_pykafka.engines.client_pool import ClientPool
from pyspark_pykafka.engines.first_contact import block_seconds, record_contact
from pyspark_pykafka.engines.transaction_contract import TaskWriteResult
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.max_block import retry_within_max_block
from pyspark_pykafka.engines.wire.producer.producer_id import request_producer_id
from pyspark_pykafka.engines.wire.producer.retries import MISSING_PARTITION_SECONDS
from pyspark_pykafka.engines.wire.producer.sender import Sender
from pyspark_pykafka.engines.wire.producer.session import IdempotentSession, TransactionalSession
from pyspark_pykafka.engines.wire.records._encoder import RecordEncoder
from pyspark_pykafka.engines.wire.records.arrow_encoder import ArrowEncoder, encode_record
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.engines.wire.transactions.values import TransactionState
from pyspark_pykafka.errors import MissingTopicError, PykafkaError, UnknownTopicError
from pyspark_pykafka.settings.wire_config import wire_producer_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from pyspark_pykafka.engines.transaction_contract import LedgerRecord, TransactionSpec
    from pyspark_pykafka.engines.wire.producer.partition_queue import PartitionQueue
    from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
    from pyspark_pykafka.offsets import TopicPartition
    from pyspark_pykafka.retry import Deadline
    from pyspark_pykafka.settings import KafkaSettings
    from pyspark_pykafka.settings.wire_config import ProducerConfig

logger = logging.getLogger("pyspark_pykafka")

T = TypeVar("T")

_MAX_FALLBACK_SUFFIX = 10**9

# More known coordinators than this are forgotten: each write has ids of its own, such as its fence
# id, and a worker may write for months.
_MAX_COORDINATORS = 1_000

# Batches that are not full yet may take 1/2 of the buffer; the rest is for batches in flight.
_OPEN_BATCHES_DIVISOR = 2


def produce(batches: Iterable[pa.RecordBatch], kafka: KafkaSettings, topic: str | None) -> int:
    """
    Write every row; return the number of rows once the brokers have acknowledged them all.

    ``topic`` takes precedence over the column ``topic``. Raises :class:`RecordError` for a row that
    cannot be written, and the other errors of :mod:`pyspark_pykafka.errors`.
    """
    config = _config(kafka)
    with _pool.borrow(config, lambda: _Producer(config)) as producer:
        return producer.write(batches, topic)


def check_topic(kafka: KafkaSettings, topic: str) -> None:
    """
    Raise :class:`MissingTopicError` if the topic is still missing after some seconds.
    """
    with _producer_of_driver(kafka) as producer:
        producer.partitions(topic)


def check_brokers(kafka: KafkaSettings) -> None:
    """
    Raise the error of brokers that cannot be reached or reject the login.
    """
    with _producer_of_driver(kafka) as producer:
        producer.contact_brokers()


@contextmanager
def _producer_of_driver(kafka: KafkaSettings) -> Iterator[_Producer]:
    """
    Lend a producer that waits for less time until a broker has responded.

    If the block succeeds, a broker has responded, which is recorded.
    """
    config = replace(_config(kafka), block_seconds=block_seconds(kafka))
    with _pool.borrow(config, lambda: _Producer(config)) as producer:
        yield producer
    record_contact(kafka)


def write_in_transaction(
    batches: Iterable[pa.RecordBatch],
    kafka: KafkaSettings,
    topic: str | None,
    transaction: TransactionSpec,
) -> TaskWriteResult:
    """
    Write every row and the ledger record into a transaction, and leave the transaction open.

    Without rows no transaction begins. A write that fails is aborted. Raises as :func:`produce`
    does.
    """
    config = _config(kafka)
    with _pool.borrow(config, lambda: _Producer(config)) as producer:
        producer.forget_old_coordinators()
        return producer.write_in_transaction(batches, topic, transaction)


def choose_free_id(transactions: Transactions, transaction: TransactionSpec) -> str:
    """
    Return the transaction's id, or another one if a ``fallback`` is set and the id is in use.

    An id is in use if it has an open transaction: another write may still commit that transaction.
    """
    if transaction.fallback is None:
        return transaction.transactional_id
    if _is_free(transactions, transaction.transactional_id):
        return transaction.transactional_id
    # The driver can derive the first id and the notice id, but not the fallback id.
    transactions.register_id(transaction.fallback.notice_id)
    fallback = transaction.fallback.transactional_id
    if _is_free(transactions, fallback):
        return fallback
    # A restarted driver numbers its attempts as its predecessor did, so the fallback may be in use.
    return f"{fallback}{uuid4().int % _MAX_FALLBACK_SUFFIX}"


def begin_with_free_id(
    transactions: Transactions, transaction: TransactionSpec
) -> tuple[str, ProducerIdAndEpoch]:
    """
    Begin a transaction with the id from :func:`choose_free_id`; return the id and the identity.

    If the coordinator moves meanwhile, the id is chosen again from the new coordinator's state.
    """
    return transactions.begin_with_chosen_id(
        lambda: choose_free_id(transactions, transaction), transaction.timeout_ms
    )


def _is_free(transactions: Transactions, transactional_id: str) -> bool:
    transaction = transactions.describe(transactional_id)
    return transaction is None or transaction.state is not TransactionState.ONGOING


@contextmanager
def transaction_client(kafka: KafkaSettings) -> Iterator[Transactions]:
    """
    Lend a client that finds and ends transactions.
    """
    config = _config(kafka)
    with _pool.borrow(config, lambda: _Producer(config)) as producer:
        producer.forget_old_coordinators()
        yield producer.transactions


@dataclass(slots=True)
class _Producer:
    """
    The state that tasks reuse: connections, the producer id, and the partitions' sequence numbers.
    """

    config: ProducerConfig
    cluster: Cluster = field(init=False)
    transactions: Transactions = field(init=False)
    queues: dict[TopicPartition, PartitionQueue] = field(init=False, default_factory=dict)
    _identity: ProducerIdAndEpoch | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.cluster = Cluster(
            self.config.wire,
            creates_topics=True,
            metadata_max_age_seconds=self.config.metadata_max_age_seconds,
        )
        # This client has its own connections, since it sends requests while records are in flight.
        self.transactions = Transactions(Cluster(self.config.wire), self.config)

    def write(self, batches: Iterable[pa.RecordBatch], topic: str | None) -> int:
        return self._write(batches, topic, self._idempotent_sender).records

    def write_in_transaction(
        self, batches: Iterable[pa.RecordBatch], topic: str | None, transaction: TransactionSpec
    ) -> TaskWriteResult:
        session: TransactionalSession | None = None
        ledger_record = transaction.ledger_record

        def sender() -> Sender:
            nonlocal session
            name, identity = begin_with_free_id(self.transactions, transaction)
            extra = frozenset({ledger_record.tp} if ledger_record else ())
            session = TransactionalSession(
                self.transactions, name, identity, extra, transaction.fence_id
            )
            check = transaction.check_not_stopped
            return Sender(self.cluster, self.config, session, {}, check_not_stopped=check)

        try:
            written = self._write(batches, topic, sender, ledger_record)
            # The commit message of a stopped task is lost, so nobody would end its transaction.
            transaction.check_not_stopped()
        except BaseException:
            if session is not None:
                _abort(session)
            raise
        return written._replace(prepared=None if session is None else session.prepared)

    def _write(
        self,
        batches: Iterable[pa.RecordBatch],
        topic: str | None,
        open_sender: Callable[[], Sender],
        ledger_record: LedgerRecord | None = None,
    ) -> TaskWriteResult:
        """
        Write every row and the ledger record; ``prepared`` of the result is still None.
        """
        rows = self._row_encoder(topic, ledger_record)
        sender, records = None, 0
        for batch in batches:
            records += batch.num_rows
            for tp, payload in rows.batches(batch):
                sender = sender or open_sender()
                sender.put(tp, payload)
            if sender is not None:
                sender.poll()
        for tp, payload in rows.flush():
            sender = sender or open_sender()
            sender.put(tp, payload)
        if sender is None:
            return TaskWriteResult(0, None, -1)
        if ledger_record is None:
            sender.flush()
            return TaskWriteResult(records, None, -1)
        content = rows.content_hash
        sender.put(
            ledger_record.tp,
            encode_record(ledger_record.topic, *ledger_record.make(records, content)),
        )
        sender.flush()
        return TaskWriteResult(records, None, sender.offsets[ledger_record.tp], content)

    def forget_old_coordinators(self) -> None:
        """
        Limit the memory for coordinators of ids that no write uses any more.
        """
        if len(self.transactions.addresses) > _MAX_COORDINATORS:
            self.transactions.addresses.clear()

    def _row_encoder(self, topic: str | None, ledger_record: LedgerRecord | None) -> ArrowEncoder:
        config = self.config
        encoder = RecordEncoder(
            min(config.batch_bytes, config.request_bytes),
            config.request_bytes,
            int.from_bytes(os.urandom(8), "little"),
            hashes=ledger_record is not None,
        )
        max_open_bytes = config.buffer_bytes // _OPEN_BATCHES_DIVISOR
        ledger_topic = None if ledger_record is None else ledger_record.topic
        return ArrowEncoder(
            topic, self.partitions, encoder, max_open_bytes, ledger_topic=ledger_topic
        )

    def close(self) -> None:
        self.cluster.close()
        self.transactions.cluster.close()

    def _idempotent_sender(self) -> Sender:
        if self._identity is None:
            self._identity = request_producer_id(self.cluster, self.config)
        return Sender(self.cluster, self.config, IdempotentSession(self._identity), self.queues)

    def partitions(self, topic: str, min_count: int = 0) -> tuple[int, list[int]]:
        """
        Return the number of partitions, and the partitions with a leader; wait for a missing topic.

        If fewer than ``min_count`` are known, the metadata is read again; there may still be fewer.
        """
        seconds = min(MISSING_PARTITION_SECONDS, self.config.block_seconds)
        missing_until = self.cluster.new_deadline(seconds)

        def request(deadline: Deadline) -> tuple[int, list[int]]:
            try:
                return self.cluster.partitions(topic, deadline, min_count)
            except UnknownTopicError as error:
                if missing_until.expired:
                    msg = (
                        f"topic '{topic}' was not found within {seconds * 1000:.0f} ms; create "
                        "it, or correct the option or column 'topic'"
                    )
                    raise MissingTopicError(msg) from error
                raise

        return self._retry(request, f"reading the partitions of topic '{topic}'")

    def contact_brokers(self) -> None:
        """
        Request metadata without topics, from any broker.
        """
        self._retry(lambda deadline: self.cluster.metadata((), deadline), "connecting")

    def _retry(self, request: Callable[[Deadline], T], action: str) -> T:
        """
        Call ``request`` again after retriable errors, for ``kafka.max.block.ms``.
        """
        initial_backoff = self.config.wire.retry_backoff_seconds
        return retry_within_max_block(
            *(request, self.config, initial_backoff, f"{action}: not done"),
            now=self.cluster.now,
            sleep=self.cluster.sleep,
        )


def _abort(session: TransactionalSession) -> None:
    """
    Abort after an error; if that fails, too, only log it, since the first error is raised.
    """
    try:
        session.abort()
    except PykafkaError as error:
        logger.warning(
            "the transaction %s of a failed write could not be aborted: %s; if it is open, the "
            "coordinator aborts it after kafka.transaction.timeout.ms",
            *(session.transactional_id, error),
        )


_pool: ClientPool[_Producer] = ClientPool(_Producer.close)


@lru_cache(maxsize=16)
def _config(kafka: KafkaSettings) -> ProducerConfig:
    return wire_producer_config(kafka)
