"""
The entries of an exactly-once stream's ledger, and the transactions that are ready to be committed.

Each task writes a marker into the ledger in the same transaction as its rows. So a
``read_committed`` reader finds exactly the markers of the tasks that are committed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_pykafka.engines.transaction_contract import LEDGER_SUFFIX
from pyspark_pykafka.errors import ExactlyOnceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction


@dataclass(frozen=True, slots=True)
class Marker:
    """
    Describes the rows of one task; written in their transaction.

    ``write`` identifies one execution of the batch. ``content`` is a hash of the rows, whatever
    their order; it is empty if an older version wrote the marker.
    """

    query: str
    batch: int
    write: str
    task: int
    records: int
    content: str = ""

    @property
    def key(self) -> str:
        """
        The compaction key: a newer marker of the task replaces an older one.
        """
        return f"task-{self.task}"


@dataclass(frozen=True, slots=True)
class EmptyWriteClaim:
    """
    Declares that a write without rows is about to abort earlier writes of its batch.

    It conflicts with their intents as a marker does, so that an intent that comes later is not
    binding. It is stored as the marker of the task -1, outside of any transaction: earlier versions
    treat it as a marker of another write, too.
    """

    query: str
    batch: int
    write: str

    @property
    def key(self) -> str:
        """
        The compaction key: only the last claim stays.
        """
        return self.stored_as().key

    def stored_as(self) -> Marker:
        """
        Return the form in which a claim is stored.
        """
        return Marker(self.query, self.batch, self.write, _CLAIMING_TASK, 0)


@dataclass(frozen=True, slots=True)
class Intent:
    """
    Declares, before the first commit of a write, which transactions the driver commits.

    ``tasks`` counts all tasks, ``written`` those with rows. ``first`` is the offset of the write's
    first marker, and ``named`` encodes the transactions (see :mod:`intents`); older versions write
    neither.
    """

    query: str
    batch: int
    write: str
    tasks: int
    written: int
    first: int = -1
    named: str = ""

    @property
    def key(self) -> str:
        """
        The compaction key: it contains the write, so that the intents of two writes both stay.
        """
        return f"{INTENT_KEY}{self.write}"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """
    Declares that a write is aborted: a later intent of the write is not binding.
    """

    query: str
    write: str
    key = "withdrawal"


@dataclass(frozen=True, slots=True)
class ReadBarrier:
    """
    Declares nothing: whoever has appended it, and reads up to it, has missed no earlier entry.

    It is stored as a withdrawal with an empty ``write``, which earlier versions ignore, too.
    """

    query = ""
    key = "barrier"

    def stored_as(self) -> Withdrawal:
        """
        Return the form in which a barrier is stored.
        """
        return Withdrawal(self.query, "")


@dataclass(frozen=True, slots=True)
class Completion:
    """
    Declares that a batch is done: rows that are not committed are abandoned.

    ``ledger_end`` is the end of the ledger when the command began. The entry counts only if no
    intent lies between that offset and the entry (see :mod:`command_entries`). Older versions do
    not write ``ledger_end``.
    """

    query: str
    batch: int
    ledger_end: int = -1
    key = "completion"


@dataclass(frozen=True, slots=True)
class Release:
    """
    Declares that the query has ended, so that another query may use its prefix.

    ``ledger_end`` is as in :class:`Completion`; ``command`` identifies one run of the command.
    Older versions write neither.

    Compaction keeps releases forever. That is necessary, because compaction also keeps old markers
    of tasks that later batches do not have. Without the release they would count again: the ended
    query would own the prefix, and its batch numbers could make a new batch seem overtaken.
    """

    query: str
    ledger_end: int = -1
    command: str = ""

    @property
    def key(self) -> str:
        """
        The compaction key: a release that lands late must not replace one that counts.
        """
        return f"release-{self.command}" if self.command else "release"


Entry: TypeAlias = (
    "Marker | EmptyWriteClaim | Intent | Release | Withdrawal | ReadBarrier | Completion"
)

#: Pairs of offset and entry, in log order.
EntriesWithOffsets: TypeAlias = "Sequence[tuple[int, Entry]]"

#: The prefix of the keys of intents; once a later batch is written, a tombstone removes them.
INTENT_KEY = "intent-"

# The task number in the marker that represents a claim.
_CLAIMING_TASK = -1

_KINDS: dict[str, type[Marker | Intent | Release | Withdrawal | Completion]] = {
    "marker": Marker,
    "intent": Intent,
    "release": Release,
    "withdrawal": Withdrawal,
    "completion": Completion,
}


@dataclass(frozen=True, slots=True)
class Committable:
    """
    A task's open transaction, ready to be committed.

    ``marker_offset`` is the offset of the task's marker in the ledger, or -1 in a batch write;
    ``content_hash`` is the hash in that marker.
    """

    task: int
    records: int
    prepared: PreparedTransaction
    marker_offset: int
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class CommittableBatch:
    """
    A micro-batch whose tasks have all succeeded.

    ``committables`` are the transactions of the tasks with rows; ``tasks`` counts all tasks.
    """

    prefix: str
    query: str
    batch: int
    write: str
    tasks: int
    committables: tuple[Committable, ...]

    @property
    def first_marker_offset(self) -> int | None:
        """
        The offset of the first marker, or None without rows; markers before it belong to other
        writes.
        """
        return min((task.marker_offset for task in self.committables), default=None)


def ledger_topic(prefix: str) -> str:
    """
    Return the ledger's topic for a transactional-id prefix.
    """
    return f"{prefix}{LEDGER_SUFFIX}"


def to_record(entry: Entry) -> tuple[bytes, bytes]:
    """
    Return an entry as the key and value of a record.
    """
    stored = entry.stored_as() if isinstance(entry, EmptyWriteClaim | ReadBarrier) else entry
    kind = next(name for name, entry_class in _KINDS.items() if isinstance(stored, entry_class))
    return entry.key.encode(), json.dumps({"kind": kind, **asdict(stored)}).encode()


def from_record(value: bytes | None, where: str) -> Entry:
    """
    Return the entry in a record's value; ``where`` is the record's position, for the error.

    Raises :class:`ExactlyOnceError` for a record that is not an entry.
    """
    try:
        fields = json.loads(value or b"")
        entry = _KINDS[fields.pop("kind")](**fields)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        msg = (
            f"{where} is not an entry of an exactly-once write's ledger: {error!r}; nothing else "
            "may write to this topic: set another transactionalIdPrefix, or delete the topic if "
            "no query with this prefix will continue"
        )
        raise ExactlyOnceError("EXACTLY_ONCE_LEDGER_MALFORMED", msg) from error
    if isinstance(entry, Marker) and entry.task == _CLAIMING_TASK:
        return EmptyWriteClaim(entry.query, entry.batch, entry.write)
    if isinstance(entry, Withdrawal) and not entry.write:
        return ReadBarrier()
    return entry
