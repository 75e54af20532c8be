"""
The producer's identity, by which brokers detect duplicates, and its transaction, if it has one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.offsets import TopicPartition

# From version 12 on the broker itself adds partitions to transactions, which also changes how they
# end (KIP-890).
_MAX_VERSION, _MAX_TRANSACTIONAL_VERSION = 12, 11


class ProducerSession(Protocol):
    """
    The identity that the sender puts into its batches and requests.
    """

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """
        The producer id and epoch.
        """

    @property
    def transactional_id(self) -> str | None:
        """
        The transactional id, or None without a transaction.
        """

    @property
    def max_version(self) -> int:
        """
        The newest usable version of the Produce request.
        """

    def add_partitions(self, tps: Iterable[TopicPartition]) -> None:
        """
        Prepare for writing to partitions.
        """


class IdempotentSession(NamedTuple):
    """
    Writes without a transaction: a record is visible once it is acknowledged.
    """

    identity: ProducerIdAndEpoch
    transactional_id: None = None
    max_version: int = _MAX_VERSION

    def add_partitions(self, _tps: Iterable[TopicPartition]) -> None:
        """
        Do nothing: every partition can be written to.
        """


@dataclass(slots=True)
class TransactionalSession:
    """
    Writes into one transaction; any process that gets :attr:`prepared` can end it.

    ``extra_partitions`` are written to last, and added together with the first partitions, which
    saves a request. ``fence_id`` is registered with the brokers once the write has ended without
    this transaction.
    """

    transactions: Transactions
    transactional_id: str
    identity: ProducerIdAndEpoch
    extra_partitions: frozenset[TopicPartition] = frozenset()
    fence_id: str | None = None
    max_version: int = _MAX_TRANSACTIONAL_VERSION
    _added: set[TopicPartition] = field(init=False, default_factory=set)
    # Set before the first request: its response may be lost after the transaction has begun.
    _may_be_open: bool = field(init=False, default=False)

    @property
    def prepared(self) -> PreparedTransaction:
        """
        The transaction in the form in which another process can end it.
        """
        return PreparedTransaction(self.transactional_id, *self.identity)

    def add_partitions(self, tps: Iterable[TopicPartition]) -> None:
        """
        Add new partitions to the transaction, so that the coordinator writes its markers there.
        """
        new = (self.extra_partitions | set(tps)) - self._added
        if not new:
            return
        first = not self._added
        self._may_be_open = True
        self.transactions.add_partitions(self.transactional_id, self.identity, sorted(new))
        self._added |= new
        if first and self.fence_id is not None:
            # Checked only once the transaction is open. The driver registers the fence id first and
            # then lists open transactions, so whichever side acts second sees the other.
            try:
                self.transactions.check_write_not_ended(self.fence_id, self.transactional_id)
            except FencedError:
                self._end_without_records()
                raise

    def _end_without_records(self) -> None:
        """
        Abort the transaction before any record is sent.

        Unlike :meth:`abort` this cannot end a transaction that another write has begun under the
        same id by now: EndTxn needs this producer's epoch.
        """
        with suppress(FencedError):
            self.transactions.end(self.prepared, commit=False)
        self._may_be_open = False

    def abort(self) -> None:
        """
        Abort the transaction after a failed write.

        Requests may still be in flight, and brokers before 3.6 accept records after EndTxn with the
        same epoch (KIP-890), which would leave a hanging transaction. So the id is fenced with the
        next epoch instead.
        """
        if self._may_be_open:
            self.transactions.abort_unless_taken_over(self.prepared)
