"""
Runs the soak: ``python -m tests.soak --minutes 60 --seed 1 --results FILE.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.nemeses import KINDS, possible_kinds
from tests.soak.plan import STEADY, plan_round
from tests.soak.results import environment, totals
from tests.soak.rig import Rig
from tests.soak.rounds import Round, RoundResult
from tests.soak.verdicts import check_footprint

ROUND_SECONDS, RATE = 120, 120
MEASURE_SECONDS = 60.0
_IS_INSIDE = "SOAK_MOUNT_NAMESPACE"


def main() -> int:
    """
    Run rounds until the time is up, write the results after each, and return 1 for an anomaly.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--round-seconds", type=float, default=ROUND_SECONDS)
    parser.add_argument("--rate", type=float, default=RATE, help="records a second, of each topic")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--faults", type=_kinds, help="cause only these, separated by commas")
    parser.add_argument("--results", type=Path, default=Path("soak.json"))
    parser.add_argument("--keep", action="store_true", help="leave logs and checkpoints in place")
    arguments = parser.parse_args()
    _enter_own_mounts()
    # A shell's background process ignores SIGINT; here both signals end the run with its servers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    arguments.results = arguments.results.resolve()
    folder = Path(tempfile.mkdtemp(prefix="pykafka-soak-"))
    say(f"seed {arguments.seed}; logs are in {folder}")
    # Servers that crash leave files where they run.
    os.chdir(folder)
    try:
        with Rig.start(folder) as rig:
            soak = Soak(rig, folder, arguments)
            soak.run()
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    say(soak.summary())
    return int(soak.has_anomaly)


def _kinds(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(KINDS):
        msg = f"{sorted(unknown)} are not faults; choose from {sorted(KINDS)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def say(line: str) -> None:
    """
    Print a line with the time.
    """
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def _enter_own_mounts() -> None:
    """
    Run again in a private mount namespace, if the system allows one.
    """
    if os.environ.get(_IS_INSIDE) or not shutil.which("unshare"):
        return
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *rights, "--mount"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
        os.environ[_IS_INSIDE] = "1"
        module = ["-m", "tests.soak", *sys.argv[1:]]
        os.execvp("unshare", [*command, sys.executable, *module])  # noqa: S606, S607 (on the PATH)


@dataclass
class Soak:
    """
    A run of many rounds.
    """

    rig: Rig
    folder: Path
    arguments: argparse.Namespace
    rounds: list[RoundResult] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    footprints: list[dict[str, int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    started_at: float = field(default_factory=time.time)

    def run(self) -> None:
        """
        Run rounds until the time is up.
        """
        possible = possible_kinds(self.rig)
        kinds = tuple(kind for kind in self.arguments.faults or possible if kind in possible)
        number = 0
        while time.time() < self.started_at + 60 * self.arguments.minutes:
            seconds = self.arguments.round_seconds
            round_plan = plan_round(self.arguments.seed, number, kinds, seconds)
            folder = self.folder / f"round-{number}"
            round_ = Round(self.rig, round_plan, folder, self.arguments.rate, seconds, say)
            try:
                self._take(round_.run())
            except Exception as error:  # noqa: BLE001 (the round is void; the next ones may not be)
                traceback.print_exc()
                self.broken.append(f"round {number}: {error!r}"[:500])
                self.rig.heal()
                round_.abandon()
            self._measure()
            self.arguments.results.write_text(json.dumps(self.to_json(), indent=1))
            number += 1

    @property
    def has_anomaly(self) -> bool:
        """
        Whether any workload, or the footprint, shows an anomaly.
        """
        return any(w.anomalies for r in self.rounds for w in r.workloads) or bool(self.leaks)

    @property
    def leaks(self) -> dict[str, Any]:
        """
        The resources that have grown beyond their limits.
        """
        return check_footprint(self.footprints, self.starts)

    def to_json(self) -> dict[str, Any]:
        """
        Return the results of all rounds so far as a document.
        """
        return {
            "seed": self.arguments.seed,
            "round_seconds": self.arguments.round_seconds,
            "rate": self.arguments.rate,
            "start": self.started_at,
            "end": time.time(),
            "environment": environment(),
            "impossible_faults": [] if self.rig.disk else ["disk full"],
            "rounds": [round_result.to_json() for round_result in self.rounds],
            "broken": self.broken,
            "footprints": self.footprints,
            "query_starts": self.starts,
        }

    def summary(self) -> str:
        """
        Return the totals in one line.
        """
        return totals(self.to_json())

    def _take(self, result: RoundResult) -> None:
        self.rounds.append(result)
        for workload in result.workloads:
            figures = (
                f"{workload.records} records, {workload.repeats} repeats, "
                f"{workload.failures} restarts, drained in {workload.drained_seconds:.0f} s"
            )
            label = f"{workload.workload} {workload.shape} ({workload.driver})"
            say(f"round {result.number}: {label} {workload.outcome}: {figures}")
            for kind, texts in workload.anomalies.items():
                say(f"  {kind}: {texts[:6]}")
            if workload.void:
                say(f"  void: {workload.void}")
        for kind, texts in result.broker_anomalies.items():
            say(f"  brokers: {kind}: {texts}")

    def _measure(self) -> None:
        """
        Between rounds, when the driver that is never killed is idle, measure its resources.
        """
        steady = self.rig.drivers[STEADY]
        if steady.starts > 1:
            # The driver hung or died and was started again: the series would compare two processes.
            return
        try:
            self.footprints.append(steady.measure(MEASURE_SECONDS))
            self.starts.append(steady.query_starts)
        except Exception as error:  # noqa: BLE001 (noted; the next round shows whether it lives)
            self.broken.append(f"measuring: {error!r}"[:500])


if __name__ == "__main__":
    sys.exit(main())
