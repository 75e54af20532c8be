"""
Compares the rows found with the rows expected, in the terms of Jepsen's total-queue checker.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: How many rows of each kind are shown.
_MAX_SHOWN = 5


def row_of(values: Mapping[str, Any], ignored: Collection[str] = ()) -> str:
    """
    Return a row as JSON, equal for equal rows, without the ignored columns.
    """
    fields = {name: value for name, value in values.items() if name not in ignored}
    return json.dumps(fields, sort_keys=True)


@dataclass(frozen=True)
class Verdict:
    """
    The rows that were not found as often as expected, and how often each differs.

    ``lost`` rows were found too rarely, ``duplicated`` rows too often, and ``unexpected`` rows
    should not exist at all.
    """

    lost: Counter[str] = field(default_factory=Counter)
    duplicated: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)

    @property
    def valid(self) -> bool:
        """
        Whether each row was found exactly as often as expected, and no other.
        """
        return not (self.lost or self.duplicated or self.unexpected)

    def __str__(self) -> str:
        kinds = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unexpected": self.unexpected,
        }
        return "; ".join(_summary(kind, rows) for kind, rows in kinds.items() if rows) or "valid"


def check_rows(expected: Iterable[str], rows: Iterable[str]) -> Verdict:
    """
    Compare two multisets of rows.
    """
    needed, actual = Counter(expected), Counter(rows)
    surplus = actual - needed
    return Verdict(
        lost=needed - actual,
        duplicated=Counter({row: times for row, times in surplus.items() if row in needed}),
        unexpected=Counter({row: times for row, times in surplus.items() if row not in needed}),
    )


def _summary(kind: str, rows: Counter[str]) -> str:
    examples = ", ".join(sorted(rows)[:_MAX_SHOWN])
    ellipsis = ", …" if len(rows) > _MAX_SHOWN else ""
    return f"{rows.total()} {kind}: {examples}{ellipsis}"
