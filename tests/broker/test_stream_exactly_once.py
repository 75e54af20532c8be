"""
Exactly-once micro-batches: each row is visible once, and replays with different rows are refused.
"""

from __future__ import annotations

import json
import uuid
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import ConfigResource
from pyspark import TaskContext
from tests.support.streams import SECONDS

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.engines.selection import transaction_client, write_in_transaction
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.errors import (
    ConcurrentWriteError,
    ExactlyOnceError,
    PykafkaError,
    TimeoutExceededError,
)
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.sink import decided_commits
from pyspark_pykafka.sink.delivery import ExactlyOnceStream, SinkTask
from pyspark_pykafka.sink.intents import make_intent
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_entries import CommittableBatch, ledger_topic
from pyspark_pykafka.sink.transactional_ids import prefix_pattern, task_transactional_id
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.sink.delivery import TaskCommitMessage
    from pyspark_pykafka.sink.ledger_entries import Committable
    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

COMMITTED = {"isolation.level": "read_committed"}
QUERY, OTHER = str(uuid.UUID(int=1 << 100)), str(uuid.UUID(int=2 << 100))


@dataclass
class Copy:
    """
    A stream from one topic to another.
    """

    spark: SparkSession
    cluster: KafkaCluster
    source: str
    sink: str
    checkpoint: str

    def feed(self, numbers: range) -> None:
        """
        Write numbers to the source.
        """
        self.cluster.produce(
            self.source, [Record(str(n).encode(), partition=n % 3) for n in numbers]
        )

    def run(self, *, change: Any = None, **options: str) -> None:
        """
        Copy all records that the source has.
        """
        servers = {"kafka.bootstrap.servers": self.cluster.bootstrap}
        source = self.spark.readStream.format("pykafka").options(**servers)
        # With minPartitions, even small batches are not read in one task.
        source = source.options(subscribe=self.source, startingOffsets="earliest", minPartitions=1)
        rows = source.load()
        written: DataFrame = rows.select("value")
        if change is not None:
            written = written.mapInArrow(change, "value binary")
        sink_options = {"transactionalIdPrefix": self.sink, **options}
        sink_options = {name: value for name, value in sink_options.items() if value}
        sink_options |= {"topic": self.sink, "deliveryGuarantee": "exactly-once"}
        writer = written.writeStream.format("pykafka").options(**servers, **sink_options)
        query = writer.option("checkpointLocation", self.checkpoint).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def seen(self) -> list[int]:
        """
        Return the numbers that a plain read_committed reader returns.
        """
        records = self.cluster.consume(self.sink, COMMITTED)
        return sorted(int(record.value or b"") for record in records)


@pytest.fixture
def copy(
    spark: SparkSession, kafka_cluster: KafkaCluster, topic: TopicFactory, tmp_path: Path
) -> Copy:
    """
    Return a stream between two new topics.
    """
    return Copy(spark, kafka_cluster, topic(3), topic(2), str(tmp_path / "checkpoint"))


def open_ids(cluster: KafkaCluster, prefix: str) -> list[str]:
    """
    Return the ids of open transactions.
    """
    with transaction_client(settings(cluster, prefix).kafka) as transactions:
        return transactions.list_ids(prefix_pattern(prefix), [TransactionState.ONGOING])


def await_ended(copy: Copy) -> None:
    """
    Wait until no transaction is open; Spark does not wait for tasks that it cancels.
    """
    wait_until(lambda: ", ".join(open_ids(copy.cluster, copy.sink)) or None, SECONDS)


def settings(cluster: KafkaCluster, topic: str, **options: str) -> Any:
    """
    Return the options of a sink whose prefix is the topic's name.
    """
    return parse_sink(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "topic": topic,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": topic,
            **options,
        },
        streaming=True,
    )


def test_batches_and_restarts(copy: Copy) -> None:
    """
    Each row is visible once over several micro-batches and a restart, and no transaction is left
    open.
    """
    for start in (0, 500, 900):
        copy.feed(range(start, start + 500 if start == 0 else start + 400))
        copy.run()

    assert copy.seen() == list(range(1_300))
    assert open_ids(copy.cluster, copy.sink) == []


