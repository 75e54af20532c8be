"""
Whether a ledger that says nothing has lost what it said: brokers know transactions by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import ExactlyOnceError
from pyspark_pykafka.sink.transactional_ids import query_pattern, stream_task_id

if TYPE_CHECKING:
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions


def list_committed_task_ids(
    transactions: Transactions, prefix: str, query: str, *, max_seconds: float | None = None
) -> list[str]:
    """
    Return the transactional ids of a query's tasks of which the last transaction was committed.

    Brokers remember them for ``transactional.id.expiration.ms``, seven days. All have to answer,
    unless ``max_seconds`` limits how long to wait for them.
    """
    return transactions.list_committed_ids(query_pattern(prefix, query), max_seconds=max_seconds)


def check_ledger_not_emptied(
    transactions: Transactions, prefix: str, query: str, batch: int, topic: str
) -> None:
    """
    Raise :class:`ExactlyOnceError` if the query has committed what the ledger does not tell.

    To be called where nothing at all is committed in the ledger. The batch before this one has
    other names than its tasks, which nothing but a batch that was committed leaves committed.
    """
    if batch <= 0:
        return
    turn = stream_task_id(prefix, query, batch - 1, 0, 0).removesuffix("-0-0")
    known = [
        it
        for it in list_committed_task_ids(transactions, prefix, query)
        if it.startswith(f"{turn}-")
    ]
    if known:
        raise ledger_lost_error(prefix, query, topic, known[0], "is empty")


def ledger_lost_error(
    prefix: str, query: str, topic: str, known: str, how: str
) -> ExactlyOnceError:
    """
    Return the error for a ledger that is missing or empty, though ``known`` was committed.
    """
    msg = (
        f"the topic {topic} {how}, in which the query {query} told what it has committed, {known} "
        "among it: whether this micro-batch is there already cannot be told any more. Nothing of "
        "this write is visible. Restore the topic; or, if the rows of the last micro-batch may be "
        "repeated, or are known to be missing, start it anew: pykafka transactions release "
        f"--prefix {prefix}; or give the query another transactionalIdPrefix"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)
