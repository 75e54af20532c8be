"""
What the ledger of an exactly-once stream says of a micro-batch that may have been written before.

The order of the ledger decides between several writes of one batch: whoever comes later waits until
all before have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_pykafka.errors import ConcurrentWriteError, ExactlyOnceError
from pyspark_pykafka.sink.ledger_entries import Completion, Intent, Marker, Release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_pykafka.sink.ledger_entries import Committable, CommittableBatch, Entry

# So many tasks are listed in a message.
_SHOWN = 10


def covers_batch(entries: Iterable[Entry], batch: int) -> bool:
    """
    Whether nothing before these entries can be about the batch.

    Only what is committed counts: all of a batch is, before the next one is begun.
    """
    return any(
        isinstance(entry, Release) or (isinstance(entry, Marker) and entry.batch < batch)
        for entry in entries
    )


def prefix_owner(committed: Sequence[Entry]) -> Marker | None:
    """
    Return the last entry of the query that has the prefix, or None if nobody has.
    """
    markers = [it for it in _since_release(committed) if isinstance(it, Marker)]
    return markers[-1] if markers else None


def check_owner(batch: CommittableBatch, committed: Sequence[Entry]) -> None:
    """
    Raise :class:`ExactlyOnceError` if the prefix is another query's.
    """
    held = prefix_owner(committed)
    if held is None or held.query == batch.query:
        return
    msg = (
        f"transactionalIdPrefix '{batch.prefix}' belongs to the query {held.query}, which wrote "
        f"its batch {held.batch}; this is the query {batch.query}. Give each query another "
        "prefix; if that query is over (its checkpoint was deleted), run: pykafka transactions "
        f"release --prefix {batch.prefix}"
    )
    raise ExactlyOnceError("EXACTLY_ONCE_PREFIX_OWNED", msg)


def check_not_superseded(batch: CommittableBatch, committed: Sequence[Entry]) -> None:
    """
    Raise :class:`ExactlyOnceError` if a later batch is committed.

    What was said of this one may be compacted away then.
    """
    markers = [it.batch for it in _since_release(committed) if isinstance(it, Marker)]
    newest = max(markers, default=batch.batch)
    if newest > batch.batch:
        msg = (
            f"batch {newest} of the query {batch.query} is committed already, and this is batch "
            f"{batch.batch}: the query runs twice, or its checkpoint was set back. Nothing of "
            "this write is visible. Stop the other process; or, if the rows are to be written "
            f"again, run: pykafka transactions release --prefix {batch.prefix}"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_BATCH_OVERTAKEN", msg)


def concurrent_writer(query: str, write: str, batch: int, later: Iterable[Entry]) -> Marker | None:
    """
    Return an entry of another write of the query's batch, or of a later batch, or None.

    ``later`` is what stands in the ledger from the write's first marker on, committed or not. An
    entry of an earlier batch is that of a task which was overtaken by another attempt, and ended
    late; if it is another process's instead, that one finds our markers behind its own, and stops.
    """
    for entry in later:
        if not isinstance(entry, Marker) or entry.query != query:
            continue
        if entry.write != write and entry.batch >= batch:
            return entry
    return None


def check_single_writer(batch: CommittableBatch, later: Iterable[Entry]) -> None:
    """
    Raise :class:`ConcurrentWriteError` if another write came in between with its markers.

    ``later`` is what :func:`concurrent_writer` looks at. A write without rows has no marker that
    others would find, and adds nothing to its batch: only one of a later batch is in its way.
    """
    least = batch.batch if batch.committables else batch.batch + 1
    entry = concurrent_writer(batch.query, batch.write, least, later)
    if entry is None:
        return
    msg = (
        f"batch {batch.batch} of the query {batch.query} is being written by another "
        f"process too ('{batch.prefix}', task {entry.task} of batch {entry.batch}); is "
        "the query running twice? Nothing of this write is visible; start it again when "
        "it is the only one"
    )
    raise ConcurrentWriteError("EXACTLY_ONCE_CONCURRENT_WRITE", msg)


def committed_tasks(batch: CommittableBatch, committed: Sequence[Entry]) -> frozenset[int]:
    """
    Return the tasks whose rows earlier writes of the batch have committed already.

    Those are all tasks if the whole batch is there or was declared done, whatever this write looks
    like. Raises :class:`ExactlyOnceError` if a part is there and this write divides the rows in
    another way, since nobody can tell then which of them are in the topic; and as
    :func:`check_not_superseded` does.
    """
    check_not_superseded(batch, committed)
    found = batch_state(batch.query, batch.batch, committed)
    if found.is_whole:
        return frozenset(task.task for task in batch.committables)
    now = {task.task: task for task in batch.committables}
    for marker in found.markers:
        _check_same(batch, marker, now.get(marker.task), found)
    return frozenset(found.tasks)


@dataclass(frozen=True, slots=True)
class BatchState:
    """
    What is committed of a batch; ``intents`` are by write, ``completed`` says that it is done so.
    """

    markers: tuple[Marker, ...]
    intents: Mapping[str, Intent]
    completed: bool = False

    @property
    def tasks(self) -> tuple[int, ...]:
        """
        Return the tasks whose rows are there.
        """
        return tuple(sorted({marker.task for marker in self.markers}))

    @property
    def records(self) -> int:
        """
        Return how many rows are there.
        """
        return sum(marker.records for marker in self.markers)

    @property
    def last(self) -> Intent | None:
        """
        Return the intent of the last write that has committed anything, None if it is not known.

        What was there before that write was a part of its own rows.
        """
        return self.intents.get(self.markers[-1].write) if self.markers else None

    @property
    def is_whole(self) -> bool:
        """
        Whether nothing of the batch is to be written any more.
        """
        known = self.last
        return self.completed or (known is not None and len(self.tasks) == known.written)

    def __str__(self) -> str:
        of = "an unknown number of" if self.last is None else str(self.last.written)
        which = ", ".join(map(str, self.tasks[:_SHOWN])) + ("…" if len(self.tasks) > _SHOWN else "")
        count = len(self.tasks)
        return f"{self.records} rows, those of {count} of {of} tasks with rows ({which})"


def batch_state(query: str, batch: int, committed: Sequence[Entry]) -> BatchState:
    """
    Return what the committed entries of the ledger say of a query's batch.
    """
    entries = [it for it in _since_release(committed) if it.query == query]
    return BatchState(
        tuple(it for it in entries if isinstance(it, Marker) and it.batch == batch),
        {it.write: it for it in entries if isinstance(it, Intent) and it.batch == batch},
        any(isinstance(it, Completion) and it.batch == batch for it in entries),
    )


def _check_same(
    batch: CommittableBatch, marker: Marker, now: Committable | None, found: BatchState
) -> None:
    intent = found.intents.get(marker.write)
    if intent is None:
        raise _differs(batch, found, "it is not known of how many tasks it consisted")
    if intent.tasks != batch.tasks:
        why = f"it had {intent.tasks} tasks then, and has {batch.tasks} now"
        raise _differs(batch, found, why)
    records = 0 if now is None else now.records
    if marker.records != records:
        why = f"its task {marker.task} wrote {marker.records} rows then, and {records} now"
        raise _differs(batch, found, why)
    if not marker.content:
        why = f"an older version wrote its task {marker.task}, and did not tell which rows"
        raise _differs(batch, found, why)
    if now is not None and marker.content != now.content_hash:
        why = f"its task {marker.task} wrote other rows then, though as many ({records})"
        raise _differs(batch, found, why)


def _since_release(entries: Sequence[Entry]) -> Sequence[Entry]:
    after = [at + 1 for at, entry in enumerate(entries) if isinstance(entry, Release)]
    return entries[max(after, default=0) :]


def _differs(batch: CommittableBatch, found: BatchState, why: str) -> ExactlyOnceError:
    tool, given = "pykafka transactions", f"--prefix {batch.prefix}"
    msg = (
        f"batch {batch.batch} of the query {batch.query} was committed in part, its other "
        "transactions were aborted before they could be (kafka.transaction.timeout.ms), and it "
        f"cannot be completed: {why}. Visible are {found}; nothing of this write is. Run it as it "
        "ran before (spark.sql.shuffle.partitions, the same input, nothing of chance); or repeat "
        f"what is visible, and let the batch be written whole: {tool} release {given}; or give up "
        f"what is not, and count the batch as done: {tool} complete {given}"
    )
    return ExactlyOnceError("EXACTLY_ONCE_REPLAY_DIFFERS", msg)
