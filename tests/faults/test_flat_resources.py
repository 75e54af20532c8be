"""
The resources of a stream stay the same over many micro-batches, while its brokers are restarted.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.jobs import kill_all, processes_of, start_job
from tests.support.resource_trend import Sample, check_flat, sample

from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from typing import Self

JOB = Path(__file__).parent / "flat_resources_job.py"

BATCHES = 1_000
#: Enough micro-batches to detect a leak of one file or thread in each.
FEW_BATCHES = 100
#: The minimum number of restarts: several of each of the three brokers.
RESTARTS = 12
ROWS = 4
PARTITIONS = 2
#: The number of samples of a run.
SAMPLES = 40
#: The longest time without a micro-batch.
STALL_SECONDS = 300.0
END_SECONDS = 120.0
#: The number of micro-batches from the end of a restart to the next one.
REST_BATCHES = 20
POLL_SECONDS = 0.2
COMMITTED = {"isolation.level": "read_committed"}

#: The largest growth that is allowed from the second quarter of a run to the last, by resource. The
#: JVM's thread pools and open jars vary more, so their limits are larger.
LIMITS = {
    "processes": 1.0,
    "files": 3.0,
    "threads": 3.0,
    "megabytes": 16.0,
    "jvm files": 12.0,
    "jvm threads": 12.0,
}


class RollingRestarts:
    """
    Restarts one broker after another until the ``with`` block ends: SIGTERM, start, wait until the
    brokers see the restarted one again.

    Between two restarts the stream must complete some micro-batches, so it has continued after
    each restart.
    """

    def __init__(self, cluster: KafkaCluster, done: Callable[[], int], batches: int) -> None:
        self._cluster = cluster
        self._done = done
        self._batches = batches
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None
        self.count = 0

    def _run(self) -> None:
        due = self._batches
        try:
            while not self._over.wait(POLL_SECONDS):
                if self._done() >= due:
                    self._cluster.restart(self.count % self._cluster.brokers + 1)
                    self.count += 1
                    due = self._done() + self._batches
        except Exception as error:  # noqa: BLE001 (raised again by the test's thread)
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


@dataclass
class Run:
    """
    A stream of a number of micro-batches between two new topics, and its samples.
    """

    cluster: KafkaCluster
    folder: Path
    batches: int
    leaks: bool = False
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = f"leaking-{self.batches}" if self.leaks else f"flat-{self.batches}"
        self.source, self.target = (
            self.cluster.create_topic(f"{name}-{end}", PARTITIONS) for end in ("from", "to")
        )
        self.values = {f"{number:06}".encode() for number in range(self.batches * ROWS)}
        self.cluster.produce(
            self.source,
            [Record(value, partition=int(value) % PARTITIONS) for value in sorted(self.values)],
        )

    def measure(self) -> None:
        """
        Run the stream to its end, and take samples at equal numbers of micro-batches.
        """
        about = {"source": self.source, "target": self.target, "rows": ROWS, "leaks": self.leaks}
        arguments = [self.cluster.bootstrap, str(self.folder / "checkpoint"), json.dumps(about)]
        with start_job(JOB, arguments, self.folder / "job.log") as job:
            try:
                for number in range(1, SAMPLES + 1):
                    self._await(job, number * self.batches // SAMPLES)
                    self.samples.append(sample(processes_of(job)))
                    (self.folder / "samples.json").write_text(json.dumps(self.samples))
                assert job.wait(END_SECONDS) == 0, self.log()
            finally:
                if job.poll() is None:
                    kill_all(job)

    def done(self) -> int:
        """
        Return the number of complete micro-batches.
        """
        commits = self.folder / "checkpoint" / "commits"
        if not commits.exists():
            return 0
        return max((int(f.name) + 1 for f in commits.iterdir() if f.name.isdigit()), default=0)

    def log(self) -> str:
        """
        Return the end of what the job has written to its log.
        """
        return (self.folder / "job.log").read_text()[-5_000:]

    def _await(self, job: subprocess.Popen[str], count: int) -> None:
        seen, since = self.done(), time.monotonic()

        def missing() -> str | None:
            nonlocal seen, since
            done = self.done()
            if done > seen:
                seen, since = done, time.monotonic()
            stalled = time.monotonic() - since
            assert stalled < STALL_SECONDS, f"no micro-batch after {done}: {self.log()}"
            # The last sample may be due when the stream ends.
            assert job.poll() is None or done >= count, f"ended after {done}: {self.log()}"
            return None if done >= count else f"{done} of {count} micro-batches"

        wait_until(missing, STALL_SECONDS * self.batches / SAMPLES)

    def check_output(self) -> None:
        """
        Fail unless a plain reader of committed records finds each row once.
        """
        values = [record.value for record in self.cluster.consume(self.target, COMMITTED)]
        assert len(values) == len(self.values)
        assert set(values) == self.values


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[KafkaCluster]:
    """
    Three brokers, with replicas of every topic on all of them.
    """
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.mark.soak
@pytest.mark.timeout(5_400)
def test_resources_are_flat_under_rolling_restarts(
    three_nodes: KafkaCluster, tmp_path: Path
) -> None:
    """
    In 1,000 micro-batches, while one broker after another is restarted, no process of an
    exactly-once stream with recorded progress gains files, threads or memory, and each row is
    written once.
    """
    run = Run(three_nodes, tmp_path, BATCHES)
    with RollingRestarts(three_nodes, run.done, REST_BATCHES) as restarts:
        run.measure()

    run.check_output()
    assert restarts.count >= RESTARTS
    check_flat(run.samples, LIMITS)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_leak_of_each_micro_batch_is_caught(three_nodes: KafkaCluster, tmp_path: Path) -> None:
    """
    A file and a thread that each task of the sink leaves behind in its worker are found.
    """
    run = Run(three_nodes, tmp_path, FEW_BATCHES, leaks=True)
    run.measure()

    run.check_output()
    with pytest.raises(AssertionError, match=r"files: .* threads: "):
        check_flat(run.samples, LIMITS)
