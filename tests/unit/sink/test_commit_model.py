"""
Writes of one micro-batch that die, pause, resume and overlap in any order; each row is visible
once.

The connector's code runs over a ledger and a coordinator in memory (``commit_model``).
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.clock import Clock
from tests.support.commit_model import (
    PREFIX,
    QUERY,
    Checkpoint,
    MemoryLedger,
    MemoryTransactions,
    Process,
    Turn,
    World,
    check_once,
    check_whole,
    content,
    continues,
    ledger_of,
    losing_attempt,
    writes,
)

from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionDescription,
    TransactionState,
)
from pyspark_pykafka.errors import ConcurrentWriteError, PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.sink import (
    command_entries,
    decided_commits,
    intents,
    micro_batch_committer,
    prefix_commands,
    replay,
)
from pyspark_pykafka.sink.intents import named_transactions
from pyspark_pykafka.sink.ledger_entries import (
    EmptyWriteClaim,
    Marker,
    ReadBarrier,
    Release,
    Withdrawal,
)
from pyspark_pykafka.sink.transactional_ids import stream_task_transactional_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.commit_model import Division

    from pyspark_pykafka.sink.ledger_entries import CommittableBatch

ROWS = "abcd"
#: The divisions after the first have other counts of rows, equal counts of other rows, one task,
#: and a task without rows.
DIVISIONS: tuple[Division, ...] = (
    ("ab", "cd"),
    ("abc", "d"),
    ("ac", "bd"),
    ("abcd",),
    ("a", "", "bcd"),
)
FIRST = DIVISIONS[0]
#: A write without rows, for example after a filter was changed, or after retention has removed the
#: data.
EMPTY: Division = ("", "")
LANDING = "requests in flight land"
DEATHS = (Turn.DIE, Turn.DIE_AFTER, Turn.DIE_LATE)


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "pyspark_pykafka")
    for module in (decided_commits, micro_batch_committer, prefix_commands):
        monkeypatch.setattr(module, "open_ledger", ledger_of)


def start(world: World, name: str, division: Division, batch: int = 0) -> Process:
    """
    Start a process that writes a batch.
    """
    return Process(world, name, writes(division, batch))


def until(process: Process, call: str) -> Process:
    """
    Let a process continue until it has made a call.
    """
    while not any(call in line for line in process.world.trace[-1:]):
        assert process.advance()
    return process


def until_next(process: Process, call: str) -> Process:
    """
    Let a process continue until a call is its next one.
    """
    while process.next_action != call:
        assert process.advance()
    return process


def killed_at(world: World, name: str, division: Division, moment: int, turn: Turn) -> bool:
    """
    Run a process that dies at this call; return False if it ended before.
    """
    process = start(world, name, division)
    for _ in range(moment):
        if not process.advance():
            return False
    process.advance(turn)
    return True


def moments() -> Iterator[tuple[int, Turn]]:
    """
    Yield each call at which the first write can die, and each way to die.
    """
    moment = 0
    while killed_at(World(), "a", FIRST, moment, Turn.DIE):
        yield from ((moment, turn) for turn in DEATHS)
        moment += 1


def restart(world: World, name: str, division: Division, land_at: int | None = None) -> Process:
    """
    Run another process of the query; requests in flight land at call ``land_at``, or at its end.
    """
    process = start(world, name, division)
    moment = 0
    while process.outcome is None:
        if moment == land_at:
            land(world)
        process.advance()
        moment += 1
    land(world)
    return process


def land(world: World) -> None:
    """
    Let all requests in flight take effect.
    """
    if world.in_flight:
        world.trace.append(LANDING)
    while world.in_flight:
        with suppress(PykafkaError):
            world.in_flight.pop(0)()


def check_completed(world: World, process: Process, division: Division) -> None:
    """
    Fail unless the batch is whole, or the process was refused because it divides the rows
    differently.
    """
    check_once(world, {0: ROWS})
    if process.outcome == "done":
        check_whole(world, 0, ROWS)
        return
    assert division != FIRST, (process.failure, world.trace)
    assert "EXACTLY_ONCE_REPLAY_DIFFERS" in str(process.failure), (process.failure, world.trace)


@pytest.mark.parametrize(
    ("division", "now"), [(("ab", "cde"), 5), (("", ""), 0)], ids=["more rows", "no rows"]
)
def test_a_checkpoint_that_was_reset_by_one_batch(
    caplog: pytest.LogCaptureFixture, division: Division, now: int
) -> None:
    """
    A committed batch is not written again, and a warning is logged if its rows differ now.
    """
    world = World()
    assert start(world, "a", FIRST).finish().outcome == "done"
    caplog.set_level("WARNING", "pyspark_pykafka")
    assert start(world, "b", DIVISIONS[2]).finish().outcome == "done"
    assert "with different rows" not in caplog.text
    assert start(world, "c", division).finish().outcome == "done"
    check_whole(world, 0, ROWS)
    assert f"with different rows from those of this run (4 rows then, {now} now)" in caplog.text


EARLY = pytest.mark.parametrize("is_early", [True, False], ids=["completes early", "at the commit"])


@EARLY
@pytest.mark.parametrize("division", DIVISIONS, ids="|".join)
def test_a_batch_survives_a_death_with_any_division(division: Division, *, is_early: bool) -> None:
    """
    Whenever the first driver dies, the second one, with other tasks, leaves each row visible once.
    """
    for moment, turn in moments():
        world = World(is_early=is_early)
        killed_at(world, "a", FIRST, moment, turn)
        restarted = restart(world, "b", division)
        assert restarted.outcome == "done", (restarted.failure, world.trace)
        check_whole(world, 0, ROWS)
        assert turn is Turn.DIE_LATE or world.ongoing == []


@pytest.mark.parametrize("division", DIVISIONS[1:3], ids="|".join)
def test_late_requests_of_a_dead_driver(division: Division) -> None:
    """
    An intent or an EndTxn of a dead driver may land at any moment of the next driver: no row is
    duplicated, and a third driver completes the batch.
    """
    for moment, turn in moments():
        if turn is not Turn.DIE_LATE:
            continue
        for land_at in range(40):
            world = World()
            killed_at(world, "a", FIRST, moment, turn)
            if "begin" in world.trace[-1]:
                # A late begin acts like a task still alive: see test_a_paused_driver_resumes.
                break
            restart(world, "b", division, land_at)
            check_once(world, {0: ROWS})
            last = restart(world, "c", DIVISIONS[3])
            assert last.outcome == "done", (last.failure, world.trace)
            check_whole(world, 0, ROWS)


@pytest.mark.parametrize("division", DIVISIONS[1:3], ids="|".join)
def test_a_batch_survives_two_deaths(division: Division) -> None:
    """
    The second driver dies at each of its calls, too, and a third one divides the rows differently.
    """
    for moment, turn in moments():
        if turn is not Turn.DIE_AFTER:
            continue
        for call in range(60):
            world = World()
            killed_at(world, "a", FIRST, moment, turn)
            if not killed_at(world, "b", division, call, Turn.DIE_AFTER):
                break
            last = restart(world, "c", DIVISIONS[3])
            assert last.outcome == "done", (last.failure, world.trace)
            check_whole(world, 0, ROWS)


def test_a_decided_commit_is_completed_before_the_tasks_write() -> None:
    """
    If a driver dies during its commit, the first task of the next one completes that commit, before
    it writes any row: the transactions cannot time out while the tasks run.
    """
    world = World()
    until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
    assert world.visible(0) != Counter(ROWS)
    restarted = until(start(world, "b", DIVISIONS[1]), ": begin ")
    check_whole(world, 0, ROWS)
    assert restarted.finish().outcome == "done"
    check_whole(world, 0, ROWS)


@pytest.mark.parametrize("lag", [1, 2])
def test_a_released_commit_is_not_completed_before_the_tasks(lag: int) -> None:
    """
    A release lets the batch be written whole again. So the first task commits nothing that was
    decided before the release, even if a former leader does not report the release.
    """
    world = World()
    until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
    seen = world.visible(0)
    # The coordinator of the open transaction did not respond to the command.
    world.append([Release(QUERY, len(world.log), "released")])
    world.lag = lag
    restarted = until(start(world, "b", DIVISIONS[1]), ": begin ")
    assert world.visible(0) == seen, world.trace
    world.lag = 0
    assert restarted.finish().outcome == "done"
    assert world.visible(0) == seen + Counter(ROWS), world.trace


@pytest.mark.parametrize("turn", [Turn.DIE, Turn.DIE_AFTER, Turn.DIE_LATE, Turn.LOSE])
def test_a_completion_before_the_tasks_that_fails(turn: Turn) -> None:
    """
    The first task dies at each of its calls, or gets no response and goes on: the driver after it
    completes the batch.
    """
    for moment in range(1, 20):
        world = World()
        until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
        second = start(world, "b", DIVISIONS[1])
        assert all(second.advance() for _ in range(moment))
        if world.visible(0) == Counter(ROWS):
            return
        second.advance(turn)
        second.finish()
        assert turn is not Turn.LOSE or second.outcome == "done", (second.failure, world.trace)
        last = restart(world, "c", DIVISIONS[3])
        assert last.outcome == "done", (last.failure, world.trace)
        check_whole(world, 0, ROWS)
    pytest.fail("the first task completes nothing")


def test_a_task_looks_for_an_earlier_commit_for_ten_seconds_at_most() -> None:
    """
    However many requests it takes to find out that a commit was decided, they have ten seconds in
    total. The commit itself has as long as any other, since half of it would be worse than none.
    """
    clock, limits = Clock(), []

    class Limited(MemoryTransactions):
        def with_time_limit(self, seconds: float) -> Limited:
            limits.append(seconds)
            # Each request takes four seconds, even though the limit may be shorter.
            clock.sleep(4)
            return self

        def end_all(self, prepared: Any, *, commit: bool) -> None:
            limits.append(self.config.block_seconds)
            super().end_all(prepared, commit=commit)

    def program(process: Process) -> None:
        transactions: Any = Limited(process)
        transactions.cluster = SimpleNamespace(
            new_deadline=lambda seconds: Deadline.after(seconds, clock.now, clock.sleep)
        )
        decided_commits.complete_earlier_commit(transactions, (PREFIX, QUERY), 0, "b")

    world = World()
    until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
    assert Process(world, "b", program).finish().outcome == "done"
    assert limits == [10, 6, 2, 0, 60]
    check_whole(world, 0, ROWS)


def test_a_late_attempt_of_the_first_task_commits_nothing() -> None:
    """
    An attempt that begins after its own driver has decided leaves the commit to that driver.
    """
    world = World()
    driver = until_next(start(world, "a", FIRST), "append Intent")
    driver.advance()
    until(Process(world, "late", writes(FIRST, write="a")), ": begin ")
    assert world.visible(0) == Counter()
    assert driver.finish().outcome == "done"
    check_whole(world, 0, ROWS)


@pytest.mark.parametrize("division", DIVISIONS, ids="|".join)
def test_transactions_of_a_dead_driver_time_out(division: Division) -> None:
    """
    If some transactions of a dead driver time out, the same tasks complete the batch. Other tasks
    complete it if nothing was committed, and are refused otherwise.
    """
    for moment, turn in moments():
        for expiries in product((False, True), repeat=2):
            world = World()
            killed_at(world, "a", FIRST, moment, turn)
            for name, has_expired in zip(world.ongoing, expiries, strict=False):
                if has_expired:
                    world.time_out(name)
            check_completed(world, restart(world, "b", division), division)


@pytest.mark.parametrize("division", DIVISIONS, ids="|".join)
def test_a_restart_after_the_ids_have_expired(division: Division) -> None:
    """
    After a week the coordinators know no id of the query: the ledger alone decides. The same tasks
    complete the batch; other tasks complete it if nothing was committed, and are refused otherwise.
    """
    for moment, turn in moments():
        world = World()
        killed_at(world, "a", FIRST, moment, turn)
        for name in world.ongoing:
            world.time_out(name)
        world.forget_ids()
        check_completed(world, restart(world, "b", division), division)


def test_a_driver_that_resumes_after_its_ids_have_expired() -> None:
    """
    A driver that was paused for a week finds its transactions unknown to the brokers, and commits
    nothing; the batch can be written again.
    """
    world = World()
    paused = until_next(start(world, "a", FIRST), "append Intent")
    for name in world.ongoing:
        world.time_out(name)
    world.forget_ids()
    assert paused.finish().outcome != "done"
    assert world.visible(0) == Counter()

    assert restart(world, "b", FIRST).outcome == "done"
    check_whole(world, 0, ROWS)


@pytest.mark.parametrize("division", DIVISIONS[:3], ids="|".join)
def test_a_paused_driver_resumes(division: Division) -> None:
    """
    A driver is paused at each of its calls while another one writes the batch or a part of it, and
    the next batch: whichever commits, each row is visible once.

    A decided part may be lost only if both drivers are alive and one takes over the ids of the
    other.
    """
    refusals = 0
    for moment in range(60):
        for pause in (5, 11, 15, 17, 19, 21, 23, 26, 30, 60):
            world = World()
            zombie, other = start(world, "a", FIRST), start(world, "b", division)
            if not all(zombie.advance() for _ in range(moment)):
                return
            for _ in range(pause):
                if other.outcome is None:
                    other.advance()
            if other.outcome == "done":
                start(world, "next", ("x", "y"), 1).finish()
            for process in (zombie, other):
                process.finish()
                check_once(world, {0: ROWS, 1: "xy"})
            last = start(world, "last", FIRST).finish()
            if "EXACTLY_ONCE_REPLAY_DIFFERS" in str(last.failure):
                assert world.excused, world.trace
                refusals += 1
                give_up_or_repeat(world, repeat=bool(refusals % 2))
            elif "EXACTLY_ONCE_BATCH_OVERTAKEN" not in str(last.failure):
                assert last.outcome == "done", (last.failure, world.trace)
                check_whole(world, 0, ROWS)
            write_next_batch(world)


@pytest.mark.parametrize("division", DIVISIONS[1:3], ids="|".join)
def test_a_commit_without_a_response(division: Division) -> None:
    """
    A request of the commit gets no response, and lands at any point of the abort or of the next
    driver: a transaction whose commit is decided is never aborted.
    """
    for moment in range(60):
        for calls_after in range(16):
            world = World()
            first = start(world, "a", FIRST)
            if not all(first.advance() for _ in range(moment)):
                return
            first.advance(Turn.LOSE)
            if first.outcome is not None:
                # Its tasks are not done yet.
                break
            for _ in range(calls_after):
                if first.outcome is None:
                    first.advance()
            land(world)
            second = start(world, "b", division).finish()
            first.finish()
            last = start(world, "c", DIVISIONS[3]).finish()
            assert last.outcome == "done", (second.failure, last.failure, world.trace)
            check_whole(world, 0, ROWS)


@EARLY
def test_a_replay_whose_task_fails(*, is_early: bool) -> None:
    """
    The abort of a failed replay spares the transactions that the previous driver had decided to
    commit, so that the next driver completes the batch.
    """
    for moment, turn in moments():
        world = World(is_early=is_early)
        killed_at(world, "a", FIRST, moment, turn)
        Process(world, "b", writes(DIVISIONS[1], fails=True)).finish()
        last = start(world, "c", DIVISIONS[3]).finish()
        assert last.outcome == "done", (last.failure, world.trace)
        check_whole(world, 0, ROWS)


@pytest.mark.parametrize("division", DIVISIONS[:3], ids="|".join)
@pytest.mark.parametrize("has_died", [False, True], ids=["two drivers", "after a dead driver"])
@pytest.mark.parametrize("is_ready", [False, True], ids=["not begun", "about to decide"])
def test_a_write_without_rows_while_another_driver_writes(
    division: Division, *, has_died: bool, is_ready: bool
) -> None:
    """
    A driver whose execution has no rows is paused at each of its calls while another one writes the
    batch. If the driver without rows succeeds, and the query goes on, either all rows of the other
    driver are visible, or none.
    """
    for moment in range(60):
        for pause in range(moment % 4, 30 if is_ready else 60, 4):
            world = World()
            if has_died:
                until(start(world, "dead", FIRST), "write task 1").advance(Turn.DIE)
            without, other = start(world, "without", EMPTY), start(world, "other", division)
            if is_ready:
                until_next(other, "append Intent")
            if not all(without.advance() for _ in range(moment)):
                return
            for _ in range(pause):
                if other.outcome is None:
                    other.advance()
            without.finish()
            other.finish()
            check_once(world, {0: ROWS})
            if without.outcome == "done":
                write_next_batch(world)
                assert world.excused or world.visible(0) in (Counter(), Counter(ROWS)), world.trace
                continue
            last = restart(world, "last", DIVISIONS[2])
            assert last.outcome == "done" or world.excused, (last.failure, world.trace)


def test_a_write_without_rows_leaves_the_next_batch_alone() -> None:
    """
    A driver without rows is paused while its successor writes the next batch. It aborts nothing of
    that batch, in whatever order the calls of the two follow each other.
    """
    for moment in range(40):
        for pause in range(40):
            world = World()
            without = start(world, "without", EMPTY)
            if not all(without.advance() for _ in range(moment)):
                return
            following = start(world, "next", FIRST, batch=1)
            for _ in range(pause):
                if following.outcome is None:
                    following.advance()
            without.finish()
            following.finish()
            assert following.outcome == "done", (following.failure, world.trace)
            check_whole(world, 1, ROWS)


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "task failed"])
def test_a_paused_driver_leaves_the_next_batch_alone(*, fails: bool) -> None:
    """
    A driver is paused before its tasks begin. Meanwhile its successor completes the batch, and the
    tasks of the next batch write. In whatever order the calls follow after that, the paused driver
    aborts nothing of the next batch, whether the commit of that batch is decided or not.
    """
    for moment, pause in product(range(60), range(6)):
        world = World()
        paused = Process(world, "paused", writes(DIVISIONS[1], fails=fails))
        assert start(world, "successor", FIRST).finish().outcome == "done"
        following = until_next(start(world, "next", FIRST, batch=1), "append Intent")
        if not all(paused.advance() for _ in range(moment)):
            return
        for _ in range(pause):
            if following.outcome is None:
                following.advance()
        paused.finish()
        following.finish()
        assert following.outcome == "done", (following.failure, world.trace)
        check_whole(world, 0, ROWS)
        check_whole(world, 1, ROWS)
    pytest.fail("the paused driver has not ended")


@pytest.mark.parametrize("division", [DIVISIONS[1], EMPTY], ids=["rows", "no rows"])
@pytest.mark.parametrize("command", ["abort", "release"])
def test_a_checkpoint_reset_while_the_next_batch_is_open(division: Division, command: str) -> None:
    """
    A driver dies before it decides to commit its batch, and the checkpoint is reset by one batch:
    the earlier batch is refused until those transactions are aborted or the prefix is released.
    """
    world = World()
    assert start(world, "first", FIRST).finish().outcome == "done"
    until(start(world, "dead", FIRST, batch=1), "write task 1").advance(Turn.DIE)
    open_ids = world.ongoing

    refused = start(world, "reset", division).finish()
    assert "has begun to write batch 1" in str(refused.failure), (refused.failure, world.trace)
    assert world.ongoing == open_ids

    if command == "abort":
        for name in open_ids:
            world.abort(name, None)
    else:
        start_command(world, repeat=True).finish()
    assert start(world, "again", division).finish().outcome == "done"
    assert world.ongoing == []


def test_a_write_without_rows_ends_the_undecided_writes_before_it() -> None:
    """
    A write without rows claims the batch before it aborts open transactions, so that the intent of
    a driver that was only paused is not binding. A ledger without open transactions gets no claim.
    """
    world = World()
    paused = until_next(start(world, "paused", FIRST), "append Intent")
    assert start(world, "without", EMPTY).finish().outcome == "done"
    assert [entry for _, entry in world.log if isinstance(entry, EmptyWriteClaim)] == [
        EmptyWriteClaim(QUERY, 0, "without")
    ]
    assert world.ongoing == []
    paused.finish()
    assert isinstance(paused.failure, ConcurrentWriteError), paused.failure
    assert world.visible(0) == Counter()

    end = len(world.log)
    assert start(world, "again", EMPTY).finish().outcome == "done"
    assert len(world.log) == end
    assert start(world, "with rows", DIVISIONS[1]).finish().outcome == "done"
    check_whole(world, 0, ROWS)


def test_two_drivers_die_with_their_intents() -> None:
    """
    Two drivers write alternately, so that neither intent is binding, and die: no row is duplicated,
    and a third driver completes the batch unless a decided part was lost.
    """
    for shift in product(range(1, 20), range(1, 20)):
        world = World()
        drivers = [start(world, "a", FIRST), start(world, "b", DIVISIONS[1])]
        for process, count in (
            *zip(drivers, shift, strict=True),
            *((name, 60) for name in drivers),
        ):
            for _ in range(count):
                if process.outcome is None:
                    appends = f"{process.name}: append Intent" in world.trace[-1:]
                    process.advance(Turn.DIE if appends else Turn.GO)
        last = start(world, "c", DIVISIONS[3]).finish()
        if not world.excused:
            assert last.outcome == "done", (last.failure, world.trace)
            check_whole(world, 0, ROWS)
        check_once(world, {0: ROWS})


def test_a_ledger_whose_leader_lags() -> None:
    """
    An abort sees its own write's intent, whatever high watermark a new leader reports.
    """
    world = World()
    first = until(start(world, "a", FIRST), "append Intent")
    first.advance()
    first.advance(Turn.LOSE)
    assert ": commit " in world.trace[-1]
    world.lag = 4
    first.finish()
    world.lag = 0
    assert not any("a: abort" in line for line in world.trace), world.trace


def test_a_former_coordinator_does_not_cause_an_abort() -> None:
    """
    Whatever a former coordinator still reports about a decided transaction, it is not aborted.
    """
    for stale_state in (None, TransactionState.COMPLETE_COMMIT, TransactionState.ONGOING):
        world = World(is_early=False)
        until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
        (decided,) = world.ongoing
        second = until(start(world, "b", DIVISIONS[1]), ": read ")
        _, producer_id, epoch = world.names[decided].prepared
        stale = stale_state and TransactionDescription(
            decided, stale_state, producer_id, epoch - 1, 0, 0, 1
        )
        world.stale = {decided: stale}
        second.finish()
        assert decided in world.ongoing, (stale_state, world.trace)
        assert "EXACTLY_ONCE" not in str(second.failure), second.failure
        world.stale = {}
        last = start(world, "c", DIVISIONS[3]).finish()
        assert last.outcome == "done", (last.failure, world.trace)
        check_whole(world, 0, ROWS)


@pytest.mark.parametrize("lag", [1, 2, 4, 7])
@pytest.mark.parametrize("commits", [False, True], ids=["abort", "commit"])
def test_a_former_leader_of_the_ledger_does_not_cause_an_abort(lag: int, *, commits: bool) -> None:
    """
    A driver whose commit failed, or that commits after a dead one, is paused while another one
    decides; then a former leader reports an old high watermark. Nothing decided is aborted.
    """
    for moment in range(30):
        world = World()
        if commits:
            until(start(world, "dead", FIRST), "write task 1").advance(Turn.DIE)
        first = until(start(world, "a", DIVISIONS[2]), "write task 1")
        first.advance(Turn.GO if commits else Turn.LOSE)
        if not all(first.advance() for _ in range(moment)):
            return
        second = start(world, "b", DIVISIONS[1])
        while second.outcome is None and ": commit " not in world.trace[-1]:
            second.advance()
        world.lag = lag
        first.finish()
        world.lag = 0
        second.finish()
        last = start(world, "last", DIVISIONS[3]).finish()
        assert last.outcome == "done" or world.excused, (lag, moment, last.failure, world.trace)
        check_once(world, {0: ROWS})


@pytest.mark.parametrize("lag", [1, 2, 4])
def test_commands_while_a_former_leader_answers(lag: int) -> None:
    """
    `complete` and `abort` spare what is decided, whatever high watermark a former leader reports.
    """
    world = World()
    until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
    owner = ask(world, prefix_commands.read_prefix_owner)
    decided = world.ongoing
    world.lag = lag
    assert decided
    assert partly_committed(world) == decided
    assert ask(world, prefix_commands.complete_batch, owner).is_whole
    check_whole(world, 0, ROWS)


def decided_and_reported_otherwise(
    state: TransactionState | None,
) -> tuple[World, str, dict[str, TransactionDescription | None]]:
    """
    Return a world in which a driver has died between two commits, the id of the transaction that is
    still open, and what a former coordinator reports of it.
    """
    world = World()
    until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
    (decided,) = world.ongoing
    _, producer_id, epoch = world.names[decided].prepared
    stale = state and TransactionDescription(decided, state, producer_id, epoch - 1, 0, 0, 1)
    return world, decided, {decided: stale}


STALE_STATES = (None, TransactionState.COMPLETE_COMMIT, TransactionState.ONGOING)


@pytest.mark.parametrize("state", STALE_STATES)
def test_a_former_coordinator_does_not_make_complete_give_rows_up(
    state: TransactionState | None,
) -> None:
    """
    Until the coordinator itself answers, `complete` waits, and fails in the end: it neither aborts
    a decided transaction nor declares the batch done without its rows.
    """
    world, decided, stale = decided_and_reported_otherwise(state)
    world.stale = stale
    owner = ask(world, prefix_commands.read_prefix_owner)
    with pytest.raises(TimeoutExceededError):
        ask(world, prefix_commands.complete_batch, owner)
    assert decided in world.ongoing, world.trace
    world.stale = {}
    assert ask(world, prefix_commands.complete_batch, owner).is_whole
    check_whole(world, 0, ROWS)

    for moment in range(40):
        world, _, stale = decided_and_reported_otherwise(state)
        world.stale = stale
        command = start_command(world, repeat=False)
        for _ in range(moment):
            command.advance()
        world.stale = {}
        command.finish()
        assert command.outcome == "done", (command.failure, world.trace)
        check_whole(world, 0, ROWS)


@pytest.mark.parametrize("state", STALE_STATES)
def test_a_former_coordinator_does_not_make_abort_lose_rows(state: TransactionState | None) -> None:
    """
    `abort` spares what is decided, even if it is described as not open.
    """
    world, decided, stale = decided_and_reported_otherwise(state)
    world.stale = stale
    assert partly_committed(world) == [decided]


def test_a_driver_that_aborts_by_name_too_late() -> None:
    """
    A driver pauses after it has listed the transactions, and then aborts by its id a transaction
    that another driver has decided to commit: the lost part is reported, and no row is duplicated.
    """
    world = World()
    first = until(start(world, "a", FIRST), "write task 1")
    sleeper = until(until(start(world, "b", DIVISIONS[3]), ": list "), ": read ")
    while first.advance():
        pass
    until(start(world, "c", DIVISIONS[1]), ": commit ").advance(Turn.DIE)
    assert world.visible(0)
    sleeper.finish()
    assert world.excused, world.trace
    last = start(world, "last", DIVISIONS[2]).finish()
    assert "EXACTLY_ONCE_REPLAY_DIFFERS" in str(last.failure), (last.failure, world.trace)
    check_once(world, {0: ROWS})
    give_up_or_repeat(world, repeat=False)


def test_partly_committed_transactions_are_found() -> None:
    """
    The open transactions of a partly committed batch are found, and no others.
    """
    for moment, turn in moments():
        world = World()
        killed_at(world, "a", FIRST, moment, turn)
        in_part = 0 < len(world.visible(0)) < len(ROWS)
        assert partly_committed(world) == (world.ongoing if in_part else [])


def test_partly_committed_transactions_are_found_after_two_deaths() -> None:
    """
    The second intent names only the tasks that the first driver did not commit, all of them open:
    the batch is committed in part once that intent is in the ledger.
    """
    world = World()
    until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
    (lost,) = world.ongoing
    world.time_out(lost)
    second = until(start(world, "b", FIRST), "write task 1")
    repeated, decided = world.ongoing
    assert partly_committed(world) == []
    until(second, "append Intent").advance(Turn.DIE)
    assert repeated in world.ongoing
    assert partly_committed(world) == [decided]
    world.abort(repeated, None)
    assert start(world, "c", DIVISIONS[1]).finish().outcome == "done"
    check_whole(world, 0, ROWS)


def partly_committed(world: World) -> list[str]:
    """
    Return the ids of the open transactions of writes that are committed in part.
    """
    in_doubt: list[PreparedTransaction] = ask(world, prefix_commands.find_partly_committed)
    ids = {transaction.transactional_id for transaction in in_doubt}
    return [name for name in world.ongoing if name in ids]


def ask(world: World, command: Callable[..., Any], *arguments: Any) -> Any:
    """
    Return what a command on the prefix returns in a process of its own.
    """
    answers: list[Any] = []

    def program(process: Process) -> None:
        answers.append(command(MemoryTransactions(process), *arguments, PREFIX))

    process = Process(world, "tool", program).finish()
    if process.failure is not None:
        raise process.failure
    (answer,) = answers
    return answer


def committed_behind_an_open_transaction(batch: int) -> World:
    """
    Return a world in which a driver has died in the commit of the batch: its second task is
    committed, and the first task, whose marker precedes the other one, is still open.
    """
    world = World()
    for number in range(batch):
        assert start(world, f"before {number}", ("x", "y"), number).finish().outcome == "done"
    until(start(world, "a", FIRST, batch), "append Intent").advance(Turn.DIE)
    _, second = world.ongoing
    world.end(world.names[second].prepared, commit=True)
    assert not any(
        isinstance(entry, Marker) and entry.batch == batch
        for _, entry in world.read(0, world.stable, committed=True)
    )
    return world


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("repeat", [False, True], ids=["complete", "release"])
def test_commands_on_a_commit_behind_an_open_transaction(batch: int, *, repeat: bool) -> None:
    """
    The commands know the commits that an open transaction hides from readers of committed records.
    """
    world = committed_behind_an_open_transaction(batch)

    assert not ask(world, prefix_commands.is_ledger_unused)
    owner = ask(world, prefix_commands.read_prefix_owner)
    assert (owner.query, owner.batch) == (QUERY, batch)
    state = ask(world, prefix_commands.read_batch_state, owner)
    assert str(state) == "2 rows, those of 1 of 2 tasks with rows (1)"
    assert world.visible(batch) == Counter("cd")
    if repeat:
        ask(world, prefix_commands.release_prefix, owner)
    else:
        assert ask(world, prefix_commands.complete_batch, owner).is_whole
    assert world.ongoing == []
    assert world.visible(batch) == Counter("cd" if repeat else ROWS)
    assert start(world, "again", FIRST, batch).finish().outcome == "done"
    assert world.visible(batch) == Counter("cd" * repeat + ROWS)


@pytest.mark.parametrize("batch", [0, 1])
def test_commands_while_a_coordinator_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """
    A prefix whose owner is in the ledger can be released; a state that is not known is an error.
    """
    world = committed_behind_an_open_transaction(batch)

    def no_response(*_: object) -> None:
        raise TimeoutExceededError("no response")

    monkeypatch.setattr(MemoryTransactions, "describe_all", no_response)
    if batch == 0:
        with pytest.raises(TimeoutExceededError):
            ask(world, prefix_commands.read_prefix_owner)
        return
    owner = ask(world, prefix_commands.read_prefix_owner)
    assert (owner.query, owner.batch) == (QUERY, batch - 1)
    with pytest.raises(TimeoutExceededError):
        ask(world, prefix_commands.read_batch_state, owner)


def test_a_marker_of_a_losing_attempt_is_not_counted() -> None:
    """
    A task whose committed marker precedes the open transaction of a losing attempt is counted once.
    """
    world = World()
    first = until(start(world, "a", FIRST), "write task 1")
    # The driver has looked up the losing attempts; now it checks that its own tasks are open.
    until(first, f"describe {stream_task_transactional_id(PREFIX, QUERY, 0, 1, 0)}")
    late = world.begin(stream_task_transactional_id(PREFIX, QUERY, 0, 0, 1))
    world.write(late, Marker(QUERY, 0, "a", 0, 2, content("ab")), "ab")
    until(first, "append Intent").advance(Turn.DIE)
    for name in world.ongoing:
        if world.names[name].prepared != late:
            world.end(world.names[name].prepared, commit=True)
    owner = ask(world, prefix_commands.read_prefix_owner)
    state = ask(world, prefix_commands.read_batch_state, owner)
    assert str(state) == "4 rows, those of 2 of 2 tasks with rows (0, 1)"


def test_a_ledger_of_a_refused_write_is_unused() -> None:
    """
    Only a commit that is decided, or a release, counts as a use of the ledger.
    """
    world = World()
    second = until(start(world, "a", FIRST), "write task 1")
    assert ask(world, prefix_commands.is_ledger_unused)
    for name in world.ongoing:
        world.time_out(name)
    world.append([Withdrawal(QUERY, "a")])
    assert ask(world, prefix_commands.is_ledger_unused)
    second.advance(Turn.DIE)
    world.append([Release(QUERY)])
    assert not ask(world, prefix_commands.is_ledger_unused)


@pytest.mark.parametrize(
    ("rejection", "reason"),
    [(FencedError("of another"), "of another"), (None, "the brokers confirm it")],
    ids=["rejected", "confirmed"],
)
def test_a_commit_that_is_always_rejected_fails_in_time(
    rejection: FencedError | None, reason: str
) -> None:
    """
    If the commit of an open transaction is always rejected, or confirmed by one coordinator while
    another one still reports the transaction as open, an error is raised after max.block.ms.
    """
    open_transaction = PreparedTransaction("orders-0a1b2c3d-0-0-0", 1, 0)
    clock = Clock()

    class RejectingTransactions:
        config = SimpleNamespace(block_seconds=60.0)
        cluster = SimpleNamespace(
            new_deadline=lambda seconds: Deadline.after(seconds, clock.now, clock.sleep)
        )

        def describe_all(self, _: Any) -> dict[str, TransactionDescription]:
            name, producer, epoch = open_transaction
            ongoing = TransactionState.ONGOING
            return {name: TransactionDescription(name, ongoing, producer, epoch, 0, 0, 1)}

        def end_all(self, *_: Any, commit: bool) -> None:
            assert commit
            if rejection is not None:
                raise rejection

    with pytest.raises(TimeoutExceededError, match=f"orders-0a1b2c3d-0-0-0 .*{reason}"):
        decided_commits.commit_open(RejectingTransactions(), [open_transaction])  # type: ignore[arg-type]


def test_a_release_while_coordinators_do_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After a release that finds no transactions to abort, only the rows visible then are repeated.
    """
    for moment, turn in moments():
        world = World()
        killed_at(world, "a", FIRST, moment, turn)
        before = world.visible(0)
        if not before:
            continue

        def release(process: Process) -> None:
            transactions: Any = MemoryTransactions(process)
            owner = prefix_commands.read_prefix_owner(transactions, PREFIX)
            assert owner is not None
            prefix_commands.release_prefix(transactions, owner, PREFIX)

        with monkeypatch.context() as patched:
            patched.setattr(MemoryTransactions, "list_reachable_ids", lambda *_: [])
            Process(world, "tool", release).finish()
        restarted = start(world, "again", DIVISIONS[1]).finish()
        assert restarted.outcome == "done", (restarted.failure, world.trace)
        assert world.visible(0) == before + Counter(ROWS), world.trace


