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
WHOLE_BATCH = "the batch"


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
    DUPLICATED = "records are doubled"
    REPLACED = "as many records, but not the same"
    UNKNOWN = "unclear, since the log does not show any more what entered"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One comparison: ``scope`` is a partition or the whole batch.

    ``difference`` is what is left of the ids that do not cancel out: where one record is missing,
    its id; where one is doubled, that with the other sign.
    """

    scope: str
    verdict: Verdict
    entered: int
    left: int
    difference: int

    def __str__(self) -> str:
        if self.verdict is Verdict.COMPLETE:
            return f"{self.scope}: complete, {self.entered} records"
        return f"{self.scope}: {self.verdict.value}: {self.entered} entered, {self.left} left"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """
    What the audit of one micro-batch found; ``batch`` is Spark's batch id.
    """

    name: str
    batch_id: int
    whole_batch: Finding
    by_partition: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """
        All comparisons, that of the whole batch first.
        """
        return (self.whole_batch, *self.by_partition)

    @property
    def is_complete(self) -> bool:
        """
        Whether everything that entered has left, once.
        """
        return self._verdicts <= {Verdict.COMPLETE}

    @property
    def has_mismatch(self) -> bool:
        """
        Whether records are known to be missing, doubled or exchanged.
        """
        return not self._verdicts <= {Verdict.COMPLETE, Verdict.UNKNOWN}

    @property
    def _verdicts(self) -> set[Verdict]:
        return {it.verdict for it in self.findings}

    def __str__(self) -> str:
        wrong = [it for it in self.by_partition if it.verdict is not Verdict.COMPLETE]
        parts = "; ".join(map(str, wrong or [self.whole_batch]))
        return f"audit {self.name}, micro-batch {self.batch_id}: {parts}"


def compare(
    scope: str, entered: Checksum, left: Iterable[Checksum], max_entered: int | None = None
) -> Finding:
    """
    Compare what entered with all the ways on which records leave.

    ``max_entered`` says how many can have entered where ``entered`` is only what is known for sure.
    """
    gone = reduce(Checksum.__add__, left, Checksum())
    return Finding(
        scope,
        _verdict(entered, gone, max_entered),
        entered.count,
        gone.count,
        entered.sum - gone.sum,
    )


def _verdict(entered: Checksum, gone: Checksum, max_entered: int | None) -> Verdict:
    if entered == gone:
        return Verdict.COMPLETE
    if max_entered is not None and entered.count <= gone.count <= max_entered:
        return Verdict.UNKNOWN
    if entered.count > gone.count:
        return Verdict.MISSING
    return Verdict.DUPLICATED if entered.count < gone.count else Verdict.REPLACED


def report(
    name: str,
    batch: int,
    entered: Mapping[str, Checksum],
    left: Iterable[Mapping[str, Checksum]],
    max_entered: Mapping[str, int] | None = None,
) -> AuditReport:
    """
    Compare a batch as a whole and place by place.
    """
    ways, most = list(left), max_entered or {}
    findings = {
        place: compare(place, tally, [way.get(place, Checksum()) for way in ways], most.get(place))
        for place, tally in entered.items()
    }
    places = (finding for place, finding in findings.items() if place != WHOLE_BATCH)
    return AuditReport(name, batch, findings[WHOLE_BATCH], tuple(places))
