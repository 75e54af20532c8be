"""
What a history must not show, in Jepsen's words: lost, duplicate, aborted read, skipped, and others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.simulation.spark.endpoints import Row

_SHOWN = 5


@dataclass
class Verdict:
    """
    The anomalies of one history, by name, and what it did.
    """

    anomalies: dict[str, list[Any]] = field(default_factory=dict)
    records: int = 0
    faults: int = 0

    @property
    def is_clean(self) -> bool:
        """
        Whether nothing is wrong.
        """
        return not self.anomalies

    def add(self, name: str, items: Iterable[Any]) -> None:
        """
        Add anomalies of one kind.
        """
        found = list(items)
        if found:
            self.anomalies.setdefault(name, []).extend(found)

    def __str__(self) -> str:
        if self.is_clean:
            return f"clean: {self.records} records, {self.faults} faults"
        return "; ".join(
            f"{name}: {len(items)} {items[:_SHOWN]}" for name, items in self.anomalies.items()
        )


Position = tuple[str, int]


def check_source(
    verdict: Verdict,
    truth: Mapping[Position, Sequence[Any]],
    batches: Sequence[Sequence[Row]],
    *,
    committed_only: bool = True,
) -> None:
    """
    Compare the rows of all micro-batches, in order, with the records in the logs.
    """
    check_rows(verdict, truth, batches, committed_only=committed_only)
    seen = {(row.topic, row.partition, row.offset) for rows in batches for row in rows}
    wanted = {"committed"} if committed_only else {"committed", "aborted", "open"}
    expected = [
        (*tp, record.offset)
        for tp, records in truth.items()
        for record in records
        if record.state in wanted
    ]
    verdict.records += len(expected)
    verdict.add("lost", [key for key in expected if key not in seen])


def check_rows(
    verdict: Verdict,
    truth: Mapping[Position, Sequence[Any]],
    batches: Sequence[Sequence[Row]],
    *,
    committed_only: bool,
) -> None:
    """
    Check that each row is a record, once, that may be seen; across batches also their order.
    """
    states = {(*tp, record.offset): record for tp, records in truth.items() for record in records}
    seen: Counter[tuple[str, int, int]] = Counter()
    last: dict[Position, int] = {}
    for rows in batches:
        highest: dict[Position, int] = {}
        for row in rows:
            tp, key = (row.topic, row.partition), (row.topic, row.partition, row.offset)
            seen[key] += 1
            anomaly = _anomaly(row, states.get(key), committed_only=committed_only)
            verdict.add(anomaly or "", [key] if anomaly else [])
            if row.offset <= last.get(tp, -1):
                verdict.add("non-monotonic", [key])
            highest[tp] = max(highest.get(tp, -1), row.offset)
        last.update(highest)
    verdict.add("duplicate", [key for key, count in seen.items() if count > 1])


def _anomaly(row: Row, record: Any, *, committed_only: bool) -> str | None:
    """
    Return what is wrong with a row, by the record at its place.
    """
    if record is None or record.state == "marker":
        return "phantom"
    if (record.value, record.key) != (row.value, row.key):
        return "corrupt"
    if committed_only and record.state != "committed":
        return "aborted read" if record.state == "aborted" else "dirty read"
    return None


def check_sink(
    verdict: Verdict,
    expected: Sequence[bytes],
    truth: Mapping[Position, Sequence[Any]],
    *,
    exactly_once: bool,
    has_retried: bool,
) -> None:
    """
    Compare what a sink's topic holds, read committed, with the rows of all completed micro-batches.

    At least once, a duplicate needs a reason: something that was tried again.
    """
    found = Counter(
        record.value
        for records in truth.values()
        for record in records
        if record.state == "committed"
    )
    wanted = Counter(expected)
    verdict.records += len(expected)
    verdict.add("lost", [value for value in wanted if value not in found])
    verdict.add("phantom", [value for value in found if value not in wanted])
    doubled = [value for value, count in found.items() if count > wanted[value] > 0]
    if exactly_once or not has_retried:
        verdict.add("duplicate", doubled)
    verdict.add(
        "open transaction",
        [
            record.value
            for records in truth.values()
            for record in records
            if record.state == "open"
        ],
    )