def committed_in_part() -> World:
    """
    Return a world in which a driver has committed one of its two tasks, and the other has expired.
    """
    world = World()
    until(start(world, "a", FIRST), ": commit ").advance(Turn.DIE)
    for name in world.ongoing:
        world.time_out(name)
    assert world.visible(0) == Counter(FIRST[0])
    return world


def run_command(world: World, turn: Turn, *, repeat: bool) -> Process:
    """
    Run `release` or `complete`; ``turn`` says what happens when the command appends its entry to
    the ledger.
    """
    command = start_command(world, repeat=repeat)
    while command.outcome is None:
        is_entry = command.next_action in ("append Release", "append Completion")
        command.advance(turn if is_entry else Turn.GO)
    return command


def run_while_landing(process: Process, land_at: int, die_at: int | None = None) -> int:
    """
    Run a process, which dies after its call ``die_at``; requests in flight land before its call
    ``land_at``. Return the number of its calls.
    """
    calls = 0
    while process.outcome is None:
        if calls == land_at:
            land(process.world)
        process.advance(Turn.DIE_AFTER if calls == die_at else Turn.GO)
        calls += 1
    return calls


def run_two_drivers(world: World, die_at: int, land_at: int) -> bool:
    """
    Run a driver that dies after its call ``die_at``, and then another one, while the requests in
    flight land before call ``land_at`` of the two. Return False if there were fewer calls.
    """
    calls = run_while_landing(start(world, "b", FIRST), land_at, die_at)
    for name in world.ongoing if die_at % 2 else []:
        world.time_out(name)
    following = start(world, "c", FIRST)
    calls += run_while_landing(following, land_at - calls)
    check_loud(world, following)
    return land_at < calls


