"""
The states and descriptions of transactions, as their coordinators report them.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction


class TransactionState(enum.Enum):
    """
    The state of a transaction, by Kafka's names.
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

#: The coordinator has decided how the transaction ends, and is writing markers to its partitions.
DECIDED_STATES = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionDescription(NamedTuple):
    """
    A coordinator's description of a transactional id; ``started_ms`` is in ms since the epoch.
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
        The transaction that is described, whatever its state.
        """
        return PreparedTransaction(self.transactional_id, self.producer_id, self.epoch)


def is_committed(prepared: PreparedTransaction, description: TransactionDescription | None) -> bool:
    """
    Return whether a transaction is committed, or certainly will be.
    """
    return (
        description is not None
        and description.prepared == prepared
        and description.state in COMMITTED_STATES
    )
