"""
Recorded results of simulated histories: runs and searches are added and replaced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.simulation.results import (
    OverlappingRunError,
    Run,
    Search,
    add_run,
    read_runs,
    read_searches,
    record_run,
    record_search,
    summarize,
)

if TYPE_CHECKING:
    from pathlib import Path

_RUN = Run("source", 0, 249, records=1_000, faults=40, failed=(), commit="a")


def test_a_run_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    """
    A file keeps the runs of all workloads, in the order of their seeds.
    """
    path = tmp_path / "simulation.json"
    later, other = (
        replace(_RUN, first=250, last=499, failed=(300,)),
        replace(_RUN, workload="batch"),
    )

    for run in (later, _RUN, other):
        record_run(path, run)

    assert read_runs(path) == [other, _RUN, later]


def test_a_file_that_does_not_exist_has_no_runs(tmp_path: Path) -> None:
    """
    A file that does not exist yet has no runs.
    """
    assert read_runs(tmp_path / "simulation.json") == []


def test_a_run_with_the_same_seeds_replaces_the_recorded_one() -> None:
    """
    Seeds count once, with the figures of their last run.
    """
    repeated = replace(_RUN, last=499, records=5, commit="b")

    assert add_run([_RUN, replace(_RUN, workload="batch")], repeated) == [
        replace(_RUN, workload="batch"),
        repeated,
    ]


def test_a_search_replaces_an_earlier_one_for_the_same_fault(tmp_path: Path) -> None:
    """
    A file keeps the last search for each planted fault, in the order of their names.
    """
    path = tmp_path / "planted.json"
    search = Search("late-fence", "exactly-once", 0, 149, 149, "a")
    other, repeated = replace(search, fault="commit-is-late"), replace(search, found=None)

    assert read_searches(path) == []
    for each in (search, other, repeated):
        record_search(path, each)

    assert read_searches(path) == [other, repeated]


@pytest.mark.parametrize(("first", "last"), [(100, 200), (200, 300), (0, 248), (249, 249)])
def test_a_part_of_a_recorded_run_is_refused(first: int, last: int) -> None:
    """
    A run's figures are sums: a part of its seeds cannot be replaced.
    """
    with pytest.raises(OverlappingRunError, match=r"run 0-249 again"):
        add_run([_RUN], replace(_RUN, first=first, last=last))


def test_runs_of_a_workload_are_one_row() -> None:
    """
    A row names consecutive seeds as one range, every failed seed and every commit.
    """
    runs = [
        _RUN,
        replace(_RUN, first=250, last=499, failed=(300, 301), commit="b"),
        replace(_RUN, first=1_000, last=1_009),
    ]

    (row,) = summarize(runs)

    assert (row.seeds, row.records, row.faults) == (510, 3_000, 120)
    assert row.ranges == ("0-499", "1000-1009")
    assert row.failed == (300, 301)
    assert row.commits == ("a", "b")
