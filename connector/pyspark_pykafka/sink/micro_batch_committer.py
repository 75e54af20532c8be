"""
Ending the transactions of a micro-batch: what the ledger says of it decides.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeAlias

from pyspark_pykafka.engines.wire.transactions.transactions import (
    FencedError,
    PreparedTransaction,
    State,
)
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Backoff, Deadline
from pyspark_pykafka.sink.batch_committer import _check_open, _lost_attempts, _open, _sweep
from pyspark_pykafka.sink.intents import (
    check_binding,
    intent_of,
    intents_of,
    is_binding,
    named,
    objection,
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
from pyspark_pykafka.sink.ledger_loss import check_not_emptied
from pyspark_pykafka.sink.replay import (
    check_not_superseded,
    check_owner,
    check_single_writer,
    committed_tasks,
    owner,
    visible,
)
from pyspark_pykafka.sink.transactional_ids import any_query_pattern, query_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.wire.transactions.transactions import (
        TransactionDescription,
        Transactions,
    )
    from pyspark_pykafka.sink.ledger_entries import Committable, CommittableBatch, Entry, Placed
    from pyspark_pykafka.sink.replay import Visible

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
    done = committed_tasks(batch, before)
    new = [task for task in batch.written if task.task not in done]
    if new:
        _check_open(transactions, _prepared(new))
        _decide(ledger, batch, new, before)
        transactions.end_all(_prepared(new), commit=True)
    if done:
        logger.warning(
            "batch %d of the query %s had been committed in part or whole before a failure: of %d "
            "tasks %d were not written again",
            *(batch.batch, batch.query, batch.tasks, len(done)),
        )
        again = [task for task in batch.written if task.task in done]
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
    ledger, first = _ledger(transactions, prefix), min(task.marked for task in written)
    if maybe_committing:
        # An intent that is still under way comes behind this, and decides nothing.
        end = ledger.append(Withdrawal(query, write))
        # Up to there, whatever a leader that has only now become it tells of the end.
        if _is_decided(ledger.all_between(first, end), query, write):
            logger.warning(
                "the commit of a micro-batch of the query %s failed after it was decided; nothing "
                "is aborted: the next run commits what is still open",
                query,
            )
            return
    transactions.end_all(_prepared(written), commit=False)
    try:
        _sweep_alone(transactions, ledger, (prefix, query, write), first)
    except PykafkaError as error:
        logger.warning(
            "it cannot be told whether another process has gone on with the query %s: %s; what "
            "attempts that lost have left open is left to the next micro-batch",
            *(query, error),
        )


def owner_of(transactions: Transactions, prefix: str) -> Marker | None:
    """
    Return the last committed entry of the query that a prefix belongs to, or None.

    Raises :class:`UnknownTopicError` if the prefix never had a ledger.
    """
    ledger = _ledger(transactions, prefix)
    return owner(ledger.committed(*ledger.ended()))


def visible_of(transactions: Transactions, held: Marker, prefix: str) -> Visible:
    """
    Return what is committed of the last batch of the query that has a prefix.
    """
    ledger = _ledger(transactions, prefix)
    low, _ = ledger.ended()
    return _visible(ledger, held, ledger.all_between(low, ledger.end()))


def half_committed(transactions: Transactions, prefix: str) -> list[PreparedTransaction]:
    """
    Return what is open still of writes that have decided to commit it, and have begun to.
    """
    ledger = _ledger(transactions, prefix)
    low, ended = ledger.ended()
    placed = ledger.all_between(ended, ledger.end())
    found: list[PreparedTransaction] = []
    for query in sorted({it.query for _, it in placed if isinstance(it, Intent)}):
        for offset, intent in intents_of(query, placed):
            waiting = [PreparedTransaction(*one) for one in named(prefix, intent)]
            still = _still_open(transactions, waiting)
            since = max(low, intent.first)
            if 0 < len(still) < len(waiting) and is_binding(
                intent, ledger.all_between(since, offset + 1)
            ):
                found += still
    return found


def release(transactions: Transactions, held: Marker, prefix: str) -> None:
    """
    Let another query have the prefix, and the same one write a batch whole again.

    What queries have open under the prefix is aborted.
    """
    _sweep(transactions, any_query_pattern(prefix))
    _ledger(transactions, prefix).append(Release(held.query))


def complete(transactions: Transactions, held: Marker, prefix: str) -> Visible:
    """
    Count the last batch of the query that has the prefix as done, and return what is visible of it.

    What a driver had decided to commit, and is open still, is committed; the rest is given up.
    """
    ledger = _ledger(transactions, prefix)
    end = ledger.end()
    low, ended = ledger.ended()
    _roll_forward(transactions, ledger, (prefix, held.query), low, (ended, end))
    _sweep(transactions, query_pattern(prefix, held.query))
    ledger.wait_until_ended(end)
    found = _visible(ledger, held, ledger.all_between(low, end))
    if not found.is_whole:
        ledger.append(Completion(held.query, held.batch))
    return found


def _ledger(transactions: Transactions, prefix: str) -> Ledger:
    return Ledger(transactions.cluster, transactions.config, ledger_topic(prefix))


def _prepared(written: Sequence[Committable]) -> list[PreparedTransaction]:
    return [PreparedTransaction(*task.prepared) for task in written]


def _visible(ledger: Ledger, held: Marker, everything: Placed) -> Visible:
    low, ended = ledger.ended()
    # An intent counts wherever it stands; a marker only once it is committed.
    intents = [it for _, it in everything if isinstance(it, Intent)]
    return visible(held.query, held.batch, [*ledger.committed(low, ended), *intents])


def _decide(
    ledger: Ledger, batch: CommittableBatch, new: list[Committable], before: Entries
) -> None:
    """
    Tell the ledger what is committed now, unless somebody else was first.
    """
    intent = intent_of(batch, new)
    end = ledger.append(intent, outdated(batch.query, batch.batch, before))
    check_binding(batch, ledger.all_between(intent.first, end))


def _is_decided(placed: Placed, query: str, write: str) -> bool:
    own = [intent for _, intent in intents_of(query, placed) if intent.write == write]
    return any(is_binding(intent, placed) for intent in own)


def _committed_before(
    transactions: Transactions, ledger: Ledger, batch: CommittableBatch
) -> Entries:
    """
    Return what earlier writes have committed, once every earlier one has ended.
    """
    # Without rows there is no marker: then all counts that is there now.
    first = ledger.end() if batch.first is None else batch.first
    low, ended = ledger.ended()
    ended = min(ended, first)
    width = _OFFSETS_PER_TASK * batch.tasks + _LEAST_OFFSETS
    committed = ledger.committed_back(low, ended, batch.batch, width)
    check_owner(batch, committed)
    check_not_superseded(batch, committed)
    decided: list[PreparedTransaction] = []
    if ended < first:
        whose = (batch.prefix, batch.query)
        decided = _roll_forward(transactions, ledger, whose, low, (ended, first))
    since = first if batch.written else ended
    _clear(transactions, ledger, batch, since, decided if ended < first else None)
    if ended < first:
        if owner(committed) is not None:
            _abort_foreign(transactions, ledger, batch, (ended, first))
        ledger.wait_until_ended(first)
        committed += ledger.committed(ended, first)
        check_owner(batch, committed)
    if batch.written and not committed:
        check_not_emptied(transactions, batch.prefix, batch.query, batch.batch, ledger.topic)
    if batch.written and not visible(batch.query, batch.batch, committed).markers:
        # Whether this write is alone is decided together with its intent.
        return committed
    later = ledger.all_since(first)
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
    for offset, intent in intents_of(query, ledger.all_between(*between)):
        waiting = [PreparedTransaction(*one) for one in named(prefix, intent)]
        placed = ledger.all_between(max(low, intent.first), offset + 1)
        if not is_binding(intent, placed):
            continue
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
        and it.state is State.ONGOING
    ]


def _clear(
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
    names, ours = query_pattern(batch.prefix, batch.query), [it.prepared[0] for it in batch.written]
    if decided is not None:
        open_names = sorted(set(_open(transactions, names)) - set(ours))
        left = _undecided(transactions, open_names, decided)
    else:
        left = _lost_attempts(transactions, ours, names)
    if not left:
        return
    check_single_writer(batch, [entry for _, entry in ledger.all_since(since)])
    transactions.abort_names(left)


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
    if found is None or found.state is not State.ONGOING:
        return False
    return found.producer_id != decided.producer_id or found.epoch > decided.epoch


def _sweep_alone(
    transactions: Transactions, ledger: Ledger, whose: tuple[str, str, str], first: int
) -> None:
    """
    Abort what is open under a query's names if no other write has gone on with it.

    What an earlier write had decided to commit is for the next run to commit.
    """
    prefix, query, write = whose
    _, ended = ledger.ended()
    decided = {
        name
        for _, intent in intents_of(query, ledger.all_between(min(ended, first), ledger.end()))
        for name, *_ in named(prefix, intent)
    }
    names = [it for it in _open(transactions, query_pattern(prefix, query)) if it not in decided]
    later = ledger.all_since(first)
    own = [it for _, it in later if isinstance(it, Marker) and it.write == write]
    markers = [(at, it) for at, it in later if isinstance(it, Marker)]
    if own and objection(query, own[0].batch, write, markers) is None:
        transactions.abort_names(names)


def _abort_foreign(
    transactions: Transactions, ledger: Ledger, batch: CommittableBatch, between: tuple[int, int]
) -> None:
    """
    Abort what queries have open that do not own the prefix, but stand before our first marker.
    """
    entries = [entry for _, entry in ledger.all_between(*between)]
    strangers = {it.query for it in entries if isinstance(it, Marker)} - {batch.query}
    for query in sorted(strangers):
        _sweep(transactions, query_pattern(batch.prefix, query))
