"""
Ledgers that are emptied, or lose their first entries: no write decides from the remaining entries
what to commit.

The connector's code runs over a ledger and a coordinator in memory (``commit_model``).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commit_model import (
    PREFIX,
    QUERY,
    MemoryTransactions,
    Process,
    World,
    check_once,
    check_whole,
    ledger_of,
    writes,
)

from pyspark_pykafka.errors import ExactlyOnceError
from pyspark_pykafka.sink import (
    decided_commits,
    ledger_loss,
    micro_batch_committer,
    prefix_commands,
)
from pyspark_pykafka.sink.ledger_entries import Completion, Intent, Marker, Release, Withdrawal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.sink.ledger_entries import Entry

ROWS = "abcd"
TASKS = ("ab", "cd")
LOST = "EXACTLY_ONCE_LEDGER_LOST"


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "pyspark_pykafka")
    for module in (decided_commits, micro_batch_committer, prefix_commands):
        monkeypatch.setattr(module, "open_ledger", ledger_of)


def run(world: World, name: str, batch: int) -> Process:
    """
    Run a process that writes a batch.
    """
    return Process(world, name, writes(TASKS, batch)).finish()


def after(batches: int) -> World:
    """
    Return the brokers after this many batches.
    """
    world = World()
    for batch in range(batches):
        assert run(world, f"first {batch}", batch).outcome == "done"
    return world


def release(world: World) -> None:
    """
    Append what `pykafka transactions release` appends.
    """
    world.append([Release("")])


def lost(process: Process) -> bool:
    """
    Return whether the process reports that the ledger is lost.
    """
    error = process.failure
    return isinstance(error, ExactlyOnceError) and error.condition == LOST


def test_a_refused_write_does_not_hide_the_loss() -> None:
    """
    The abort of a refused write appends a withdrawal, which is not a commit: every later start is
    refused, too, until a release.
    """
    world = after(2)
    world.lose_log()
    for name in ("second", "third", "fourth"):
        process = run(world, name, 1)
        assert lost(process), (process.failure, world.trace)
    assert any(isinstance(entry, Withdrawal) for _, entry in world.log)
    check_whole(world, 1, ROWS)

    release(world)
    assert run(world, "released", 1).outcome == "done"
    assert world.visible(1) == Counter(2 * ROWS)


def test_an_undecided_intent_does_not_hide_the_loss() -> None:
    """
    An intent in an otherwise empty ledger is not a commit either.
    """
    world = after(2)
    world.lose_log()
    world.append([Intent(QUERY, 1, "another", 2, 2)])

    assert lost(run(world, "second", 1)), world.trace


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_deleted_entries_hide_no_commit(batch: int) -> None:
    """
    Wherever the log starts, a replay of the last batch either recognises its committed tasks or is
    refused, again and again.
    """
    outcomes = set()
    end = len(after(batch + 1).log)
    for log_start in range(1, end + 1):
        world = after(batch + 1)
        world.log_start = log_start
        for name in ("second", "third"):
            process = run(world, name, batch)
            outcomes.add(process.outcome)
            assert process.outcome == "done" or lost(process), (process.failure, world.trace)
            check_whole(world, batch, ROWS)
    assert outcomes == ({"ExactlyOnceError"} if batch == 0 else {"ExactlyOnceError", "done"})


def test_a_batch_without_rows_is_refused_with_deleted_entries() -> None:
    """
    A replay without rows is refused, too: it cannot know whether the batch had rows before.
    """
    world = after(1)
    world.log_start = 1
    process = Process(world, "second", writes(("", ""), 0)).finish()

    # Without rows there is no marker, and Spark's abort does nothing.
    assert lost(process), (process.failure, world.trace)


def test_a_release_accepts_deleted_entries() -> None:
    """
    All deleted entries lie before the release, so the batch may be written whole.
    """
    world = after(1)
    world.log_start = 2
    assert lost(run(world, "second", 0))
    release(world)

    assert run(world, "third", 0).outcome == "done"
    assert run(world, "fourth", 1).outcome == "done"
    check_whole(world, 1, ROWS)
    check_once(world, {0: 2 * ROWS})


def test_a_release_behind_an_open_transaction_accepts_deleted_entries() -> None:
    """
    A release counts although an open transaction hides it from readers of committed records.
    """
    world = after(1)
    world.log_start = 2
    attempt = world.begin(f"{PREFIX}-another-0-7-0")
    world.write(attempt, Marker("another query", 0, "w", 7, 1, "1"), "z")
    release(world)
    world.in_flight.append(lambda: world.end(attempt, commit=False))
    process = Process(world, "second", writes(TASKS, 0))
    while process.advance():
        if "list " in world.trace[-1] and world.in_flight:
            world.in_flight.pop()()

    assert process.outcome == "done", (process.failure, world.trace)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Marker(QUERY, 1, "w", 0, 1), True),
        (Completion(QUERY, 1), True),
        (Release(QUERY), True),
        (Intent(QUERY, 1, "w", 1, 1), False),
        (Withdrawal(QUERY, "w"), False),
    ],
)
def test_entries_that_record_a_commit(entry: Entry, *, expected: bool) -> None:
    """
    Markers and completions show a commit, and a release accepts the loss of the entries before it.
    """
    assert ledger_loss.records_commit([Withdrawal(QUERY, "x"), entry]) is expected
    assert not ledger_loss.records_commit([])


# --- Commands -------------------------------------------------------------------------------------


def ask(world: World, question: Callable[..., Any]) -> Any:
    """
    Return the answer of a command's function.
    """
    answers: list[Any] = []

    def program(process: Process) -> None:
        transactions: Any = MemoryTransactions(process)
        answers.append(question(transactions, PREFIX))

    Process(world, "tool", program).finish()
    return answers[0]


def test_a_ledger_with_a_refused_write_only_is_unused() -> None:
    """
    `pykafka transactions release` starts a new ledger where only an undecided intent and a
    withdrawal are left.
    """
    world = World()
    world.append([Intent(QUERY, 1, "another", 2, 2), Withdrawal(QUERY, "w")])

    assert ask(world, prefix_commands.is_ledger_unused)


@pytest.mark.parametrize("log_start", [0, 1, 4])
def test_a_truncated_ledger_is_known_to_the_command(log_start: int) -> None:
    """
    A ledger that has lost its first entries counts as truncated until it has a release.
    """
    world = after(1)
    world.log_start = log_start
    assert ask(world, prefix_commands.is_ledger_truncated) is (log_start > 0)
    release(world)
    assert not ask(world, prefix_commands.is_ledger_truncated)


def warnings_of_new_ledgers(caplog: pytest.LogCaptureFixture) -> list[str]:
    """
    Return the warnings so far that a query continues with a new ledger.
    """
    return [text for text in caplog.messages if "is new, but the query" in text]


def test_a_query_that_continues_with_a_new_ledger_is_warned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    With another prefix or cluster nothing shows whether the last batch was committed before: one
    warning says that its rows may be visible twice, and what to do.
    """
    caplog.set_level("WARNING", "pyspark_pykafka")
    world = World()
    assert run(world, "first", 5).outcome == "done"

    (warning,) = warnings_of_new_ledgers(caplog)
    assert f"the ledger {PREFIX}-ledger is new, but the query {QUERY} continues with" in warning
    assert "batch 5" in warning
    assert "transactionalIdPrefix" in warning
    assert run(world, "second", 6).outcome == "done"
    assert run(world, "third", 6).outcome == "done"
    assert len(warnings_of_new_ledgers(caplog)) == 1


def test_a_new_or_released_query_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    """
    A query's first batch repeats nothing, and a user who has run the release has accepted that rows
    may be visible twice.
    """
    caplog.set_level("WARNING", "pyspark_pykafka")
    assert run(World(), "first", 0).outcome == "done"
    world = World()
    release(world)
    assert run(world, "released", 5).outcome == "done"

    assert not warnings_of_new_ledgers(caplog)