def decided_before_landing(world: World) -> bool:
    """
    Return whether a driver has appended an intent between the command and the landing.
    """
    calls = world.trace[: world.trace.index(LANDING)]
    return any(call.startswith(("b: append Intent", "c: append Intent")) for call in calls)


def check_loud(world: World, process: Process) -> None:
    """
    Fail unless a write has succeeded, or found that a command ran meanwhile.
    """
    loud = isinstance(process.failure, ConcurrentWriteError)
    assert process.outcome == "done" or loud, (process.failure, world.trace)


@pytest.mark.parametrize("turn", [Turn.COPY, Turn.LOSE], ids=["a copy", "without a response"])
def test_a_release_that_lands_late(turn: Turn) -> None:
    """
    The entry of a release, or a second copy of it, may land at any moment of the next drivers: the
    rows that the release lets repeat are repeated once, and no others.
    """
    for die_at in range(30):
        for land_at in range(die_at % 4, 80, 4):
            world = committed_in_part()
            repeatable = world.visible(0)
            run_command(world, turn, repeat=True)
            if not run_two_drivers(world, die_at, land_at):
                break
            check_once(world, {0: ROWS + FIRST[0]})
            assert start(world, "d", FIRST).finish().outcome == "done", world.trace
            extra = world.visible(0) - Counter(ROWS)
            assert extra in (Counter(), repeatable), (extra, world.trace)
            assert turn is Turn.LOSE or extra == repeatable, world.trace
            check_once(world, {0: ROWS + FIRST[0]})
            assert not Counter(ROWS) - world.visible(0), world.trace
            write_next_batch(world)


