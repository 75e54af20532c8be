"""
Commits or aborts the transactions of a micro-batch; the ledger decides which.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import PykafkaError
from pyspark_pykafka.sink.batch_committer import (
    abort_open_transactions,
    check_open,
    find_losing_attempts,
    list_open_ids,
)
from pyspark_pykafka.sink.decided_commits import roll_forward, select_undecided
from pyspark_pykafka.sink.intents import (
    check_binding,
    find_conflict,
    find_intents,
    is_binding,
    make_intent,
    named_transactions,
    outdated_intents,
)
from pyspark_pykafka.sink.ledger import open_ledger
from pyspark_pykafka.sink.ledger_entries import EmptyWriteClaim, Intent, Marker, Withdrawal
from pyspark_pykafka.sink.ledger_loss import (
    check_ledger_not_emptied,
    is_truncated,
    records_commit,
    truncated_error,
)
from pyspark_pykafka.sink.replay import (
    batch_state,
    check_no_later_batch_begun,
    check_no_later_commit,
    check_owner,
    check_single_writer,
    committed_tasks,
    concurrent_writer,
    covers_batch,
    describe_row_difference,
    prefix_owner,
)
from pyspark_pykafka.sink.transactional_ids import query_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.sink.ledger import Ledger
    from pyspark_pykafka.sink.ledger_entries import (
        Committable,
        CommittableBatch,
        EntriesWithOffsets,
    )

logger = logging.getLogger("pyspark_pykafka")

# Offsets per task in the first window: a marker and a control record, for two batches.
_OFFSETS_PER_TASK = 4
_MIN_OFFSETS = 64


def commit_micro_batch(transactions: Transactions, batch: CommittableBatch) -> None:
    """
    Commit the tasks of a micro-batch, except those that an earlier write of it has committed.

    If the commit of an earlier write was decided, it is completed first, however that write divided
    its rows. Raises :class:`ExactlyOnceError` if the committed tasks cannot be identified, or this
    write may not commit, and :class:`FencedError` if a transaction is no longer open. Nothing of
    this write is committed then.
    """
    ledger = open_ledger(transactions, batch.prefix)
    before = _committed_before(transactions, ledger, batch)
    # Invariant I2 (completeness): every earlier write has ended.
    done = committed_tasks(batch, before)
    new = [task for task in batch.committables if task.task not in done]
    if new:
        check_open(transactions, _prepared(new))
        _decide(ledger, batch, new, before)
        transactions.end_all(_prepared(new), commit=True)
    if done:
        logger.warning(
            "batch %d of the query %s had been committed in part or whole before a failure: of %d "
            "tasks %d were not written again",
            *(batch.batch, batch.query, batch.tasks, len(done)),
        )
        repeated = [task for task in batch.committables if task.task in done]
        transactions.end_all(_prepared(repeated), commit=False)
    # Checked for a write without rows, too: the committed write of the batch may have had rows.
    _warn_of_other_rows(batch, before)


def abort_micro_batch(
    transactions: Transactions,
    prefix: str,
    query: str,
    write: str,
    committables: Sequence[Committable],
    *,
    maybe_committing: bool = True,
) -> None:
    """
    Abort the tasks of a micro-batch, and other open transactions of the query.

    Transactions that the driver has decided to commit stay open, and the next run commits them;
    ``maybe_committing`` is False if a task has failed, so that no commit was decided. If another
    process has continued the query, or may have continued it, only the tasks of this micro-batch
    are aborted: the other open transactions may belong to that process.
    """
    if not committables:
        # Without a marker another process cannot be detected; the next micro-batch cleans up.
        return
    ledger = open_ledger(transactions, prefix)
    first = min(committable.marker_offset for committable in committables)
    # Invariant I5 (intent first): without a binding intent the whole write may be aborted.
    if maybe_committing and not _withdraw(ledger, query, write, first):
        logger.warning(
            "the commit of a micro-batch of the query %s failed after it was decided; nothing "
            "is aborted: the next run commits the open transactions",
            query,
        )
        return
    transactions.end_all(_prepared(committables), commit=False)
    try:
        _abort_open_if_alone(transactions, ledger, (prefix, query, write), first)
    except PykafkaError as error:
        logger.warning(
            "it is not known whether another process has continued the query %s: %s; the next "
            "micro-batch aborts the open transactions of losing attempts",
            *(query, error),
        )


def _warn_of_other_rows(batch: CommittableBatch, committed: EntriesWithOffsets) -> None:
    difference = describe_row_difference(batch, committed)
    if difference is None:
        return
    logger.warning(
        "batch %d of the query %s is committed with different rows from those of this run (%s), "
        "which are not written. That is expected if the query uses random values, the time or a "
        "service. If its checkpoint was reset by one batch, rows are missing from the topic: reset "
        "it again, and before the next start run: pykafka transactions release --prefix %s",
        *(batch.batch, batch.query, difference, batch.prefix),
    )


def _warn_of_new_ledger(ledger: Ledger, batch: CommittableBatch) -> None:
    """
    Log a warning if a query that is not new commits its first batch with this ledger.
    """
    if batch.batch <= 0:
        return
    logger.warning(
        "the ledger %s is new, but the query %s continues with its batch %d. If this batch was "
        "written before, with another transactionalIdPrefix or deliveryGuarantee or to another "
        "cluster, its rows are visible twice. To avoid that, let the last batch complete before "
        "you change these options: run the query once with the old ones and "
        "trigger(availableNow=True)",
        *(ledger.topic, batch.query, batch.batch),
    )


def _prepared(committables: Sequence[Committable]) -> list[PreparedTransaction]:
    return [committable.prepared for committable in committables]


def _decide(
    ledger: Ledger, batch: CommittableBatch, new: list[Committable], before: EntriesWithOffsets
) -> None:
    """
    Append the intent of a write, and raise unless it is binding.
    """
    intent = make_intent(batch, new)
    end = ledger.append(intent, outdated_intents(batch.query, batch.batch, before))
    # Invariant I4 (exclusion).
    check_binding(batch, ledger.read_all(intent.first, end))


def _withdraw(ledger: Ledger, query: str, write: str, first: int) -> bool:
    """
    Append the withdrawal of a write, and return whether it came before any binding intent.
    """
    # An intent that is still in flight lands after this entry, and is not binding.
    end = ledger.append(Withdrawal(query, write))
    # Read up to that offset, whatever high watermark a newly elected leader reports.
    return not _is_decided(ledger.read_all(first, end), query, write)


def _is_decided(entries: EntriesWithOffsets, query: str, write: str) -> bool:
    own_intents = [intent for _, intent in find_intents(query, entries) if intent.write == write]
    return any(is_binding(intent, entries) for intent in own_intents)


def _committed_before(
    transactions: Transactions, ledger: Ledger, batch: CommittableBatch
) -> EntriesWithOffsets:
    """
    Wait until every earlier write has ended, and return the entries that those writes committed.
    """
    # Without rows a write has no marker: it begins at the current end, or after its claim.
    first = (
        ledger.high_watermark() if batch.first_marker_offset is None else batch.first_marker_offset
    )
    log_start, stable_end = ledger.watermarks()
    stable_end = min(stable_end, first)
    window = _OFFSETS_PER_TASK * batch.tasks + _MIN_OFFSETS
    committed = ledger.read_committed_back(log_start, stable_end, batch.batch, window)
    check_owner(batch, committed)
    check_no_later_commit(batch, committed)
    covered = covers_batch(committed, batch.batch, log_start)
    if not covered and is_truncated(ledger, log_start):
        # The deleted entries may concern this batch.
        raise truncated_error(batch.prefix, batch.query, ledger.topic, log_start)
    is_stable = stable_end == first
    decided: list[PreparedTransaction] = []
    if not is_stable:
        if not batch.committables:
            # Invariant I4 (exclusion): only a write that others can see may abort other writes.
            first = ledger.append(EmptyWriteClaim(batch.query, batch.batch, batch.write))
        ids = (batch.prefix, batch.query)
        decided = roll_forward(transactions, ledger, ids, log_start, (stable_end, first))
        # Nothing of a later batch may be aborted, whether it is decided or not.
        check_no_later_batch_begun(batch, ledger.read_all(stable_end, first))

    def abort_losing_attempts() -> None:
        _abort_losing_attempts_if_alone(
            transactions, ledger, batch, first, None if is_stable else decided
        )

    abort_losing_attempts()
    if not is_stable:
        if prefix_owner(committed) is not None:
            _abort_foreign(transactions, ledger, batch, (stable_end, first))
        ledger.wait_until_stable(first, abort_losing_attempts)
        committed = [*committed, *ledger.read_committed(stable_end, first)]
        check_owner(batch, committed)
    if batch.committables and not records_commit(entry for _, entry in committed):
        check_ledger_not_emptied(transactions, batch.prefix, batch.query, batch.batch, ledger.topic)
        _warn_of_new_ledger(ledger, batch)
    if batch.committables and not batch_state(batch.query, batch.batch, committed).markers:
        # The intent decides whether this write may commit.
        return committed
    # A write without rows that finds a stable ledger has aborted nothing, and adds no entry.
    is_passive = is_stable and not batch.committables
    later = ledger.read_all_from(first) if is_passive else ledger.read_up_to_barrier(first)
    check_single_writer(batch, [entry for _, entry in later])
    # A dead driver's request may have appended its intent only now.
    return [*committed, *(entry for entry in later if isinstance(entry[1], Intent))]


def _abort_losing_attempts_if_alone(
    transactions: Transactions,
    ledger: Ledger,
    batch: CommittableBatch,
    start: int,
    decided: Sequence[PreparedTransaction] | None,
) -> None:
    """
    Abort the open transactions of earlier writes, after checking that no later write exists.

    ``decided`` are transactions to spare, or None if the ledger shows no open transactions: then
    only losing attempts of this write are looked up, instead of all transactions of the query.
    """
    pattern = query_pattern(batch.prefix, batch.query)
    own_ids = [committable.prepared.transactional_id for committable in batch.committables]
    if decided is not None:
        open_ids = sorted(set(list_open_ids(transactions, pattern)) - set(own_ids))
        undecided = select_undecided(transactions, open_ids, decided)
    else:
        undecided = find_losing_attempts(transactions, own_ids, pattern, reuses_ids=True)
    if not undecided:
        return
    check_single_writer(batch, [entry for _, entry in ledger.read_up_to_barrier(start)])
    transactions.abort_ids(undecided)


def _abort_open_if_alone(
    transactions: Transactions, ledger: Ledger, ids: tuple[str, str, str], first: int
) -> None:
    """
    Abort a query's open transactions if no other write has continued it.

    ``ids`` are prefix, query and write. Transactions that an earlier write had decided to commit
    are spared: the next run commits them.
    """
    prefix, query, write = ids
    open_ids = list_open_ids(transactions, query_pattern(prefix, query))
    if not open_ids:
        return
    _, stable_end = ledger.watermarks()
    entries = ledger.read_up_to_barrier(min(stable_end, first))
    decided = {
        name
        for _, intent in find_intents(query, entries)
        for name, *_ in named_transactions(prefix, intent)
    }
    if _is_alone(query, write, entries, first):
        transactions.abort_ids([name for name in open_ids if name not in decided])


def _is_alone(query: str, write: str, entries: EntriesWithOffsets, first: int) -> bool:
    """
    Return whether no other write has continued a query.

    ``entries`` are those from the last stable offset up to a barrier; ``first`` is the offset of
    the write's first marker.
    """
    earlier = [entry for offset, entry in entries if offset < first]
    written = [
        (offset, entry)
        for offset, entry in entries
        if offset >= first and isinstance(entry, Marker | EmptyWriteClaim)
    ]
    batches = [entry.batch for _, entry in written if entry.write == write]
    return (
        bool(batches)
        and concurrent_writer(query, write, batches[0] + 1, earlier) is None
        and find_conflict(query, batches[0], write, written) is None
    )


def _abort_foreign(
    transactions: Transactions, ledger: Ledger, batch: CommittableBatch, offsets: tuple[int, int]
) -> None:
    """
    Abort the open transactions of queries that do not own the prefix, but have markers in a part of
    the ledger.

    ``offsets`` are the ledger's ``[start, end)`` to search.
    """
    entries = [entry for _, entry in ledger.read_all(*offsets)]
    foreign = {entry.query for entry in entries if isinstance(entry, Marker)} - {batch.query}
    for query in sorted(foreign):
        abort_open_transactions(transactions, query_pattern(batch.prefix, query))
