"""
Ending the transactions of a micro-batch: what the ledger says of it decides.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeAlias

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Backoff, Deadline
from pyspark_pykafka.sink.batch_committer import (
    abort_lingering,
    check_open,
    find_lost_attempts,
    list_open_ids,
)
from pyspark_pykafka.sink.intents import (
    check_binding,
    find_intents,
    find_objection,
    is_binding,
    make_intent,
    named_transactions,
    outdated,
)
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_entries import (
    Completion,
    Intent,
    Marker,
    Release,
    Withdrawal,
    ledger_topic,
)
from pyspark_pykafka.sink.ledger_loss import check_ledger_not_emptied
from pyspark_pykafka.sink.replay import (
    batch_state,
    check_not_superseded,
    check_owner,
    check_single_writer,
    committed_tasks,
    prefix_owner,
)
from pyspark_pykafka.sink.transactional_ids import any_query_pattern, query_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import (
        TransactionDescription,
    )
    from pyspark_pykafka.sink.ledger_entries import (
        Committable,
        CommittableBatch,
        EntriesWithOffsets,
        Entry,
    )
    from pyspark_pykafka.sink.replay import BatchState

    Entries: TypeAlias = Sequence[Entry]

logger = logging.getLogger("pyspark_pykafka")

# Offsets to look back for each task: its marker and the end of its transaction, in two batches.
_OFFSETS_PER_TASK = 4
_LEAST_OFFSETS = 64

_LEAST_PAUSE, _MOST_PAUSE = 0.01, 1.0


def commit_micro_batch(transactions: Transactions, batch: CommittableBatch) -> None:
    """
    Commit what tasks of a micro-batch wrote, but for what an earlier write of it has committed.

    An earlier write that had begun to commit is completed first, whatever its tasks look like.
    Raises :class:`ExactlyOnceError` if that cannot be told or is not allowed, and
    :class:`FencedError` if a transaction is not open any more. None has been committed then.
    """
    ledger = _ledger(transactions, batch.prefix)
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
        again = [task for task in batch.committables if task.task in done]
        transactions.end_all(_prepared(again), commit=False)


def abort_micro_batch(
    transactions: Transactions,
    prefix: str,
    query: str,
    write: str,
    written: Sequence[Committable],
    *,
    maybe_committing: bool = True,
) -> None:
    """
    Abort what tasks of a micro-batch wrote, and what else is open under the query's names.

    What its driver has decided to commit stays open (``maybe_committing`` unless some task has
    failed): the next run commits it. If another process has gone on with the query, or may have,
    what is open is that one's.
    """
    if not written:
        # Nothing tells whether another process has gone on; the next micro-batch clears up.
        return
    ledger, first = _ledger(transactions, prefix), min(task.marker_offset for task in written)
    # Invariant I5 (intent first): without a binding intent all of it may be aborted.
    if maybe_committing:
        # An intent that is still under way comes behind this, and decides nothing.
        end = ledger.append(Withdrawal(query, write))
        # Up to there, whatever a leader that has only now become it tells of the end.
        if _is_decided(ledger.read_all(first, end), query, write):
            logger.warning(
                "the commit of a micro-batch of the query %s failed after it was decided; nothing "
                "is aborted: the next run commits what is still open",
                query,
            )
            return
    transactions.end_all(_prepared(written), commit=False)
    try:
        _abort_lingering_if_alone(transactions, ledger, (prefix, query, write), first)
    except PykafkaError as error:
        logger.warning(
            "it cannot be told whether another process has gone on with the query %s: %s; what "
            "attempts that lost have left open is left to the next micro-batch",
            *(query, error),
        )


def read_prefix_owner(transactions: Transactions, prefix: str) -> Marker | None:
    """
    Return the last committed entry of the query that a prefix belongs to, or None.

    Raises :class:`UnknownTopicError` if the prefix never had a ledger.
    """
    ledger = _ledger(transactions, prefix)
    return prefix_owner(ledger.read_committed(*ledger.watermarks()))


def read_batch_state(transactions: Transactions, held: Marker, prefix: str) -> BatchState:
    """
    Return what is committed of the last batch of the query that has a prefix.
    """
    ledger = _ledger(transactions, prefix)
    low, _ = ledger.watermarks()
    return _batch_state(ledger, held, ledger.read_all(low, ledger.high_watermark()))


def find_partly_committed(transactions: Transactions, prefix: str) -> list[PreparedTransaction]:
    """
    Return what is open still of writes that have decided to commit it, and have begun to.
    """
    ledger = _ledger(transactions, prefix)
    low, ended = ledger.watermarks()
    placed = ledger.read_all(ended, ledger.high_watermark())
    found: list[PreparedTransaction] = []
    for query in sorted({it.query for _, it in placed if isinstance(it, Intent)}):
        for offset, intent in find_intents(query, placed):
            waiting = [PreparedTransaction(*one) for one in named_transactions(prefix, intent)]
            still = _still_open(transactions, waiting)
            since = max(low, intent.first)
            if 0 < len(still) < len(waiting) and is_binding(
                intent, ledger.read_all(since, offset + 1)
            ):
                found += still
    return found


def release_prefix(transactions: Transactions, held: Marker, prefix: str) -> None:
    """
    Let another query have the prefix, and the same one write a batch whole again.

    What queries have open under the prefix is aborted.
    """
    abort_lingering(transactions, any_query_pattern(prefix))
    _ledger(transactions, prefix).append(Release(held.query))


def complete_batch(transactions: Transactions, held: Marker, prefix: str) -> BatchState:
    """
    Count the last batch of the query that has the prefix as done, and return what is visible of it.

    What a driver had decided to commit, and is open still, is committed; the rest is given up.
    """
    ledger = _ledger(transactions, prefix)
    end = ledger.high_watermark()
    low, ended = ledger.watermarks()
    _roll_forward(transactions, ledger, (prefix, held.query), low, (ended, end))
    abort_lingering(transactions, query_pattern(prefix, held.query))
    ledger.wait_until_stable(end)
    found = _batch_state(ledger, held, ledger.read_all(low, end))
    if not found.is_whole:
        ledger.append(Completion(held.query, held.batch))
    return found


def _ledger(transactions: Transactions, prefix: str) -> Ledger:
    return Ledger(transactions.cluster, transactions.config, ledger_topic(prefix))


def _prepared(written: Sequence[Committable]) -> list[PreparedTransaction]:
    return [task.prepared for task in written]


def _batch_state(ledger: Ledger, held: Marker, everything: EntriesWithOffsets) -> BatchState:
    low, ended = ledger.watermarks()
    # An intent counts wherever it stands; a marker only once it is committed.
    intents = [it for _, it in everything if isinstance(it, Intent)]
    return batch_state(held.query, held.batch, [*ledger.read_committed(low, ended), *intents])


def _decide(
    ledger: Ledger, batch: CommittableBatch, new: list[Committable], before: Entries
) -> None:
    """
    Tell the ledger what is committed now, unless somebody else was first.
    """
    intent = make_intent(batch, new)
    end = ledger.append(intent, outdated(batch.query, batch.batch, before))
    # Invariant I4 (exclusion).
    check_binding(batch, ledger.read_all(intent.first, end))


def _is_decided(placed: EntriesWithOffsets, query: str, write: str) -> bool:
    own = [intent for _, intent in find_intents(query, placed) if intent.write == write]
    return any(is_binding(intent, placed) for intent in own)


def _committed_before(
    transactions: Transactions, ledger: Ledger, batch: CommittableBatch
) -> Entries:
    """
    Return what earlier writes have committed, once every earlier one has ended.
    """
    # Without rows there is no marker: then all counts that is there now.
    first = (
        ledger.high_watermark() if batch.first_marker_offset is None else batch.first_marker_offset
    )
    low, ended = ledger.watermarks()
    ended = min(ended, first)
    width = _OFFSETS_PER_TASK * batch.tasks + _LEAST_OFFSETS
    committed = ledger.read_committed_back(low, ended, batch.batch, width)
    check_owner(batch, committed)
    check_not_superseded(batch, committed)
    decided: list[PreparedTransaction] = []
    if ended < first:
        whose = (batch.prefix, batch.query)
        decided = _roll_forward(transactions, ledger, whose, low, (ended, first))
    since = first if batch.committables else ended
    _abort_lost_attempts_if_alone(
        transactions, ledger, batch, since, decided if ended < first else None
    )
    if ended < first:
        if prefix_owner(committed) is not None:
            _abort_foreign(transactions, ledger, batch, (ended, first))
        ledger.wait_until_stable(first)
        committed += ledger.read_committed(ended, first)
        check_owner(batch, committed)
    if batch.committables and not committed:
        check_ledger_not_emptied(transactions, batch.prefix, batch.query, batch.batch, ledger.topic)
    if batch.committables and not batch_state(batch.query, batch.batch, committed).markers:
        # Whether this write is alone is decided together with its intent.
        return committed
    later = ledger.read_all_from(first)
    check_single_writer(batch, [entry for _, entry in later])
    # A driver that has died may have a process that tells of its intent only now.
    return [*committed, *(it for _, it in later if isinstance(it, Intent))]


def _roll_forward(
    transactions: Transactions,
    ledger: Ledger,
    whose: tuple[str, str],
    low: int,
    between: tuple[int, int],
) -> list[PreparedTransaction]:
    """
    Commit what earlier writes of a query had decided to commit, and is still open; return all that
    they had decided.

    An intent stands behind the markers of what it names, and the last stable offset lies before the
    first that is open.
    """
    prefix, query = whose
    decided: list[PreparedTransaction] = []
    for offset, intent in find_intents(query, ledger.read_all(*between)):
        waiting = [PreparedTransaction(*one) for one in named_transactions(prefix, intent)]
        placed = ledger.read_all(max(low, intent.first), offset + 1)
        if not is_binding(intent, placed):
            continue
        # Invariant I3 (delegation): anyone may commit what a binding intent names.
        decided += waiting
        if _commit_open(transactions, waiting):
            logger.warning(
                "batch %d of the query %s had been decided before a failure: of its %d "
                "transactions those were committed that were open still",
                *(intent.batch, query, len(waiting)),
            )
    return decided


def _commit_open(transactions: Transactions, waiting: Sequence[PreparedTransaction]) -> bool:
    """
    Commit those that are open still, and return whether any was.
    """
    deadline = Deadline.after(transactions.config.block_seconds)
    backoff = Backoff(_LEAST_PAUSE, _MOST_PAUSE)
    any_was = False
    while still := _still_open(transactions, waiting):
        any_was = True
        try:
            transactions.end_all(still, commit=True)
        except FencedError as gone:
            # Its time was over just now; the others are asked for again.
            if deadline.expired:
                msg = (
                    f"{len(still)} transactions that are to be committed are open, and refuse it, "
                    f"{still[0].transactional_id} among them: {gone}"
                )
                raise TimeoutExceededError(msg) from gone
            logger.info("%s", gone)
            time.sleep(deadline.remaining(max_seconds=backoff.next_pause()))
    return any_was


def _still_open(
    transactions: Transactions, waiting: Sequence[PreparedTransaction]
) -> list[PreparedTransaction]:
    found = transactions.describe_all([one.transactional_id for one in waiting])
    return [
        one
        for one in waiting
        if (it := found[one.transactional_id]) is not None
        and it.prepared == one
        and it.state is TransactionState.ONGOING
    ]


def _abort_lost_attempts_if_alone(
    transactions: Transactions,
    ledger: Ledger,
    batch: CommittableBatch,
    since: int,
    decided: Sequence[PreparedTransaction] | None,
) -> None:
    """
    Abort what earlier writes have left open, once it is sure that this one is the last.

    All brokers are asked what that is where the ledger shows something; None says that it does not.
    """
    names, ours = (
        query_pattern(batch.prefix, batch.query),
        [it.prepared[0] for it in batch.committables],
    )
    if decided is not None:
        open_names = sorted(set(list_open_ids(transactions, names)) - set(ours))
        left = _undecided(transactions, open_names, decided)
    else:
        left = find_lost_attempts(transactions, ours, names)
    if not left:
        return
    check_single_writer(batch, [entry for _, entry in ledger.read_all_from(since)])
    transactions.abort_ids(left)


def _undecided(
    transactions: Transactions, open_names: Sequence[str], decided: Sequence[PreparedTransaction]
) -> list[str]:
    """
    Return the names under which something else is open than what is decided.

    A coordinator that has lost its office may have said that a transaction is not open which is:
    such a one is left to whoever asks next, and meanwhile holds up the ledger.
    """
    by_name = {one.transactional_id: one for one in decided}
    doubtful = [name for name in open_names if name in by_name]
    found = transactions.describe_all(doubtful)
    kept = {name for name in doubtful if not _is_later(by_name[name], found[name])}
    for name in sorted(kept):
        logger.info("%s is decided to be committed, and seems to be open still", name)
    return [name for name in open_names if name not in kept]


def _is_later(decided: PreparedTransaction, found: TransactionDescription | None) -> bool:
    """
    Whether what is open under a name was begun after what was decided.
    """
    if found is None or found.state is not TransactionState.ONGOING:
        return False
    return found.producer_id != decided.producer_id or found.epoch > decided.epoch


def _abort_lingering_if_alone(
    transactions: Transactions, ledger: Ledger, whose: tuple[str, str, str], first: int
) -> None:
    """
    Abort what is open under a query's names if no other write has gone on with it.

    What an earlier write had decided to commit is for the next run to commit.
    """
    prefix, query, write = whose
    _, ended = ledger.watermarks()
    decided = {
        name
        for _, intent in find_intents(
            query, ledger.read_all(min(ended, first), ledger.high_watermark())
        )
        for name, *_ in named_transactions(prefix, intent)
    }
    names = [
        it for it in list_open_ids(transactions, query_pattern(prefix, query)) if it not in decided
    ]
    later = ledger.read_all_from(first)
    own = [it for _, it in later if isinstance(it, Marker) and it.write == write]
    markers = [(at, it) for at, it in later if isinstance(it, Marker)]
    if own and find_objection(query, own[0].batch, write, markers) is None:
        transactions.abort_ids(names)


def _abort_foreign(
    transactions: Transactions, ledger: Ledger, batch: CommittableBatch, between: tuple[int, int]
) -> None:
    """
    Abort what queries have open that do not own the prefix, but stand before our first marker.
    """
    entries = [entry for _, entry in ledger.read_all(*between)]
    strangers = {it.query for it in entries if isinstance(it, Marker)} - {batch.query}
    for query in sorted(strangers):
        abort_lingering(transactions, query_pattern(batch.prefix, query))