@pytest.mark.parametrize("turn", [Turn.COPY, Turn.LOSE], ids=["a copy", "without a response"])
def test_a_completion_that_lands_late(turn: Turn) -> None:
    """
    The entry of a completion, or a second copy of it, may land at any moment of the next drivers:
    the completion gives up no rows whose commit was decided in the meantime.
    """
    for die_at in range(30):
        for land_at in range(die_at % 4, 80, 4):
            world = committed_in_part()
            given_up = world.visible(0)
            run_command(world, turn, repeat=False)
            if not run_two_drivers(world, die_at, land_at):
                break
            decided = decided_before_landing(world)
            restarted = start(world, "d", FIRST).finish()
            assert restarted.outcome == "done", (restarted.failure, world.trace)
            if turn is Turn.COPY:
                assert world.visible(0) == given_up, world.trace
            else:
                allowed = [Counter(ROWS)] if decided else [given_up, Counter(ROWS)]
                assert world.visible(0) in allowed, world.trace
            write_next_batch(world)


def start_command(world: World, *, repeat: bool, batch: int | None = 0) -> Process:
    """
    Start the command `release` or `complete` on the last batch, which must be ``batch`` unless that
    is None.
    """
    finish = prefix_commands.release_prefix if repeat else prefix_commands.complete_batch

    def program(process: Process) -> None:
        transactions: Any = MemoryTransactions(process)
        owner = prefix_commands.read_prefix_owner(transactions, PREFIX)
        assert owner is not None
        assert batch in (None, owner.batch)
        finish(transactions, owner, PREFIX)

    return Process(world, "tool", program)


