"""
The ledger entries of commands: releases and completions, and which of them count.

An append may take effect at any time after its sender gave up, when a driver may already have
continued the query. So a command's entry counts only if no intent lies between ``ledger_end``, the
end of the ledger that the command had read, and the entry's own offset: a compare-and-set on the
log. Every reader gets the same result, and a late copy changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.sink.ledger_entries import Completion, Intent, Release

if TYPE_CHECKING:
    from pyspark_pykafka.sink.ledger_entries import EntriesWithOffsets, Entry


def without_ineffective_commands(entries: EntriesWithOffsets) -> EntriesWithOffsets:
    """
    Return the entries without the releases and completions that do not count.

    ``entries`` are in log order. An entry of an older version has no ``ledger_end``, and counts.
    """
    # Invariant I6 (no late command).
    last_intent = -1
    counting = []
    for offset, entry in entries:
        if isinstance(entry, Intent):
            last_intent = offset
        if not _is_overtaken(offset, entry, last_intent):
            counting.append((offset, entry))
    return counting


def _is_overtaken(offset: int, entry: Entry, last_intent: int) -> bool:
    if not isinstance(entry, Release | Completion) or entry.ledger_end < 0:
        return False
    # A ledger_end after the entry itself refers to a deleted topic with the same name.
    return last_intent >= entry.ledger_end or entry.ledger_end > offset


def can_judge_commands(entries: EntriesWithOffsets, start: int) -> bool:
    """
    Return whether the entries from ``start`` on suffice to know which commands among them count.
    """
    return all(
        not isinstance(entry, Release | Completion) or not 0 <= entry.ledger_end < start
        for _, entry in entries
    )
