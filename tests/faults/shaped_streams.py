"""
Streams of many shapes whose commits can be held on their way, and what their topics must have.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults import shape_models
from tests.faults.jobs import end, kill_all, start_job
from tests.support.end_txn import EndTxnGate, Hold
from tests.support.proxied import ProxiedCluster
from tests.support.row_checker import Verdict, check_rows, row_of

from pyspark_pykafka.engines import transactions_of
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.testing.waiting import wait_until
from pyspark_pykafka.wire.transactions import State

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from typing_extensions import Self

JOB = Path(__file__).parent / "exactly_once_shapes_job.py"
SECONDS = 180.0
#: So many numbers for a micro-batch of each source.
ROWS = 80
FILES = 4
COMMITTED = {"isolation.level": "read_committed"}
DECIDED = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
CONF = {
    "spark.master": "local[3]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # So that files as small as these are divided over the cores.
    "spark.sql.files.openCostInBytes": "0",
    # What lives as short as this gains nothing from better code.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

#: Shapes whose rows are divided among tasks in the same way each time that a batch is run.
DETERMINISTIC = (
    "copy",
    "repartition",
    "repartition_by_key",
    "repartition_by_setting",
    "union",
    "union_with_an_idle_topic",
    "coalesce",
    "windowed",
    "complete",
    "join",
    "files",
    "rate",
)
SHAPES = (*DETERMINISTIC, "random", "random_repartition")


class GatedCluster(ProxiedCluster):
    """
    Brokers behind proxies that can hold commits; transactions whose time is over end at once.
    """

    def __init__(self, brokers: int = 1) -> None:
        often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000}
        super().__init__(brokers, often)
        self.gate = EndTxnGate(self.proxies.values())

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.gate.close()
        super().__exit__(*error)


@dataclass
class ShapedStream:
    """
    One query over its restarts; ``source``, ``sink`` and ``conf`` count for runs from then on.
    """

    cluster: GatedCluster
    shape: str
    folder: Path
    name: str
    batches: int
    source: dict[str, str] = field(default_factory=dict)
    sink: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    #: How many transactions the batch had whose commits were held last.
    transactions: int = 0

    def __post_init__(self) -> None:
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
        The topics that are read.
        """
        return [f"{self.name}-{at}" for at in range(2)]

    @property
    def output(self) -> str:
        """
        The topic that is written to.
        """
        return f"{self.name}-to"

    @property
    def checkpoint(self) -> Path:
        """
        Where the query keeps its state.
        """
        return self.folder / "checkpoint"

    @property
    def numbers(self) -> range:
        """
        The numbers of the first source.
        """
        return range(ROWS * self.batches)

    @property
    def second(self) -> range:
        """
        The numbers of the second topic, which only some shapes read.
        """
        start = 0 if self.shape == "join" else shape_models.SECOND
        batches = 1 if self.shape == "union_with_an_idle_topic" else self.batches
        return range(start, start + ROWS * batches)

    # --- Running --------------------------------------------------------------------------------

    def start(self) -> subprocess.Popen[str]:
        """
        Start the job; it ends by itself once all is written.
        """
        self.runs += 1
        return start_job(JOB, [json.dumps(self._given())], self._log)

    def completed(self) -> None:
        """
        Run to the end.
        """
        assert self.run() == 0, f"{self.verdict()}\n{self.log()}"

    def run(self) -> int:
        """
        Return how a run ended, once it has.
        """
        return self.wait(self.start())

    def wait(self, job: subprocess.Popen[str]) -> int:
        """
        Return how a job ended, once it has.
        """
        try:
            return job.wait(SECONDS)
        finally:
            end(job)

    def killed(self, batch: int, choose: Callable[[int], int]) -> None:
        """
        Run until ``choose(n)`` of a batch's n transactions are committed, and kill the driver.
        """
        job, hold = self.held(batch, choose)
        kill_all(job)
        # What the proxies have received behind the held requests goes with the connections.
        for proxy in self.cluster.proxies.values():
            proxy.cut()
        self.cluster.gate.open()
        hold.drop()
        committed = self.transactions - len(self.open_names())
        assert committed == choose(self.transactions), hold.passed

    def held(self, batch: int, choose: Callable[[int], int]) -> tuple[subprocess.Popen[str], Hold]:
        """
        Return a job that waits for its commits, ``choose(n)`` of n being done.
        """

        def count() -> int:
            self.transactions = len(self.open_names())
            return choose(self.transactions)

        hold = self.cluster.gate.hold(lambda: self.running() == batch, count)
        job = self.start()
        try:
            wait_until(lambda: self._missing(job, hold), SECONDS)
        except BaseException:
            kill_all(job)
            raise
        return job, hold

    def _missing(self, job: subprocess.Popen[str], hold: Hold) -> str | None:
        assert job.poll() is None, f"ended with {job.poll()}\n{self.verdict()}\n{self.log()}"
        if hold.allowed is None or len(hold.passed) < hold.allowed:
            return f"{len(hold.passed)} of {hold.allowed} commits came\n{self.log()}"
        if not hold.held:
            return "nothing is held"
        with self._transactions() as transactions:
            found = transactions.describe_some(hold.passed).values()
        undecided = [it.transactional_id for it in found if it.state not in DECIDED]
        return f"undecided: {undecided}" if undecided else None

    def running(self) -> int:
        """
        Return the last batch that Spark has planned.
        """
        files = shape_models.offset_files(self.checkpoint)
        return max((int(file.name) for file in files), default=-1)

    def open_names(self) -> list[str]:
        """
        Return the transactions that are open now.
        """
        with self._transactions() as transactions:
            return transactions.names(self.name, [State.ONGOING])

    def await_ended(self) -> None:
        """
        Return once no transaction is open.
        """
        wait_until(lambda: ", ".join(self.open_names()) or None, SECONDS)

    def log(self) -> str:
        """
        Return the end of what the last run has printed.
        """
        return self._log.read_text()[-6_000:]

    # --- Judging --------------------------------------------------------------------------------

    def verify(self) -> None:
        """
        Fail unless a plain reader of committed records sees what it must, and nothing is left open.
        """
        verdict = self.verdict()
        assert verdict.valid, f"{verdict}\n{self.log()}"
        assert self.running() >= self.batches - 1
        assert self.open_names() == []

    def verdict(self) -> Verdict:
        """
        Return what is wrong with the rows that a plain reader of committed records sees.
        """
        found = self.cluster.kafka.consume(self.output, COMMITTED)
        rows = [row_of(json.loads(it.value or b""), shape_models.RANDOM_COLUMNS) for it in found]
        return check_rows(self.expected(), rows)

    def expected(self) -> list[str]:
        """
        Return the rows that must be there.
        """
        if self.shape == "rate":
            return [row_of({"id": at}) for at in range(ROWS * (self.running() + 1))]
        if self.shape == "windowed":
            return shape_models.windowed(shape_models.batches_of(self.checkpoint))
        if self.shape == "complete":
            return shape_models.complete(shape_models.batches_of(self.checkpoint))
        both = self.shape.startswith("union")
        return shape_models.each_once([*self.numbers, *(self.second if both else ())])

    # --- Setting up -----------------------------------------------------------------------------

    @property
    def _log(self) -> Path:
        return self.folder / f"run-{self.runs}.log"

    def _transactions(self) -> Any:
        return transactions_of(KafkaSettings.of({"bootstrap.servers": self.cluster.direct}))

    def _given(self) -> dict[str, Any]:
        return {
            "bootstrap": self.cluster.bootstrap,
            "checkpoint": str(self.checkpoint),
            "topics": self.topics,
            "folder": str(self.folder / "files"),
            "shape": "union" if self.shape == "union_with_an_idle_topic" else self.shape,
            "last": self.batches - 1,
            "source": {"maxOffsetsPerTrigger": str(ROWS), **self.source},
            "sink": {
                "topic": self.output,
                "deliveryGuarantee": "exactly-once",
                "transactionalIdPrefix": self.name,
                **self.sink,
            },
            "conf": {**CONF, **self.conf},
        }

    def _feed(self) -> None:
        for topic, numbers in zip(self.topics, (self.numbers, self.second), strict=True):
            self.cluster.kafka.produce(topic, shape_models.records(numbers))
        folder = self.folder / "files"
        folder.mkdir()
        size = ROWS // FILES
        for at in range(FILES * self.batches):
            rows = shape_models.each_once(self.numbers[at * size : (at + 1) * size])
            file = folder / f"{at:04}.json"
            file.write_text("\n".join(rows))
            # Spark reads them in the order of their times.
            os.utime(file, (at + 1, at + 1))