def give_up_or_repeat(world: World, *, repeat: bool) -> None:
    """
    Finish a refused batch with the command `release` or `complete`.
    """
    before = world.visible(0)
    assert before
    start_command(world, repeat=repeat).finish()
    restarted = start(world, "again", DIVISIONS[3]).finish()
    assert restarted.outcome == "done", (restarted.failure, world.trace)
    assert world.visible(0) == before + Counter(ROWS if repeat else "")


def write_next_batch(world: World) -> None:
    """
    Write the next batch, which may be committed already, with no other process alive.
    """
    following = start(world, "following", ("x", "y"), 1).finish()
    assert following.outcome == "done", (following.failure, world.trace)
    check_whole(world, 1, "xy")


@dataclass
class History:
    """
    Random processes, deaths, timeouts and late landings, all from one seed.
    """

    seed: int
    refusals: int = 0
    #: Descriptions of transactions at earlier moments, which a former coordinator may still report.
    former: list[dict[str, TransactionDescription]] = field(default_factory=list)

    def run(self) -> World:
        """
        Let three processes write the batch in any order, and then a last one alone. In some
        histories a fourth process has no rows, former leaders and coordinators answer, or
        compaction removes entries.
        """
        chance = random.Random(self.seed)
        world = World(is_early=chance.random() < 0.5)
        disturb = [
            disturbance
            for disturbance in (self._lag, self._report_stale, _compact)
            if chance.random() < 0.3
        ]
        alive = [start(world, name, chance.choice(DIVISIONS)) for name in "abc"]
        if chance.random() < 0.5:
            alive.append(start(world, "without", EMPTY))
        current = alive[0]
        while alive:
            if chance.random() < 0.1:
                current = chance.choice(alive)
            if chance.random() < 0.02 and world.in_flight:
                with suppress(PykafkaError):
                    world.in_flight.pop(chance.randrange(len(world.in_flight)))()
            if chance.random() < 0.01 and world.ongoing:
                world.time_out(chance.choice(world.ongoing))
            for disturbance in disturb:
                disturbance(world, chance)
            turn = Turn.GO if chance.random() < 0.97 else chance.choice(list(Turn))
            moved = current
            if not moved.advance(turn):
                alive.remove(moved)
                current = chance.choice(alive) if alive else moved
            check_once(world, {0: ROWS})
            if moved.outcome == "done" and moved.name != "without":
                check_whole(world, 0, ROWS)
        world.lag, world.stale = 0, {}
        self._end(world, chance.choice(DIVISIONS))
        return world

    @staticmethod
    def _lag(world: World, chance: random.Random) -> None:
        if chance.random() < 0.05:
            world.lag = chance.choice((0, 0, 1, 2, 4, 6))

    def _report_stale(self, world: World, chance: random.Random) -> None:
        if chance.random() < 0.1:
            self.former.append(
                {
                    name: TransactionDescription(
                        name, transaction.state, *transaction.prepared[1:], 0, 0, 1
                    )
                    for name, transaction in world.names.items()
                }
            )
        if chance.random() < 0.05:
            world.stale = {}
            if self.former and world.names and chance.random() < 0.6:
                name = chance.choice(sorted(world.names))
                world.stale = {name: chance.choice(self.former).get(name)}

    def _end(self, world: World, division: Division) -> None:
        last = restart(world, "last", division)
        check_once(world, {0: ROWS})
        if last.outcome != "done":
            assert "EXACTLY_ONCE_REPLAY_DIFFERS" in str(last.failure), (last.failure, world.trace)
            assert world.excused, world.trace
            self.refusals += 1
            give_up_or_repeat(world, repeat=bool(self.seed % 2))
        else:
            check_whole(world, 0, ROWS)
        write_next_batch(world)


