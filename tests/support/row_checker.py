"""
Compares the rows that are there with those that must be, in the words of Jepsen's queue checker.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: So many rows of each kind are named.
_NAMED = 5


def row_of(values: Mapping[str, Any], ignored: Collection[str] = ()) -> str:
    """
    Return a row as one text, equal for equal rows; columns that differ by chance are ignored.
    """
    kept = {name: value for name, value in values.items() if name not in ignored}
    return json.dumps(kept, sort_keys=True)


@dataclass(frozen=True)
class Verdict:
    """
    What is wrong with the rows that were found, each with how often.

    ``lost`` were not found as often as they must be, ``duplicated`` more often, and ``unexpected``
    ones must not be there at all.
    """

    lost: Counter[str] = field(default_factory=Counter)
    duplicated: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)

    @property
    def valid(self) -> bool:
        """
        Whether each row is there as often as it must be, and no other.
        """
        return not (self.lost or self.duplicated or self.unexpected)

    def __str__(self) -> str:
        kinds = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unexpected": self.unexpected,
        }
        return "; ".join(_told(kind, rows) for kind, rows in kinds.items() if rows) or "valid"


def check_rows(expected: Iterable[str], found: Iterable[str]) -> Verdict:
    """
    Return the verdict on rows, each of which may be there more than once.
    """
    wanted, there = Counter(expected), Counter(found)
    surplus = there - wanted
    return Verdict(
        lost=wanted - there,
        duplicated=Counter({row: times for row, times in surplus.items() if row in wanted}),
        unexpected=Counter({row: times for row, times in surplus.items() if row not in wanted}),
    )


def _told(kind: str, rows: Counter[str]) -> str:
    named = ", ".join(sorted(rows)[:_NAMED])
    more = ", …" if len(rows) > _NAMED else ""
    return f"{rows.total()} {kind}: {named}{more}"
