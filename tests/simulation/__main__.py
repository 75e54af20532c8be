"""
Runs histories: ``python -m tests.simulation WORKLOAD --seeds 0-99``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.simulation.planted import PLANTED, planted
from tests.simulation.workloads.definitions import WORKLOADS


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """
    Print one line per failing seed and a summary; return 1 if any failed.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--seeds", default="0-99", help="a seed, or first-last")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="put a known fault back")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--trace", action="store_true", help="print the history of each seed")
    arguments = parser.parse_args()
    logging.disable()
    first, _, last = arguments.seeds.partition("-")
    began, failed, records, faults, seeds = time.monotonic(), [], 0, 0, 0
    with planted(arguments.planted):
        for seed in range(int(first), int(last or first) + 1):
            try:
                verdict, history = WORKLOADS[arguments.workload](seed, is_traced=arguments.trace)
            except Exception:  # noqa: BLE001 (the other seeds go on)
                traceback.print_exc()
                failed.append(seed)
                if arguments.stop:
                    break
                continue
            seeds += 1
            records += verdict.records
            faults += verdict.faults
            if arguments.trace:
                _write("\n".join(history.world.lines))
            if not verdict.is_clean:
                failed.append(seed)
                _write(f"{arguments.workload} seed {seed}: {verdict}")
                if arguments.stop:
                    break
    seconds = time.monotonic() - began
    _write(
        f"{arguments.workload}: {seeds} seeds, {records} records, {faults} faults, "
        f"{len(failed)} failed {failed[:20]}, {seconds:.0f} s"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
