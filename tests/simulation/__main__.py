"""
Runs histories: ``python -m tests.simulation WORKLOAD --seeds 0-99``.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.versions import commit
from tests.simulation.planted import PLANTED, planted
from tests.simulation.results import Run, Search, record_run, record_search
from tests.simulation.workloads.definitions import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALL = "all"
_CHUNK = 20
_HASHES = "PYTHONHASHSEED"
# A history leaves few reference cycles. With rarer collections it takes a tenth less time
# (measured).
_GC_THRESHOLDS = (20_000, 20, 20)


class Outcome(NamedTuple):
    """
    The result of one seed; ``failure`` is empty if nothing is wrong.
    """

    seed: int
    records: int
    faults: int
    failure: str
    trace: tuple[str, ...] = ()


def run_seed(workload: str, seed: int, *, is_traced: bool = False) -> Outcome:
    """
    Run one history.
    """
    try:
        verdict, history = WORKLOADS[workload](seed, is_traced=is_traced)
    except Exception:  # noqa: BLE001 (the other seeds go on)
        return Outcome(seed, 0, 0, traceback.format_exc())
    failure = "" if verdict.is_clean else str(verdict)
    return Outcome(seed, verdict.records, verdict.faults, failure, tuple(history.world.lines))


def _run_seeds(
    workload: str, seeds: range, fault: str | None, *, is_traced: bool
) -> Iterator[Outcome]:
    with planted(fault):
        for seed in seeds:
            yield run_seed(workload, seed, is_traced=is_traced)


def _run_chunk(workload: str, seeds: range, fault: str | None, *, is_traced: bool) -> list[Outcome]:
    """
    Run some seeds in a process of their own, which shares no planted fault with its parent.
    """
    logging.disable()
    gc.set_threshold(*_GC_THRESHOLDS)
    return list(_run_seeds(workload, seeds, fault, is_traced=is_traced))


def main() -> int:
    """
    Print one line per failing seed and a summary per workload; return 1 if any seed failed.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("workload", choices=[*sorted(WORKLOADS), _ALL])
    parser.add_argument("--seeds", default="0-99", help="a seed, or first-last")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes to use")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="put a known fault back")
    parser.add_argument(
        "--stop",
        action="store_true",
        help="stop at the first failure, with --planted at the first that shows the fault",
    )
    parser.add_argument("--trace", action="store_true", help="print the history of each seed")
    parser.add_argument("--results", type=Path, help="a file to which the figures are added")
    arguments = parser.parse_args()
    if arguments.results and bool(arguments.planted) != arguments.stop:
        parser.error(
            "--results is for whole runs of the connector as it is, or for --planted --stop"
        )
    _fix_hashes()
    logging.disable()
    gc.set_threshold(*_GC_THRESHOLDS)
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    workloads = sorted(WORKLOADS) if arguments.workload == _ALL else [arguments.workload]
    # The commit is read first: the working tree may change during a long run, but the loaded
    # modules do not.
    head, failed = commit(), 0
    for workload in workloads:
        started_at, outcomes = time.monotonic(), []
        for outcome in _outcomes(workload, seeds, arguments):
            outcomes.append(outcome)
            for line in outcome.trace:
                _write(line)
            if outcome.failure:
                _write(f"{workload} seed {outcome.seed}: {outcome.failure}")
                if arguments.stop and _is_looked_for(outcome, arguments.planted):
                    break
        failed += _summarize(workload, outcomes, time.monotonic() - started_at)
        if arguments.results and arguments.planted:
            search = _search(arguments.planted, workload, outcomes, head)
            record_search(arguments.results, search)
        elif arguments.results:
            record_run(arguments.results, _run(workload, outcomes, head))
    return bool(failed)


def _fix_hashes() -> None:
    """
    Start the program again with a fixed hash seed, so that sets have the same order in each
    process.
    """
    if os.environ.get(_HASHES) != "0":
        os.environ[_HASHES] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])  # noqa: S606


def _outcomes(workload: str, seeds: range, arguments: argparse.Namespace) -> Iterator[Outcome]:
    fault, is_traced = arguments.planted, arguments.trace
    if arguments.jobs == 1:
        yield from _run_seeds(workload, seeds, fault, is_traced=is_traced)
        return
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = [
            pool.submit(_run_chunk, workload, chunk, fault, is_traced=is_traced) for chunk in chunks
        ]
        try:
            for future in futures:
                yield from future.result()
        finally:
            # After --stop the remaining seeds need not run.
            pool.shutdown(wait=True, cancel_futures=True)


def _summarize(workload: str, outcomes: list[Outcome], seconds: float) -> int:
    failed = [outcome.seed for outcome in outcomes if outcome.failure]
    records, faults = (sum(o.records for o in outcomes), sum(o.faults for o in outcomes))
    _write(
        f"{workload}: {len(outcomes)} seeds, {records} records, {faults} faults, "
        f"{len(failed)} failed {failed[:20]}, {seconds:.0f} s"
    )
    return len(failed)


def _run(workload: str, outcomes: list[Outcome], head: str) -> Run:
    return Run(
        workload=workload,
        first=outcomes[0].seed,
        last=outcomes[-1].seed,
        records=sum(outcome.records for outcome in outcomes),
        faults=sum(outcome.faults for outcome in outcomes),
        failed=tuple(outcome.seed for outcome in outcomes if outcome.failure),
        commit=head,
    )


def _search(fault: str, workload: str, outcomes: list[Outcome], head: str) -> Search:
    last = outcomes[-1]
    found = last.seed if _is_looked_for(last, fault) else None
    return Search(fault, workload, outcomes[0].seed, last.seed, found, head)


def _is_looked_for(outcome: Outcome, fault: str | None) -> bool:
    """
    Return whether a history fails; if a fault is planted, only its own anomaly counts.
    """
    return bool(outcome.failure) and (fault is None or PLANTED[fault].explains(outcome.failure))


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
