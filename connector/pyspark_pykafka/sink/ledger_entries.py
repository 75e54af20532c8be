"""
What stands in the ledger of an exactly-once stream, and what its writers know of a micro-batch.

Each task tells the ledger of its rows within the transaction that holds them, so what a reader of
committed records finds there is what was committed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_pykafka.errors import ExactlyOnceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction


@dataclass(frozen=True, slots=True)
class Marker:
    """
    The rows of one task, told in their own transaction.

    ``write`` names one execution of the batch; each has another. ``content`` is a hash of the rows
    in any order, empty where an older version wrote them.
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
        Return what older entries are compacted by.
        """
        return f"task-{self.task}"


@dataclass(frozen=True, slots=True)
class Intent:
    """
    Says, before the first transaction of a write is committed, how many tasks it had.

    ``written`` counts those that had rows. ``first`` is the offset of the write's first marker, and
    ``named`` holds the transactions to commit (:mod:`intents`); older versions tell neither.
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
        Return what older entries are compacted by: intents of two writes both stay.
        """
        return f"{INTENT_KEY}{self.write}"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """
    Says that a write is aborted: an intent of it that comes later decides nothing.
    """

    query: str
    write: str
    key = "withdrawal"


@dataclass(frozen=True, slots=True)
class Completion:
    """
    Says that a batch is done as it is: the rows that are not committed are given up.
    """

    query: str
    batch: int
    key = "completion"


@dataclass(frozen=True, slots=True)
class Release:
    """
    Says that the query is over, so that another may have its prefix.

    The last one stays for ever: older markers of tasks that later batches do not have stay, too.
    """

    query: str
    key = "release"


Entry: TypeAlias = "Marker | Intent | Release | Withdrawal | Completion"

#: Entries with their offsets.
EntriesWithOffsets: TypeAlias = "Sequence[tuple[int, Entry]]"

#: What the keys of intents begin with; once a later batch is written, a tombstone removes them.
INTENT_KEY = "intent-"

_KINDS: dict[str, type[Entry]] = {
    "marker": Marker,
    "intent": Intent,
    "release": Release,
    "withdrawal": Withdrawal,
    "completion": Completion,
}


@dataclass(frozen=True, slots=True)
class Committable:
    """
    A task whose rows are in the open transaction ``prepared``.

    ``marker_offset`` is the offset of its marker in the ledger, ``content_hash`` the hash in it.
    """

    task: int
    records: int
    prepared: PreparedTransaction
    marker_offset: int
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class CommittableBatch:
    """
    A micro-batch whose tasks are done; ``written`` are those that had rows, ``tasks`` counts all.
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
        The offset of the first marker; earlier ones are of earlier writes. None without rows.
        """
        return min((task.marker_offset for task in self.committables), default=None)


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
