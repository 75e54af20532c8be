"""
Ending the transactions of many tasks together: all of them, or none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.wire.transactions import FencedError, Prepared, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.wire.transactions import Described, Transactions

    Names = Iterable[tuple[str, int, int]]

logger = logging.getLogger("pyspark_pykafka")

_UNDER_WAY = (State.ONGOING, State.PREPARE_EPOCH_FENCE)


def commit_all(transactions: Transactions, prepared: Names, prefix: str) -> None:
    """
    Commit every transaction of a write, once all of them are known to be open still.

    What else is open under the prefix is of attempts that lost, and is aborted. Raises
    :class:`FencedError` if one is not open any more; then none has been committed.
    """
    waiting = [Prepared(*one) for one in prepared]
    for one in waiting:
        _check(one, transactions.describe(one.transactional_id))
    for one in waiting:
        transactions.end(one, commit=True)
    _sweep(transactions, prefix)


def abort_all(transactions: Transactions, prepared: Names, prefix: str) -> None:
    """
    Abort every transaction of a write, and what else is open under its prefix.
    """
    for one in prepared:
        try:
            transactions.end(Prepared(*one), commit=False)
        except FencedError as gone:
            logger.info("%s; nothing of it is left to abort", gone)
    _sweep(transactions, prefix)


def _check(wanted: Prepared, found: Described | None) -> None:
    ours = found is not None and Prepared(wanted[0], found.producer_id, found.epoch) == wanted
    if found is not None and ours and found.state is State.ONGOING:
        return
    what = "unknown to the brokers" if found is None else f"in the state {found.state.value}"
    if found is not None and not ours:
        what += " of another producer"
    msg = (
        f"the transaction {wanted.transactional_id} is {what}: the write took longer than "
        "kafka.transaction.timeout.ms, or another one uses the same transactionalIdPrefix. "
        "Nothing of this write is visible to readers of committed records; run it again"
    )
    raise FencedError(msg, 90, "PRODUCER_FENCED", retriable=False)


def _sweep(transactions: Transactions, prefix: str) -> None:
    """
    Abort what is open still: it would hold readers of committed records up until its time is over.
    """
    for name in transactions.names(f"{prefix}-", _UNDER_WAY):
        transactions.abort(name)
