"""
Decides from the ledger which tasks of a replayed micro-batch are already committed. Pure: no I/O.

The ledger's order decides between several writes of one batch: a later write waits until all
earlier ones have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import ConcurrentWriteError, ExactlyOnceError
from pyspark_pykafka.sink.command_entries import can_judge_commands, without_ineffective_commands
from pyspark_pykafka.sink.ledger_entries import Completion, EmptyWriteClaim, Intent, Marker, Release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_pykafka.sink.ledger_entries import (
        Committable,
        CommittableBatch,
        EntriesWithOffsets,
        Entry,
    )

# The number of tasks that a message lists.
_MAX_LISTED = 10


def covers_batch(entries: EntriesWithOffsets, batch: int, start: int) -> bool:
    """
    Return whether these committed entries, which begin at ``start``, include all that can concern
    the batch.

    A batch is committed whole before the next one begins, so a marker of an earlier batch suffices.
    """
    return can_judge_commands(entries, start) and any(
        isinstance(entry, Release) or (isinstance(entry, Marker) and entry.batch < batch)
        for _, entry in without_ineffective_commands(entries)
    )


def prefix_owner(committed: EntriesWithOffsets) -> Marker | None:
    """
    Return the last marker of the query that owns the prefix, or None if no query does.
    """
    markers = [entry for entry in _since_release(committed) if isinstance(entry, Marker)]
    return markers[-1] if markers else None


def check_owner(batch: CommittableBatch, committed: EntriesWithOffsets) -> None:
    """
    Raise :class:`ExactlyOnceError` if another query owns the prefix.
    """
    owner = prefix_owner(committed)
    if owner is None or owner.query == batch.query:
        return
    msg = (
        f"transactionalIdPrefix '{batch.prefix}' belongs to the query {owner.query}, which wrote "
        f"its batch {owner.batch}; this is the query {batch.query}. Give each query a prefix "
        "of its own; if that query is over (its checkpoint was deleted), run: pykafka transactions "
        f"release --prefix {batch.prefix}"
    )
    raise ExactlyOnceError("EXACTLY_ONCE_PREFIX_OWNED", msg)


def check_no_later_commit(batch: CommittableBatch, committed: EntriesWithOffsets) -> None:
    """
    Raise :class:`ExactlyOnceError` if a later batch is committed.

    The entries of this batch may be compacted away then.
    """
    markers = [entry.batch for entry in _since_release(committed) if isinstance(entry, Marker)]
    newest = max(markers, default=batch.batch)
    if newest > batch.batch:
        msg = (
            f"batch {newest} of the query {batch.query} is committed already, but this is batch "
            f"{batch.batch}: the query runs twice, or its checkpoint was reset. Nothing of this "
            "write is visible. Stop the other process; or, to write the rows again, run: pykafka "
            f"transactions release --prefix {batch.prefix}"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_BATCH_OVERTAKEN", msg)


def concurrent_writer(
    query: str, write: str, batch: int, later: Iterable[Entry]
) -> Marker | EmptyWriteClaim | None:
    """
    Return a marker or a claim of another write of the same or a later batch of the query, or None.

    ``later`` are the entries from the write's first marker or its claim on, committed or not. A
    marker of an earlier batch is ignored: it belongs to a losing attempt that ended late. If
    another process wrote it instead, that process finds our markers before or after its own, and
    stops.
    """
    for entry in later:
        if not isinstance(entry, Marker | EmptyWriteClaim) or entry.query != query:
            continue
        if entry.write != write and entry.batch >= batch:
            return entry
    return None


def check_single_writer(batch: CommittableBatch, later: Iterable[Entry]) -> None:
    """
    Raise :class:`ConcurrentWriteError` if another write of this or a later batch has begun.

    ``later`` is as for :func:`concurrent_writer`.
    """
    entry = concurrent_writer(batch.query, batch.write, batch.batch, later)
    if entry is None:
        return
    msg = (
        f"another process also writes batch {batch.batch} of the query {batch.query} "
        f"('{batch.prefix}', {_part(entry)} of batch {entry.batch}); is the query running "
        "twice? Nothing of this write is visible; start it again when no other process runs the "
        "query"
    )
    raise ConcurrentWriteError("EXACTLY_ONCE_CONCURRENT_WRITE", msg)


def check_no_later_batch_begun(batch: CommittableBatch, earlier: EntriesWithOffsets) -> None:
    """
    Raise :class:`ConcurrentWriteError` if another write of a later batch began before this one.

    ``earlier`` are the entries before the write's first marker or its claim, from the last stable
    offset on. The commit of the later batch may be decided at any time, since markers of an earlier
    batch, such as this write's, do not keep that intent from being binding.
    """
    entry = concurrent_writer(batch.query, batch.write, batch.batch + 1, _since_release(earlier))
    if entry is None:
        return
    msg = (
        f"another process has begun to write batch {entry.batch} of the query {batch.query} "
        f"('{batch.prefix}', {_part(entry)}), but this is batch {batch.batch}: the query runs "
        "twice, or its checkpoint was reset. Nothing of this write is visible. Stop the other "
        "process; if there is none, run: pykafka transactions abort --prefix "
        f"{batch.prefix} --execute"
    )
    raise ConcurrentWriteError("EXACTLY_ONCE_CONCURRENT_WRITE", msg)


def _part(entry: Marker | EmptyWriteClaim) -> str:
    return f"task {entry.task}" if isinstance(entry, Marker) else "an execution without rows"


def committed_tasks(batch: CommittableBatch, committed: EntriesWithOffsets) -> frozenset[int]:
    """
    Return the tasks whose rows earlier writes of the batch have already committed.

    Those are all tasks if the batch is committed whole or declared complete, however this write
    divides its rows. Raises :class:`ExactlyOnceError` if a part is committed and this write divides
    the rows differently: then the rows in the topic cannot be identified. Raises as
    :func:`check_no_later_commit` does.
    """
    check_no_later_commit(batch, committed)
    state = batch_state(batch.query, batch.batch, committed)
    if state.is_whole:
        return frozenset(task.task for task in batch.committables)
    now = {task.task: task for task in batch.committables}
    for marker in state.markers:
        _check_same_rows(batch, marker, now.get(marker.task), state)
    return frozenset(state.tasks)


def describe_row_difference(batch: CommittableBatch, committed: EntriesWithOffsets) -> str | None:
    """
    Return how the rows of a batch that is committed whole differ from this write's, or None.

    The tasks may have divided the rows in another way, so counts and hashes are added up over all
    tasks.
    """
    state = batch_state(batch.query, batch.batch, committed)
    if state.completed or not state.is_whole:
        return None
    committed_markers = {marker.task: marker for marker in state.markers}.values()
    counts = [
        sum(task.records for task in tasks) for tasks in (committed_markers, batch.committables)
    ]
    if counts[0] != counts[1]:
        return f"{counts[0]} rows then, {counts[1]} now"
    contents = [marker.content for marker in committed_markers]
    if not all(contents):
        # An older version wrote the markers, without hashes.
        return None
    now = [task.content_hash for task in batch.committables]
    return None if _sum(contents) == _sum(now) else f"{counts[0]} rows both times"


def _sum(hashes: Iterable[str]) -> int:
    # The hash of a task is the sum of the hashes of its rows.
    return sum(int(text, 16) for text in hashes) % 2**64


@dataclass(frozen=True, slots=True)
class BatchState:
    """
    The committed tasks of a batch; ``completed`` if it is declared complete as it is.

    ``markers`` are those of committed tasks, in log order; the keys of ``intents`` are writes.
    """

    markers: tuple[Marker, ...]
    intents: Mapping[str, Intent]
    completed: bool = False

    @property
    def tasks(self) -> tuple[int, ...]:
        """
        The committed tasks.
        """
        return tuple(sorted({marker.task for marker in self.markers}))

    @property
    def records(self) -> int:
        """
        The number of committed rows.
        """
        return sum(marker.records for marker in self.markers)

    @property
    def last_intent(self) -> Intent | None:
        """
        The intent of the last write that has committed anything, or None if it is not known.

        The rows that earlier writes had committed are a part of that write's rows.
        """
        return self.intents.get(self.markers[-1].write) if self.markers else None

    @property
    def is_whole(self) -> bool:
        """
        Whether no task of the batch remains to be committed.
        """
        intent = self.last_intent
        return self.completed or (intent is not None and len(self.tasks) == intent.written)

    def __str__(self) -> str:
        total = (
            "an unknown number of" if self.last_intent is None else str(self.last_intent.written)
        )
        tasks = ", ".join(map(str, self.tasks[:_MAX_LISTED])) + (
            "…" if len(self.tasks) > _MAX_LISTED else ""
        )
        count = len(self.tasks)
        return f"{self.records} rows, those of {count} of {total} tasks with rows ({tasks})"


def batch_state(query: str, batch: int, committed: EntriesWithOffsets) -> BatchState:
    """
    Return the state of a query's batch, by the committed entries of the ledger.
    """
    entries = [entry for entry in _since_release(committed) if entry.query == query]
    return BatchState(
        tuple(entry for entry in entries if isinstance(entry, Marker) and entry.batch == batch),
        {
            entry.write: entry
            for entry in entries
            if isinstance(entry, Intent) and entry.batch == batch
        },
        any(isinstance(entry, Completion) and entry.batch == batch for entry in entries),
    )


def _check_same_rows(
    batch: CommittableBatch, marker: Marker, now: Committable | None, state: BatchState
) -> None:
    intent = state.intents.get(marker.write)
    if intent is None:
        raise _replay_differs_error(batch, state, "the number of its tasks is not known")
    if intent.tasks != batch.tasks:
        reason = f"it had {intent.tasks} tasks then, and has {batch.tasks} now"
        raise _replay_differs_error(batch, state, reason)
    records = 0 if now is None else now.records
    if marker.records != records:
        reason = f"its task {marker.task} wrote {marker.records} rows then, and {records} now"
        raise _replay_differs_error(batch, state, reason)
    if not marker.content:
        reason = f"an older version wrote its task {marker.task}, without a hash of its rows"
        raise _replay_differs_error(batch, state, reason)
    if now is not None and marker.content != now.content_hash:
        reason = (
            f"its task {marker.task} wrote different rows then, although the same number "
            f"({records})"
        )
        raise _replay_differs_error(batch, state, reason)


def _since_release(entries: EntriesWithOffsets) -> Sequence[Entry]:
    counting = [entry for _, entry in without_ineffective_commands(entries)]
    after = [index + 1 for index, entry in enumerate(counting) if isinstance(entry, Release)]
    return counting[max(after, default=0) :]


def _replay_differs_error(
    batch: CommittableBatch, state: BatchState, reason: str
) -> ExactlyOnceError:
    tool, arguments = "pykafka transactions", f"--prefix {batch.prefix}"
    msg = (
        f"batch {batch.batch} of the query {batch.query} was committed in part, its other "
        "transactions were aborted before their commit (kafka.transaction.timeout.ms), and it "
        f"cannot be completed: {reason}. Visible so far: {state}; no row of this write is visible. "
        "Run it as it ran before (spark.sql.shuffle.partitions, the same input, no randomness); or "
        "repeat the visible rows, and let the batch be written whole: "
        f"{tool} release {arguments}; or give up the others, and count the batch as done: "
        f"{tool} complete {arguments}"
    )
    return ExactlyOnceError("EXACTLY_ONCE_REPLAY_DIFFERS", msg)