def _compact(world: World, chance: random.Random) -> None:
    if chance.random() < 0.02:
        world.compact(chance.randrange(world.stable + 1))


FEW_HISTORIES = 200


def test_histories_of_three_processes() -> None:
    """
    Whatever dies, pauses, times out, lands late, is reported by former leaders and coordinators, or
    is compacted away: no row is duplicated, and a write that succeeds has committed all its rows.
    """
    run_histories(FEW_HISTORIES)


def run_histories(count: int) -> None:
    """
    Run this many histories; the seeds are the same at each call.
    """
    for seed in range(count):
        History(seed).run()


@pytest.mark.soak
def test_more_histories_of_three_processes() -> None:
    """
    The same with more seeds; some histories end in a refusal, after a decided part has timed out.
    """
    refusals = 0
    for seed in range(FEW_HISTORIES, 20_000):
        history = History(seed)
        history.run()
        refusals += history.refusals
    assert 0 < refusals < 2_000


#: The rows of the micro-batches of a query.
BATCHES = ("abcd", "efgh", "ijkl", "mnop")


class TaskFailedError(PykafkaError):
    """
    A task has failed, and with it the query.
    """


@dataclass
class QueryHistory:
    """
    Processes of one query that go on from batch to batch, in random orders, all from one seed.
    """

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.world = World(is_early=self.chance.random() < 0.5)
        self.checkpoint = Checkpoint(is_exclusive=self.chance.random() < 0.5)
        self._has_empty_writes = self.chance.random() < 0.3
        self._has_losing_attempts = self.chance.random() < 0.4
        #: Batches that a write without rows may have completed.
        self._maybe_empty: set[int] = set()
        self._alive: list[Process] = []
        self._attempts: list[Process] = []
        self._started = 0
        #: Whether a command has let rows repeat, or given them up.
        self._is_released = False

    def run(self) -> None:
        """
        Let three processes continue the query at once; one that fails is restarted, six times at
        most. In some histories former leaders and coordinators answer, compaction removes entries,
        transactions time out, attempts lose, or writes have no rows. Then a last process, in some
        histories after a reset of the checkpoint by one batch, ends the query alone.
        """
        disturb = self._disturbances()
        switch = self.chance.choice((0.02, 0.1, 0.3))
        for _ in range(3):
            self._start()
        current = self._alive[0]
        while self._alive:
            if self.chance.random() < switch:
                current = self.chance.choice(self._alive)
            for disturbance in disturb:
                disturbance(self.world, self.chance)
            if not current.advance(self._turn()):
                self._end(current)
            self._check_once()
            self._alive += self._attempts
            self._attempts.clear()
            if current not in self._alive and self._alive:
                current = self.chance.choice(self._alive)
        self._finish()

    def _disturbances(self) -> list[Callable[[World, random.Random], None]]:
        others = History(self.seed)
        possible = (others._lag, others._report_stale, _compact, _time_out)
        return [_land_one, *(each for each in possible if self.chance.random() < 0.3)]

    def _turn(self) -> Turn:
        return Turn.GO if self.chance.random() < 0.98 else self.chance.choice(list(Turn))

    def _start(self) -> Process:
        self._started += 1
        program = continues(self.checkpoint, len(BATCHES), self._write)
        process = Process(self.world, f"process {self._started}", program)
        self._alive.append(process)
        return process

    def _end(self, process: Process) -> None:
        self._alive.remove(process)
        self.outcomes[str(process.outcome)] += 1
        is_query = process.name.startswith("process")
        if process.outcome != "done" and is_query and self._started < 9:
            self._start()

    def _write(self, process: Process, batch: int) -> None:
        division, write = self._divide(batch), f"{process.name}, batch {batch}"
        fails = self.chance.random() < 0.03
        task = self.chance.randrange(len(division))
        if self._has_losing_attempts and division[task] and self.chance.random() < 0.3:
            attempt = losing_attempt(batch, write, task, division[task])
            self._attempts.append(Process(self.world, f"attempt, {write}", attempt))
        if division == EMPTY:
            self._maybe_empty.add(batch)
        writes(division, batch, fails=fails, write=write)(process)
        if fails:
            raise TaskFailedError(write)
        # After a write without rows, another write of the batch may decide to commit, and its rows
        # become visible in parts.
        if division != EMPTY and not self._is_released:
            check_whole(self.world, batch, BATCHES[batch])

    def _divide(self, batch: int) -> Division:
        if self._has_empty_writes and self.chance.random() < 0.2:
            return EMPTY
        rows = str.maketrans(ROWS, BATCHES[batch])
        return tuple(task.translate(rows) for task in self.chance.choice(DIVISIONS))

    def _is_complete(self, batch: int) -> bool:
        rows = self.world.visible(batch)
        may_differ = batch in self._maybe_empty and (not rows or self.world.excused)
        return self._is_released or may_differ or rows == Counter(BATCHES[batch])

    def _check_once(self) -> None:
        if not self._is_released:
            check_once(self.world, dict(enumerate(BATCHES)))

    def _finish(self) -> None:
        land(self.world)
        self.world.lag, self.world.stale = 0, {}
        self._has_empty_writes = self._has_losing_attempts = False
        self.checkpoint.is_exclusive = False
        was_reset = self.chance.random() < 0.3
        if was_reset:
            self.checkpoint.reset()
        for _ in range(10):
            last = self._start().finish()
            self._alive.clear()
            self._check_once()
            if last.outcome == "done":
                break
            self._help(last, was_reset=was_reset)
        else:
            pytest.fail(f"seed {self.seed}: the query has not ended: {self.world.trace}")
        assert all(map(self._is_complete, range(len(BATCHES)))), self.world.trace

    def _help(self, refused: Process, *, was_reset: bool) -> None:
        """
        Do what the error of the last process says; fail if it should not have been refused.
        """
        text, trace = str(refused.failure), self.world.trace
        self.outcomes[text.partition("]")[0]] += 1
        if isinstance(refused.failure, TaskFailedError):
            return
        if "has begun to write batch" in text:
            assert was_reset, (text, trace)
            for name in self.world.ongoing:
                self.world.abort(name, None)
            return
        is_overtaken = "EXACTLY_ONCE_BATCH_OVERTAKEN" in text
        assert was_reset if is_overtaken else self.world.excused, (text, trace)
        assert is_overtaken or "EXACTLY_ONCE_REPLAY_DIFFERS" in text, (text, trace)
        self._is_released = True
        repeat = is_overtaken or bool(self.seed % 2)
        command = start_command(self.world, repeat=repeat, batch=None).finish()
        assert command.outcome == "done", (command.failure, trace)


