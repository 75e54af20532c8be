"""
Decides which write of a micro-batch may commit. The ledger's order decides, so all readers agree.

An intent names the transactions that a write commits. It is *binding* unless a conflicting entry
lies between the write's first marker and the intent. Any process may commit the transactions of a
binding intent, at any time; those of an intent that is not binding are never committed.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
from pyspark_pykafka.errors import ConcurrentWriteError, ExactlyOnceError
from pyspark_pykafka.sink.command_entries import without_ineffective_commands
from pyspark_pykafka.sink.ledger_entries import (
    Completion,
    EmptyWriteClaim,
    Intent,
    Marker,
    Release,
    Withdrawal,
)
from pyspark_pykafka.sink.transactional_ids import micro_batch_transactional_id_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_pykafka.sink.ledger_entries import (
        Committable,
        CommittableBatch,
        EntriesWithOffsets,
        Entry,
    )


def make_intent(batch: CommittableBatch, uncommitted: Iterable[Committable]) -> Intent:
    """
    Return the ledger entry to append before a write is committed.

    ``uncommitted`` are the tasks that no earlier write has committed.
    """
    id_prefix = _id_prefix(batch.prefix, batch.query, batch.batch)
    transactions = [
        (name.removeprefix(id_prefix), *producer)
        for name, *producer in (committable.prepared for committable in uncommitted)
    ]
    packed = zlib.compress(json.dumps(transactions, separators=(",", ":")).encode())
    first = -1 if batch.first_marker_offset is None else batch.first_marker_offset
    fields = (batch.query, batch.batch, batch.write, batch.tasks, len(batch.committables))
    return Intent(*fields, first, base64.b64encode(packed).decode())


def named_transactions(prefix: str, intent: Intent) -> list[PreparedTransaction]:
    """
    Return the transactions that an intent names; intents of older versions name none.

    Raises :class:`ExactlyOnceError` if the list of transactions is damaged.
    """
    if not intent.named:
        return []
    id_prefix = _id_prefix(prefix, intent.query, intent.batch)
    try:
        rows = json.loads(zlib.decompress(base64.b64decode(intent.named)))
        return [
            PreparedTransaction(id_prefix + tail, producer_id, epoch)
            for tail, producer_id, epoch in rows
        ]
    except (ValueError, TypeError, zlib.error) as error:
        msg = (
            f"the intent of the write {intent.write} of batch {intent.batch} in the ledger of "
            f"'{prefix}' names its transactions in a form that cannot be read ({error}); another "
            "program may write to the ledger. Stop it; if the rows of the last micro-batch may be "
            f"repeated, run: pykafka transactions release --prefix {prefix}"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_LEDGER_MALFORMED", msg) from error


def named_transactions_by_task(prefix: str, intent: Intent) -> dict[int, PreparedTransaction]:
    """
    Return the transactions that an intent names, by their tasks.
    """
    id_prefix = _id_prefix(prefix, intent.query, intent.batch)
    return {
        int(transaction.transactional_id.removeprefix(id_prefix).partition("-")[0]): transaction
        for transaction in named_transactions(prefix, intent)
    }


def find_intents(query: str, entries: EntriesWithOffsets) -> list[tuple[int, Intent]]:
    """
    Return a query's intents with their offsets.

    A retried append may leave copies of an intent: only the first one counts.
    """
    first_intents: dict[str, tuple[int, Intent]] = {}
    for offset, entry in entries:
        if isinstance(entry, Intent) and entry.query == query:
            first_intents.setdefault(entry.write, (offset, entry))
    return list(first_intents.values())


def find_unreleased_intents(query: str, entries: EntriesWithOffsets) -> list[tuple[int, Intent]]:
    """
    Return the intents of :func:`find_intents` that lie after the last release.

    A release lets the batch be written whole again: nothing that earlier intents name may be
    committed any more.
    """
    counting = without_ineffective_commands(entries)
    released = max((offset for offset, entry in counting if isinstance(entry, Release)), default=-1)
    return [
        (offset, intent) for offset, intent in find_intents(query, entries) if offset > released
    ]


def is_binding(intent: Intent, entries: EntriesWithOffsets) -> bool:
    """
    Return whether an intent is binding; ``entries`` start at the write's first marker.
    """
    return find_conflict(intent.query, intent.batch, intent.write, entries) is None


def find_conflict(query: str, batch: int, write: str, entries: EntriesWithOffsets) -> Entry | None:
    """
    Return the first entry that conflicts with a write's intent, or None.

    That is a marker or a claim of another write of the same or a later batch (a marker of an
    earlier batch belongs to a losing attempt), a withdrawal of the write, a release, or a
    completion of the same or a later batch. Entries after the intent do not count. If there is no
    intent yet, all entries count.
    """
    # Invariant I1 (determinism): entries after the intent do not matter.
    for _, entry in entries:
        if isinstance(entry, Intent) and entry.write == write:
            return None
        if _conflicts(entry, query, batch, write):
            return entry
    return None


def check_binding(batch: CommittableBatch, entries: EntriesWithOffsets) -> None:
    """
    Raise :class:`ConcurrentWriteError` unless a write's intent is binding.

    ``entries`` are those from the write's first marker up to the intent.
    """
    conflict = find_conflict(batch.query, batch.batch, batch.write, entries)
    if conflict is None:
        return
    msg = (
        f"this process may no longer commit batch {batch.batch} of the query {batch.query} "
        f"('{batch.prefix}'): {_reason(conflict)} Nothing of this write is visible; start it "
        "again when no other process runs the query"
    )
    raise ConcurrentWriteError("EXACTLY_ONCE_CONCURRENT_WRITE", msg)


def outdated_intents(query: str, batch: int, entries: EntriesWithOffsets) -> list[Intent]:
    """
    Return the intents that are no longer needed when a query writes a batch.
    """
    intents = {entry.write: entry for _, entry in entries if isinstance(entry, Intent)}
    return [entry for entry in intents.values() if entry.query == query and entry.batch < batch]


def _conflicts(entry: Entry, query: str, batch: int, write: str) -> bool:
    if isinstance(entry, Release):
        return True
    if entry.query != query:
        return False
    if isinstance(entry, Withdrawal):
        return entry.write == write
    if isinstance(entry, Marker | EmptyWriteClaim):
        return entry.write != write and entry.batch >= batch
    return isinstance(entry, Completion) and entry.batch >= batch


def _reason(entry: Entry) -> str:
    """
    Return why an entry conflicts with an intent, including the final punctuation.
    """
    if isinstance(entry, Marker):
        return (
            f"another process writes task {entry.task} of batch {entry.batch}; is the query "
            "running twice?"
        )
    if isinstance(entry, EmptyWriteClaim):
        return (
            f"another process also writes batch {entry.batch}, without rows; is the query running "
            "twice?"
        )
    if isinstance(entry, Withdrawal):
        return "the write was withdrawn in the meantime."
    action = "release" if isinstance(entry, Release) else "complete"
    return f"pykafka transactions {action} was run in the meantime."


def _id_prefix(prefix: str, query: str, batch: int) -> str:
    return micro_batch_transactional_id_prefix(prefix, query, batch)
