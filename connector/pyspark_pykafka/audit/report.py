"""
Compares the records that entered a micro-batch with those that left: their number, and the sum of
their ids.

A record's id is a hash of its topic, partition and offset. An id that occurs once on each side
cancels out, whatever the order of the records. The comparison takes the same memory for any number
of records. Storm's acker uses the XOR of ids; a sum is cheaper in Spark, whose ``bit_xor`` computes
each id twice.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The scope of the whole batch, beside those of single partitions.
WHOLE_BATCH = "the batch"


@dataclass(frozen=True, slots=True)
class Checksum:
    """
    The number of records and the sum of their ids.
    """

    count: int = 0
    sum: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.count + other.count, self.sum + other.sum)


class Verdict(enum.Enum):
    """
    The result of a comparison.
    """

    COMPLETE = "complete"
    #: Fewer records left the micro-batch than entered it.
    MISSING = "records are missing"
    #: More records left the micro-batch than entered it.
    DUPLICATED = "records are duplicated"
    #: One record is missing for each duplicated one.
    REPLACED = "as many records left as entered, but not the same ones"
    #: The two sides differ, and retention or compaction has deleted records since the batch was
    #: read.
    UNKNOWN = "unknown, since the log no longer holds all records that entered"


# All mismatches have the same gravity, so max() returns the first of them.
_MISMATCH = 2
_GRAVITY = {Verdict.COMPLETE: 0, Verdict.UNKNOWN: 1}


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One comparison: of the whole batch, or of the partition that ``scope`` names.

    ``entered`` and ``left`` count records. ``difference`` is the sum of the ids that do not cancel
    out: the id of a single missing record, or the negated id of a single duplicated one.
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
    The audit of one micro-batch; ``name`` is the auditor's, ``batch_id`` is Spark's.

    ::

        if report.has_mismatch:
            # audit flights, micro-batch 7: flights-0: records are missing: 40 entered, 39 left
            print(report)
            missing = [f.scope for f in report.findings if f.verdict is Verdict.MISSING]
    """

    name: str
    batch_id: int
    whole_batch: Finding
    by_partition: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """
        All comparisons; that of the whole batch is the first.
        """
        return (self.whole_batch, *self.by_partition)

    @property
    def is_complete(self) -> bool:
        """
        Whether every record that entered has left exactly once.
        """
        return self.verdict is Verdict.COMPLETE

    @property
    def has_mismatch(self) -> bool:
        """
        Whether records are certainly missing, duplicated or replaced.
        """
        return self.verdict not in {Verdict.COMPLETE, Verdict.UNKNOWN}

    @property
    def verdict(self) -> Verdict:
        """
        The most severe verdict of all comparisons: a mismatch, else ``UNKNOWN``, else ``COMPLETE``.
        Of several mismatches it is the first; the whole batch comes before its partitions.
        """
        verdicts = (finding.verdict for finding in self.findings)
        return max(verdicts, key=lambda verdict: _GRAVITY.get(verdict, _MISMATCH))

    def __str__(self) -> str:
        incomplete = [
            finding for finding in self.by_partition if finding.verdict is not Verdict.COMPLETE
        ]
        findings = "; ".join(map(str, incomplete or [self.whole_batch]))
        return f"audit {self.name}, micro-batch {self.batch_id}: {findings}"


def compare(
    scope: str, entered: Checksum, exits: Iterable[Checksum], max_entered: int | None = None
) -> Finding:
    """
    Compare the records that entered with those that left at the exits: the sink and each filter.

    If it is not known which records entered, ``entered`` has only those that certainly did, and
    ``max_entered`` is the largest number that may have entered.
    """
    processed = reduce(Checksum.__add__, exits, Checksum())
    return Finding(
        scope,
        _verdict(entered, processed, max_entered),
        entered.count,
        processed.count,
        entered.sum - processed.sum,
    )


def _verdict(entered: Checksum, processed: Checksum, max_entered: int | None) -> Verdict:
    if entered == processed:
        return Verdict.COMPLETE
    if max_entered is not None and entered.count <= processed.count <= max_entered:
        return Verdict.UNKNOWN
    if entered.count > processed.count:
        return Verdict.MISSING
    return Verdict.DUPLICATED if entered.count < processed.count else Verdict.REPLACED


def report(
    name: str,
    batch_id: int,
    entered: Mapping[str, Checksum],
    exits: Iterable[Mapping[str, Checksum]],
    max_entered: Mapping[str, int] | None = None,
) -> AuditReport:
    """
    Compare a batch as a whole and by partition; the mappings have the scopes as keys.
    """
    exits, maxima = list(exits), max_entered or {}
    findings = {
        scope: compare(
            scope,
            checksum,
            [checksums.get(scope, Checksum()) for checksums in exits],
            maxima.get(scope),
        )
        for scope, checksum in entered.items()
    }
    by_partition = (finding for scope, finding in findings.items() if scope != WHOLE_BATCH)
    return AuditReport(name, batch_id, findings[WHOLE_BATCH], tuple(by_partition))
