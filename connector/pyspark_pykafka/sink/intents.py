"""
Which write of a micro-batch goes on: the order of the ledger decides, the same for all who read it.

An intent names the transactions that a write commits. It is *binding* unless something that speaks
against it lies between the write's first marker and the intent itself. What a binding intent names
may be committed by anybody, at any time; what an intent names that is not is never committed.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import ConcurrentWriteError
from pyspark_pykafka.sink.ledger_entries import Completion, Intent, Marker, Release, Withdrawal
from pyspark_pykafka.sink.transactional_ids import micro_batch_id_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_pykafka.sink.ledger_entries import (
        Committable,
        CommittableBatch,
        EntriesWithOffsets,
        Entry,
    )

    #: Transactional id, producer id, epoch.
    NamedTransaction = tuple[str, int, int]


def make_intent(batch: CommittableBatch, new: Iterable[Committable]) -> Intent:
    """
    Return what to tell the ledger before these tasks of a write are committed.
    """
    head = _head(batch.prefix, batch.query, batch.batch)
    named = [(name.removeprefix(head), *who) for name, *who in (it.prepared for it in new)]
    packed = zlib.compress(json.dumps(named, separators=(",", ":")).encode())
    first = -1 if batch.first_marker_offset is None else batch.first_marker_offset
    told = (batch.query, batch.batch, batch.write, batch.tasks, len(batch.committables))
    return Intent(*told, first, base64.b64encode(packed).decode())


def named_transactions(prefix: str, intent: Intent) -> list[NamedTransaction]:
    """
    Return the transactions that an intent names; those of older versions name none.
    """
    if not intent.named:
        return []
    head = _head(prefix, intent.query, intent.batch)
    rows = json.loads(zlib.decompress(base64.b64decode(intent.named)))
    return [(head + tail, producer_id, epoch) for tail, producer_id, epoch in rows]


def find_intents(query: str, placed: EntriesWithOffsets) -> list[tuple[int, Intent]]:
    """
    Return a query's intents with their offsets; of copies of one, which an append may leave that
    was tried again, the first.
    """
    found: dict[str, tuple[int, Intent]] = {}
    for offset, entry in placed:
        if isinstance(entry, Intent) and entry.query == query:
            found.setdefault(entry.write, (offset, entry))
    return list(found.values())


def is_binding(intent: Intent, placed: EntriesWithOffsets) -> bool:
    """
    Whether an intent decides; ``placed`` is all that stands from the write's first marker on.
    """
    return find_objection(intent.query, intent.batch, intent.write, placed) is None


def find_objection(query: str, batch: int, write: str, placed: EntriesWithOffsets) -> Entry | None:
    """
    Return what speaks against a write's intent, or None.

    That is the first marker of another write of its batch or of a later one (an earlier one's is
    that of an attempt which lost), a withdrawal of the write itself, a release, or the declaration
    that the batch is done; whatever comes behind the intent comes too late. Without the intent, it
    is what would speak against it now.
    """
    # Invariant I1 (determinism): what follows the intent does not matter.
    for _, entry in placed:
        if isinstance(entry, Intent) and entry.write == write:
            return None
        if _speaks_against(entry, query, batch, write):
            return entry
    return None


def check_binding(batch: CommittableBatch, placed: EntriesWithOffsets) -> None:
    """
    Raise :class:`ConcurrentWriteError` unless the intent of a write decides.

    ``placed`` is what stands from the write's first marker on, up to the intent.
    """
    found = find_objection(batch.query, batch.batch, batch.write, placed)
    if found is None:
        return
    msg = (
        f"batch {batch.batch} of the query {batch.query} is not this process's to commit any "
        f"more ('{batch.prefix}'): {_told(found)}. Nothing of this write is visible; start it "
        "again when it is the only one"
    )
    raise ConcurrentWriteError("EXACTLY_ONCE_CONCURRENT_WRITE", msg)


def outdated(query: str, batch: int, entries: Sequence[Entry]) -> list[Intent]:
    """
    Return the intents that nobody needs any more once a query writes a batch.
    """
    found = {it.write: it for it in entries if isinstance(it, Intent)}
    return [it for it in found.values() if it.query == query and it.batch < batch]


def _speaks_against(entry: Entry, query: str, batch: int, write: str) -> bool:
    if isinstance(entry, Release):
        return True
    if entry.query != query:
        return False
    if isinstance(entry, Withdrawal):
        return entry.write == write
    if isinstance(entry, Marker):
        return entry.write != write and entry.batch >= batch
    return isinstance(entry, Completion) and entry.batch >= batch


def _told(entry: Entry) -> str:
    if isinstance(entry, Marker):
        return (
            f"another process writes task {entry.task} of batch {entry.batch}; is the query "
            "running twice?"
        )
    if isinstance(entry, Withdrawal):
        return "it was cancelled meanwhile"
    action = "release" if isinstance(entry, Release) else "complete"
    return f"pykafka transactions {action} was run meanwhile"


def _head(prefix: str, query: str, batch: int) -> str:
    return micro_batch_id_prefix(prefix, query, batch)
