"""
Settles transactions whose EndTxn requests were not answered, and reports how each one ended.

A request that was not answered may still take effect at any time, until its coordinator has decided
the outcome.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.transactions.values import TransactionState, is_committed
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import TransactionDescription

logger = logging.getLogger("pyspark_pykafka")

_INITIAL_BACKOFF_SECONDS = 0.02
# The share of kafka.max.block.ms for completing a partial commit; the rest is for fencing.
_COMMIT_SHARE = 0.5

_ABORTED = (
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)


class Outcome(enum.Enum):
    """
    How a transaction ended; only UNKNOWN may still change.

    LOST is final, too, but the brokers no longer know the outcome: another producer has the id.
    """

    COMMITTED = "committed"
    ABORTED = "aborted"
    LOST = "lost"
    UNKNOWN = "unknown"


def settle(
    transactions: Transactions,
    prepared: Sequence[PreparedTransaction],
    started: Mapping[str, int] | None = None,
) -> dict[str, Outcome]:
    """
    Commit all transactions if any is committed, or else abort them; return outcomes by id.

    An open transaction is committed if another one is committed. If none is, or if half of
    ``kafka.max.block.ms`` has passed, it is fenced instead: InitProducerId gives its id the next
    epoch, which aborts the transaction and rejects requests still in flight. The outcome is UNKNOWN
    if the coordinator cannot be reached within ``kafka.max.block.ms``. ``started`` maps ids to
    start times in milliseconds, if known: the abort of a transaction that another write began later
    under the same id proves nothing about ours.
    """
    return _Settlement(transactions, prepared, started or {}).run()


class _Settlement:
    def __init__(
        self,
        transactions: Transactions,
        prepared: Sequence[PreparedTransaction],
        started: Mapping[str, int],
    ) -> None:
        seconds = transactions.config.block_seconds
        self._transactions = transactions
        self._deadline = transactions.cluster.new_deadline(seconds)
        self._commit_deadline = transactions.cluster.new_deadline(seconds * _COMMIT_SHARE)
        self._backoff = Backoff(
            _INITIAL_BACKOFF_SECONDS, transactions.config.wire.retry_backoff_max_seconds
        )
        self._pending = {transaction.transactional_id: transaction for transaction in prepared}
        self._started = started
        self._outcomes: dict[str, Outcome] = {}

    def run(self) -> dict[str, Outcome]:
        while True:
            still_open = self._poll()
            if not self._pending or self._deadline.expired:
                return self._outcomes | dict.fromkeys(self._pending, Outcome.UNKNOWN)
            self._advance(still_open)
            self._deadline.pause(self._backoff.next_pause())

    def _poll(self) -> list[PreparedTransaction]:
        """
        Record the decided transactions, and return those that are certainly open.
        """
        descriptions = self._transactions.describe_reachable(list(self._pending), self._deadline)
        still_open = []
        for name, description in descriptions.items():
            outcome = _outcome(self._pending[name], description, self._started.get(name))
            if outcome is None:
                still_open.append(self._pending[name])
            else:
                self._outcomes[name] = outcome
                del self._pending[name]
        return still_open

    def _advance(self, still_open: list[PreparedTransaction]) -> None:
        """
        Commit or fence open transactions; the next poll sees the result.
        """
        may_commit = not self._commit_deadline.expired
        unreachable = len(self._pending) > len(still_open)
        try:
            if may_commit and Outcome.COMMITTED in self._outcomes.values():
                self._transactions.commit_once(still_open, self._commit_deadline)
            elif not (may_commit and unreachable):
                # An unreachable transaction may be committed; then all others must be, too.
                ids = [transaction.transactional_id for transaction in still_open]
                self._transactions.fence_once(ids, self._deadline)
        except PykafkaError as error:
            logger.info("%s; trying again", error)


def _outcome(
    prepared: PreparedTransaction,
    description: TransactionDescription | None,
    started: int | None = None,
) -> Outcome | None:
    """
    Return how a transaction ended, or None while it is open; ``started`` is its start time.
    """
    if description is None:
        return Outcome.LOST
    if description.prepared == prepared:
        if description.state is TransactionState.ONGOING:
            return None
        if is_committed(prepared, description):
            return Outcome.COMMITTED
        return Outcome.ABORTED if description.state in _ABORTED else Outcome.LOST
    if started is not None and description.started_ms > started:
        # Another write has used the id since, and its transaction is the one that is described.
        return Outcome.LOST
    # Fencing, or the coordinator after a timeout, bumped the epoch with the abort; Kafka 4.0.0 may
    # bump it twice (KAFKA-19367). Another write could also have bumped it twice, but its
    # transaction would have another start time.
    bumps = 2 if started == description.started_ms else 1
    fenced = (
        description.producer_id == prepared.producer_id
        and 0 < description.epoch - prepared.epoch <= bumps
    )
    return Outcome.ABORTED if fenced and description.state in _ABORTED else Outcome.LOST
