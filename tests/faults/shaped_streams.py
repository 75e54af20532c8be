"""
Streams of many shapes whose commits can be held in flight, and the rows that they must write.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults import shape_models
from tests.faults.jobs import kill_all, kill_job, start_job
from tests.support.end_txn import EndTxnGate, Hold
from tests.support.proxied import ProxiedCluster
from tests.support.row_checker import Verdict, check_rows, row_of
from tests.support.short_jvm import SHORT_DRIVER

from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.transactional_ids import prefix_pattern
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from typing import Self

JOB = Path(__file__).parent / "exactly_once_shapes_job.py"
SECONDS = 180.0
#: How many numbers each source has for a micro-batch.
ROWS = 80
FILES = 4
COMMITTED = {"isolation.level": "read_committed"}
DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_OURS = "pyspark_pykafka.errors."
CONF = {
    "spark.master": "local[3]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    # Otherwise Spark gives a shuffle of few rows fewer tasks than a shuffle of many.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    # With a cost of opening files Spark would put files as small as these into one task.
    "spark.sql.files.openCostInBytes": "0",
    **SHORT_DRIVER,
}


class GatedCluster(ProxiedCluster):
    """
    Brokers behind proxies that can hold commits.
    """

    def __init__(self, brokers: int = 1) -> None:
        super().__init__(brokers)
        self.gate = EndTxnGate(self.proxies.values())

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def transactions(self) -> Any:
        """
        Return a transaction client that bypasses the proxies.
        """
        return transaction_client(KafkaSettings.of({"bootstrap.servers": self.direct}))

    def __exit__(self, *error: object) -> None:
        self.gate.close()
        super().__exit__(*error)


@dataclass
class ShapedStream:
    """
    One query, and the expected rows of its topic.

    ``transactions`` is the number of transactions of the batch whose commits were held last.
    """

    cluster: GatedCluster
    shape: str
    folder: Path
    name: str
    batches: int
    source: dict[str, str]
    sink: dict[str, str]
    transactions: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        copies = min(len(self.cluster.proxies), 3)
        for topic in self.topics:
            self.cluster.kafka.create_topic(
                topic, shape_models.PARTITIONS, replication_factor=copies
            )
        self.cluster.kafka.create_topic(self.output, 3, replication_factor=copies)
        self._feed()

    @property
    def topics(self) -> list[str]:
        """
        The topics that the query reads.
        """
        return [f"{self.name}-{number}" for number in range(2 if self._joins else 1)]

    @property
    def output(self) -> str:
        """
        The topic that the query writes, and its transactional-id prefix.
        """
        return f"{self.name}-to"

    @property
    def checkpoint(self) -> Path:
        """
        The query's checkpoint.
        """
        return self.folder / "checkpoint"

    @property
    def numbers(self) -> range:
        """
        The numbers of the first source.
        """
        return range(ROWS * (self.batches + self._silent))

    @property
    def second(self) -> range:
        """
        The numbers of the second topic, which only some shapes read.
        """
        start = 0 if self.shape == "join" else shape_models.SECOND
        batches = 1 if self.shape == "union_with_an_idle_topic" else self.batches
        return range(start, start + ROWS * batches)

    def running(self) -> int:
        """
        Return the last batch that Spark has planned.
        """
        files = shape_models.offset_files(self.checkpoint)
        return max((int(file.name) for file in files), default=-1)

    def error(self) -> str | None:
        """
        Return the error of the query in the last run, or None.
        """
        if not self._failed.exists():
            return None
        text = self._failed.read_text()
        # The rest are stack traces of Spark and Python.
        return next((line for line in text.splitlines() if _OURS in line), text)

    def forget_error(self) -> None:
        """
        Let the next driver run the query again after a failure.
        """
        self._failed.unlink(missing_ok=True)

    def open_ids(self) -> list[str]:
        """
        Return the ids of open transactions.
        """
        with self.cluster.transactions() as transactions:
            pattern = prefix_pattern(self.output)
            ids: list[str] = transactions.list_ids(pattern, [TransactionState.ONGOING])
            return ids

    def hold(self, batch: int, choose: Callable[[int], int]) -> Hold:
        """
        Return a hold that lets ``choose(n)`` of a batch's n transactions be committed.

        Batches that write nothing do not count.
        """
        due = batch + self._silent

        def allowed() -> int:
            self.transactions = len(self.open_ids())
            return choose(self.transactions)

        return self.cluster.gate.hold(self.output, lambda: self.running() == due, allowed)

    def missing(self, hold: Hold) -> str | None:
        """
        Return None once the allowed commits are decided and another one is held; until then, the
        reason to wait.
        """
        if hold.allowed is None or len(hold.passed) < hold.allowed or not hold.held_commits:
            passed = f"{len(hold.passed)} of {hold.allowed} commits have passed"
            return f"{self.shape}: {passed}, {hold.held_commits} are held"
        with self.cluster.transactions() as transactions:
            descriptions = transactions.describe_reachable(hold.passed).values()
        undecided = [
            transaction.transactional_id
            for transaction in descriptions
            if transaction.state not in DECIDED
        ]
        return f"{self.shape}: undecided are {undecided}" if undecided else None

    def problem(self) -> str | None:
        """
        Return the anomalies of the rows that a plain read_committed reader sees, or None.
        """
        verdict = self.verdict()
        if self.error() is not None:
            return f"{verdict}; {self.error()}"
        if not verdict.valid:
            return str(verdict)
        if self.running() < self.batches + self._silent - 1:
            return f"there were only {self.running() + 1} batches"
        return f"open: {open_ids}" if (open_ids := self.open_ids()) else None

    def verdict(self) -> Verdict:
        """
        Return the anomalies of the rows that a plain read_committed reader sees.
        """
        records = self.cluster.kafka.consume(self.output, COMMITTED)
        rows = [
            row_of(json.loads(record.value or b""), shape_models.RANDOM_COLUMNS)
            for record in records
        ]
        return check_rows(self.expected(), rows)

    def expected(self) -> list[str]:
        """
        Return the expected rows.
        """
        if self.shape == "rate":
            return [row_of({"id": number}) for number in range(ROWS * (self.running() + 1))]
        if self.shape == "windowed":
            return shape_models.windowed(self.numbers)
        if self.shape == "complete":
            return shape_models.complete(shape_models.batches_of(self.checkpoint))
        is_union = self.shape.startswith("union")
        return shape_models.each_once([*self.numbers, *(self.second if is_union else ())])

    def job_argument(self) -> dict[str, Any]:
        """
        Return the query in the form that the job expects.
        """
        servers = {"kafka.bootstrap.servers": self.cluster.bootstrap}
        exactly_once = {
            "topic": self.output,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": self.output,
        }
        return {
            "shape": "union" if self.shape == "union_with_an_idle_topic" else self.shape,
            "checkpoint": str(self.checkpoint),
            "failed": str(self._failed),
            "topics": self.topics,
            "folder": str(self._files),
            "last": self.batches - 1,
            "source": {**servers, "maxOffsetsPerTrigger": str(ROWS), **self.source},
            "sink": {**servers, **exactly_once, **self.sink},
        }

    @property
    def _joins(self) -> bool:
        return self.shape.startswith(("union", "join"))

    @property
    def _silent(self) -> int:
        # No window has closed in the first batch.
        return 1 if self.shape == "windowed" else 0

    @property
    def _files(self) -> Path:
        return self.folder / "files"

    @property
    def _failed(self) -> Path:
        return self.folder / "failed"

    def _feed(self) -> None:
        for topic, numbers in zip(self.topics, (self.numbers, self.second), strict=False):
            self.cluster.kafka.produce(topic, shape_models.records(numbers))
        self._files.mkdir()
        size = ROWS // FILES
        for number in range(FILES * self.batches):
            rows = shape_models.each_once(self.numbers[number * size : (number + 1) * size])
            file = self._files / f"{number:04}.json"
            file.write_text("\n".join(rows))
            # Spark reads files in the order of their modification times.
            os.utime(file, (number + 1, number + 1))


@dataclass
class Drivers:
    """
    Runs queries with one driver after another; ``conf`` applies to later drivers.
    """

    cluster: GatedCluster
    streams: Sequence[ShapedStream]
    folder: Path
    conf: dict[str, str] = field(default_factory=dict)
    runs: int = 0

    def start(self) -> subprocess.Popen[str]:
        """
        Start a driver; it ends by itself once everything is written.
        """
        self.runs += 1
        queries = [stream.job_argument() for stream in self._alive()]
        job = {"conf": {**CONF, **self.conf}, "queries": queries}
        return start_job(JOB, [json.dumps(job)], self._log)

    def run(self) -> int:
        """
        Run a driver to its end, and return its exit code.
        """
        return self.wait(self.start())

    def wait(self, job: subprocess.Popen[str]) -> int:
        """
        Wait until a driver has ended, and return its exit code.
        """
        try:
            return job.wait(SECONDS)
        finally:
            kill_job(job)

    def killed(self, batch: int, choose: Callable[[int], int]) -> None:
        """
        Run until ``choose(n)`` of a batch's n transactions are committed, and kill the driver.

        Queries that fail instead are left out from then on.
        """
        job, holds = self.with_held_commits(batch, choose)
        kill_all(job)
        # Requests that the proxies received after the held ones are lost with the connections.
        for proxy in self.cluster.proxies.values():
            proxy.disconnect()
        self.cluster.gate.open()
        for hold in holds:
            hold.drop()

    def with_held_commits(
        self, batch: int, choose: Callable[[int], int]
    ) -> tuple[subprocess.Popen[str], list[Hold]]:
        """
        Start a driver; return it and its holds once ``choose(n)`` of n commits are done.
        """
        holds = {stream.shape: stream.hold(batch, choose) for stream in self._alive()}
        job = self.start()

        def missing() -> str | None:
            alive = {stream.shape: stream for stream in self._alive()}
            lacking = [stream.missing(holds[shape]) for shape, stream in alive.items()]
            assert job.poll() is None or not alive, f"the driver ended: {lacking}\n{self.log()}"
            return next(filter(None, lacking), None)

        try:
            wait_until(missing, SECONDS)
        except BaseException:
            kill_all(job)
            raise
        return job, list(holds.values())

    def verify(self) -> None:
        """
        Fail unless all queries have written the expected rows, and no transaction is open.
        """
        problems = {stream.shape: stream.problem() for stream in self.streams}
        wrong = [f"{shape}: {problem}" for shape, problem in problems.items() if problem]
        assert not wrong, "\n".join([*wrong, self.log()])

    def log(self) -> str:
        """
        Return the end of the last driver's output.
        """
        return self._log.read_text()[-4_000:]

    @property
    def _log(self) -> Path:
        return self.folder / f"run-{self.runs}.log"

    def _alive(self) -> list[ShapedStream]:
        return [stream for stream in self.streams if stream.error() is None]
