"""
Commits or aborts the transactions of a batch write: all of them, or none.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.transactions.settlement import Outcome, settle
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import TransactionState
from pyspark_pykafka.errors import ExactlyOnceError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.sink.transactional_ids import other_attempt_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.engines.transaction_contract import (
        PreparedTransaction,
        TransactionalIdPattern,
    )
    from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
    from pyspark_pykafka.engines.wire.transactions.values import TransactionDescription

logger = logging.getLogger("pyspark_pykafka")

#: More transaction markers than this in one write cause a warning.
MANY_MARKERS = 100_000

# How long to wait for a broker that can only coordinate losing attempts, which are unlikely.
_OPTIONAL_LOOKUP_SECONDS = 2.0
# The same, if losing attempts are likely.
_LISTING_SECONDS = 5.0

# States that block read_committed readers: in PREPARE_ABORT a partition may still lack its
# transaction marker.
_BLOCKING_STATES = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_EPOCH_FENCE,
    TransactionState.PREPARE_ABORT,
)
# These states, and PREPARE_COMMIT, in which a partition may also lack its transaction marker.
_UNFINISHED_STATES = (*_BLOCKING_STATES, TransactionState.PREPARE_COMMIT)


def commit_write(
    transactions: Transactions,
    prepared: Sequence[PreparedTransaction],
    pattern: TransactionalIdPattern,
    fence_id: str,
    *,
    takes_over: bool = False,
) -> None:
    """
    Commit every transaction of a write, after checking that all of them are open.

    Other open transactions that match ``pattern`` belong to losing attempts, and are aborted;
    attempts that begin later find ``fence_id`` and give up. If the write ``takes_over`` the ids of
    earlier writes, some of these transactions may belong to a dead write, which may have had more
    tasks. ``read_committed`` readers that start after this function has returned see all rows.

    Raises :class:`FencedError` or :class:`TimeoutExceededError` if nothing is or will be committed,
    and :class:`ExactlyOnceError` if some transactions are, or may be.
    """
    started = check_open(transactions, prepared)
    try:
        transactions.end_all(prepared, commit=True)
    except PykafkaError as error:
        _check_decided(transactions, prepared, error, started)
    left_open: list[PykafkaError] = []
    try:
        own_ids = [transaction.transactional_id for transaction in prepared]
        with _collecting(left_open):
            _with_short_limit(transactions).register_id(fence_id)
        other_ids = (
            _list_unfinished(transactions, own_ids, pattern)
            if takes_over
            else find_losing_attempts(transactions, own_ids, pattern)
        )
        with _collecting(left_open):
            transactions.abort_ids(other_ids)
        transactions.wait_until_visible([*own_ids, *other_ids])
    except PykafkaError as error:
        # Raising would make the user write committed rows again.
        logger.warning(
            "everything is committed, but the write could not be finished: %s; readers see all "
            "rows once the brokers have written the transaction markers, or after "
            "kafka.transaction.timeout.ms",
            error,
        )
    if left_open:
        logger.warning(
            "everything is committed, but %s; transactions of losing attempts or of a dead write "
            "may block read_committed readers for up to kafka.transaction.timeout.ms",
            "; ".join(map(str, left_open)),
        )


def abort_write(
    transactions: Transactions,
    prepared: Sequence[PreparedTransaction],
    pattern: TransactionalIdPattern,
    fence_id: str,
) -> None:
    """
    Abort every transaction of a write, and all other open transactions that match ``pattern``.

    Spark does not wait for tasks that it cancels: tasks that begin later find ``fence_id`` and give
    up. Every step is tried before an error is raised: :class:`ExactlyOnceError` if a transaction is
    already committed, or else the first error.
    """
    errors: list[PykafkaError] = []
    transactions.try_to_register_fence(fence_id)
    with _collecting(errors):
        transactions.end_all(prepared, commit=False)
    with _collecting(errors):
        abort_open_transactions(transactions, pattern)
    # Committed rows matter most: writing all rows again would duplicate them.
    errors.sort(key=lambda error: not isinstance(error, ExactlyOnceError))
    for error in errors[1:]:
        logger.warning("the write could not be aborted completely: %s", error)
    if errors:
        raise errors[0]


def _check_decided(
    transactions: Transactions,
    prepared: Sequence[PreparedTransaction],
    error: PykafkaError,
    started: Mapping[str, int] | None = None,
) -> None:
    """
    Settle the transactions after a failed commit: return if all are committed, raise otherwise.

    Requests that are still in flight are fenced before anything is reported.
    """
    outcomes = Counter(settle(transactions, prepared, started).values())
    done, total = outcomes[Outcome.COMMITTED], len(prepared)
    if done == total:
        logger.info("%s; but all of the %d transactions are committed", error, total)
        return
    if outcomes[Outcome.ABORTED] == total:
        raise _aborted_error(error) from error
    later = " (they may still become visible)" if outcomes[Outcome.UNKNOWN] else ""
    unknown = outcomes[Outcome.UNKNOWN] + outcomes[Outcome.LOST]
    condition = "EXACTLY_ONCE_COMMITTED_IN_PART" if done else "EXACTLY_ONCE_OUTCOME_UNKNOWN"
    outcome = "the write was committed in part" if done else "the outcome of the write is unknown"
    msg = (
        f"{outcome}: {done} of {total} tasks are committed, the state of {unknown} is unknown"
        f"{later}, the other {outcomes[Outcome.ABORTED]} are aborted: {error}. Writing all of "
        "them again would duplicate the committed rows; pykafka transactions list --all shows the "
        "states"
    )
    raise ExactlyOnceError(condition, msg) from error


def _aborted_error(error: PykafkaError) -> PykafkaError:
    msg = (
        f"{error}. The transactions were aborted: nothing of this write is visible to "
        "read_committed readers, nor will be; run it again"
    )
    return FencedError(msg) if isinstance(error, FencedError) else TimeoutExceededError(msg)


def check_open(
    transactions: Transactions, prepared: Sequence[PreparedTransaction]
) -> dict[str, int]:
    """
    Raise :class:`FencedError` unless all transactions are open; warn if they have many partitions.

    Returns the start times in milliseconds by transactional id.
    """
    descriptions = transactions.describe_all(
        [transaction.transactional_id for transaction in prepared]
    )
    for transaction in prepared:
        _check_one_open(transaction, descriptions[transaction.transactional_id])
    markers = sum(
        description.partitions for description in descriptions.values() if description is not None
    )
    if markers > MANY_MARKERS:
        logger.warning(
            "%d tasks of this write have rows in %d partitions on average, and the brokers write "
            "one transaction marker for each partition when they end a task's transaction: %d in "
            "all, which takes long and delays read_committed readers. Write fewer, larger tasks, "
            "or let each write to fewer partitions (docs/scaling.md)",
            *(len(prepared), round(markers / len(prepared)), markers),
        )
    return {
        name: description.started_ms
        for name, description in descriptions.items()
        if description is not None
    }


def _check_one_open(
    prepared: PreparedTransaction, description: TransactionDescription | None
) -> None:
    is_own = description is not None and description.prepared == prepared
    if description is not None and is_own and description.state is TransactionState.ONGOING:
        return
    state = (
        "unknown to the brokers"
        if description is None
        else f"in the state {description.state.value}"
    )
    if description is not None and not is_own:
        state += " of another producer"
    msg = (
        f"the transaction {prepared.transactional_id} is {state}: the write took longer than "
        "kafka.transaction.timeout.ms, or another write uses the same transactionalIdPrefix. "
        "Nothing of this write is visible to read_committed readers; run it again"
    )
    raise FencedError(msg)


def _with_short_limit(transactions: Transactions) -> Transactions:
    return transactions.with_time_limit(_OPTIONAL_LOOKUP_SECONDS)


def _list_unfinished(
    transactions: Transactions, own_ids: Iterable[str], pattern: TransactionalIdPattern
) -> list[str]:
    """
    Return the ids of a pattern, other than ``own_ids``, whose transactions hide later rows from
    readers.
    """
    # The number of tasks of earlier writes is not known, so each broker lists its transactions.
    listed = _list_in_states(transactions, pattern, _UNFINISHED_STATES)
    return sorted(set(listed) - set(own_ids))


def find_losing_attempts(
    transactions: Transactions,
    winning_ids: Iterable[str],
    pattern: TransactionalIdPattern,
    *,
    reuses_ids: bool = False,
) -> list[str]:
    """
    Return the transactional ids that losing attempts have left open.

    The ids are derived from those of the winning attempts, and the brokers describe them. The
    brokers list their transactions only if there is a sign that Spark has retried a task. An
    attempt that has ended is such a sign, unless the write ``reuses_ids``: a micro-batch has the
    ids of earlier ones, which brokers remember for days.

    Transactions of losing attempts are never committed, and time out by themselves. So a broker
    that coordinates nothing else gets only a short time to respond.
    """
    won = set(winning_ids)
    other_attempts = other_attempt_ids(won)
    descriptions = _with_short_limit(transactions).describe_reachable(
        [*other_attempts.transactional_ids, *other_attempts.notice_ids]
    )
    known = {name: description for name, description in descriptions.items() if description}
    ids = {name for name, description in known.items() if description.state in _BLOCKING_STATES}
    shows_retry = ids or known.keys() & other_attempts.notice_ids or (known and not reuses_ids)
    if shows_retry or other_attempts.were_retried:
        ids |= set(list_open_ids(transactions, pattern))
    return sorted(ids - won)


@contextmanager
def _collecting(errors: list[PykafkaError]) -> Iterator[None]:
    """
    Add an error of the block to the list instead of raising it, so that the next step is tried.
    """
    try:
        yield
    except PykafkaError as error:
        errors.append(error)


def abort_open_transactions(
    transactions: Transactions, pattern: TransactionalIdPattern
) -> list[str]:
    """
    Abort open transactions, which would block readers until their timeout; return the ids.
    """
    open_ids = list_open_ids(transactions, pattern)
    transactions.abort_ids(open_ids)
    return open_ids


def list_open_ids(transactions: Transactions, pattern: TransactionalIdPattern) -> list[str]:
    """
    Return the ids of open transactions, from the brokers that answer in time.
    """
    return _list_in_states(transactions, pattern, _BLOCKING_STATES)


def _list_in_states(
    transactions: Transactions,
    pattern: TransactionalIdPattern,
    states: Iterable[TransactionState],
) -> list[str]:
    limited = transactions.with_time_limit(_LISTING_SECONDS)
    return limited.list_reachable_ids(pattern, states)
