"""
Replays of a micro-batch: which tasks count as committed by the ledger, and which replays fail.
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
from pyspark_pykafka.errors import ConcurrentWriteError, ExactlyOnceError
from pyspark_pykafka.sink.intents import named_transactions
from pyspark_pykafka.sink.ledger_entries import (
    Committable,
    CommittableBatch,
    Completion,
    EmptyWriteClaim,
    Intent,
    Marker,
    ReadBarrier,
    Release,
    Withdrawal,
    from_record,
    ledger_topic,
    to_record,
)
from pyspark_pykafka.sink.replay import (
    batch_state,
    check_owner,
    check_single_writer,
    committed_tasks,
    concurrent_writer,
    covers_batch,
    describe_row_difference,
)

if TYPE_CHECKING:
    from pyspark_pykafka.sink.ledger_entries import Entry

QUERY = "0a1b2c3d-0000-0000-0000-000000000000"
OTHER = "ffffffff-0000-0000-0000-000000000000"


def marker(
    task: int, records: int = 10, batch: int = 7, write: str = "old", content: str | None = None
) -> Marker:
    """
    Return the marker of a task of an earlier write.
    """
    return Marker(QUERY, batch, write, task, records, f"{records}" if content is None else content)


def intent(tasks: int, batch: int = 7, write: str = "old") -> Intent:
    """
    Return the intent of an earlier write. All its tasks had rows.
    """
    return Intent(QUERY, batch, write, tasks, tasks)


def with_offsets(*entries: Entry) -> list[tuple[int, Entry]]:
    """
    Return entries with offsets from 100 on.
    """
    return list(enumerate(entries, 100))


def batch_of(*records: int, tasks: int | None = None) -> CommittableBatch:
    """
    Return batch 7 with this many rows in each task, and markers from offset 100 on.
    """
    return CommittableBatch(
        "orders",
        QUERY,
        7,
        "new",
        len(records) if tasks is None else tasks,
        tuple(
            Committable(
                task, count, PreparedTransaction(f"orders-{task}", task, 0), 100 + task, f"{count}"
            )
            for task, count in enumerate(records)
            if count
        ),
    )


ENTRIES = {
    marker(3): b"task-3",
    intent(2): b"intent-old",
    Release(QUERY): b"release",
    Release(QUERY, 5, "a1"): b"release-a1",
    Withdrawal(QUERY, "old"): b"withdrawal",
    Completion(QUERY, 7, 5): b"completion",
    EmptyWriteClaim(QUERY, 7, "old"): b"task--1",
    ReadBarrier(): b"barrier",
}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.key)
def test_entries_round_trip(entry: Entry) -> None:
    """
    An entry is read as it was written; markers are compacted by task, and intents by write.
    """
    key, value = to_record(entry)

    assert from_record(value, "orders-ledger-0 at offset 5") == entry
    assert key == ENTRIES[entry]


def test_entries_of_older_versions_are_read() -> None:
    """
    Markers of older versions have no content hash, and their intents no transactions; their
    releases and completions count wherever they are.
    """
    document = {
        "kind": "marker",
        "query": QUERY,
        "batch": 7,
        "write": "old",
        "task": 3,
        "records": 10,
    }
    decided = {"kind": "intent", "query": QUERY, "batch": 7, "write": "old", "tasks": 2}

    assert from_record(json.dumps(document).encode(), "") == marker(3, content="")
    entry = from_record(json.dumps({**decided, "written": 2}).encode(), "")
    assert entry == intent(2)
    assert named_transactions("orders", intent(2)) == []
    release = json.dumps({"kind": "release", "query": QUERY}).encode()
    assert from_record(release, "") == Release(QUERY)
    completion = json.dumps({"kind": "completion", "query": QUERY, "batch": 7}).encode()
    assert from_record(completion, "") == Completion(QUERY, 7)
    entries = with_offsets(marker(1, 20), intent(2), from_record(release, ""))
    assert committed_tasks(batch_of(10, 21), entries) == frozenset()


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff", b"[]", b"{}", b'{"kind":"other"}', b'{"kind":"intent"}']
)
def test_a_foreign_record_is_reported(value: bytes | None) -> None:
    """
    Another producer's record in the ledger fails the write; the error names its offset.
    """
    with pytest.raises(ExactlyOnceError, match="orders-ledger-0 at offset 5 is not an entry"):
        from_record(value, "orders-ledger-0 at offset 5")


def test_first_marker_offset() -> None:
    """
    A batch starts at its first marker in the ledger.
    """
    assert ledger_topic("orders") == "orders-ledger"
    assert batch_of(5, 0, 6).first_marker_offset == 100


def test_a_batch_without_committed_tasks_is_written_whole() -> None:
    """
    A batch is written whole if it is new, or if nothing of its earlier write was committed.
    """
    assert committed_tasks(batch_of(10, 20), []) == frozenset()
    assert (
        committed_tasks(batch_of(10, 20), with_offsets(marker(0, batch=6), intent(2, 6)))
        == frozenset()
    )
    assert committed_tasks(batch_of(10, 20), with_offsets(intent(5))) == frozenset()


def test_committed_tasks_are_skipped() -> None:
    """
    After a driver died between two commits, the committed tasks count as done.
    """
    assert committed_tasks(batch_of(10, 20, 30), with_offsets(marker(1, 20), intent(3))) == {1}


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (batch_of(10, 20), None),
        (batch_of(20, 10), None),
        (batch_of(10, 20, 5), "30 rows then, 35 now"),
        (batch_of(11, 19), "30 rows both times"),
        (batch_of(10), "30 rows then, 10 now"),
    ],
)
def test_other_rows_of_a_committed_batch_are_noticed(
    now: CommittableBatch, difference: str | None
) -> None:
    """
    Other rows than those that are committed are noticed, however tasks divide them.
    """
    entries: list[Entry] = [marker(0, 10), marker(1, 20), intent(2)]
    assert describe_row_difference(now, with_offsets(*entries)) == difference
    assert describe_row_difference(now, with_offsets(*entries[1:])) is None
    assert describe_row_difference(now, with_offsets(*entries, Completion(QUERY, 7))) is None


def test_two_earlier_writes_add_up() -> None:
    """
    Two drivers each committed a part of the batch before they died: both parts count.
    """
    entries: list[Entry] = [
        marker(1, 20),
        intent(3),
        marker(0, 10, write="later"),
        intent(3, write="later"),
    ]

    assert committed_tasks(batch_of(10, 20, 30), with_offsets(*entries)) == {0, 1}


@pytest.mark.parametrize("replay", [batch_of(10, 20), batch_of(30), batch_of(1, 2, 3)])
def test_a_complete_batch_accepts_any_replay(replay: CommittableBatch) -> None:
    """
    If all tasks are committed, by one write or two, or the rest was given up, nothing of the replay
    is committed.
    """
    entries: list[Entry] = [marker(0), marker(2), Intent(QUERY, 7, "old", 3, 2)]
    two: list[Entry] = [
        marker(0),
        Intent(QUERY, 7, "old", 3, 2),
        marker(2, write="b"),
        Intent(QUERY, 7, "b", 3, 2),
    ]

    assert committed_tasks(replay, with_offsets(*entries)) == {
        task.task for task in replay.committables
    }
    assert committed_tasks(replay, with_offsets(*two)) == {
        task.task for task in replay.committables
    }
    given_up: list[Entry] = [*entries[:1], intent(3), Completion(QUERY, 7)]
    assert committed_tasks(replay, with_offsets(*given_up)) == {
        task.task for task in replay.committables
    }


def test_the_last_committed_intent_defines_the_batch() -> None:
    """
    The last committed intent, of a write that merged the rows of two tasks, defines the batch.
    """
    entries: list[Entry] = [
        marker(0),
        Intent(QUERY, 7, "old", 3, 3),
        marker(1, 50, write="b"),
        Intent(QUERY, 7, "b", 3, 2),
    ]

    assert committed_tasks(batch_of(10, 20, 30), with_offsets(*entries)) == {0, 1, 2}


def test_a_write_without_commits_defines_nothing() -> None:
    """
    Only a write with a committed task defines how many tasks the batch has.
    """
    entries: list[Entry] = [intent(5), marker(1, 20, write="later"), intent(2, write="later")]

    assert committed_tasks(batch_of(10, 20), with_offsets(*entries)) == {1}


@pytest.mark.parametrize(
    ("replay", "reason"),
    [
        (batch_of(10, 20, 0), "it had 2 tasks then, and has 3 now"),
        (batch_of(30), "it had 2 tasks then, and has 1 now"),
        (batch_of(10, 21), "its task 1 wrote 20 rows then, and 21 now"),
        (batch_of(10, 0), "its task 1 wrote 20 rows then, and 0 now"),
    ],
    ids=["more tasks", "fewer tasks", "other rows", "no rows"],
)
def test_a_different_replay_is_refused(replay: CommittableBatch, reason: str) -> None:
    """
    The committed rows could not be identified, so the replay fails.
    """
    with pytest.raises(ExactlyOnceError, match=f"{reason}.*pykafka transactions release") as raised:
        committed_tasks(replay, with_offsets(marker(1, 20), intent(2)))
    assert "Visible so far: 20 rows, those of 1 of 2 tasks with rows (1)" in str(raised.value)
    assert "pykafka transactions complete --prefix orders" in str(raised.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("other", "wrote different rows then, although the same number"),
        ("", "an older version wrote its task 1"),
    ],
)
def test_equal_counts_are_not_equal_rows(content: str, reason: str) -> None:
    """
    The same number of rows is not enough; markers of older versions have no content hash.
    """
    with pytest.raises(ExactlyOnceError, match=reason):
        committed_tasks(batch_of(10, 20), with_offsets(marker(1, 20, content=content), intent(2)))


def test_a_partial_commit_without_intent_is_refused() -> None:
    """
    A ledger that lost the intent cannot vouch for the number of tasks.
    """
    with pytest.raises(ExactlyOnceError, match="the number of its tasks is not known"):
        committed_tasks(batch_of(10, 20), with_offsets(marker(1, 20)))


def test_a_release_resets_the_ledger() -> None:
    """
    After a release the batch is written whole.
    """
    entries: list[Entry] = [marker(1, 20), intent(2), Release(QUERY)]

    assert committed_tasks(batch_of(10, 21), with_offsets(*entries)) == frozenset()


def test_a_late_copy_of_a_release_changes_nothing() -> None:
    """
    A release counts at its first copy's offset, and not after an intent that was appended later.
    """
    release = Release(QUERY, 102, "r")
    entries = with_offsets(marker(1, 20), intent(2), release)
    assert committed_tasks(batch_of(10, 21), entries) == frozenset()

    after: list[Entry] = [marker(0, 10, write="b"), intent(2, write="b"), release]
    entries = [*entries, *enumerate(after, 103)]
    assert committed_tasks(batch_of(10, 21), entries) == {0}
    assert batch_state(QUERY, 7, entries).tasks == (0,)


@pytest.mark.parametrize("command", [Release(QUERY, 101, "r"), Completion(QUERY, 7, 101)])
def test_an_overtaken_command_does_not_count(command: Entry) -> None:
    """
    A command whose only entry lands after an intent that it has not read has no effect.
    """
    entries = with_offsets(marker(1, 20), intent(2), command)
    assert committed_tasks(batch_of(10, 20), entries) == {1}


def test_a_command_of_an_earlier_topic_does_not_count() -> None:
    """
    A release that names an offset after itself was meant for a deleted topic of the same name.
    """
    entries = with_offsets(marker(1, 20), intent(2), Release(QUERY, 5_000, "r"))
    assert committed_tasks(batch_of(10, 20), entries) == {1}


@pytest.mark.parametrize(
    ("entries", "is_covered"),
    [
        ([], False),
        ([marker(0)], False),
        ([intent(2, batch=6)], False),
        ([marker(0, batch=6)], True),
        ([Release(QUERY)], True),
        ([Release(QUERY, 100, "r")], True),
        ([intent(2), Release(QUERY, 100, "r")], False),
        ([Release(QUERY, 99, "r"), marker(0, batch=6)], False),
    ],
    ids=[
        "nothing",
        "this batch",
        "an intent alone",
        "the batch before",
        "released by an older version",
        "released",
        "released too late",
        "perhaps released",
    ],
)
def test_covers_batch(entries: list[Entry], is_covered: bool) -> None:
    """
    A committed marker of an earlier batch ends the search; an intent does not, since a paused
    driver may write it late. Whether a release counts depends on the entries before it.
    """
    assert covers_batch(with_offsets(*entries), 7, 100) is is_covered


def test_a_prefix_owned_by_another_query_is_refused() -> None:
    """
    The prefix belongs to the query that committed last, until it is released.
    """
    stranger = Marker(OTHER, 3, "theirs", 0, 1)

    check_owner(batch_of(10), [])
    check_owner(batch_of(10), with_offsets(stranger, Release(OTHER)))
    check_owner(batch_of(10), with_offsets(marker(0), Intent(OTHER, 3, "theirs", 1, 1)))
    with pytest.raises(ExactlyOnceError, match=f"belongs to the query {OTHER}.*batch 3"):
        check_owner(batch_of(10), with_offsets(marker(0, batch=6), stranger))


def test_a_superseded_batch_is_refused() -> None:
    """
    A later batch's entries may have replaced this batch's; after a release it is written.
    """
    ahead: list[Entry] = [marker(0, batch=9), intent(1, 9)]

    with pytest.raises(ExactlyOnceError, match="batch 9 .* is committed already.* this is batch 7"):
        committed_tasks(batch_of(10), with_offsets(*ahead))
    assert committed_tasks(batch_of(10), with_offsets(*ahead, Release(QUERY))) == frozenset()


@pytest.mark.parametrize("batch", [7, 8])
def test_concurrent_writers_are_refused(batch: int) -> None:
    """
    Markers of another write among our own reveal another process, and fail the write.
    """
    own_marker = marker(0, write="new")

    check_single_writer(batch_of(10), [own_marker, intent(2)])
    with pytest.raises(ConcurrentWriteError, match="is the query running twice"):
        check_single_writer(batch_of(10), [own_marker, marker(1, batch=batch)])


def test_a_late_marker_of_an_earlier_batch_is_ignored() -> None:
    """
    A marker of an earlier batch, which another attempt has committed, is not a concurrent writer's.
    """
    check_single_writer(batch_of(10), [marker(0, write="new"), marker(1, batch=6)])


def test_a_release_survives_compaction() -> None:
    """
    Markers that the next query, with fewer tasks, does not replace survive compaction, but precede
    the release, so they do not count.
    """
    log: list[Entry] = [
        *(Marker(OTHER, 9, "old", task, 1) for task in range(3)),
        Intent(OTHER, 9, "old", 3, 3),
        Release(OTHER),
        marker(0, batch=6, write="last"),
        intent(1, batch=6, write="last"),
    ]
    last = {to_record(entry)[0]: (offset, entry) for offset, entry in enumerate(log)}
    compacted = sorted(last.values(), key=itemgetter(0))
    assert len(compacted) < len(log)

    check_owner(batch_of(5), compacted)
    assert committed_tasks(batch_of(5), compacted) == frozenset()


def test_concurrent_writer() -> None:
    """
    Another write of the batch or of a later one is found; late markers and other queries are not.
    """
    late, own_marker = marker(0, batch=6), marker(0, write="new")
    stranger = Marker(OTHER, 7, "theirs", 0, 1)
    assert concurrent_writer(QUERY, "new", 7, [late, own_marker, stranger, intent(1)]) is None

    later = marker(0, batch=8)
    assert concurrent_writer(QUERY, "new", 7, [late, own_marker, later]) is later