def test_the_ledger_is_created_compacted(copy: Copy) -> None:
    """
    A new ledger has one partition and is compacted, so that the last entry of each key stays.
    """
    copy.feed(range(10))
    copy.run()

    name = f"{copy.sink}-ledger"
    admin = copy.cluster.admin()
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    config = admin.describe_configs([resource])[resource].result(10)
    assert config["cleanup.policy"].value == "compact"
    assert set(admin.list_topics(name, timeout=10).topics[name].partitions) == {0}
    kinds = [json.loads(r.value or b"")["kind"] for r in copy.cluster.consume(name, COMMITTED)]
    assert sorted(kinds) == ["intent", "marker", "marker", "marker"]


def test_the_query_id_replaces_a_missing_prefix(copy: Copy) -> None:
    """
    The query id, which the checkpoint keeps, is the default prefix.
    """
    copy.feed(range(100))
    copy.run(transactionalIdPrefix="")
    copy.feed(range(100, 200))
    copy.run(transactionalIdPrefix="")

    assert copy.seen() == list(range(200))


def test_a_failed_batch_leaves_nothing_visible(copy: Copy) -> None:
    """
    If a task fails, the transactions of finished tasks are aborted, and the next run writes the
    whole batch.
    """
    copy.feed(range(300))

    def fail_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 2:
            msg = "planted"
            raise RuntimeError(msg)

    with pytest.raises(Exception, match="planted"):
        copy.run(change=fail_late)
    await_ended(copy)
    assert copy.seen() == []

    copy.run()
    assert copy.seen() == list(range(300))


