"""
Detects a lost ledger: brokers remember committed transactions independently of the ledger.
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
    Return the ids of a query's tasks whose last transaction was committed.

    Brokers remember ids for ``transactional.id.expiration.ms`` (seven days). Every broker must
    answer, unless ``max_seconds`` limits the wait.
    """
    return transactions.list_committed_ids(query_pattern(prefix, query), max_seconds=max_seconds)


def check_ledger_not_emptied(
    transactions: Transactions, prefix: str, query: str, batch: int, topic: str
) -> None:
    """
    Raise :class:`ExactlyOnceError` if the query has committed rows, but the ledger is empty.

    Only for a ledger that holds no committed entry. The previous batch's ids differ from this
    batch's: if one of them has committed, the previous batch was committed.
    """
    if batch <= 0:
        return
    id_prefix = stream_task_id(prefix, query, batch - 1, 0, 0).removesuffix("-0-0")
    committed_ids = [
        name
        for name in list_committed_task_ids(transactions, prefix, query)
        if name.startswith(f"{id_prefix}-")
    ]
    if committed_ids:
        raise ledger_lost_error(prefix, query, topic, committed_ids[0], "is empty")


def ledger_lost_error(
    prefix: str, query: str, topic: str, transactional_id: str, state: str
) -> ExactlyOnceError:
    """
    Return the error for a ledger that is missing or empty, although ``transactional_id`` was
    committed.
    """
    msg = (
        f"the topic {topic} {state}. The query {query} recorded its committed transactions in it, "
        f"{transactional_id} among them, so it is unknown whether this micro-batch is already "
        "committed. Nothing of this write is visible. Restore the topic; or, if the rows of the "
        "last micro-batch may be repeated, or are known to be missing, start a new ledger: pykafka "
        f"transactions release --prefix {prefix}; or give the query another transactionalIdPrefix"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)
