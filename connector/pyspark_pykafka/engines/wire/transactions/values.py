"""
What a transaction is to the process that ends it, and what its coordinator reports about it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class TransactionState(enum.Enum):
    """
    Where a transaction stands, in Kafka's words (``TransactionState``).
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


#: The transaction is committed, or its coordinator has decided to commit it.
COMMITTED_STATES = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class PreparedTransaction(NamedTuple):
    """
    A transaction that has all its records and waits for its end.
    """

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionDescription(NamedTuple):
    """
    What the coordinator says of a transactional id; times are milliseconds of the epoch.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    partitions: int

    @property
    def prepared(self) -> PreparedTransaction:
        """
        Whose transaction it is, or was.
        """
        return PreparedTransaction(self.transactional_id, self.producer_id, self.epoch)


def is_committed(wanted: PreparedTransaction, found: TransactionDescription | None) -> bool:
    """
    Return whether a transaction is committed, or is going to be for certain.
    """
    return found is not None and found.prepared == wanted and found.state in COMMITTED_STATES