def test_a_cancelled_task_leaves_nothing_visible(copy: Copy) -> None:
    """
    If one task fails while another one writes, both are aborted, nothing is visible, and the next
    run writes each row once.
    """
    copy.feed(range(3))
    kafka, prefix, seconds = settings(copy.cluster, copy.sink).kafka, copy.sink, SECONDS

    def other_writes() -> str | None:
        with transaction_client(kafka) as transactions:
            open_now = transactions.list_ids(prefix_pattern(prefix), [TransactionState.ONGOING])
            return None if open_now else "none is open"

    def fail_amid(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, pace = TaskContext.get(), Event()
        if task is not None and task.partitionId() == 1:
            wait_until(other_writes, seconds)
            msg = "planted"
            raise RuntimeError(msg)
        yield from batches
        deadline = Deadline.after(seconds)
        while not deadline.expired:
            yield pa.RecordBatch.from_pydict({"value": [b"1" * 1_000] * 1_000})
            pace.wait(0.05)

    with pytest.raises(Exception, match="planted"):
        copy.run(change=fail_amid)
    await_ended(copy)
    assert copy.seen() == []
    assert copy.cluster.consume(ledger_topic(copy.sink)) == []

    copy.run()
    assert copy.seen() == [0, 1, 2]


# --- The driver's commits and aborts, without Spark -----------------------------------------------


@dataclass
class Sink:
    """
    One execution of micro-batches, task by task, with the calls that Spark makes.
    """

    cluster: KafkaCluster
    topic: str
    query: str = QUERY

    def __post_init__(self) -> None:
        self.delivery = ExactlyOnceStream(settings(self.cluster, self.topic))

    def write(
        self,
        batch: int,
        task: int,
        rows: int,
        attempt: int = 0,
        attempt_id: int = 0,
        value: str = "",
    ) -> TaskCommitMessage:
        """
        Write the rows of a task; by default, each value names the batch, the task and the row.
        """
        values = [value or f"{batch}/{task}/{row}" for row in range(rows)]
        batches = [pa.RecordBatch.from_pydict({"value": values})] if rows else []
        return self.delivery.write(batches, SinkTask(task, attempt, self.query, batch, attempt_id))

    def write_all(self, batch: int, *rows: int) -> list[TaskCommitMessage]:
        """
        Write all tasks of a batch.
        """
        return [self.write(batch, task, count) for task, count in enumerate(rows)]

    def commit(self, batch: int, messages: list[TaskCommitMessage]) -> None:
        """
        Commit the micro-batch, as the driver does after its tasks.
        """
        self.delivery.commit(messages, len(messages), batch)

    def run(self, batch: int, *rows: int) -> None:
        """
        Write a batch and commit it.
        """
        self.commit(batch, self.write_all(batch, *rows))

    def restarted(self) -> Sink:
        """
        Return the next execution of the query's batch, by another process.
        """
        return Sink(self.cluster, self.topic, self.query)


@pytest.fixture
def sink(kafka_cluster: KafkaCluster, topic: TopicFactory) -> Sink:
    """
    Return one execution that writes to a new topic.
    """
    return Sink(kafka_cluster, topic())


class DiedError(Exception):
    """
    Stands for the death of the driver.
    """


def die_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """
    Let the next driver die after this many commits.
    """
    end_all = Transactions.end_all

    def end_some(self: Transactions, prepared: list[PreparedTransaction], *, commit: bool) -> None:
        monkeypatch.setattr(Transactions, "end_all", end_all)
        end_all(self, prepared[:count], commit=commit)
        raise DiedError

    monkeypatch.setattr(Transactions, "end_all", end_some)


def time_passes(sink: Sink) -> None:
    """
    Abort the open transactions of a dead driver, as coordinators do after the timeout.
    """
    with transaction_client(settings(sink.cluster, sink.topic).kafka) as transactions:
        for name in transactions.list_ids(prefix_pattern(sink.topic), [TransactionState.ONGOING]):
            transactions.abort_ids([name])


def rows_of(sink: Sink) -> list[str]:
    """
    Return the rows that a plain read_committed reader returns.
    """
    records = sink.cluster.consume(sink.topic, COMMITTED)
    return sorted((r.value or b"").decode() for r in records)


def expected(batch: int, *rows: int) -> list[str]:
    """
    Return the rows of a batch.
    """
    return sorted(f"{batch}/{task}/{row}" for task, n in enumerate(rows) for row in range(n))


@pytest.mark.parametrize("begins_before", [False, True])
def test_a_task_that_outlives_its_batch(sink: Sink, begins_before: bool) -> None:
    """
    A task that goes on after its micro-batch was aborted leaves no open transaction, whether its
    transaction began before the abort or after it.
    """
    messages = [sink.write(0, 0, 1)]
    # In Spark another process aborts.
    driver = sink.restarted()

    def rows() -> Iterator[pa.RecordBatch]:
        if begins_before:
            # Enough for a request.
            yield pa.RecordBatch.from_pydict({"value": ["x" * 500_000] * 4})
            assert len(open_ids(sink.cluster, sink.topic)) == len(messages) + 1
        driver.delivery.abort(messages, 2)
        yield pa.RecordBatch.from_pydict({"value": ["late"]})

    with pytest.raises(PykafkaError):
        sink.delivery.write(rows(), SinkTask(1, 0, QUERY, 0, 7))

    assert open_ids(sink.cluster, sink.topic) == []
    sink.restarted().run(0, 1, 1)
    assert rows_of(sink) == expected(0, 1, 1)


def test_committed_tasks_are_not_repeated(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Two drivers die after one commit each; the next one completes the batch and repeats no row.
    """
    sink.run(0, 5, 5)
    for died_after in (1, 1):
        die_after(monkeypatch, died_after)
        sink = sink.restarted()
        with pytest.raises(DiedError):
            sink.run(1, 3, 4, 5)
    sink.restarted().run(1, 3, 4, 5)
    sink.restarted().run(2, 1)

    assert rows_of(sink) == sorted(expected(0, 5, 5) + expected(1, 3, 4, 5) + expected(2, 1))
    assert open_ids(sink.cluster, sink.topic) == []


def test_empty_tasks_and_batches(sink: Sink) -> None:
    """
    A task without rows has no transaction; a batch without rows has nothing to commit.
    """
    sink.run(0, 0, 0)
    sink.restarted().run(1, 0, 4, 0)
    sink.restarted().run(2, 0)
    sink.restarted().run(3, 2)

    assert rows_of(sink) == sorted(expected(1, 0, 4, 0) + expected(3, 2))


@pytest.mark.parametrize("give_up", [False, True], ids=["released", "completed"])
@pytest.mark.parametrize(
    ("replayed_rows", "reason"),
    [((3, 4, 5, 6), "it had 3 tasks then"), ((3, 9), "it had 3"), ((4, 4, 5), "wrote 3 rows then")],
    ids=["more tasks", "fewer tasks", "other rows"],
)
def test_a_different_replay_is_refused(
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    replayed_rows: tuple[int, ...],
    reason: str,
    *,
    give_up: bool,
) -> None:
    """
    A replay with different rows is refused: the error gives the reason and the visible rows, and no
    row of the replay becomes visible. After a release the batch is written again as a whole; after
    a completion it stays as it is.
    """
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.run(7, 3, 4, 5)
    time_passes(sink)
    other = sink.restarted()
    messages = other.write_all(7, *replayed_rows)
    with pytest.raises(
        ExactlyOnceError, match=f"{reason}.*Visible so far: 3 rows, those of 1 of 3 tasks"
    ):
        other.commit(7, messages)
    other.delivery.abort(messages, len(messages))
    assert rows_of(sink) == expected(7, 3)

    assert "in part: 3 rows, those of 1 of 3" in transactions("describe", sink)
    if give_up:
        assert transactions("complete", sink, "--execute").startswith("completed batch 7")
        assert "complete: 3 rows" in transactions("describe", sink)
    else:
        assert transactions("release", sink, "--execute").startswith("released")
    sink.restarted().run(7, *replayed_rows)
    sink.restarted().run(8, 1)
    rewritten = () if give_up else replayed_rows
    assert rows_of(sink) == sorted(expected(7, 3) + expected(7, *rewritten) + expected(8, 1))


def test_a_replay_without_rows_is_refused(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A replay without rows is refused if the batch is committed only in part.
    """
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.run(7, 3, 4, 5)
    time_passes(sink)
    with pytest.raises(ExactlyOnceError, match="its task 0 wrote 3 rows then, and 0 now"):
        sink.restarted().run(7, 0, 0, 0)
    assert rows_of(sink) == expected(7, 3)

    sink.restarted().run(7, 3, 4, 5)
    sink.restarted().run(7, 0, 0, 0)
    assert rows_of(sink) == expected(7, 3, 4, 5)
    assert open_ids(sink.cluster, sink.topic) == []


def test_a_late_intent(sink: Sink) -> None:
    """
    A process of a dead driver still commits a task while the next driver writes: no row is lost or
    repeated.
    """
    messages, other = sink.write_all(0, 2, 3), sink.restarted()
    other_messages = [other.write(0, 0, 2, attempt=1)]
    committable = CommittableBatch(
        sink.topic, QUERY, 0, messages[0].write, 2, tuple(committables_of(messages))
    )
    with transaction_client(settings(sink.cluster, sink.topic).kafka) as transactions:
        ledger = Ledger(transactions.cluster, transactions.config, ledger_topic(sink.topic))
        # A former version of the connector committed without reading the ledger again.
        ledger.append(make_intent(committable, committable.committables))
        transactions.end(committable.committables[1].prepared, commit=True)
    other_messages.append(other.write(0, 1, 3, attempt=1))
    other.commit(0, other_messages)

    assert rows_of(sink) == expected(0, 2, 3)
    assert open_ids(sink.cluster, sink.topic) == []


def committables_of(messages: list[TaskCommitMessage]) -> list[Committable]:
    """
    Return the transactions that tasks have left open.
    """
    return [message.committable for message in messages if message.committable is not None]


@pytest.mark.parametrize("rows", [(2, 3), (0, 0)], ids=["rows", "none"])
def test_a_resumed_driver_aborts_nothing_of_its_successor(
    sink: Sink, rows: tuple[int, int]
) -> None:
    """
    A driver that was paused before its commit does not abort the open transactions of its
    successor.
    """
    messages = sink.write_all(0, *rows)
    for batch in (0, 1):
        successor = sink.restarted()
        successor.commit(
            batch, [successor.write(batch, task, 2 + task, attempt=1) for task in (0, 1)]
        )
    present = sink.restarted()
    open_still = [present.write(2, task, 1, attempt=2) for task in (0, 1)]

    with pytest.raises((ExactlyOnceError, FencedError)):
        sink.commit(0, messages)
    sink.delivery.abort(messages, len(messages))
    present.commit(2, open_still)

    assert rows_of(sink) == sorted(expected(0, 2, 3) + expected(1, 2, 3) + expected(2, 1, 1))


def test_a_resumed_driver_without_rows(sink: Sink) -> None:
    """
    A resumed driver without rows leaves the next batch alone, although no marker of its own batch
    exists.
    """
    messages = sink.write_all(0, 0, 0)
    sink.restarted().run(0, 0, 0)
    present = sink.restarted()
    open_still = present.write_all(1, 2, 3)

    with pytest.raises(ConcurrentWriteError, match="begun to write batch 1 "):
        sink.commit(0, messages)
    sink.delivery.abort(messages, len(messages))
    present.commit(1, open_still)

    assert rows_of(sink) == expected(1, 2, 3)


def test_a_batch_write_whose_prefix_looks_like_a_query(sink: Sink) -> None:
    """
    Transactions that match the stream's prefix but are not in the ledger are left alone.
    """
    sink.run(0, 2)
    other = f"{sink.topic}-20261122-1"
    row = pa.RecordBatch.from_pydict({"value": [b"batch"]})
    options = settings(sink.cluster, sink.topic)
    opened = write_in_transaction(
        [row], options.kafka, sink.topic, task_transactional_id(other, 0, 0)
    ).prepared
    assert opened is not None
    sink.restarted().run(1, 3)

    with transaction_client(options.kafka) as transactions:
        transactions.end(opened, commit=True)
    assert rows_of(sink) == sorted(["batch", *expected(0, 2), *expected(1, 3)])


def test_a_foreign_query_does_not_block_the_owner(sink: Sink) -> None:
    """
    The open transaction of a foreign query, which precedes the owner's in the ledger, does not
    block the owner's commit.
    """
    sink.run(0, 2)
    stranger = Sink(sink.cluster, sink.topic, OTHER)
    messages = stranger.write_all(0, 1)
    sink.restarted().run(1, 3)
    with pytest.raises(ExactlyOnceError, match=f"belongs to the query {QUERY}"):
        stranger.commit(0, messages)

    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3))