def _land_one(world: World, chance: random.Random) -> None:
    if chance.random() < 0.02 and world.in_flight:
        with suppress(PykafkaError):
            world.in_flight.pop(chance.randrange(len(world.in_flight)))()


def _time_out(world: World, chance: random.Random) -> None:
    if chance.random() < 0.004 and world.ongoing:
        world.time_out(chance.choice(world.ongoing))


def test_histories_of_a_query_that_goes_on() -> None:
    """
    Whatever happens to three processes of a query while they go on from batch to batch, no row is
    duplicated, and a batch that succeeds has all its rows. A process that is alone then ends the
    query: it is refused only after a timeout of decided transactions or a reset of the checkpoint,
    and then the remedy that the error names helps.
    """
    outcomes = run_query_histories(range(60))
    assert min(outcomes["done"], outcomes["killed"], outcomes["ConcurrentWriteError"]) > 20


def run_query_histories(seeds: range) -> Counter[str]:
    """
    Run the histories of these seeds, and count how their processes have ended.
    """
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        history = QueryHistory(seed)
        history.run()
        outcomes += history.outcomes
    return outcomes


@pytest.mark.soak
def test_more_histories_of_a_query_that_goes_on() -> None:
    """
    The same with more seeds; all kinds of refusals occur.
    """
    outcomes = run_query_histories(range(60, 6_000))
    refusals = ("BATCH_OVERTAKEN", "REPLAY_DIFFERS", "CONCURRENT_WRITE")
    assert all(outcomes[f"[EXACTLY_ONCE_{refusal}"] for refusal in refusals), outcomes


# --- The model finds planted faults --------------------------------------------------------------


