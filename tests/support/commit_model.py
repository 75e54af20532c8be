"""
A model: ledger and coordinators in memory, and processes that make one call at a time in any order.

The code is the connector's own, and only Kafka is modelled: a transaction ends once, in one way,
by the first request with its id and epoch, and a request may take effect after its sender died.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.engines.contract import Watermarks
from pyspark_pykafka.engines.transaction_contract import PreparedTransaction, TransactionSpec
from pyspark_pykafka.engines.wire.producer.producer import choose_free_id
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionDescription,
    TransactionState,
)
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.sink import decided_commits, micro_batch_committer
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_entries import Committable, CommittableBatch, Marker, ledger_topic
from pyspark_pykafka.sink.transactional_ids import fallback_id, stream_task_transactional_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark_pykafka.engines.transaction_contract import TransactionalIdPattern
    from pyspark_pykafka.sink.ledger_entries import Entry, Intent

QUERY = "0a1b2c3d-0000-0000-0000-000000000000"
PREFIX = "orders"
#: How often a process polls before it gives up.
MAX_POLLS = 12

#: The rows of each task.
Division = tuple[str, ...]


class Turn(Enum):
    """
    What a process does at its turn, and what happens to its next call.
    """

    GO = "goes on"
    DIE = "dies before its call"
    DIE_AFTER = "dies after its call"
    DIE_LATE = "dies, and its call lands later"
    LOSE = "gets no response, and its call lands later"
    COPY = "goes on, and a second copy of its append lands later"


class KilledError(BaseException):
    """
    Ends a process at once: nothing catches it.
    """


@dataclass
class Open:
    """
    The latest transaction of a transactional id: its producer, its rows and its state.
    """

    prepared: PreparedTransaction
    rows: list[tuple[int, str]] = field(default_factory=list)
    state: TransactionState = TransactionState.EMPTY


@dataclass(frozen=True)
class Tombstone:
    """
    A record without a value: compaction removes the earlier ones with its key.
    """

    key: str


@dataclass
class World:
    """
    The brokers: a log of (transaction, entry); (None, None) is a control record or a removed entry.
    """

    log: list[tuple[Open | None, Entry | Tombstone | None]] = field(default_factory=list)
    names: dict[str, Open] = field(default_factory=dict)
    ended: list[Open] = field(default_factory=list)
    in_flight: list[Callable[[], Any]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    #: The descriptions that a former coordinator still returns.
    stale: dict[str, TransactionDescription | None] = field(default_factory=dict)
    producer_ids: Iterator[int] = field(default_factory=count)
    #: How many entries the leader's high watermark lags behind.
    lag: int = 0
    #: Whether the first task of a write can read the ledger before it writes.
    is_early: bool = True
    #: The first offset that has not been deleted.
    log_start: int = 0
    #: Whether a timeout, a process that is still alive, or compaction may have changed a decision.
    excused: bool = False

    def begin(self, name: str) -> PreparedTransaction:
        """
        Begin a task's transaction; an open transaction of the same id is aborted.
        """
        before = self.names.get(name)
        self.excused |= before is not None and before.state is TransactionState.ONGOING
        return self.fence(name)

    def abort(self, name: str, seen: PreparedTransaction | None) -> PreparedTransaction:
        """
        Abort the open transaction of an id, even if it is not the one that the caller has seen.
        """
        before = self.names.get(name)
        is_open = before is not None and before.state is TransactionState.ONGOING
        self.excused |= is_open and before is not None and before.prepared != seen
        return self.fence(name)

    def fence(self, name: str) -> PreparedTransaction:
        """
        Bump the epoch of an id; an open transaction is aborted.
        """
        before = self.names.get(name)
        if before is None:
            prepared = PreparedTransaction(name, next(self.producer_ids), 0)
        else:
            self._finish(before, TransactionState.COMPLETE_ABORT)
            prepared = before.prepared._replace(epoch=before.prepared.epoch + 1)
        self.names[name] = Open(prepared)
        return prepared

    def write(self, prepared: PreparedTransaction, marker: Marker, rows: str) -> int:
        """
        Write rows and their marker into a transaction; raises FencedError if it has ended, or if
        another producer has its id.
        """
        transaction = self._transaction_of(prepared)
        if transaction.state not in {TransactionState.EMPTY, TransactionState.ONGOING}:
            raise FencedError(str(prepared))
        transaction.state = TransactionState.ONGOING
        transaction.rows += [(marker.batch, row) for row in rows]
        self.log.append((transaction, marker))
        return len(self.log) - 1

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """
        End a transaction; does nothing if it has already ended in the same way. Raises FencedError
        if it has ended in the other way, or if another producer has its id.
        """
        end_state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        transaction = self._transaction_of(prepared)
        if transaction.state not in {TransactionState.ONGOING, end_state}:
            raise FencedError(str(prepared))
        self._finish(transaction, end_state)

    def append(self, entries: Sequence[Entry | Tombstone]) -> int:
        """
        Append entries outside transactions, and return the log end offset.
        """
        self.log += [(None, entry) for entry in entries]
        return len(self.log)

    @property
    def stable(self) -> int:
        """
        Return the last stable offset.
        """
        open_indexes = (
            index
            for index, (transaction, _) in enumerate(self.log)
            if transaction and transaction.state is TransactionState.ONGOING
        )
        return next(open_indexes, len(self.log))

    def compact(self, end: int) -> None:
        """
        Compact the log before an offset: of each key only the last committed record stays.
        """
        assert end <= self.stable
        kept = {
            entry.key: offset
            for offset, (transaction, entry) in enumerate(self.log[:end])
            if entry is not None and _is_committed(transaction)
        }
        for offset, (transaction, entry) in enumerate(self.log[:end]):
            if entry is None or kept.get(entry.key) != offset:
                # The removed entry may have kept an intent from being binding, and a transaction of
                # that intent may still be open.
                self.excused |= not _is_committed(transaction) and bool(self.ongoing)
                self.log[offset] = (None, None)

    def lose_log(self) -> None:
        """
        Replace the log by an empty one, as when its topic is deleted and created again.
        """
        self.log, self.log_start = [], 0

    def read(self, start: int, end: int, *, committed: bool) -> list[tuple[int, Entry]]:
        """
        Return entries with their offsets.
        """
        assert start >= self.log_start, (start, self.trace)
        end = min(end, self.stable) if committed else end
        return [
            (index, entry)
            for index, (transaction, entry) in enumerate(self.log[start:end], start)
            if entry is not None
            and not isinstance(entry, Tombstone)
            and not (committed and not _is_committed(transaction))
        ]

    def time_out(self, name: str) -> None:
        """
        Abort the open transaction of an id, as a coordinator does after its timeout.
        """
        self.excused = True
        self._finish(self.names[name], TransactionState.COMPLETE_ABORT)

    def forget_ids(self) -> None:
        """
        Forget all ids without an open transaction, as coordinators do after
        ``transactional.id.expiration.ms``.
        """
        self.names = {name: self.names[name] for name in self.ongoing}

    @property
    def ongoing(self) -> list[str]:
        """
        The ids with an open transaction.
        """
        return sorted(
            name
            for name, transaction in self.names.items()
            if transaction.state is TransactionState.ONGOING
        )

    def visible(self, batch: int) -> Counter[str]:
        """
        Return the rows of a batch that read_committed readers see.
        """
        done = [
            transaction
            for transaction in self.ended
            if transaction.state is TransactionState.COMPLETE_COMMIT
        ]
        return Counter(
            row for transaction in done for row_batch, row in transaction.rows if row_batch == batch
        )

    def _transaction_of(self, prepared: PreparedTransaction) -> Open:
        transaction = self.names.get(prepared.transactional_id)
        if transaction is None or transaction.prepared != prepared:
            raise FencedError(str(prepared))
        return transaction

    def _finish(self, transaction: Open, state: TransactionState) -> None:
        if transaction.state is TransactionState.ONGOING:
            transaction.state = state
            self.ended.append(transaction)
            self.log.append((None, None))


def _is_committed(transaction: Open | None) -> bool:
    """
    Return whether readers of committed records see the entries of a transaction; None stands for no
    transaction.
    """
    return transaction is None or transaction.state is TransactionState.COMPLETE_COMMIT


class Process(threading.Thread):
    """
    One process of a query; it stops before each of its calls until :meth:`advance` is called.
    """

    def __init__(self, world: World, name: str, program: Callable[[Process], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self.outcome: str | None = None
        self.failure: BaseException | None = None
        #: What the process does at its next turn.
        self.next_action = ""
        self._program = program
        self._turn = Turn.GO
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self.start()
        self._back.acquire()

    def run(self) -> None:
        """
        Run the program to its end, or until the process dies.
        """
        try:
            self.call("start", lambda: None)
            self._program(self)
            self.outcome = "done"
        except KilledError:
            self.outcome = "killed"
        except PykafkaError as error:
            self.outcome, self.failure = type(error).__name__, error
        except BaseException as error:  # noqa: BLE001 - raised by :meth:`advance`
            self.outcome, self.failure = "broken", error
        self._back.release()

    def call(self, action: str, effect: Callable[[], Any]) -> Any:
        """
        Make a call when it is this process's turn.
        """
        self.next_action = action
        self._back.release()
        self._go.acquire()
        turn = self._turn
        self.world.trace.append(
            f"{self.name}: {action}{'' if turn is Turn.GO else f' ({turn.value})'}"
        )
        if turn in {Turn.GO, Turn.DIE_AFTER, Turn.COPY}:
            result = effect()
        # A partition leader drops copies only of batches with a producer id.
        copied = turn is Turn.COPY and action.startswith("append ")
        if copied or turn in {Turn.DIE_LATE, Turn.LOSE}:
            self.world.in_flight.append(effect)
        if turn is Turn.LOSE:
            raise TimeoutExceededError(action)
        if turn not in {Turn.GO, Turn.COPY}:
            raise KilledError
        return result

    def advance(self, turn: Turn = Turn.GO) -> bool:
        """
        Let the process make its next call; return whether there is another.
        """
        self._turn = turn
        self._go.release()
        self._back.acquire()
        if self.outcome == "broken":
            assert self.failure is not None
            raise self.failure
        return self.outcome is None

    def finish(self) -> Process:
        """
        Let the process continue to its end.
        """
        while self.outcome is None:
            self.advance()
        return self


@dataclass
class MemoryTransactions:
    """
    A process's replacement for the connector's :class:`Transactions`.
    """

    process: Process
    config: Any = field(default_factory=lambda: SimpleNamespace(block_seconds=60.0))
    cluster: Any = field(default_factory=lambda: SimpleNamespace(new_deadline=Deadline.after))
    #: The transaction of each name when this process last read it.
    seen: dict[str, PreparedTransaction] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """
        Return the brokers.
        """
        return self.process.world

    def begin(self, name: str) -> PreparedTransaction:
        """
        Begin a transaction.
        """
        prepared: PreparedTransaction = self.process.call(
            f"begin {name}", lambda: self.world.begin(name)
        )
        return prepared

    def describe(self, name: str) -> TransactionDescription | None:
        """
        Return the state of an id.
        """
        return self.describe_all([name])[name]

    def describe_all(self, names: Sequence[str]) -> dict[str, TransactionDescription | None]:
        """
        Return the states of ids, one call each.
        """
        return {
            name: self.process.call(f"describe {name}", partial(self._described, name))
            for name in names
        }

    def _described(self, name: str) -> TransactionDescription | None:
        if name in self.world.stale:
            return self.world.stale[name]
        transaction = self.world.names.get(name)
        if transaction is None:
            return None
        self.seen[name] = transaction.prepared
        return TransactionDescription(name, transaction.state, *transaction.prepared[1:], 0, 0, 1)

    def end_all(self, prepared: Sequence[PreparedTransaction], *, commit: bool) -> None:
        """
        End several transactions; every request is sent before an error is raised.
        """
        errors: list[FencedError] = []
        for transaction in prepared:
            try:
                self._end(transaction, commit=commit)
            except FencedError as error:
                errors.append(error)
        if errors and commit:
            raise errors[0]

    def _end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        description = (
            f"{'commit' if commit else 'abort'} {transaction.transactional_id} {transaction.epoch}"
        )
        self.process.call(description, lambda: self.world.end(transaction, commit=commit))

    def abort_ids(self, names: Sequence[str]) -> None:
        """
        Abort the open transactions of ids, of any producer.
        """
        for name in names:
            seen = self.seen.get(name)
            self.process.call(f"fence {name}", partial(self.world.abort, name, seen))

    def describe_reachable(self, names: Sequence[str]) -> dict[str, TransactionDescription | None]:
        """
        Return the states of ids, or nothing if there is no response.
        """
        try:
            return self.describe_all(names)
        except TimeoutExceededError:
            return {}

    def register_id(self, name: str) -> None:
        """
        Make the brokers know an id, without an open transaction.
        """
        names = self.world.names
        self.process.call(
            f"mark {name}",
            lambda: names.setdefault(name, Open(PreparedTransaction(name, len(names), 0))),
        )

    def with_time_limit(self, _: float) -> MemoryTransactions:
        """
        Return itself: timeouts are modelled by :data:`MAX_POLLS`.
        """
        return self

    def list_committed_ids(
        self, family: TransactionalIdPattern, *, max_seconds: float | None = None
    ) -> list[str]:
        """
        Return the ids whose last transaction was committed; ``max_seconds`` must not be given.
        """
        assert max_seconds is None

        def list_committed() -> list[str]:
            names = self.world.names.items()
            ids = [
                name
                for name, transaction in names
                if transaction.state is TransactionState.COMPLETE_COMMIT
            ]
            return [name for name in ids if family.matches(name)]

        ids: list[str] = self.process.call(f"list committed {family.prefix}", list_committed)
        return ids

    def list_reachable_ids(
        self, family: TransactionalIdPattern, _: Iterable[TransactionState]
    ) -> list[str]:
        """
        Return the ids with an open transaction.
        """

        def list_open() -> list[str]:
            ids = [name for name in self.world.ongoing if family.matches(name)]
            self.seen.update({name: self.world.names[name].prepared for name in ids})
            return ids

        ids: list[str] = self.process.call(f"list {family.prefix}", list_open)
        return ids


class MemoryLedger(Ledger):
    """
    The connector's own ledger over the log in memory.
    """

    __slots__ = ("process",)

    def __init__(self, process: Process) -> None:
        object.__setattr__(self, "process", process)
        object.__setattr__(self, "topic", ledger_topic(PREFIX))

    def _call(self, action: str, effect: Callable[[World], Any]) -> Any:
        process: Process = self.process  # type: ignore[attr-defined]
        return process.call(action, lambda: effect(process.world))

    def watermarks(self) -> Watermarks:
        return Watermarks(
            *self._call("last stable offset", lambda world: (world.log_start, world.stable))
        )

    def high_watermark(self) -> int:
        end: int = self._call(
            "end of the ledger", lambda world: max(world.log_start, len(world.log) - world.lag)
        )
        return end

    def wait_until_stable(self, offset: int, unblock: Callable[[], None] | None = None) -> None:
        for _ in range(MAX_POLLS):
            if self.watermarks().visible_end >= offset:
                return
            if unblock is not None:
                unblock()
        raise TimeoutExceededError("wait_until_stable")

    def append(self, entry: Entry, outdated: Sequence[Intent] = ()) -> int:
        records = [*(Tombstone(intent.key) for intent in outdated), entry]
        offset: int = self._call(
            f"append {type(entry).__name__}", lambda world: world.append(records)
        )
        return offset

    def append_once(self, entry: Entry) -> int:
        # A copy is appended, too: the protocol does not rely on brokers to drop it.
        return self.append(entry)

    def _read(self, start: int, end: int, isolation_level: str) -> list[tuple[int, Entry]]:
        committed = isolation_level == "read_committed"
        entries: list[tuple[int, Entry]] = self._call(
            f"read {isolation_level} {start} to {end}",
            lambda world: world.read(start, end, committed=committed),
        )
        return entries


def ledger_of(transactions: MemoryTransactions, _: str) -> MemoryLedger:
    """
    Return the ledger as a process sees it.
    """
    return MemoryLedger(transactions.process)


def content(rows: str) -> str:
    """
    Return a stand-in for the content hash of rows.
    """
    return f"{sum(1 << 2 * (ord(row) - ord('a')) for row in rows):016x}"


def writes(
    division: Division, batch: int = 0, *, fails: bool = False, write: str = ""
) -> Callable[[Process], None]:
    """
    Return a program that writes a batch and commits it, or aborts it if the commit or a task fails.

    ``write`` identifies the write; it is the process's name by default.
    """

    def program(process: Process) -> None:
        transactions: Any = MemoryTransactions(process)
        name = write or process.name
        if process.world.is_early:
            # The task logs the error.
            with suppress(PykafkaError):
                decided_commits.complete_earlier_commit(transactions, (PREFIX, QUERY), batch, name)
        written = [
            _write(process, transactions, (batch, name), (task, 0), rows)
            for task, rows in enumerate(division)
            if rows
        ]
        abort_arguments = (PREFIX, QUERY, name, written)
        if fails:
            micro_batch_committer.abort_micro_batch(
                transactions, *abort_arguments, maybe_committing=False
            )
            return
        committable_batch = CommittableBatch(
            PREFIX, QUERY, batch, name, len(division), tuple(written)
        )
        try:
            micro_batch_committer.commit_micro_batch(transactions, committable_batch)
        except PykafkaError:
            micro_batch_committer.abort_micro_batch(transactions, *abort_arguments)
            raise

    return program


@dataclass
class Checkpoint:
    """
    The checkpoint of a query: the last micro-batch that was planned, and the last that is complete.
    """

    #: Whether a second entry for a batch is refused, as by a file system with an atomic rename.
    is_exclusive: bool = True
    planned: int = 0
    completed: int = -1

    def start(self) -> tuple[int, bool]:
        """
        Return the batch with which a process continues, and whether it repeats that batch.
        """
        repeats = self.planned > self.completed
        return (self.planned if repeats else self.planned + 1), repeats

    def plan(self, batch: int) -> None:
        """
        Record that a batch is about to be written.
        """
        self._check_new(batch, self.planned)
        self.planned = max(self.planned, batch)

    def complete(self, batch: int) -> None:
        """
        Record that a batch was written.
        """
        self._check_new(batch, self.completed)
        self.completed = max(self.completed, batch)

    def reset(self) -> None:
        """
        Forget the last batch, so that the batch before it is repeated.
        """
        last = max(self.planned - 1, self.completed - 1, 0)
        self.planned, self.completed = last, last - 1

    def _check_new(self, batch: int, last: int) -> None:
        if self.is_exclusive and batch <= last:
            raise CheckpointConflictError(str(batch))


class CheckpointConflictError(PykafkaError):
    """
    Another process has recorded the batch in the checkpoint: Spark ends the query.
    """


def continues(
    checkpoint: Checkpoint, batches: int, write: Callable[[Process, int], None]
) -> Callable[[Process], None]:
    """
    Return a program that runs a query as Spark does: it repeats the last planned batch, unless that
    batch is complete, and then writes the next ones. ``write`` writes one batch.
    """

    def program(process: Process) -> None:
        batch, repeats = process.call("read the checkpoint", checkpoint.start)
        while batch < batches:
            if not repeats:
                process.call(f"plan batch {batch}", partial(checkpoint.plan, batch))
            write(process, batch)
            process.call(f"complete batch {batch}", partial(checkpoint.complete, batch))
            batch, repeats = batch + 1, False

    return program


def losing_attempt(batch: int, write: str, task: int, rows: str) -> Callable[[Process], None]:
    """
    Return a program that runs another attempt of a task, and does not report it to the driver.
    """

    def program(process: Process) -> None:
        _write(process, MemoryTransactions(process), (batch, write), (task, 1), rows)

    return program


def _write(
    process: Process, transactions: Any, ids: tuple[int, str], attempt: tuple[int, int], rows: str
) -> Committable:
    """
    Write the rows of a task; ``ids`` are batch and write, ``attempt`` its task and its number.
    """
    (batch, write), (task, number) = ids, attempt
    name = stream_task_transactional_id(PREFIX, QUERY, batch, task, number)
    # A restarted driver numbers attempts from 0 again.
    name = choose_free_id(transactions, TransactionSpec(name, 1, fallback_id(name, task)))
    prepared = transactions.begin(name)
    marker = Marker(QUERY, batch, write, task, len(rows), content(rows))
    marker_offset = process.call(
        f"write task {task} of batch {batch}", lambda: process.world.write(prepared, marker, rows)
    )
    return Committable(task, len(rows), prepared, marker_offset, content(rows))


def check_once(world: World, expected: Mapping[int, str]) -> None:
    """
    Fail if a row is visible more often than expected, or in a batch to which it does not belong.
    """
    for batch, rows in expected.items():
        extra = world.visible(batch) - Counter(rows)
        assert not extra, (f"batch {batch}: {dict(extra)} too much", world.trace)


def check_whole(world: World, batch: int, rows: str) -> None:
    """
    Fail unless each row of a batch is visible once.
    """
    assert world.visible(batch) == Counter(rows), (f"batch {batch}", world.trace)
