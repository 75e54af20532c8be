"""
Exactly-once streams while drivers, workers, executors and brokers die: each record once, in order
per key.

A history is one stream and its restarts. During and after it, plain read_committed readers check
the output.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from tests.faults.jobs import kill_job, signal_all, start_job

from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.transactional_ids import prefix_pattern
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.plugin import unique_name
from pyspark_pykafka.testing.ports import free_ports
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


pytestmark = pytest.mark.timeout(900)

JOB = Path(__file__).parent / "exactly_once_stream_job.py"
SECONDS = 300.0

PARTITIONS = 3
KEYS = 12
RECORDS = 2_400
#: The number of records in each of the eight micro-batches.
ROWS = 300
BATCHES = RECORDS // ROWS

DRIVER_POINTS = ("before a task prepares", "all prepared", "some committed", "all committed")
HOSTS = ("127.0.0.1", "127.0.0.2")
COMMITTED = {"isolation.level": "read_committed"}
#: The timeout of an abandoned transaction, which the broker aborts within another second: longer
#: than a micro-batch takes on a loaded machine.
SHORT_TIMEOUT = {"kafka.transaction.timeout.ms": "30000"}
#: The producer's batch size: small, so that records are sent before a task has all its rows.
SENT_EARLY = {"kafka.batch.size": "100"}
#: Spark passes a task its rows in Arrow batches of this size, so a task has several.
SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
#: A task that takes 1.5 times as long as the median of its stage gets a second attempt.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.5",
}


def fault_at(point: str, batch: int, count: int = 0, task: int = 0) -> dict[str, Any]:
    """
    Return a fault in the form that the job expects.
    """
    return {"point": point, "batch": batch, "count": count, "task": task}


class Watcher:
    """
    A plain read_committed reader that runs while the stream runs.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "watcher", **COMMITTED}
        self._consumer = Consumer({**config, "enable.auto.commit": False})
        partitions = self._consumer.list_topics(topic, 30.0).topics[topic].partitions
        self._consumer.assign([Position(topic, partition, 0) for partition in partitions])
        self._done = threading.Event()
        self.seen: list[tuple[int, bytes, int]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.is_set():
            for message in self._consumer.consume(500, timeout=0.2):
                assert message.error() is None, message.error()
                row = (message.partition(), message.key(), int(message.value()))
                self.seen.append(row)

    def finish(self, count: int) -> list[tuple[int, bytes, int]]:
        """
        Return the records that were read, once there are ``count`` of them; fail after 30 seconds.
        """

        def missing() -> str | None:
            return None if len(self.seen) >= count else f"{len(self.seen)} of {count} were read"

        wait_until(missing, 30.0)
        self._done.set()
        self._thread.join(10.0)
        self._consumer.close()
        return self.seen


@dataclass
class History:
    """
    One stream from a topic to another, and its restarts.
    """

    cluster: KafkaCluster
    source: str
    sink: str
    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    #: The number of records of a micro-batch.
    rows: int = ROWS
    runs: int = 0

    def start(self, *faults: dict[str, Any]) -> subprocess.Popen[str]:
        """
        Start the job in its own process session.
        """
        self.runs += 1
        sink = {
            "source": self.source,
            "rows": str(self.rows),
            "topic": self.sink,
            "deliveryGuarantee": "exactly-once",
            **self.options,
        }
        planted = [{**value, "flag": str(self.flag(index))} for index, value in enumerate(faults)]
        arguments = [self.cluster.bootstrap, str(self.folder / "checkpoint")]
        arguments += [json.dumps(value) for value in (sink, planted, self.conf)]
        return start_job(JOB, arguments, self.folder / f"run-{self.runs}.log")

    def flag(self, number: int) -> Path:
        """
        Return the file that exists once a fault of the last run has happened.
        """
        return self.folder / f"flag-{self.runs}-{number}"

    def had_second_attempt(self, number: int) -> bool:
        """
        Return whether, in the last run, a task of the batch with this fault had a second attempt.
        """
        return Path(f"{self.flag(number)}-again").exists()

    def run(self, *faults: dict[str, Any]) -> int:
        """
        Run the job to its end, and return its exit code.
        """
        with self.start(*faults) as job:
            try:
                return job.wait(SECONDS)
            finally:
                kill_job(job)

    def run_until_killed(self, fault: dict[str, Any]) -> None:
        """
        Run until the fault kills the driver.
        """
        assert self.run(fault) == -signal.SIGKILL, self.log()
        assert self.flag(0).exists()

    def run_to_end(self, *faults: dict[str, Any]) -> None:
        """
        Run to the end, with these faults of tasks.
        """
        assert self.run(*faults) == 0, self.log()
        assert all(self.flag(number).exists() for number in range(len(faults)))

    def log(self) -> str:
        """
        Return the output of the last run.
        """
        return (self.folder / f"run-{self.runs}.log").read_text()

    def open_ids(self) -> list[str]:
        """
        Return the transactions that are open now.
        """
        kafka = KafkaSettings.of({"bootstrap.servers": self.cluster.bootstrap})
        with transaction_client(kafka) as transactions:
            names = prefix_pattern(self.options["transactionalIdPrefix"])
            return transactions.list_ids(names, [TransactionState.ONGOING])

    def await_ended(self) -> None:
        """
        Return once no transaction is open.
        """
        wait_until(lambda: ", ".join(self.open_ids()) or None, SECONDS)


def feed(cluster: KafkaCluster, topic: str, partitions: int) -> list[Record]:
    """
    Write numbered records to a topic; the records of a key are in one partition, in numerical
    order.
    """
    numbered = [
        Record(str(number).encode(), b"k%d" % (number % KEYS), number % KEYS % partitions)
        for number in range(RECORDS)
    ]
    return cluster.produce(topic, numbered)


def check(rows: Sequence[tuple[int, bytes, int]]) -> None:
    """
    Fail unless the rows have each number once, and the numbers of each key in order.
    """
    counts = Counter(number for _, _, number in rows)
    doubled = {number: times for number, times in counts.items() if times > 1}
    missing = set(range(RECORDS)) - set(counts)
    assert (missing, doubled) == (set(), {})
    by_key: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for partition, key, number in rows:
        by_key[partition, key].append(number)
    assert len(by_key) == KEYS
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def read(cluster: KafkaCluster, topic: str) -> list[tuple[int, bytes, int]]:
    """
    Return the (partition, key, number) of each record that a read_committed reader finds.
    """
    records = cluster.consume(topic, COMMITTED)
    return [(r.partition or 0, r.key or b"", int(r.value or b"")) for r in records]


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[KafkaCluster]:
    """
    Three brokers, with replicas of every topic on all of them.
    """
    with KafkaCluster(3) as new_cluster:
        yield new_cluster


@pytest.fixture
def history(kafka_cluster: KafkaCluster, tmp_path: Path, request: pytest.FixtureRequest) -> History:
    """
    A new stream with its two topics.
    """
    return new_history(kafka_cluster, tmp_path, request.node.name)


def new_history(
    cluster: KafkaCluster, folder: Path, name: str, partitions: int = PARTITIONS
) -> History:
    """
    Return a stream between two new topics; all records are in the first one.
    """
    name = unique_name(name)
    source, target = (
        cluster.create_topic(f"{name}-{end}", partitions=partitions) for end in ("from", "to")
    )
    feed(cluster, source, partitions)
    return History(cluster, source, target, folder, {"transactionalIdPrefix": name})


def verify(history: History, watcher: Watcher) -> None:
    """
    Fail unless both readers have seen each record once, and nothing was left open.
    """
    check(watcher.finish(RECORDS))
    check(read(history.cluster, history.sink))
    assert history.open_ids() == []


def watch(history: History) -> Watcher:
    """
    Start a reader that runs while the stream runs.
    """
    return Watcher(history.cluster.bootstrap, history.sink)


def test_a_killed_driver(history: History) -> None:
    """
    A stream loses its driver between two commits, and a worker in its next run; each record is
    visible once.
    """
    # Four micro-batches are enough: one before each fault, and one after both.
    history.rows = RECORDS // 4
    watcher = watch(history)
    history.run_until_killed(fault_at("some committed", 1, 1))
    history.run_to_end(fault_at("worker", 2))
    assert "of its 3 transactions, those still open are committed now" in history.log()

    verify(history, watcher)


@pytest.mark.soak
def test_killed_drivers(history: History) -> None:
    """
    One stream loses its driver before, between and after its commits, and each record is visible
    once.
    """
    watcher = watch(history)
    history.run_until_killed(fault_at("all prepared", 2))
    history.run_until_killed(fault_at("some committed", 4, 1))
    history.run_until_killed(fault_at("all committed", 5))
    assert "of its 3 transactions, those still open are committed now" in history.log()
    history.run_to_end()
    assert "of 3 tasks 3 were not written again" in history.log()

    verify(history, watcher)


@pytest.mark.soak
def test_a_batch_loses_three_drivers(history: History) -> None:
    """
    Each of three drivers commits one more task of the same batch, and the fourth driver has nothing
    to commit.
    """
    watcher = watch(history)
    history.run_until_killed(fault_at("some committed", 2, 1))
    history.run_until_killed(fault_at("some committed", 2, 1))
    history.run_until_killed(fault_at("all committed", 2))
    history.run_to_end()

    verify(history, watcher)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_restarts_after_the_transaction_timeout(history: History, seed: int) -> None:
    """
    One driver after another dies before or between its commits, and the next one starts after the
    coordinator has aborted the open transactions. Only the rows of those transactions are written
    again.
    """
    chance = random.Random(seed)
    history.options |= SHORT_TIMEOUT
    watcher = watch(history)
    for batch in sorted(chance.sample(range(1, BATCHES), 5)):
        committed = chance.randrange(PARTITIONS)
        point = "some committed" if committed else "all prepared"
        history.run_until_killed(fault_at(point, batch, committed))
        assert len(history.open_ids()) == PARTITIONS - committed
        history.await_ended()
    history.run_to_end()

    verify(history, watcher)


@pytest.mark.soak
def test_without_transactions_records_are_duplicated(history: History) -> None:
    """
    With at-least-once delivery the check of the output fails, so it can detect duplicates.
    """
    history.options["deliveryGuarantee"] = "at-least-once"
    history.run_until_killed(fault_at("all prepared", 3))
    history.run_to_end()

    with pytest.raises(AssertionError):
        check(read(history.cluster, history.sink))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_paused_drivers_resume(history: History, seed: int) -> None:
    """
    One driver after another is paused, and the last one completes the output; the others resume
    after their transactions have timed out, and change nothing.
    """
    chance = random.Random(seed)
    history.options |= SHORT_TIMEOUT
    watcher = watch(history)
    zombies = []
    try:
        for _ in range(4):
            zombies.append(history.start())
            await_more(watcher, chance.randint(1, ROWS))
            signal_all(zombies[-1], signal.SIGSTOP)
        history.run_to_end()
        history.await_ended()
        for zombie in zombies:
            signal_all(zombie, signal.SIGCONT)
            zombie.wait(SECONDS)
    finally:
        for zombie in zombies:
            signal_all(zombie, signal.SIGCONT)
            kill_job(zombie)

    verify(history, watcher)


def each_batch(point: str, seed: int = 0, tasks: int = PARTITIONS) -> list[dict[str, Any]]:
    """
    Return a fault for each micro-batch, in one task or another.
    """
    chance = random.Random(seed)
    return [fault_at(point, batch, task=chance.randrange(tasks)) for batch in range(BATCHES)]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_killed_workers(history: History, seed: int) -> None:
    """
    In each micro-batch a worker dies with a task half written, and each record is visible once.
    """
    watcher = watch(history)
    history.run_to_end(*each_batch("worker", seed))

    verify(history, watcher)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_paused_workers_resume(kafka_cluster: KafkaCluster, tmp_path: Path, seed: int) -> None:
    """
    In each micro-batch the only task is paused until its transaction has timed out. When it
    resumes, it fails, and another attempt writes its rows.
    """
    history = new_history(kafka_cluster, tmp_path, f"paused-{seed}", partitions=1)
    history.options |= SHORT_TIMEOUT | SENT_EARLY
    history.conf = SMALL_BATCHES
    watcher = watch(history)
    job = history.start(*each_batch("paused", tasks=1))
    try:
        for number in range(BATCHES):
            wake_late(history, job, number)
        assert job.wait(SECONDS) == 0, history.log()
    finally:
        kill_job(job)

    assert all(history.had_second_attempt(number) for number in range(BATCHES))
    verify(history, watcher)


@pytest.mark.soak
def test_a_batch_outlives_its_transactions(history: History) -> None:
    """
    A task is paused for so long that the others' transactions time out, too: the query fails, and
    its next run completes the output.
    """
    history.options |= SHORT_TIMEOUT
    history.conf = SMALL_BATCHES
    watcher = watch(history)
    job = history.start(fault_at("paused", 3))
    try:
        wake_late(history, job, 0)
        assert job.wait(SECONDS) == 1, history.log()
    finally:
        kill_job(job)
    assert "the write took longer than kafka.transaction.timeout.ms" in history.log()
    history.run_to_end()

    verify(history, watcher)


def wake_late(history: History, job: subprocess.Popen[str], number: int) -> None:
    """
    Resume the task that a fault has paused, after its transaction has been aborted.
    """
    wait_until(lambda: paused(job, history.flag(number)), SECONDS)
    wait_until(lambda: None if history.open_ids() else "no transaction is open", SECONDS)
    history.await_ended()
    signal_all(job, signal.SIGCONT)


def paused(job: subprocess.Popen[str], flag: Path) -> str | None:
    """
    Return the reason to wait while the fault has not paused a task of a job, or None once it has.
    """
    import psutil

    for process in psutil.Process(job.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if flag.exists() and process.status() == psutil.STATUS_STOPPED:
                return None
    return f"{flag.name} has not happened"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("point", ["executor", "slow"])
def test_speculative_and_retried_tasks(
    history: History, spark_master: str, point: str, seed: int
) -> None:
    """
    In each micro-batch an executor dies with a task half written, or a second attempt overtakes a
    slow one; each record is visible once.
    """
    history.conf = {
        **SPECULATION,
        "spark.master": spark_master,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        "spark.driver.host": HOSTS[0],
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    # An attempt that lost the last race is killed with its transaction open.
    history.options["kafka.transaction.timeout.ms"] = "25000"
    watcher = watch(history)
    assert history.run(*each_batch(point, seed)) == 0, history.log()

    # An attempt that is slow without the fault may lose before the fault happens.
    retried = [number for number in range(BATCHES) if history.had_second_attempt(number)]
    assert len([number for number in retried if history.flag(number).exists()]) >= 5
    history.await_ended()
    verify(history, watcher)


@pytest.fixture(scope="module")
def spark_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """
    Return the address of a cluster with two hosts: Spark never runs a speculative attempt on the
    host of the first attempt.
    """
    (port,) = free_ports(1)
    address = f"spark://{HOSTS[0]}:{port}"
    folder = tmp_path_factory.mktemp("spark")
    started = [start_spark(folder, "master.Master", "--host", HOSTS[0], "--port", str(port))]
    try:
        for host in HOSTS:
            limits = ["--cores", "2", "--memory", "600m", "--work-dir", str(folder / host)]
            started.append(start_spark(folder, "worker.Worker", "--host", host, *limits, address))
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(20.0)


def start_spark(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """
    Start a part of a Spark cluster, and return once it is ready.
    """
    log = folder / f"{name}-{len(list(folder.iterdir()))}.log"
    home = Path(pyspark.__file__).parent
    process = subprocess.Popen(
        [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOSTS[0]},
    )

    def missing() -> str | None:
        output = log.read_text()
        ready = "I have been elected leader" in output or "Successfully registered" in output
        return None if ready else f"{name}: {output[-2_000:]}"

    wait_until(missing, 60.0)
    return process


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_killed_brokers(three_brokers: KafkaCluster, tmp_path: Path, seed: int) -> None:
    """
    One of three brokers dies repeatedly, with everything that it leads and coordinates; the
    stream continues.
    """
    chance = random.Random(seed)
    history = new_history(three_brokers, tmp_path, f"brokers-{seed}")
    history.rows = ROWS // 15
    watcher = watch(history)
    job = history.start()
    try:
        for node in chance.choices((1, 2, 3), k=6):
            await_more(watcher, chance.randint(1, ROWS // 5))
            assert job.poll() is None, history.log()
            three_brokers.kill(node)
            await_more(watcher, chance.randint(1, ROWS // 5))
            three_brokers.restart(node)
        assert job.wait(SECONDS) == 0, history.log()
    finally:
        kill_job(job)

    verify(history, watcher)


def await_more(watcher: Watcher, count: int) -> None:
    """
    Wait until this many more records are visible, or all records.
    """
    count_needed = min(len(watcher.seen) + count, RECORDS)
    wait_until(
        lambda: (
            None if len(watcher.seen) >= count_needed else f"{len(watcher.seen)} of {count_needed}"
        ),
        SECONDS,
    )


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_random_histories(kafka_cluster: KafkaCluster, tmp_path: Path, seed: int) -> None:
    """
    Drivers die at random points of random batches, and each record is visible once.
    """
    chance = random.Random(seed)
    history = new_history(kafka_cluster, tmp_path, f"random-{seed}")
    history.options |= SHORT_TIMEOUT
    watcher = watch(history)
    batch = 0
    while (batch := batch + chance.randint(0, 2)) < BATCHES:
        point = chance.choice(DRIVER_POINTS)
        history.run_until_killed(fault_at(point, batch, chance.randint(1, PARTITIONS - 1)))
        if chance.random() < 0.2:
            history.await_ended()
        if point == "all committed" or chance.random() < 0.5:
            batch += 1
    history.run_to_end(fault_at("worker", BATCHES - 1))

    verify(history, watcher)
