"""
What the ledger of an exactly-once stream says of a micro-batch that may have been written before.

Each task tells the ledger of its rows within the transaction that holds them, so what a reader of
committed records finds there is what was committed. The order of the ledger decides between
several writes of one batch: whoever comes later waits until all before have ended.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_pykafka.errors import ConcurrentWriteError, ExactlyOnceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Marker:
    """
    The rows of one task, told in their own transaction.

    ``write`` names one execution of the batch; each has another.
    """

    query: str
    batch: int
    write: str
    task: int
    records: int

    @property
    def key(self) -> str:
        """
        Return what older entries are compacted by.
        """
        return f"task-{self.task}"


@dataclass(frozen=True, slots=True)
class Intent:
    """
    Says, before the first transaction of a write is committed, how many tasks it had.

    ``written`` counts those that had rows.
    """

    query: str
    batch: int
    write: str
    tasks: int
    written: int
    key = "batch"


@dataclass(frozen=True, slots=True)
class Release:
    """
    Says that the query is over, so that another may have its prefix.

    The last one stays for ever: older markers of tasks that later batches do not have stay, too.
    """

    query: str
    key = "release"


Entry: TypeAlias = "Marker | Intent | Release"

_KINDS: dict[str, type[Entry]] = {"marker": Marker, "intent": Intent, "release": Release}


@dataclass(frozen=True, slots=True)
class WrittenTask:
    """
    A task whose rows wait in the transaction ``prepared``: (transactional id, producer id, epoch).

    ``marked`` is the offset of its marker in the ledger.
    """

    task: int
    records: int
    prepared: tuple[str, int, int]
    marked: int


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """
    A micro-batch whose tasks are done; ``written`` are those that had rows, ``tasks`` counts all.
    """

    prefix: str
    query: str
    batch: int
    write: str
    tasks: int
    written: tuple[WrittenTask, ...]

    @property
    def first(self) -> int | None:
        """
        The offset of the first marker; earlier ones are of earlier writes. None without rows.
        """
        return min((task.marked for task in self.written), default=None)

    @property
    def intent(self) -> Intent:
        """
        What to tell the ledger before the first commit.
        """
        return Intent(self.query, self.batch, self.write, self.tasks, len(self.written))


def ledger_topic(prefix: str) -> str:
    """
    Return the topic that the queries of a prefix keep their ledger in.
    """
    return f"{prefix}-ledger"


def to_record(entry: Entry) -> tuple[bytes, bytes]:
    """
    Return the entry as a record's key and value.
    """
    kind = next(name for name, it in _KINDS.items() if isinstance(entry, it))
    return entry.key.encode(), json.dumps({"kind": kind, **asdict(entry)}).encode()


def from_record(value: bytes | None, where: str) -> Entry:
    """
    Return the entry of a record.

    Raises :class:`ExactlyOnceError` for one that is none, with the place that ``where`` says.
    """
    try:
        fields = json.loads(value or b"")
        return _KINDS[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = (
            f"{where} is no entry of an exactly-once write's ledger: {error!r}; nobody else may "
            "write to this topic: give another transactionalIdPrefix, or delete the topic if no "
            "query with this prefix is to go on"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_LEDGER_MALFORMED", msg) from error


def reaches_back(entries: Iterable[Entry], batch: int) -> bool:
    """
    Whether nothing before these entries can be about the batch.

    Only what is committed counts: all of a batch is, before the next one is begun.
    """
    return any(
        isinstance(entry, Release) or (isinstance(entry, Marker) and entry.batch < batch)
        for entry in entries
    )


def owner(committed: Sequence[Entry]) -> Marker | None:
    """
    Return the last entry of the query that has the prefix, or None if nobody has.
    """
    markers = [it for it in _since_release(committed) if isinstance(it, Marker)]
    return markers[-1] if markers else None


def check_owner(written: WrittenBatch, committed: Sequence[Entry]) -> None:
    """
    Raise :class:`ExactlyOnceError` if the prefix is another query's.
    """
    held = owner(committed)
    if held is None or held.query == written.query:
        return
    msg = (
        f"transactionalIdPrefix '{written.prefix}' belongs to the query {held.query}, which wrote "
        f"its batch {held.batch}; this is the query {written.query}. Give each query another "
        "prefix; if that query is over (its checkpoint was deleted), run: pykafka transactions "
        f"release --prefix {written.prefix}"
    )
    raise ExactlyOnceError("EXACTLY_ONCE_PREFIX_OWNED", msg)


def check_newest(written: WrittenBatch, committed: Sequence[Entry]) -> None:
    """
    Raise :class:`ExactlyOnceError` if a later batch is committed.

    What was said of this one may be compacted away then.
    """
    markers = [it.batch for it in _since_release(committed) if isinstance(it, Marker)]
    newest = max(markers, default=written.batch)
    if newest > written.batch:
        msg = (
            f"batch {newest} of the query {written.query} is committed already, and this is batch "
            f"{written.batch}: the query runs twice, or its checkpoint was set back. Nothing of "
            "this write is visible. Stop the other process; or, if the rows are to be written "
            f"again, run: pykafka transactions release --prefix {written.prefix}"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_BATCH_OVERTAKEN", msg)


def intruder(query: str, write: str, batch: int, later: Iterable[Entry]) -> Marker | None:
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


def check_alone(written: WrittenBatch, later: Iterable[Entry]) -> None:
    """
    Raise :class:`ConcurrentWriteError` if another write came in between with its markers.

    ``later`` is what :func:`intruder` looks at. A write without rows has no marker that others
    would find, and adds nothing to its batch: only one of a later batch is in its way.
    """
    least = written.batch if written.written else written.batch + 1
    entry = intruder(written.query, written.write, least, later)
    if entry is None:
        return
    msg = (
        f"batch {written.batch} of the query {written.query} is being written by another "
        f"process too ('{written.prefix}', task {entry.task} of batch {entry.batch}); is "
        "the query running twice? Nothing of this write is visible; start it again when "
        "it is the only one"
    )
    raise ConcurrentWriteError("EXACTLY_ONCE_CONCURRENT_WRITE", msg)


def committed_tasks(written: WrittenBatch, committed: Sequence[Entry]) -> frozenset[int]:
    """
    Return the tasks whose rows earlier writes of the batch have committed already.

    Those are all tasks if the whole batch is there, whatever this write looks like. Raises
    :class:`ExactlyOnceError` if a part is there and this write divides the rows in another way,
    since nobody can tell then which of them are in the topic; and as :func:`check_newest` does.
    """
    check_newest(written, committed)
    entries = _since_release(committed)
    markers = [it for it in entries if isinstance(it, Marker) and it.batch == written.batch]
    told = {it.write: it for it in entries if isinstance(it, Intent)}
    if any(marker.write not in told for marker in markers):
        raise _differs(written, "it is not known of how many tasks it consisted")
    done = frozenset(marker.task for marker in markers)
    if markers and len(done) == max(told[marker.write].written for marker in markers):
        return frozenset(task.task for task in written.written)
    for marker in markers:
        _check_same(written, marker, told[marker.write])
    return done


def _check_same(written: WrittenBatch, marker: Marker, intent: Intent) -> None:
    if intent.tasks != written.tasks:
        why = f"it had {intent.tasks} tasks then, and has {written.tasks} now"
        raise _differs(written, why)
    now = next((it.records for it in written.written if it.task == marker.task), 0)
    if marker.records != now:
        why = f"its task {marker.task} wrote {marker.records} rows then, and {now} now"
        raise _differs(written, why)


def _since_release(entries: Sequence[Entry]) -> Sequence[Entry]:
    after = [at + 1 for at, entry in enumerate(entries) if isinstance(entry, Release)]
    return entries[max(after, default=0) :]


def _differs(written: WrittenBatch, why: str) -> ExactlyOnceError:
    msg = (
        f"batch {written.batch} of the query {written.query} was committed in part before a "
        f"failure, and cannot be completed: {why}. Which rows are in the topic cannot be told. "
        "Run it as it ran before (spark.sql.shuffle.partitions, the same input partitions, no "
        "repartition() without columns); or let the batch be written whole, which repeats the "
        f"rows of its committed tasks: pykafka transactions release --prefix {written.prefix}"
    )
    return ExactlyOnceError("EXACTLY_ONCE_REPLAY_DIFFERS", msg)
