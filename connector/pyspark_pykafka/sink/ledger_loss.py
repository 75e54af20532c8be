"""
Detects a lost ledger: one that is gone or empty, although brokers remember committed transactions,
or one whose first entries were deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import ExactlyOnceError
from pyspark_pykafka.sink.command_entries import without_ineffective_commands
from pyspark_pykafka.sink.ledger_entries import Completion, Marker, Release
from pyspark_pykafka.sink.transactional_ids import query_pattern, stream_task_transactional_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.sink.ledger import Ledger
    from pyspark_pykafka.sink.ledger_entries import Entry


def records_commit(entries: Iterable[Entry]) -> bool:
    """
    Return whether committed entries show that something was committed, or that a loss is accepted.

    The intent and the withdrawal of a write that was refused do not.
    """
    return any(isinstance(entry, (Marker, Completion, Release)) for entry in entries)


def is_truncated(ledger: Ledger, log_start: int) -> bool:
    """
    Return whether entries were deleted that may still matter; ``log_start`` is the ledger's.

    Compaction removes entries too, but leaves the log start at 0: only DeleteRecords and retention
    move it, which brokers refuse for a topic that is only compacted. Entries before a release do
    not matter, and if a release is left, all deleted entries lie before it.
    """
    if log_start == 0:
        return False
    counting = without_ineffective_commands(ledger.read_all_from(log_start))
    return not any(isinstance(entry, Release) for _, entry in counting)


def list_committed_transactional_ids(
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
    Raise :class:`ExactlyOnceError` if the query has committed rows, but the ledger shows none.

    Only for a ledger that records no commit. The ids of the previous batch differ from those of
    this batch: if a transaction with one of them was committed, so was the previous batch.
    """
    if batch <= 0:
        return
    id_prefix = stream_task_transactional_id(prefix, query, batch - 1, 0, 0).removesuffix("-0-0")
    committed_ids = [
        name
        for name in list_committed_transactional_ids(transactions, prefix, query)
        if name.startswith(f"{id_prefix}-")
    ]
    if committed_ids:
        raise ledger_lost_error(prefix, query, topic, committed_ids[0], "records no commit")


def truncated_error(prefix: str, query: str, topic: str, log_start: int) -> ExactlyOnceError:
    """
    Return the error for a ledger whose entries before ``log_start`` were deleted.
    """
    msg = (
        f"the topic {topic} begins at offset {log_start}: its first entries were deleted, by "
        "DeleteRecords or by retention, since its cleanup.policy is or was not compact. The query "
        f"{query} recorded its committed transactions in it, so it is unknown whether this "
        "micro-batch is already committed. Nothing of this write is visible. Set cleanup.policy to "
        "compact; and if the rows of the last micro-batch may be repeated, or are known to be "
        f"missing, start a new ledger: pykafka transactions release --prefix {prefix}; or give the "
        "query another transactionalIdPrefix"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)


def ledger_lost_error(
    prefix: str, query: str, topic: str, transactional_id: str, state: str
) -> ExactlyOnceError:
    """
    Return the error for a ledger that is missing, or records no commit, although
    ``transactional_id`` was committed.
    """
    msg = (
        f"the topic {topic} {state}. The query {query} recorded its committed transactions in it, "
        f"{transactional_id} among them, so it is unknown whether this micro-batch is already "
        "committed. Nothing of this write is visible. Restore the topic; or, if the rows of the "
        "last micro-batch may be repeated, or are known to be missing, start a new ledger: pykafka "
        f"transactions release --prefix {prefix}; or give the query another transactionalIdPrefix"
    )
    return ExactlyOnceError("EXACTLY_ONCE_LEDGER_LOST", msg)
