"""
The report of the soak: a page and pictures from recorded results.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.results import Run, Search, read_runs, read_searches
from tests.soak.charts import RESOURCES, TIMELINE, draw
from tests.soak.report import (
    FULL_ROUNDS,
    PAGE,
    PLANTED,
    SIMULATION,
    SOAK,
    add_soak,
    read_soak,
    render,
)
from tests.soak.verdicts import NORMAL_GROWTH

if TYPE_CHECKING:
    from pathlib import Path


def workload(outcome: str, **fields: Any) -> dict[str, Any]:
    return {
        "workload": "exactly-once",
        "shape": "join",
        "outcome": outcome,
        "records": 1_000,
        "repeats": 0,
        "failures": 2,
        "anomalies": {},
        **fields,
    }


@pytest.fixture
def soak() -> dict[str, Any]:
    """
    Return the results of a round with a clean verdict and one with a loss.
    """
    samples = [{"at": 10.0 + number, "processed": 100 * number, "lag": 7} for number in range(3)]
    fault = {"kind": "broker killed", "target": "broker 2", "start": 11.0, "end": 12.0}
    clean = {
        "number": 0,
        "start": 10.0,
        "written": 1_200,
        "batches": 40,
        "load": 3.0,
        "faults": [fault],
        "samples": samples,
        "workloads": [workload("clean")],
        "brokers": {},
        "trouble": [],
    }
    loss = {"lost": ["1 in all", "('a', 0, 7)"]}
    versions = (
        "pykafka",
        "commit",
        "spark",
        "kafka",
        "confluent-kafka",
        "pyarrow",
        "python",
        "java",
    )
    return {
        "seed": 7,
        "round_seconds": 120,
        "start": 0.0,
        "end": 600.0,
        "environment": {
            "versions": dict.fromkeys(versions, "1"),
            "machine": {"cores": 2, "memory_bytes": 2**34, "cpu": "a CPU"},
        },
        "impossible_faults": ["disk full"],
        "rounds": [
            clean,
            {**clean, "number": 1, "workloads": [workload("anomaly", anomalies=loss)]},
        ],
        "broken": [],
        "footprints": [dict.fromkeys(NORMAL_GROWTH, 10)] * 3,
        "query_starts": [0, 8, 16],
    }


def test_page_shows_verdicts_and_faults(soak: dict[str, Any]) -> None:
    """
    The page shows the verdicts, the faults, and the faults that were not possible.
    """
    page = render([soak], [])

    assert "| `exactly-once` | 2 | 1 | 1 | 0 | 2,000 | 0 | 4 |" in page
    assert "| broker killed | 2 |" in page
    assert "Seed 7, round 1, `exactly-once` (join): **lost**: `1 in all`" in page
    assert "Faults that were not possible on that machine: disk full." in page
    assert "No results of `make simulate`" in page
    assert "Nothing grew" in page
    assert "**This is less than a full soak**" in page


def test_load_is_shown_only_where_it_was_recorded(soak: dict[str, Any]) -> None:
    """
    Results without a load average get no row for it.
    """
    assert "| Load | averages from 3 to 3," in render([soak], [])
    for round_document in soak["rounds"]:
        round_document.pop("load", [])
    assert "| Load |" not in render([soak], [])


def test_notes_on_a_run_are_shown(soak: dict[str, Any]) -> None:
    """
    A note on a recorded run is shown on the page.
    """
    assert "Other work ran there, too." in render(
        [{**soak, "notes": ["Other work ran there, too."]}], []
    )


def test_few_measurements_are_no_verdict(soak: dict[str, Any]) -> None:
    """
    Two measurements show no trend, so nothing is claimed.
    """
    page = render([{**soak, "footprints": [dict.fromkeys(NORMAL_GROWTH, 10)] * 2}], [])

    assert "Measurements in each run: 2." in page
    assert "These are too few for a verdict." in page


def test_page_shows_a_leak(soak: dict[str, Any]) -> None:
    """
    Resources that grew are named.
    """
    grown = [{**dict.fromkeys(NORMAL_GROWTH, 10), "threads": 10 + 33 * index} for index in range(4)]
    page = render([{**soak, "footprints": grown, "query_starts": [0, 8, 16, 24]}], [])

    assert "These have grown: threads grew by 99, limit 44: [10, 43, 76, 109]." in page


def test_page_shows_the_simulation(soak: dict[str, Any]) -> None:
    """
    The page has a row for each workload of the simulation, with the seeds of all its runs, and
    names the commits of the runs.
    """
    runs = [
        Run("source", 0, 9_999, 123_000, 90, (), "abc"),
        Run("source", 20_000, 20_249, 456, 9, (20_007,), "def"),
    ]

    page = render([soak], runs)

    assert "at commits abc, def." in page
    assert "| `source` | 10,250 | 0-9999, 20000-20249 | 123,456 | 99 | 1 |" in page


def test_page_shows_the_planted_faults(soak: dict[str, Any]) -> None:
    """
    Each search for a planted fault is a row, even if it found nothing.
    """
    searches = [
        Search("restart-does-not-wait-for-markers", "exactly-once", 0, 8, 8, "abc"),
        Search("memory-is-reused", "source", 0, 1_999, None, "abc"),
    ]

    page = render([soak], [], searches)

    assert "| `restart-does-not-wait-for-markers` | `exactly-once` | 0-8 | 8 | abc |" in page
    assert "| `memory-is-reused` | `source` | 0-1999 | none | abc |" in page


def test_runs_add_up_to_a_full_soak(soak: dict[str, Any]) -> None:
    """
    The rounds of several runs are counted together; a run is recorded once.
    """
    later = {**soak, "seed": 8, "start": 700.0, "rounds": soak["rounds"][:1] * (FULL_ROUNDS - 2)}

    runs = add_soak(add_soak([later], soak), later)
    page = render(runs, [])

    assert [run["seed"] for run in runs] == [7, 8]
    assert "This is less than a full soak" not in page
    assert f"| Rounds | {FULL_ROUNDS} complete, 0 incomplete |" in page
    assert "seed 8, commit 1: 28 rounds of 120 s" in page


def test_pictures_are_the_same_for_the_same_results(soak: dict[str, Any], tmp_path: Path) -> None:
    """
    The SVG files contain no date and no random name.
    """
    first = [path.read_text() for path in draw([soak], tmp_path / "a")]
    second = [path.read_text() for path in draw([deepcopy(soak)], tmp_path / "b")]

    assert first == second
    assert [path.name for path in sorted((tmp_path / "a").iterdir())] == [RESOURCES, TIMELINE]


def test_page_in_the_tree_is_that_of_the_recorded_results() -> None:
    """
    docs/proof.md equals the report of the results in the tree.
    """
    assert PAGE.read_text() == render(
        read_soak(SOAK), read_runs(SIMULATION), read_searches(PLANTED)
    )
