"""
Whether everything that entered a micro-batch left it: counts and XORs of records' ids.

After Storm's acker: an id that is met once on either side cancels out, whatever the order and the
number of records, in constant memory. The count tells what an XOR cannot, a record met twice.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What a tally of the whole batch stands under, beside those by partition.
WHOLE = "the batch"


@dataclass(frozen=True, slots=True)
class Tally:
    """
    How many records were met, and the XOR of their 64-bit ids.
    """

    count: int = 0
    xor: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.xor ^ other.xor)


class Verdict(enum.Enum):
    """
    What a comparison says.
    """

    COMPLETE = "complete"
    MISSING = "records are missing"
    DOUBLED = "records are doubled"
    EXCHANGED = "as many records, but not the same"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One comparison: ``place`` is a partition or the whole batch.

    ``difference`` is the XOR of the ids that do not cancel out: where one record is missing or
    doubled, that is its id.
    """

    place: str
    verdict: Verdict
    entered: int
    left: int
    difference: int

    def __str__(self) -> str:
        if self.verdict is Verdict.COMPLETE:
            return f"{self.place}: complete, {self.entered} records"
        return f"{self.place}: {self.verdict.value}: {self.entered} entered, {self.left} left"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """
    What the audit of one micro-batch found; ``batch`` is Spark's batch id.
    """

    name: str
    batch: int
    whole: Finding
    places: tuple[Finding, ...] = ()

    @property
    def complete(self) -> bool:
        """
        Whether everything that entered has left, once.
        """
        return all(it.verdict is Verdict.COMPLETE for it in (self.whole, *self.places))

    def __str__(self) -> str:
        wrong = [it for it in self.places if it.verdict is not Verdict.COMPLETE]
        parts = "; ".join(map(str, wrong or [self.whole]))
        return f"audit {self.name}, micro-batch {self.batch}: {parts}"


def compare(place: str, entered: Tally, left: Iterable[Tally]) -> Finding:
    """
    Compare what entered with all the ways on which records leave.
    """
    gone = reduce(Tally.__add__, left, Tally())
    return Finding(
        place,
        _verdict(entered, gone),
        entered.count,
        gone.count,
        xor(entered.xor, gone.xor),
    )


def _verdict(entered: Tally, gone: Tally) -> Verdict:
    if entered == gone:
        return Verdict.COMPLETE
    if entered.count > gone.count:
        return Verdict.MISSING
    return Verdict.DOUBLED if entered.count < gone.count else Verdict.EXCHANGED


def report(
    name: str,
    batch: int,
    entered: Mapping[str, Tally],
    left: Iterable[Mapping[str, Tally]],
) -> AuditReport:
    """
    Compare a batch as a whole and place by place.
    """
    ways = list(left)
    findings = {
        place: compare(place, tally, [way.get(place, Tally()) for way in ways])
        for place, tally in entered.items()
    }
    places = (finding for place, finding in findings.items() if place != WHOLE)
    return AuditReport(name, batch, findings[WHOLE], tuple(places))