def test_another_query_with_the_prefix_is_refused(sink: Sink) -> None:
    """
    The error names the owner, whose rows are not affected; after a release the other query may use
    the prefix.
    """
    sink.run(0, 2)
    replay = sink.restarted()
    messages = replay.write_all(1, 3)
    stranger = Sink(sink.cluster, sink.topic, OTHER)
    other_messages = stranger.write_all(0, 1)
    with pytest.raises(ExactlyOnceError, match=f"belongs to the query {QUERY}"):
        stranger.commit(0, other_messages)
    stranger.delivery.abort(other_messages, len(other_messages))
    replay.commit(1, messages)
    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3))

    assert f"would release {sink.topic} from the query {QUERY}" in transactions("release", sink)
    transactions("release", sink, "--execute")
    for action in ("describe", "complete", "release"):
        assert transactions(action, sink, code=ExitCode.NOT_FOUND) == ""
    Sink(sink.cluster, sink.topic, OTHER).run(0, 0, 1)
    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3) + expected(0, 0, 1))


def test_losing_attempts_are_aborted(sink: Sink) -> None:
    """
    A second attempt of a task blocks no reader, even if its transaction is open when the batch is
    committed.
    """
    messages = sink.write_all(0, 2, 3)
    sink.write(0, 1, 3, attempt=1)
    sink.commit(0, messages)

    assert rows_of(sink) == expected(0, 2, 3)
    assert open_ids(sink.cluster, sink.topic) == []


