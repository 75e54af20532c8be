"""
Writes docs/proof.md from the recorded results, after adding those in ``SOAK.json``:
``python -m tests.soak.report SOAK.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.results import read_runs, read_searches, summarize
from tests.soak.charts import RESOURCES, TIMELINE, draw
from tests.soak.rounds import DRAIN_SECONDS
from tests.soak.verdicts import ANOMALY, CLEAN, ENOUGH_SAMPLES, VOID, check_footprint
from tests.soak.workloads import MIN_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.results import Run, Search, Summary

    #: The results of one run of ``make soak``.
    SoakRun = dict[str, Any]

ROOT = Path(__file__).parents[2]
PAGE, PICTURES = ROOT / "docs" / "proof.md", ROOT / "docs" / "proof"
RESULTS = Path(__file__).with_name("results")
#: The number of rounds of a full soak.
FULL_ROUNDS = 30
SOAK, SIMULATION = RESULTS / "soak.json", RESULTS / "simulation.json"
PLANTED = RESULTS / "planted.json"

_INTRODUCTION = """\
# Proof

This page is written by `make proof` from recorded results of the soak and of the simulation.

## The soak

`make soak` runs all workloads at once, on three brokers behind proxies, a ZooKeeper, and two
drivers with two executors each (`local-cluster[2,2,1024]`), while it injects faults. The seed
determines the shape of each query, the driver that runs it, and the faults of each round. In the
last quarter of a round no new fault begins. Then the remaining faults are healed, the producers
stop, and every query has {drain} s to write the remaining records.
"""

_WORKLOADS = """\
### Verdicts

A verdict is *clean* if no record was lost or duplicated, no aborted record was read, and no query
hung. In `at-least-once` a row may be repeated, but only by another task attempt of the same
micro-batch. A verdict is *void* if the workload moved fewer than {min_rows} records in the round,
or if the soak itself failed.
"""

_CHANGING_LOG = """\
In `changing-log` the topic is deleted and recreated, gets more partitions, or loses its last
records in an unclean leader election, and the query runs with `failOnDataLoss=false`. Records that
were written to a replica which then lost the election may be missing, but no others.
"""

_NOT_PROMISED = """\
## What is not promised

- The soak runs on one machine. Proxies simulate network faults, and disks do not fail: a *full
  disk* is a small file system in memory, and a *slow broker* is a process that is stopped nine
  tenths of the time.
- A *clock jump* shifts `time.time()` in the Python processes of drivers and executors. The clocks
  of the JVMs do not change.
- At-least-once writes may duplicate records. Exactly-once holds for readers with
  `isolation.level=read_committed`.
- Records that the brokers lose are lost: with fewer than two in-sync replicas, or after an unclean
  election.
- TLS, SASL, quotas, tiered storage and the `librdkafka` engine are not part of the soak; the
  [test suite](guarantees.md) covers them.
- Other query shapes, other sinks and longer runs are not covered. `pykafka verify` tests [your own
  cluster](verify.md).