def compares_counts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Treat equal counts of rows as equal rows.
    """
    committed_tasks = replay.committed_tasks

    def blind(batch: CommittableBatch, committed: Any) -> frozenset[int]:
        seen = [
            (offset, replace(entry, content="x") if hasattr(entry, "content") else entry)
            for offset, entry in committed
        ]
        tasks = tuple(replace(task, content_hash="x") for task in batch.committables)
        return committed_tasks(replace(batch, committables=tasks), seen)

    monkeypatch.setattr(micro_batch_committer, "committed_tasks", blind)


def does_not_check_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a write commit without checking that its intent is binding.
    """
    monkeypatch.setattr(micro_batch_committer, "check_binding", lambda *_: None)


def believes_every_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Commit the transactions of intents that are not binding.
    """
    for module in (micro_batch_committer, decided_commits):
        monkeypatch.setattr(module, "is_binding", lambda *_: True)


def never_rolls_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Abort the transactions that an earlier write had decided to commit.
    """
    monkeypatch.setattr(micro_batch_committer, "roll_forward", lambda *_: None)


def never_completes_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Leave the commit that an earlier write had decided to the commit of the next one.
    """
    monkeypatch.setattr(decided_commits, "complete_earlier_commit", lambda *_: None)


def completes_without_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Complete what was decided without proof that no release came after it.
    """
    original = MemoryLedger.append

    def append(self: MemoryLedger, entry: Any, outdated: Any = ()) -> int:
        is_barrier = isinstance(entry, ReadBarrier)
        return self.high_watermark() if is_barrier else original(self, entry, outdated)

    monkeypatch.setattr(MemoryLedger, "append", append)


def aborts_decided_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Abort a batch whose commit has failed, even if it was decided.
    """
    monkeypatch.setattr(micro_batch_committer, "_is_decided", lambda *_: False)


def claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a write without rows abort the transactions of others without a claim in the ledger.
    """
    original = MemoryLedger.append

    def append(self: MemoryLedger, entry: Any, outdated: Any = ()) -> int:
        is_claim = isinstance(entry, EmptyWriteClaim)
        return self.high_watermark() if is_claim else original(self, entry, outdated)

    monkeypatch.setattr(MemoryLedger, "append", append)


def believes_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Treat the end that a leader reports as the end of the ledger, without appending a read barrier.
    """
    monkeypatch.setattr(MemoryLedger, "read_up_to_barrier", MemoryLedger.read_all_from)


def aborts_later_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a write abort the open transactions of the next batch that precede its own.
    """
    monkeypatch.setattr(micro_batch_committer, "check_no_later_batch_begun", lambda *_: None)


def withdraws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Abort without a withdrawal in the ledger.
    """
    original = MemoryLedger.append

    def append(self: MemoryLedger, entry: Any, outdated: Any = ()) -> int:
        return -1 if isinstance(entry, Withdrawal) else original(self, entry, outdated)

    monkeypatch.setattr(MemoryLedger, "append", append)


def takes_ids_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let tasks take over the ids of an earlier write.
    """
    monkeypatch.setattr(
        "tests.support.commit_model.choose_free_id",
        lambda _, transaction: transaction.transactional_id,
    )


def aborts_decided_transactions_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let an abort include transactions that an earlier write had decided to commit.
    """
    original = micro_batch_committer.abort_micro_batch

    def abort(*args: Any, **more: Any) -> None:
        monkeypatch.setattr(micro_batch_committer, "named_transactions", lambda *_: [])
        original(*args, **more)
        monkeypatch.setattr(micro_batch_committer, "named_transactions", named_transactions)

    monkeypatch.setattr(micro_batch_committer, "abort_micro_batch", abort)


def counts_overtaken_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a release or a completion count wherever it lands.
    """
    for module in (command_entries, intents, replay):
        monkeypatch.setattr(module, "without_ineffective_commands", lambda entries: entries)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    compares_counts_only: lambda: test_transactions_of_a_dead_driver_time_out(DIVISIONS[2]),
    does_not_check_binding: lambda: run_histories(2_000),
    believes_every_intent: lambda: test_a_commit_without_a_response(DIVISIONS[1]),
    never_rolls_forward: lambda: test_a_batch_survives_a_death_with_any_division(
        DIVISIONS[1], is_early=False
    ),
    never_completes_early: test_a_decided_commit_is_completed_before_the_tasks_write,
    completes_without_a_barrier: lambda: test_a_released_commit_is_not_completed_before_the_tasks(
        1
    ),
    aborts_decided_commits: lambda: test_a_commit_without_a_response(DIVISIONS[1]),
    claims_nothing: lambda: test_a_write_without_rows_while_another_driver_writes(
        FIRST, has_died=False, is_ready=True
    ),
    believes_the_high_watermark: lambda: test_a_former_leader_of_the_ledger_does_not_cause_an_abort(
        4, commits=False
    ),
    aborts_later_batches: lambda: test_a_paused_driver_leaves_the_next_batch_alone(fails=False),
    withdraws_nothing: lambda: test_a_commit_without_a_response(DIVISIONS[1]),
    takes_ids_over: lambda: test_a_batch_survives_a_death_with_any_division(
        DIVISIONS[1], is_early=False
    ),
    aborts_decided_transactions_of_others: lambda: test_a_replay_whose_task_fails(is_early=False),
    counts_overtaken_commands: lambda: test_a_release_that_lands_late(Turn.COPY),
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """
    Each step of the protocol is needed: without it some order of calls loses or duplicates rows, or
    gets stuck.
    """
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        FAULTS[plant]()


def test_losing_attempts_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a broker does not respond while open transactions are listed, they are listed again later:
    the commit is delayed, but does not fail.
    """
    world = World()
    losing_attempt = world.begin(stream_task_transactional_id(PREFIX, QUERY, 0, 0, 0))
    world.write(losing_attempt, Marker(QUERY, 0, "lost", 0, 1, content("a")), "a")
    responses: list[bool] = []
    listed = MemoryTransactions.list_reachable_ids

    def unreachable_at_first(self: MemoryTransactions, *arguments: Any) -> list[str]:
        responses.append(bool(responses))
        return listed(self, *arguments) if responses[-1] else []

    monkeypatch.setattr(MemoryTransactions, "list_reachable_ids", unreachable_at_first)
    process = start(world, "next", FIRST, batch=1).finish()

    assert process.outcome == "done"
    check_whole(world, 1, ROWS)
    assert responses == [False, True]


@pytest.mark.parametrize("has_marker", [True, False])
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_late_attempt_of_an_earlier_batch(attempt: int, *, has_marker: bool) -> None:
    """
    An attempt that ends after its batch does not use an id of the next batch, since batches
    alternate between two sets of ids. If the attempt has written its marker, its transaction blocks
    the ledger, and the next batch aborts it. If its process died before that, the batch after the
    next one aborts the transaction by its id, even if the ids of that batch's own attempts differ.
    """
    world = World()
    assert start(world, "first", FIRST).finish().outcome == "done"
    late = world.begin(stream_task_transactional_id(PREFIX, QUERY, 0, 1, attempt))
    if has_marker:
        world.write(late, Marker(QUERY, 0, "first", 1, 2, content("cd")), "cd")
    else:
        # It has written rows only; they block readers of the topic, but not those of the ledger.
        world.names[late.transactional_id].state = TransactionState.ONGOING

    assert start(world, "next", ("x", "y"), batch=1).finish().outcome == "done"
    assert world.ongoing == ([] if has_marker else [late.transactional_id])
    assert start(world, "after the next", ("u", "v"), batch=2).finish().outcome == "done"

    assert world.ongoing == []
    check_whole(world, 0, ROWS)
    check_whole(world, 1, "xy")
    check_whole(world, 2, "uv")
