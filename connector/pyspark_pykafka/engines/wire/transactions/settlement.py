"""
What has become of transactions whose end was asked for and not answered: decided, then told.

An EndTxn that was lost on its way may land at any time, until the coordinator has decided.
"""

from __future__ import annotations

import enum
import logging
import time
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
    is_committed,
)
from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.retry import Backoff, Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import (
        PreparedTransaction,
        TransactionDescription,
    )

logger = logging.getLogger("pyspark_pykafka")

_LEAST_PAUSE = 0.02
# So many of the seconds are for completing what is committed in part; the rest for fencing.
_PART_FOR_COMMITS = 0.5

_ABORTED = (
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)


class Outcome(enum.Enum):
    """
    What has become of a transaction; only UNKNOWN may still change.

    LOST is final, too, but the brokers do not tell what it was: the name is another's already.
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
    Decide all of them, committed if any is, and return the outcomes by transactional id.

    What is open still is committed if another one is, and else fenced: its name gets the next
    epoch (InitProducerId), which aborts it, and whatever is under way for it is refused. The
    outcome of those whose coordinators cannot be reached within ``kafka.max.block.ms`` is UNKNOWN.
    ``started`` tells by their names when they were begun, in milliseconds, as far as that is known:
    an abort of what another write began later under the same name says nothing of ours.
    """
    return _Settling(transactions, prepared, started or {}).run()


class _Settling:
    def __init__(
        self,
        transactions: Transactions,
        prepared: Sequence[PreparedTransaction],
        started: Mapping[str, int],
    ) -> None:
        seconds = transactions.config.block_seconds
        self._transactions = transactions
        self._deadline = Deadline.after(seconds)
        self._commits_until = Deadline.after(seconds * _PART_FOR_COMMITS)
        self._backoff = Backoff(_LEAST_PAUSE, transactions.config.direct.retry_backoff_max_seconds)
        self._left = {one.transactional_id: one for one in prepared}
        self._started = started
        self._outcomes: dict[str, Outcome] = {}

    def run(self) -> dict[str, Outcome]:
        while True:
            still_open = self._look()
            if not self._left or self._deadline.expired:
                return self._outcomes | dict.fromkeys(self._left, Outcome.UNKNOWN)
            self._push(still_open)
            time.sleep(self._deadline.remaining(max_seconds=self._backoff.next_pause()))

    def _look(self) -> list[PreparedTransaction]:
        """
        Note what is decided, and return what is open for certain.
        """
        found = self._transactions.describe_reachable(list(self._left), self._deadline)
        still_open = []
        for name, described in found.items():
            outcome = _outcome(self._left[name], described, self._started.get(name))
            if outcome is None:
                still_open.append(self._left[name])
            else:
                self._outcomes[name] = outcome
                del self._left[name]
        return still_open

    def _push(self, still_open: list[PreparedTransaction]) -> None:
        """
        Let the coordinators decide what is open; what comes of it is seen at the next look.
        """
        early = not self._commits_until.expired
        silent = len(self._left) > len(still_open)
        try:
            if early and Outcome.COMMITTED in self._outcomes.values():
                self._transactions.end_once(still_open, self._commits_until)
            elif not (early and silent):
                # One of the silent may be committed, and then the others should be.
                names = [one.transactional_id for one in still_open]
                self._transactions.fence_once(names, self._deadline)
        except PykafkaError as error:
            logger.info("%s; trying again", error)


def _outcome(
    wanted: PreparedTransaction, found: TransactionDescription | None, started: int | None = None
) -> Outcome | None:
    """
    Return what has become of a transaction, None while it is open; ``started`` is when it began.
    """
    if found is None:
        return Outcome.LOST
    if found.prepared == wanted:
        if found.state is TransactionState.ONGOING:
            return None
        if is_committed(wanted, found):
            return Outcome.COMMITTED
        return Outcome.ABORTED if found.state in _ABORTED else Outcome.LOST
    # Whoever fenced it, or its time, gave it the next epoch with the abort.
    fenced = found.producer_id == wanted.producer_id and found.epoch == wanted.epoch + 1
    if started is not None and found.started_ms > started:
        # Another write had the name since, and what was aborted is that one's.
        return Outcome.LOST
    return Outcome.ABORTED if fenced and found.state in _ABORTED else Outcome.LOST
