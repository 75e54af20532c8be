"""
Whether everything that entered a micro-batch left it: counts of records and sums of their ids.

An id that is met once on either side cancels out, whatever the order and the number of records, in
constant memory. Storm's acker takes the XOR of ids; a sum is cheaper in Spark, whose ``bit_xor``
computes each id twice.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What a tally of the whole batch stands under, beside those by partition.
WHOLE = "the batch"


@dataclass(frozen=True, slots=True)
class Checksum:
    """
    How many records were met, and the sum of their ids.
    """

    count: int = 0
    sum: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.count + other.count, self.sum + other.sum)


class Verdict(enum.Enum):
    """
    What a comparison says.
    """

    COMPLETE = "complete"
    MISSING = "records are missing"
    DOUBLED = "records are doubled"
    REPLACED = "as many records, but not the same"
    UNCLEAR = "unclear, since the log does not show any more what entered"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One comparison: ``place`` is a partition or the whole batch.

    ``difference`` is what is left of the ids that do not cancel out: where one record is missing,
    its id; where one is doubled, that with the other sign.
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
    def findings(self) -> tuple[Finding, ...]:
        """
        All comparisons, that of the whole batch first.
        """
        return (self.whole, *self.places)

    @property
    def complete(self) -> bool:
        """
        Whether everything that entered has left, once.
        """
        return self._verdicts <= {Verdict.COMPLETE}

    @property
    def wrong(self) -> bool:
        """
        Whether records are known to be missing, doubled or exchanged.
        """
        return not self._verdicts <= {Verdict.COMPLETE, Verdict.UNCLEAR}

    @property
    def _verdicts(self) -> set[Verdict]:
        return {it.verdict for it in self.findings}

    def __str__(self) -> str:
        wrong = [it for it in self.places if it.verdict is not Verdict.COMPLETE]
        parts = "; ".join(map(str, wrong or [self.whole]))
        return f"audit {self.name}, micro-batch {self.batch}: {parts}"


def compare(
    place: str, entered: Checksum, left: Iterable[Checksum], at_most: int | None = None
) -> Finding:
    """
    Compare what entered with all the ways on which records leave.

    ``at_most`` says how many can have entered where ``entered`` is only what is known for sure.
    """
    gone = reduce(Checksum.__add__, left, Checksum())
    return Finding(
        place,
        _verdict(entered, gone, at_most),
        entered.count,
        gone.count,
        entered.sum - gone.sum,
    )


def _verdict(entered: Checksum, gone: Checksum, at_most: int | None) -> Verdict:
    if entered == gone:
        return Verdict.COMPLETE
    if at_most is not None and entered.count <= gone.count <= at_most:
        return Verdict.UNCLEAR
    if entered.count > gone.count:
        return Verdict.MISSING
    return Verdict.DOUBLED if entered.count < gone.count else Verdict.REPLACED


def report(
    name: str,
    batch: int,
    entered: Mapping[str, Checksum],
    left: Iterable[Mapping[str, Checksum]],
    at_most: Mapping[str, int] | None = None,
) -> AuditReport:
    """
    Compare a batch as a whole and place by place.
    """
    ways, most = list(left), at_most or {}
    findings = {
        place: compare(place, tally, [way.get(place, Checksum()) for way in ways], most.get(place))
        for place, tally in entered.items()
    }
    places = (finding for place, finding in findings.items() if place != WHOLE)
    return AuditReport(name, batch, findings[WHOLE], tuple(places))