def test_an_attempt_of_a_retried_stage(sink: Sink) -> None:
    """
    An attempt of a retried stage does not abort the committed attempt that had the same attempt
    number (SPARK-24552).
    """
    messages = sink.write_all(0, 2, 3)
    sink.write(0, 1, 3, attempt_id=417)
    sink.commit(0, messages)

    assert rows_of(sink) == expected(0, 2, 3)
    assert open_ids(sink.cluster, sink.topic) == []


@pytest.mark.parametrize("replayed_rows", [(4, 4, 4), (12,), (0, 0)], ids=["rows", "tasks", "none"])
def test_a_decided_commit_is_completed(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, replayed_rows: tuple[int, ...]
) -> None:
    """
    The open transactions of a binding intent are committed by the next run, however it divides its
    rows.
    """
    sink.run(0, 2)
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.restarted().run(1, 3, 4, 5)
    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3))
    sink.restarted().run(1, *replayed_rows)
    sink.restarted().run(2, 1)

    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3, 4, 5) + expected(2, 1))
    assert open_ids(sink.cluster, sink.topic) == []


def test_a_decided_commit_is_completed_before_the_tasks(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The first task of the next run commits the open transactions of a binding intent before it
    writes: if the timeout passes while the tasks run, other rows do no harm.
    """
    sink.run(0, 2)
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.restarted().run(1, 3, 4, 5)
    restarted = sink.restarted()
    restarted.write(1, 1, 7)
    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3))
    restarted.write(1, 0, 7)
    whole = sorted(expected(0, 2) + expected(1, 3, 4, 5))
    assert rows_of(sink) == whole
    time_passes(sink)
    sink.restarted().run(1, 4, 4)

    assert rows_of(sink) == whole
    assert open_ids(sink.cluster, sink.topic) == []


def test_a_task_writes_even_if_it_cannot_look_for_an_earlier_commit(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The error of the brokers is logged, and the task goes on: the commit completes the earlier one.
    """
    sink.run(0, 2)
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.restarted().run(1, 3, 4)

    def fail(*_: Any) -> None:
        msg = "the ledger did not answer"
        raise TimeoutExceededError(msg)

    with monkeypatch.context() as patched:
        patched.setattr(decided_commits, "complete_earlier_commit", fail)
        sink.restarted().run(1, 7)
    assert "had begun to commit is not known" in caplog.text
    assert "the ledger did not answer" in caplog.text
    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3, 4))


