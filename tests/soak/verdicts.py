"""
The verdict on a workload's round: no record lost, no unexplained duplicate, no hang.

Rows are compared as in `pykafka verify`. This module does no I/O.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_pykafka.verify.checker import Verdict, check_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.soak.truth import OutputRow, Truth

    from pyspark_pykafka.verify.records import ReadRow

CLEAN, ANOMALY, VOID = "clean", "anomaly", "void"
_SHOWN = 5


@dataclass
class WorkloadResult:
    """
    One workload in one round: its figures and its verdict.
    """

    workload: str
    shape: str
    guarantee: str
    driver: str
    records: int = 0
    rows: int = 0
    repeats: int = 0
    failures: int = 0
    drained_seconds: float = 0.0
    anomalies: dict[str, list[str]] = field(default_factory=dict)
    #: The reasons why the round proves nothing about the workload.
    void: str | None = None

    @property
    def outcome(self) -> str:
        """
        CLEAN, ANOMALY or VOID.
        """
        if self.anomalies:
            return ANOMALY
        return CLEAN if self.void is None else VOID

    def add(self, verdict: Verdict) -> None:
        """
        Add the findings of the checker.
        """
        self.records += verdict.records
        self.repeats += verdict.repeats
        for kind, items in verdict.anomalies.items():
            examples = [str(item) for item in items[:_SHOWN]]
            self.anomalies.setdefault(kind, []).extend([f"{len(items)} in all", *examples])

    def anomaly(self, kind: str, text: str) -> None:
        """
        Add an anomaly that is not a row.
        """
        self.anomalies.setdefault(kind, []).append(text)


def check_output(
    truth: Truth,
    rows: Sequence[OutputRow],
    *,
    exactly_once: bool,
    is_ordered: bool,
    is_finished: bool,
) -> Verdict:
    """
    Compare the committed rows of an output topic with the truth.

    Unless the write was ``exactly_once``, duplicates are allowed, but each must be explained.
    """
    verdict = Verdict()
    read_rows = [output_row.row for output_row in rows]
    batches: Sequence[Sequence[ReadRow]] = (
        [[row] for row in read_rows] if is_ordered else [read_rows]
    )
    unfinished = () if is_finished else truth.keys()
    check_source(verdict, truth, batches, exactly_once=exactly_once, unfinished=unfinished)
    if not exactly_once:
        verdict.add("unexplained duplicate", unexplained(rows))
    return verdict


def unexplained(rows: Iterable[OutputRow]) -> list[tuple[str, int, int]]:
    """
    Return the rows with two copies from one task attempt, or from two micro-batches.

    A retried task, a restarted query or a replay writes a row again: always in another attempt of
    the same micro-batch.
    """
    copies: defaultdict[tuple[str, int, int], list[OutputRow]] = defaultdict(list)
    for output_row in rows:
        copies[output_row.row.topic, output_row.row.partition, output_row.row.offset].append(
            output_row
        )
    return [
        position
        for position, rows_there in copies.items()
        if len({output_row.attempt for output_row in rows_there}) < len(rows_there)
        or len({output_row.batch for output_row in rows_there}) > 1
    ]


def check_kept(
    truth: Truth, batches: Sequence[Sequence[ReadRow]], *, is_ordered: bool, is_finished: bool
) -> Verdict:
    """
    Compare the micro-batches that a sink has kept, each once, with the truth.
    """
    verdict = Verdict()
    checked_batches = batches if is_ordered else [[row for rows in batches for row in rows]]
    check_source(verdict, truth, checked_batches, unfinished=() if is_finished else truth.keys())
    return verdict


# --- Progress -------------------------------------------------------------------------------------

Offsets = dict[int, int]


@dataclass
class ProgressWatch:
    """
    Samples of recorded progress, each with Spark's committed offsets, which are read afterwards.
    """

    recorded: Offsets = field(default_factory=dict)
    anomalies: dict[str, list[str]] = field(default_factory=dict)
    samples: int = 0

    def add(self, recorded: Offsets, committed: Mapping[int, int]) -> None:
        """
        Add a sample: recorded offsets must never move back, or be ahead of Spark's committed ones.
        """
        self.samples += 1
        for partition, offset in recorded.items():
            before = self.recorded.get(partition, 0)
            if offset < before:
                self._add("went back", f"partition {partition} from {before} to {offset}")
            if offset > committed.get(partition, 0):
                ahead = f"partition {partition}: {offset}, committed {committed.get(partition, 0)}"
                self._add("ahead", ahead)
        self.recorded = {**self.recorded, **recorded}

    def _add(self, kind: str, text: str) -> None:
        self.anomalies.setdefault(f"progress {kind}", []).append(text)


# --- Resources ------------------------------------------------------------------------------------

Sample = dict[str, int]

#: The growth over a run that does not count as a leak, since pools and caches fill up.
NORMAL_GROWTH: Sample = {
    "files": 20,
    "threads": 20,
    "megabytes": 60,
    "jvm_files": 60,
    "jvm_threads": 60,
    "jvm_heap_megabytes": 80,
}
#: Spark 4.2 itself leaks at each start of a query: 3 files and a thread of the JVM for each Python
#: source, a file and a thread of both processes for foreachBatch. That was measured with a source
#: that does nothing; a query here has up to two sources.
GROWTH_PER_START: Sample = {
    "files": 1,
    "threads": 1,
    "megabytes": 1,
    "jvm_files": 7,
    "jvm_threads": 3,
    "jvm_heap_megabytes": 1,
}
#: Fewer samples show no trend.
ENOUGH_SAMPLES = 3


def check_footprint(samples: Sequence[Sample], starts: Sequence[int]) -> dict[str, Any]:
    """
    Return the resources that have grown beyond their limits, from the first sample to the last.

    ``starts`` are the numbers of query starts up to each sample.
    """
    if len(samples) < ENOUGH_SAMPLES:
        return {}
    grown = {}
    for name, normal in NORMAL_GROWTH.items():
        growth = samples[-1][name] - samples[0][name]
        limit = normal + GROWTH_PER_START[name] * (starts[-1] - starts[0])
        if growth > limit:
            grown[name] = f"grew by {growth}, limit {limit}: {[sample[name] for sample in samples]}"
    return grown