"""


def render(
    soak: Sequence[SoakRun], simulation: Sequence[Run], searches: Sequence[Search] = ()
) -> str:
    """
    Return the page's Markdown, from the soak's runs and from the runs and searches that
    ``python -m tests.simulation --results`` recorded.
    """
    parts = [
        _INTRODUCTION.format(drain=f"{DRAIN_SECONDS:g}"),
        _table(("", ""), _soak_rows(soak)),
        f"![Throughput, lag and faults of all runs](proof/{TIMELINE})\n",
        "Throughput counts each row of each micro-batch; lag is the sum over all queries.\n",
        _WORKLOADS.format(min_rows=MIN_ROWS),
        _table(
            ("Workload", "Rounds", "Clean", "Anomaly", "Void", "Records", "Repeats", "Restarts"),
            _workload_rows(soak),
        ),
        _CHANGING_LOG,
        *(line for run in soak for line in _anomalies(run)),
        "### Query shapes\n",
        _table(("Workload", "Shapes, and in how many rounds"), _shape_rows(soak)),
        "### Faults\n",
        _table(("Fault", "Times"), _fault_rows(soak)),
        *_impossible(soak),
        "### Resources\n",
        *_resources(soak),
        f"![Threads, files and memory of the driver](proof/{RESOURCES})\n",
        "## The simulation\n",
        *_simulation(simulation),
        *_planted(searches),
        _NOT_PROMISED,
    ]
    return "\n".join(parts)


def read_soak(path: Path) -> list[SoakRun]:
    """
    Return the recorded runs of the soak; an empty list if the file does not exist.
    """
    runs: list[SoakRun] = json.loads(path.read_text()) if path.exists() else []
    return runs


def add_soak(recorded: Iterable[SoakRun], new: SoakRun) -> list[SoakRun]:
    """
    Return the runs and the new run in the order of their start; the new run replaces an earlier
    recording of itself.
    """
    others = [run for run in recorded if run["start"] != new["start"]]
    return sorted([*others, new], key=lambda run: float(run["start"]))


def write(soak: Sequence[SoakRun], simulation: Sequence[Run], searches: Sequence[Search]) -> None:
    """
    Write the page and its pictures.
    """
    draw(soak, PICTURES)
    PAGE.write_text(render(soak, simulation, searches))


# --- Parts ----------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def _rounds(soak: Sequence[SoakRun]) -> list[dict[str, Any]]:
    return [round_document for run in soak for round_document in run["rounds"]]


#: What the page calls each outcome, after its number.
_OUTCOMES = {CLEAN: "clean", ANOMALY: "anomalies", VOID: "void"}


def _soak_rows(soak: Sequence[SoakRun]) -> Iterator[tuple[str, object]]:
    for run in soak:
        yield "Run", _run_text(run)
    environments = [_versions(run) for run in soak], [_machine(run) for run in soak]
    for name, texts in zip(("Versions", "Machine"), environments, strict=True):
        yield name, "; ".join(dict.fromkeys(texts))
    rounds = _rounds(soak)
    broken = sum(len(run["broken"]) for run in soak)
    yield "Rounds", f"{len(rounds)} complete, {broken} incomplete"
    if len(rounds) < FULL_ROUNDS:
        yield "", f"**This is less than a full soak**, which has {FULL_ROUNDS} rounds"
    loads = [round_document["load"] for round_document in rounds if "load" in round_document]
    if loads:
        yield "Load", f"averages from {min(loads):.0f} to {max(loads):.0f}, including other work"
    yield (
        "Written",
        f"{sum(round_document['written'] for round_document in rounds):,} acknowledged records",
    )
    workloads = [w for round_document in rounds for w in round_document["workloads"]]
    yield "Checked", f"{sum(w['records'] for w in workloads):,} records, once for each workload"
    yield "Micro-batches", f"{sum(round_document['batches'] for round_document in rounds):,}"
    yield "Faults", sum(len(round_document["faults"]) for round_document in rounds)
    outcomes = Counter(w["outcome"] for w in workloads)
    yield "Verdicts", ", ".join(f"{outcomes[name]} {text}" for name, text in _OUTCOMES.items())


def _run_text(run: SoakRun) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(run["start"]))
    minutes = (run["end"] - run["start"]) / 60
    count = len(run["rounds"])
    rounds = f"{count} round{'s' * (count != 1)} of {run['round_seconds']:g} s (faults, then quiet)"
    commit = run["environment"]["versions"]["commit"]
    return f"{day}, {minutes:.0f} minutes, seed {run['seed']}, commit {commit}: {rounds}"


def _versions(run: SoakRun) -> str:
    versions = run["environment"]["versions"]
    names = ("pykafka", "spark", "kafka", "confluent-kafka", "pyarrow", "python", "java")
    return ", ".join(f"{name} {versions[name]}" for name in names)


def _machine(run: SoakRun) -> str:
    machine = run["environment"]["machine"]
    gigabytes = machine["memory_bytes"] / 2**30
    return f"{machine['cores']} cores, {gigabytes:.0f} GB, {machine['cpu']}"


def _by_workload(soak: Sequence[SoakRun]) -> dict[str, list[dict[str, Any]]]:
    results: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for round_document in _rounds(soak):
        for workload in round_document["workloads"]:
            results[workload["workload"]].append(workload)
    return dict(results)


def _workload_rows(soak: Sequence[SoakRun]) -> Iterator[tuple[object, ...]]:
    for name, results in _by_workload(soak).items():
        outcomes = Counter(result["outcome"] for result in results)
        totals = [sum(result[key] for result in results) for key in ("records", "repeats")]
        restarts = sum(result["failures"] for result in results)
        counts = [outcomes[outcome] for outcome in (CLEAN, ANOMALY, VOID)]
        yield f"`{name}`", len(results), *counts, *(f"{total:,}" for total in totals), restarts


def _anomalies(run: SoakRun) -> Iterator[str]:
    for note in run.get("notes", ()):
        yield f"{note}\n"
    for round_document in run["rounds"]:
        number = f"Seed {run['seed']}, round {round_document['number']}"
        for workload in round_document["workloads"]:
            for kind, texts in workload["anomalies"].items():
                where = f"{number}, `{workload['workload']}` ({workload['shape']})"
                yield f"- {where}: **{kind}**: {_inline(texts[0])}\n"
        for kind, texts in round_document["brokers"].items():
            yield f"- {number}, the brokers: **{kind}**: {_inline(texts[0])}\n"
        for text in round_document["trouble"]:
            yield f"- {number}, the soak itself: {_inline(text)}\n"
    for text in run["broken"]:
        yield f"- Seed {run['seed']}, the soak itself: {_inline(text)}\n"


def _inline(text: str) -> str:
    return "`" + " ".join(text.replace("`", "'").split())[:300] + "`"


def _shape_rows(soak: Sequence[SoakRun]) -> Iterator[tuple[str, str]]:
    for name, results in _by_workload(soak).items():
        shapes = Counter(result["shape"] for result in results)
        yield f"`{name}`", ", ".join(f"{shape} {count}" for shape, count in shapes.most_common())


def _fault_rows(soak: Sequence[SoakRun]) -> Iterator[tuple[str, int]]:
    kinds = Counter(
        fault["kind"] for round_document in _rounds(soak) for fault in round_document["faults"]
    )
    yield from sorted(kinds.items())


def _impossible(soak: Sequence[SoakRun]) -> Iterator[str]:
    kinds = dict.fromkeys(kind for run in soak for kind in run["impossible_faults"])
    if kinds:
        yield f"Faults that were not possible on that machine: {', '.join(kinds)}.\n"


def _resources(soak: Sequence[SoakRun]) -> Iterator[str]:
    counts = [len(run["footprints"]) for run in soak]
    yield (
        "One driver is never killed. It is measured between rounds, after a garbage collection in "
        "its Python process and its JVM. Measurements in each run: "
        f"{', '.join(map(str, counts))}.\n"
    )
    judged = [run for run in soak if len(run["footprints"]) >= ENOUGH_SAMPLES]
    if not judged:
        yield "These are too few for a verdict.\n"
        return
    grown = [
        f"{name} {text}"
        for run in judged
        for name, text in check_footprint(run["footprints"], run["query_starts"]).items()
    ]
    if grown:
        yield f"These have grown: {'; '.join(grown)}.\n"
        return
    yield (
        "Nothing grew beyond what Spark 4.2 itself leaks at each start of a query. In the JVM "
        "these are three files and a thread for each Python source, even for one that does "
        "nothing; for `foreachBatch`, a file and a thread in each of the two processes.\n"
    )


def _simulation(runs: Sequence[Run]) -> Iterator[str]:
    if not runs:
        yield "No results of `make simulate` are recorded yet. [What it is](simulation.md).\n"
        return
    summaries = summarize(runs)
    names = list(dict.fromkeys(name for summary in summaries for name in summary.commits))
    commits = f"commit{'s' if len(names) > 1 else ''} {', '.join(names)}"
    yield f"Histories that [the simulation](simulation.md) checked, at {commits}.\n"
    head = ("Workload", "Histories", "Seeds", "Records", "Faults", "Failed")
    yield _table(head, (_simulation_row(summary) for summary in summaries))


def _simulation_row(summary: Summary) -> tuple[object, ...]:
    figures = (summary.records, summary.faults, len(summary.failed))
    texts = (f"{figure:,}" for figure in figures)
    return f"`{summary.workload}`", f"{summary.seeds:,}", ", ".join(summary.ranges), *texts


def _planted(searches: Sequence[Search]) -> Iterator[str]:
    if not searches:
        return
    yield "### Planted faults\n"
    yield (
        "The simulation must find each known fault when it is [put back](simulation.md"
        "#planted-faults). These are the first seeds that showed it, of those that were run.\n"
    )
    yield _table(
        ("Planted fault", "Workload", "Seeds", "First seed that shows it", "Commit"),
        (
            (f"`{s.fault}`", f"`{s.workload}`", f"{s.first}-{s.last}", _found(s), s.commit)
            for s in searches
        ),
    )


def _found(search: Search) -> str:
    return "none" if search.found is None else str(search.found)


def main() -> None:
    """
    Record the results of the named file, if there is one, and write the page from all results.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.soak.report", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, help="a new file of results")
    new = parser.parse_args().results
    soak = read_soak(SOAK)
    if new is not None:
        soak = add_soak(soak, json.loads(new.read_text()))
        SOAK.write_text("[\n" + ",\n".join(map(json.dumps, soak)) + "\n]\n")
    write(soak, read_runs(SIMULATION), read_searches(PLANTED))


if __name__ == "__main__":
    main()
