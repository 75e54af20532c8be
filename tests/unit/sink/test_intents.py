"""
Intents: a driver's declaration of the transactions to commit, and when it is binding.
"""

from __future__ import annotations

import base64
import random
import zlib
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
from pyspark_pykafka.errors import ConcurrentWriteError, ExactlyOnceError
from pyspark_pykafka.sink.intents import (
    check_binding,
    find_intents,
    find_unreleased_intents,
    is_binding,
    make_intent,
    named_transactions,
    outdated_intents,
)
from pyspark_pykafka.sink.ledger_entries import (
    Committable,
    CommittableBatch,
    Completion,
    Intent,
    Marker,
    Release,
    Withdrawal,
    to_record,
)
from pyspark_pykafka.sink.transactional_ids import fallback_id, stream_task_transactional_id

if TYPE_CHECKING:
    from pyspark_pykafka.sink.ledger_entries import Entry

QUERY, OTHER = "0a1b2c3d-0000-0000-0000-000000000000", "ffffffff-0000-0000-0000-000000000000"
OURS = Intent(QUERY, 7, "ours", 2, 2, 100)
MARKERS: list[Entry] = [Marker(QUERY, 7, "ours", task, 1, "x") for task in range(2)]


def batch(tasks: int) -> CommittableBatch:
    """
    Return a batch of this many tasks; every second one uses a fallback id.
    """
    chance = random.Random(tasks)

    def task(number: int) -> Committable:
        name = stream_task_transactional_id("orders", QUERY, 7, number, chance.randrange(4))
        name = fallback_id(name, chance.randrange(10**6)).transactional_id if number % 2 else name
        prepared = PreparedTransaction(name, chance.randrange(10**9), chance.randrange(2**15))
        return Committable(number, 10, prepared, 100 + number, "x")

    return CommittableBatch("orders", QUERY, 7, "ours", tasks, tuple(map(task, range(tasks))))


def with_offsets(*entries: Entry) -> list[tuple[int, Entry]]:
    """
    Return entries with offsets from 100 on.
    """
    return list(enumerate(entries, 100))


def test_an_intent_names_the_new_tasks_only() -> None:
    """
    An intent names the transactions of new tasks; its counts cover all tasks.
    """
    full_batch = batch(10)
    intent = make_intent(full_batch, full_batch.committables[3:])

    assert named_transactions("orders", intent) == [
        task.prepared for task in full_batch.committables[3:]
    ]
    assert (intent.tasks, intent.written, intent.first) == (10, 10, 100)


def test_an_intent_of_many_tasks_is_small() -> None:
    """
    The intent of 5,000 tasks takes less than an eighth of a record's usual limit of 1 MiB.
    """
    full_batch = batch(5_000)

    assert sum(map(len, to_record(make_intent(full_batch, full_batch.committables)))) < 2**20 // 8


@pytest.mark.parametrize(
    "between",
    [
        Marker(QUERY, 7, "theirs", 0, 1),
        Marker(QUERY, 8, "theirs", 0, 1),
        Withdrawal(QUERY, "ours"),
        Release(OTHER),
        Completion(QUERY, 7),
    ],
    ids=["same batch", "next batch", "withdrawn", "released", "completed"],
)
def test_a_conflicting_entry_before_an_intent(between: Entry) -> None:
    """
    A conflicting entry anywhere before an intent keeps the intent from being binding; an entry
    after it does not.
    """
    assert is_binding(OURS, with_offsets(*MARKERS, OURS, between))
    for entries in ([*MARKERS, between, OURS], [MARKERS[0], between, MARKERS[1], OURS]):
        assert not is_binding(OURS, with_offsets(*entries))
        with pytest.raises(ConcurrentWriteError, match="Nothing of this write is visible"):
            check_binding(batch(2), with_offsets(*entries))


@pytest.mark.parametrize(
    "between",
    [
        Marker(QUERY, 6, "theirs", 0, 1),
        Marker(OTHER, 7, "theirs", 0, 1),
        Withdrawal(QUERY, "theirs"),
        Completion(QUERY, 6),
        Intent(QUERY, 7, "theirs", 1, 1, 90),
    ],
    ids=[
        "batch before",
        "another query",
        "another write",
        "completed before",
        "an intent too late",
    ],
)
def test_unrelated_entries_before_an_intent(between: Entry) -> None:
    """
    Entries of earlier batches, and of other queries and writes, do not conflict.
    """
    assert is_binding(OURS, with_offsets(*MARKERS, between, OURS))


def test_the_first_copy_of_an_intent_counts() -> None:
    """
    A retried append leaves a copy; an entry between the two comes after the intent.
    """
    other_marker = Marker(QUERY, 7, "theirs", 0, 1)
    entries = with_offsets(*MARKERS, OURS, other_marker, OURS)

    assert find_intents(QUERY, entries) == [(102, OURS)]
    assert is_binding(OURS, entries)
    assert find_intents(OTHER, entries) == []


def test_a_release_covers_earlier_intents_only() -> None:
    """
    Intents before a release are released; intents between the release and a late copy of it are
    not.
    """
    release = Release(QUERY, 103, "r")
    entries = with_offsets(*MARKERS, OURS, release)
    assert find_unreleased_intents(QUERY, entries) == []

    later = Intent(QUERY, 8, "later", 2, 2, 104)
    assert find_unreleased_intents(QUERY, [*entries, (104, later), (105, release)]) == [
        (104, later)
    ]


def test_old_intents_are_removed() -> None:
    """
    The intents of the query's earlier batches are outdated; each is listed once, even if the ledger
    has copies of it.
    """
    old = Intent(QUERY, 6, "before", 2, 2)

    entries = with_offsets(old, *MARKERS, old, OURS, Intent(OTHER, 3, "x", 1, 1))
    assert outdated_intents(QUERY, 7, entries) == [old]


@pytest.mark.parametrize(
    "named",
    ["!", "bm90IGEgemxpYiBzdHJlYW0=", base64.b64encode(zlib.compress(b"{")).decode()],
    ids=["no Base64", "not compressed", "no JSON"],
)
def test_a_damaged_list_of_transactions_is_an_error(named: str) -> None:
    """
    The error names the write and the ledger, and says what to do.
    """
    intent = Intent("0a1b2c3d-0", 7, "w", 2, 2, 0, named)
    with pytest.raises(ExactlyOnceError, match="LEDGER_MALFORMED.*write w of batch 7.*'orders'"):
        named_transactions("orders", intent)
