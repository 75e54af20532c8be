"""
Recorded results of simulated histories: runs of consecutive seeds, a summary of each workload, and
searches for planted faults.
"""

from __future__ import annotations

import fcntl
import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """
    The seeds from ``first`` to ``last``, inclusive, of one workload at one commit.

    ``records`` and ``faults`` are totals; ``failed`` has the seeds whose histories failed.
    """

    workload: str
    first: int
    last: int
    records: int
    faults: int
    failed: tuple[int, ...]
    commit: str

    @property
    def seeds(self) -> int:
        """
        How many seeds ran.
        """
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Summary:
    """
    All recorded runs of a workload, for one row of the table in docs/proof.md.
    """

    workload: str
    seeds: int
    #: Consecutive seeds, as `0-999`.
    ranges: tuple[str, ...]
    records: int
    faults: int
    failed: tuple[int, ...]
    commits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """
    The seeds from ``first`` to ``last`` of one workload, run with a planted fault at one commit.

    ``found`` is the first seed that shows the fault, None if no seed does.
    """

    fault: str
    workload: str
    first: int
    last: int
    found: int | None
    commit: str


class OverlappingRunError(ValueError):
    """
    A new run has only some of the seeds of a recorded run.
    """


def add_run(recorded: Iterable[Run], new: Run) -> list[Run]:
    """
    Return the recorded runs and a new run, which replaces the runs whose seeds it repeats.

    Raises:
    ------
    OverlappingRunError
        The new run has only some of the seeds of a recorded run, whose figures cannot be divided.

    """
    remaining = []
    for run in recorded:
        if run.workload != new.workload or run.last < new.first or new.last < run.first:
            remaining.append(run)
        elif run.first < new.first or new.last < run.last:
            msg = (
                f"{run.workload}: seeds {run.first}-{run.last} are recorded as one run, and "
                f"{new.first}-{new.last} are only a part of them; run {run.first}-{run.last} again"
            )
            raise OverlappingRunError(msg)
    return sorted([*remaining, new], key=lambda run: (run.workload, run.first))


def summarize(runs: Sequence[Run]) -> list[Summary]:
    """
    Return one summary per workload, sorted by workload.
    """
    return [
        _summary(workload, [run for run in runs if run.workload == workload])
        for workload in sorted({run.workload for run in runs})
    ]


def _summary(workload: str, runs: Sequence[Run]) -> Summary:
    return Summary(
        workload=workload,
        seeds=sum(run.seeds for run in runs),
        ranges=_ranges(runs),
        records=sum(run.records for run in runs),
        faults=sum(run.faults for run in runs),
        failed=tuple(seed for run in runs for seed in run.failed),
        commits=tuple(dict.fromkeys(run.commit for run in runs)),
    )


def _ranges(runs: Sequence[Run]) -> tuple[str, ...]:
    runs = sorted(runs, key=lambda run: run.first)
    gaps = [
        index
        for index, (run, following) in enumerate(pairwise(runs), 1)
        if run.last + 1 < following.first
    ]
    bounds = pairwise([0, *gaps, len(runs)])
    return tuple(f"{runs[start].first}-{runs[end - 1].last}" for start, end in bounds)


# --- The file -------------------------------------------------------------------------------------


def read_runs(path: Path) -> list[Run]:
    """
    Return the runs of a file; an empty list if the file does not exist.
    """
    return _runs(_parse(path.read_text())) if path.exists() else []


def record_run(path: Path, run: Run) -> None:
    """
    Add a run to a file that several processes may write to.
    """
    _update(path, lambda documents: map(asdict, add_run(_runs(documents), run)))


def read_searches(path: Path) -> list[Search]:
    """
    Return the searches of a file; an empty list if the file does not exist.
    """
    return _searches(_parse(path.read_text())) if path.exists() else []


def record_search(path: Path, search: Search) -> None:
    """
    Add a search to a file that several processes may write to; it replaces an earlier search for
    the same fault.
    """

    def add(documents: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        others = [s for s in _searches(documents) if s.fault != search.fault]
        return map(asdict, sorted([*others, search], key=lambda s: s.fault))

    _update(path, add)


def _update(path: Path, change: Callable[[list[dict[str, Any]]], Iterable[dict[str, Any]]]) -> None:
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        documents = list(change(_parse(file.read())))
        file.truncate(0)
        file.write(json.dumps(documents, indent=1) + "\n")


def _parse(text: str) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = json.loads(text) if text else []
    return documents


def _runs(documents: Iterable[dict[str, Any]]) -> list[Run]:
    return [Run(**{**document, "failed": tuple(document["failed"])}) for document in documents]


def _searches(documents: Iterable[dict[str, Any]]) -> list[Search]:
    return [Search(**document) for document in documents]
