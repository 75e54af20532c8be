"""
The state of a transactional id, as ``__transaction_state`` holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.kafka.image import Partition

EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
COMPLETED = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
STATES = (
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    "Dead",
    "PrepareEpochFence",
)

#: A producer at this epoch gets a new producer id, since the largest epoch is reserved for fencing.
LAST_EPOCH = 32766


@dataclass(frozen=True)
class TransactionState:
    """
    One transactional id: its producer, and its transaction, if there is one.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: str = EMPTY
    partitions: frozenset[Partition] = field(default_factory=frozenset)
    started_ms: int = -1
    #: The epoch before EndTxn bumped it, -1 if it never did (KIP-890).
    last_epoch: int = -1

    def fenced(self) -> TransactionState:
        """
        Return the state with the next epoch, which fences the producer.
        """
        return replace(self, epoch=self.epoch + 1)

    def prepared(self, *, commit: bool) -> TransactionState:
        """
        Return the state after EndTxn, before the markers are written.
        """
        return replace(self, state=PREPARE_COMMIT if commit else PREPARE_ABORT)

    def with_next_epoch(self) -> TransactionState:
        """
        Return the state with the next epoch, which the same producer uses from now on (KIP-890).
        """
        return replace(self, epoch=self.epoch + 1, last_epoch=self.epoch)

    def completed(self) -> TransactionState:
        """
        Return the state after all markers are written.
        """
        return replace(self, state=COMPLETED[self.state], partitions=frozenset())