def test_a_late_attempt_of_the_first_task(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An attempt that begins after its own driver has decided to commit leaves the commit to it.
    """
    messages = sink.write_all(0, 3, 4)
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.commit(0, messages)
    sink.write(0, 0, 9, attempt=1)

    assert rows_of(sink) == expected(0, 3)


def test_a_decided_commit_is_not_aborted(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Spark calls abort after a failed commit; transactions whose commit is decided are left to the
    next run.
    """
    messages = sink.write_all(0, 3, 4, 5)
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.commit(0, messages)
    sink.delivery.abort(messages, len(messages))
    assert len(open_ids(sink.cluster, sink.topic)) == 2
    sink.restarted().run(0, 12)

    assert rows_of(sink) == expected(0, 3, 4, 5)


def test_the_command_spares_a_partly_committed_batch(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    If the driver died between two commits, the command says why it leaves the rest open, and aborts
    a transaction that no intent names.
    """
    sink.run(0, 2)
    messages = sink.write_all(1, 3, 4, 5)
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.commit(1, messages)
    open_after = open_ids(sink.cluster, sink.topic)
    sink.restarted().write(1, 7, 1)
    arguments = ["transactions", "abort", "--bootstrap-server", sink.cluster.bootstrap]
    assert main([*arguments, "--prefix", sink.topic, "--execute"]) == 0

    assert open_ids(sink.cluster, sink.topic) == open_after
    printed = capsys.readouterr().out
    assert all(f"left open {name}" in printed for name in open_after)
    sink.restarted().run(1, 12)
    assert rows_of(sink) == sorted(expected(0, 2) + expected(1, 3, 4, 5))


def test_a_commit_after_the_abort_is_refused(sink: Sink) -> None:
    """
    After an abort, a late intent of the same process is not binding, and its commit is refused.
    """
    messages = sink.write_all(0, 3, 4)
    sink.delivery.abort(messages, len(messages))
    with pytest.raises((ConcurrentWriteError, FencedError)):
        sink.commit(0, messages)
    sink.restarted().run(0, 7)

    assert rows_of(sink) == expected(0, 7)


def test_equal_counts_of_different_rows_are_refused(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If one task is committed and the rest have timed out, a replay with different rows is refused,
    even if their counts are equal.
    """
    die_after(monkeypatch, 1)
    with pytest.raises(DiedError):
        sink.run(7, 3, 4)
    time_passes(sink)
    other = sink.restarted()
    messages = [other.write(7, 0, 3, value="another"), other.write(7, 1, 4)]
    with pytest.raises(
        ExactlyOnceError, match="its task 0 wrote different rows then, although the same number"
    ):
        other.commit(7, messages)
    other.delivery.abort(messages, len(messages))

    assert rows_of(sink) == expected(7, 3)


def test_the_ledger_stays_small(sink: Sink) -> None:
    """
    Each batch removes the intent of the previous one, and leaves its own.
    """
    for batch in range(5):
        sink.run(batch, 2, 2)
        sink = sink.restarted()
    compacted: dict[bytes | None, bytes | None] = {}
    for record in sink.cluster.consume(ledger_topic(sink.topic), COMMITTED):
        compacted[record.key] = record.value
    intents = [
        value for value in compacted.values() if value and json.loads(value)["kind"] == "intent"
    ]

    assert [json.loads(value)["batch"] for value in intents] == [4]


def test_at_most_one_of_two_concurrent_writes_commits(sink: Sink) -> None:
    """
    Two processes that write the same batch alternately are both rejected, and the next run leaves
    each row visible once.
    """
    other = sink.restarted()
    messages = [sink.write(0, 0, 2)]
    other_messages = [other.write(0, 0, 2, attempt=1)]
    messages.append(sink.write(0, 1, 3))
    other_messages.append(other.write(0, 1, 3, attempt=1))
    with pytest.raises(ConcurrentWriteError, match="is the query running twice"):
        sink.commit(0, messages)
    with pytest.raises((ConcurrentWriteError, FencedError)):
        other.commit(0, other_messages)
    assert rows_of(sink) == []

    sink.restarted().run(0, 2, 3)
    assert rows_of(sink) == expected(0, 2, 3)


def test_a_superseded_driver_changes_nothing(sink: Sink) -> None:
    """
    A superseded driver changes nothing: its successor has written the batch and taken over its
    transactions.
    """
    messages = sink.write_all(0, 2, 3)
    sink.restarted().run(0, 2, 3)
    with pytest.raises((ExactlyOnceError, FencedError)):
        sink.commit(0, messages)
    sink.restarted().run(1, 1)

    assert rows_of(sink) == sorted(expected(0, 2, 3) + expected(1, 1))


def test_a_foreign_record_in_the_ledger(sink: Sink) -> None:
    """
    A foreign record in the ledger is an error that names its offset, and nothing is committed.
    """
    sink.run(0, 1)
    sink.cluster.produce(f"{sink.topic}-ledger", [Record(b"hello", b"task-0")])
    with pytest.raises(ExactlyOnceError, match=r"-ledger-0 at offset \d+ is not an entry"):
        sink.restarted().run(1, 1)

    assert rows_of(sink) == expected(0, 1)


def transactions(action: str, sink: Sink, *arguments: str, code: ExitCode = ExitCode.DONE) -> str:
    """
    Return the output of `pykafka transactions`.
    """
    printed = StringIO()
    command = ["transactions", action, "--bootstrap-server", sink.cluster.bootstrap]
    with redirect_stdout(printed):
        assert main([*command, "--prefix", sink.topic, *arguments]) == code
    return printed.getvalue()
