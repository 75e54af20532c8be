"""
Finds anomalies in a history. Their names follow Jepsen: lost, duplicate, aborted read, and others.

`pykafka verify` and the simulation of the test suite use the same checker. It does no I/O.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

#: The outcome of a written record. UNKNOWN: the commit request got no response; OPEN: there is no
#: transaction marker yet. Records without a transaction are COMMITTED. MARKER: not a record of a
#: producer, but a transaction marker.
COMMITTED, ABORTED, OPEN, UNKNOWN, MARKER = "committed", "aborted", "open", "unknown", "marker"

_SHOWN = 5


class Row(Protocol):
    """
    A row that was read, at the position of the record that it must equal.
    """

    @property
    def topic(self) -> str:
        """
        The topic of the record.
        """

    @property
    def partition(self) -> int:
        """
        The partition of the record.
        """

    @property
    def offset(self) -> int:
        """
        The offset of the record.
        """

    @property
    def key(self) -> bytes | None:
        """
        The key that was read.
        """

    @property
    def value(self) -> bytes | None:
        """
        The value that was read.
        """


class TrueRecord(Protocol):
    """
    A record as it was written, and its outcome: COMMITTED, ABORTED and so on.
    """

    @property
    def offset(self) -> int:
        """
        The offset, or another number that grows within the partition.
        """

    @property
    def key(self) -> bytes | None:
        """
        The key that was written.
        """

    @property
    def value(self) -> bytes | None:
        """
        The value that was written.
        """

    @property
    def state(self) -> str:
        """
        The outcome.
        """


@dataclass
class Verdict:
    """
    The anomalies of one history, by name, and its size.
    """

    anomalies: dict[str, list[Any]] = field(default_factory=dict)
    records: int = 0
    faults: int = 0
    #: The number of rows that repeat an earlier row, whether or not that is an anomaly.
    repeats: int = 0

    @property
    def is_clean(self) -> bool:
        """
        Whether no anomaly was found.
        """
        return not self.anomalies

    def add(self, name: str, items: Iterable[Any]) -> None:
        """
        Add anomalies of one kind.
        """
        anomalies = list(items)
        if anomalies:
            self.anomalies.setdefault(name, []).extend(anomalies)

    def __str__(self) -> str:
        if self.is_clean:
            return f"clean: {self.records} records, {self.faults} faults"
        return "; ".join(
            f"{name}: {len(items)} {items[:_SHOWN]}" for name, items in self.anomalies.items()
        )


#: A topic and a partition number.
Partition = tuple[str, int]


def check_source(
    verdict: Verdict,
    truth: Mapping[Partition, Sequence[TrueRecord]],
    batches: Sequence[Sequence[Row]],
    *,
    committed_only: bool = True,
    exactly_once: bool = True,
    unfinished: Collection[Partition] = (),
) -> None:
    """
    Compare the rows of all micro-batches, in order, with the records in the logs.

    A record without a row is "lost", or "stuck" if the query has not finished its partition.
    """
    check_rows(verdict, truth, batches, committed_only=committed_only, exactly_once=exactly_once)
    positions = {(row.topic, row.partition, row.offset) for rows in batches for row in rows}
    expected_states = {COMMITTED} if committed_only else {COMMITTED, ABORTED, OPEN}
    expected = [
        (*tp, record.offset)
        for tp, records in truth.items()
        for record in records
        if record.state in expected_states
    ]
    verdict.records += len(expected)
    missing = [key for key in expected if key not in positions]
    verdict.add("lost", [key for key in missing if key[:2] not in unfinished])
    verdict.add("stuck", [key for key in missing if key[:2] in unfinished])


def check_rows(
    verdict: Verdict,
    truth: Mapping[Partition, Sequence[TrueRecord]],
    batches: Sequence[Sequence[Row]],
    *,
    committed_only: bool,
    exactly_once: bool = True,
) -> None:
    """
    Check that each row is a visible record, that no row repeats, and that the order holds across
    micro-batches.

    Repeated rows are left out of the order check. Without ``exactly_once`` they are counted, but
    are not an anomaly.
    """
    states = {(*tp, record.offset): record for tp, records in truth.items() for record in records}
    counts: Counter[tuple[str, int, int]] = Counter()
    last_offsets: dict[Partition, int] = {}
    for rows in batches:
        batch_offsets: dict[Partition, int] = {}
        for row in rows:
            tp, key = (row.topic, row.partition), (row.topic, row.partition, row.offset)
            counts[key] += 1
            anomaly = _anomaly(row, states.get(key), committed_only=committed_only)
            verdict.add(anomaly or "", [key] if anomaly else [])
            if counts[key] == 1 and row.offset <= last_offsets.get(tp, -1):
                verdict.add("non-monotonic", [key])
            batch_offsets[tp] = max(batch_offsets.get(tp, -1), row.offset)
        last_offsets.update(batch_offsets)
    verdict.repeats += counts.total() - len(counts)
    if exactly_once:
        verdict.add("duplicate", [key for key, count in counts.items() if count > 1])


def _anomaly(row: Row, record: TrueRecord | None, *, committed_only: bool) -> str | None:
    """
    Return the anomaly of a row, given the record at its position; None if there is no anomaly.
    """
    if record is None or record.state == MARKER:
        return "phantom"
    if (record.value, record.key) != (row.value, row.key):
        return "corrupt"
    if not committed_only or record.state in {COMMITTED, UNKNOWN}:
        return None
    return "aborted read" if record.state == ABORTED else "dirty read"


def check_sink(
    verdict: Verdict,
    expected: Sequence[bytes],
    truth: Mapping[Partition, Sequence[TrueRecord]],
    *,
    exactly_once: bool,
    has_retried: bool,
) -> None:
    """
    Compare the committed records of a sink's topic with the rows of all completed micro-batches.

    With at-least-once delivery, duplicates are anomalies only if no write was retried.
    """
    written_counts: Counter[bytes | None] = Counter(
        record.value
        for records in truth.values()
        for record in records
        if record.state == COMMITTED
    )
    expected_counts: Counter[bytes | None] = Counter(expected)
    verdict.records += len(expected)
    verdict.add("lost", [value for value in expected_counts if value not in written_counts])
    verdict.add("phantom", [value for value in written_counts if value not in expected_counts])
    duplicates = [
        value for value, count in written_counts.items() if count > expected_counts[value] > 0
    ]
    if exactly_once or not has_retried:
        verdict.add("duplicate", duplicates)
    verdict.add(
        "open transaction",
        [record.value for records in truth.values() for record in records if record.state == OPEN],
    )
