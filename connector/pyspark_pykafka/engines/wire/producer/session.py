"""
Who writes: the identity that brokers tell duplicates by, and the transaction, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_pykafka.engines.wire.transactions.values import (
    PreparedTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.wire.records.record_batch import ProducerIdAndEpoch
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.offsets import TopicPartition

# From 12 on a broker adds partitions to transactions by itself, and ends them in another way.
_NEWEST, _NEWEST_OF_TRANSACTIONS = 12, 11


class ProducerSession(Protocol):
    """
    What a sender puts on its batches and requests.
    """

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """
        The producer's id and epoch.
        """

    @property
    def transactional_id(self) -> str | None:
        """
        The name of the transaction, or None.
        """

    @property
    def max_version(self) -> int:
        """
        The newest version of Produce that can be used.
        """

    def add_partitions(self, tps: Iterable[TopicPartition]) -> None:
        """
        Prepare to write to partitions.
        """


class IdempotentSession(NamedTuple):
    """
    Writes without a transaction: every record is visible once it is acknowledged.
    """

    identity: ProducerIdAndEpoch
    transactional_id: None = None
    max_version: int = _NEWEST

    def add_partitions(self, _tps: Iterable[TopicPartition]) -> None:
        """
        Do nothing: any partition can be written to.
        """


@dataclass(slots=True)
class TransactionalSession:
    """
    Writes into one transaction; any process that gets :attr:`prepared` can end it.

    ``extra_partitions`` are written to last, and added together with the first partitions, which
    saves a request. The brokers know ``fence_id`` once the write has ended without this one.
    """

    transactions: Transactions
    transactional_id: str
    identity: ProducerIdAndEpoch
    extra_partitions: frozenset[TopicPartition] = frozenset()
    fence_id: str | None = None
    max_version: int = _NEWEST_OF_TRANSACTIONS
    _joined: set[TopicPartition] = field(init=False, default_factory=set)

    @property
    def prepared(self) -> PreparedTransaction:
        """
        What is needed to end the transaction.
        """
        return PreparedTransaction(self.transactional_id, *self.identity)

    def add_partitions(self, tps: Iterable[TopicPartition]) -> None:
        """
        Tell the coordinator of partitions that are new, since it has to end the transaction there.
        """
        new = (self.extra_partitions | set(tps)) - self._joined
        if not new:
            return
        first = not self._joined
        self.transactions.add_partitions(self.transactional_id, self.identity, sorted(new))
        self._joined |= new
        if first and self.fence_id is not None:
            # Only now: whoever ends the write marks that first, and then looks for what is open.
            self.transactions.check_not_fenced(self.fence_id, self.transactional_id)

    def abort(self) -> None:
        """
        Leave nothing of what was written; for a writer that failed.

        Records may be under way still, and brokers before 3.6 would take them after an end under
        the same epoch (KIP-890), which nothing would end again. So the name gets the next epoch.
        """
        if not self._joined:
            return
        found = self.transactions.describe(self.transactional_id)
        if found is not None and found.prepared == self.prepared:
            self.transactions.abort(self.transactional_id)
