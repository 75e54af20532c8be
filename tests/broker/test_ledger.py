"""
The ledger of an exactly-once stream on real brokers: creation, cost, loss.
"""

from __future__ import annotations

import uuid
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.network.topic_replicas import fetch_topic_replicas
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.errors import ExactlyOnceError, PykafkaError, RecordError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.sink.delivery import ExactlyOnceStream, SinkTask
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_topic import LedgerTopic, ensure_ledger_topic
from pyspark_pykafka.sink.transactional_ids import any_query_pattern
from pyspark_pykafka.testing import Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction
    from pyspark_pykafka.sink.delivery import TaskCommitMessage
    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

SECONDS = 30.0
COMMITTED = {"isolation.level": "read_committed"}
QUERY = str(uuid.UUID(int=3 << 100))


class Stream:
    """
    Executions of micro-batches of two tasks with a row each; the prefix is the topic's name.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, **options: str) -> None:
        self.cluster, self.topic = cluster, topic
        sink_options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "topic": topic,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": topic,
            **options,
        }
        self.options = parse_sink(sink_options, streaming=True)
        self.ledger = f"{topic}-ledger"

    def run(self, batch: int) -> None:
        """
        Write a batch and commit it, as a new execution does; abort it if the commit fails.
        """
        delivery = ExactlyOnceStream(self.options)
        commit_messages = [self._write(delivery, batch, task) for task in range(2)]
        try:
            delivery.commit(commit_messages, len(commit_messages), batch)
        except PykafkaError:
            delivery.abort(commit_messages, len(commit_messages))
            raise

    def refused(self, batch: int) -> ExactlyOnceError:
        """
        Return the error of a batch that is not written.
        """
        before = self.seen()
        with pytest.raises(ExactlyOnceError) as caught:
            self.run(batch)
        assert self.seen() == before
        return caught.value

    def configure_ledger(self, **settings: str) -> None:
        """
        Change settings of the ledger's topic.
        """
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.ledger, incremental_configs=entries)
        admin = self.cluster.admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(SECONDS)

    def delete_entries(self, before: int) -> None:
        """
        Delete the ledger's entries before an offset.
        """
        position = TopicPartition(self.ledger, 0, before)
        admin = self.cluster.admin()
        admin.delete_records([position])[position].result(SECONDS)

    def log_start(self) -> int:
        """
        Return the ledger's log start.
        """
        with transaction_client(self.options.kafka) as transactions:
            return Ledger(transactions.cluster, transactions.config, self.ledger).watermarks()[0]

    def _write(self, delivery: ExactlyOnceStream, batch: int, task: int) -> TaskCommitMessage:
        row = pa.RecordBatch.from_pydict({"value": [b"%d/%d" % (batch, task)]})
        return delivery.write([row], SinkTask(task, 0, QUERY, batch, batch * 10 + task))

    def seen(self) -> list[bytes]:
        """
        Return the values that a read_committed reader returns once decided transactions have ended.
        """
        with transaction_client(self.options.kafka) as transactions:
            ids = transactions.list_ids(any_query_pattern(self.topic))
            # The commit of a micro-batch does not wait for the transactions' markers.
            transactions.wait_until_visible(ids)
        return sorted(r.value or b"" for r in self.cluster.consume(self.topic, COMMITTED))

    def lose_ledger(self) -> None:
        """
        Delete the ledger and clear the cache of its existence, as in a new process.
        """
        admin = self.cluster.admin()
        admin.delete_topics([self.ledger])[self.ledger].result(SECONDS)
        wait_until(lambda: "the ledger still exists" if self.exists() else None, SECONDS)
        ensure_ledger_topic.cache_clear()

    def exists(self) -> bool:
        """
        Return whether the brokers have the ledger.
        """
        with transaction_client(self.options.kafka) as transactions:
            limit = Deadline.after(SECONDS)
            return (
                fetch_topic_replicas(transactions.cluster, self.ledger, limit).replication_factor
                is not None
            )

    def release(self, *arguments: str) -> str:
        """
        Return the output of `pykafka transactions release`.
        """
        printed = StringIO()
        command = ["transactions", "release", "--bootstrap-server", self.cluster.bootstrap]
        with redirect_stdout(printed):
            assert main([*command, "--prefix", self.topic, *arguments]) == 0
        return printed.getvalue()


@pytest.fixture
def stream(kafka_cluster: KafkaCluster, topic: TopicFactory) -> Stream:
    """
    Return a stream to a new topic.
    """
    return Stream(kafka_cluster, topic())


def test_rows_for_the_ledger_are_refused(stream: Stream) -> None:
    """
    Rows whose topic column names the ledger fail the task; the stream then continues.
    """
    stream.run(0)
    options = replace(stream.options, topic=None)
    columns = {"topic": [stream.topic, stream.ledger], "value": [b"x", b"y"]}
    with pytest.raises(RecordError, match=f"for topic '{stream.ledger}'.*transactionalIdPrefix"):
        ExactlyOnceStream(options).write(
            [pa.RecordBatch.from_pydict(columns)], SinkTask(0, 0, QUERY, 1, 10)
        )
    stream.run(1)

    assert stream.seen() == [b"0/0", b"0/1", b"1/0", b"1/1"]


class DiedError(Exception):
    """
    Simulates the death of the driver.
    """


def die_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let the next driver die after one commit.
    """
    end_all = Transactions.end_all

    def end_one(self: Transactions, prepared: list[PreparedTransaction], *, commit: bool) -> None:
        monkeypatch.setattr(Transactions, "end_all", end_all)
        end_all(self, prepared[:1], commit=commit)
        raise DiedError

    monkeypatch.setattr(Transactions, "end_all", end_one)


def test_markers_of_a_micro_batch(kafka_cluster: KafkaCluster, topic: TopicFactory) -> None:
    """
    A micro-batch writes one transaction marker for each task and partition, the ledger included.
    """
    stream = Stream(kafka_cluster, topic(1))
    batches = 3
    for number in range(batches):
        stream.run(number)

    # Two tasks with a row each: two transaction markers in the topic, which come after the commit.
    expected = batches * (2 + 2)

    def wrong() -> str | None:
        end = end_offset(stream, stream.topic)
        return None if end == expected else f"the topic ends at {end}, not at {expected}"

    wait_until(wrong, SECONDS)
    # An entry and a transaction marker for each task, and the intent.
    assert batches * 2 * 2 <= end_offset(stream, stream.ledger) <= batches * (2 * 2 + 2)
    with transaction_client(stream.options.kafka) as transactions:
        assert len(transactions.list_ids(any_query_pattern(stream.topic))) == 2 * 2


def end_offset(stream: Stream, topic: str) -> int:
    """
    Return the end offset of a topic of one partition.
    """
    with transaction_client(stream.options.kafka) as transactions:
        return Ledger(transactions.cluster, transactions.config, topic).high_watermark()


@pytest.mark.parametrize("batch", [0, 1])
def test_a_deleted_ledger_is_not_recreated(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """
    Without its ledger, a partly committed batch cannot be recognised: writes fail until a user
    releases the prefix.
    """
    for number in range(batch):
        stream.run(number)
    die_after_one(monkeypatch)
    with pytest.raises(DiedError):
        stream.run(batch)
    before = stream.seen()
    stream.lose_ledger()

    with pytest.raises(ExactlyOnceError, match=r"is gone\. The query") as caught:
        stream.run(batch)

    assert caught.value.condition == "EXACTLY_ONCE_LEDGER_LOST"
    assert f"pykafka transactions release --prefix {stream.topic}" in str(caught.value)
    assert stream.seen() == before
    assert not stream.exists()
    assert "would start" in stream.release()
    assert not stream.exists()
    assert stream.release("--execute").startswith("started")
    stream.run(batch)
    stream.run(batch + 1)
    # The user's release allows the committed rows to be written again.
    assert set(stream.seen()) == rows_of(batch + 2)


def test_a_recreated_ledger_counts_as_lost(stream: Stream) -> None:
    """
    A ledger that is deleted while the query runs, and auto-created by the brokers, counts as lost,
    however often the query is started.
    """
    for number in range(2):
        stream.run(number)
    checks = ensure_ledger_topic.cache_info().misses
    admin = stream.cluster.admin()
    admin.delete_topics([stream.ledger])[stream.ledger].result(SECONDS)
    wait_until(lambda: "the ledger still exists" if stream.exists() else None, SECONDS)
    stream.cluster.create_topic(stream.ledger)

    # The abort of a refused write leaves an entry in the ledger, which is not a commit.
    errors = [stream.refused(2) for _ in range(3)]

    assert ensure_ledger_topic.cache_info().misses == checks
    assert {error.condition for error in errors} == {"EXACTLY_ONCE_LEDGER_LOST"}
    assert "records no commit. The query" in str(errors[0])
    stream.configure_ledger(cleanup_policy="compact")
    new_process()
    assert stream.refused(2).condition == "EXACTLY_ONCE_LEDGER_LOST"
    assert stream.release("--execute").startswith("started")
    stream.run(2)
    assert stream.seen() == sorted(rows_of(3))


def test_a_ledger_whose_entries_may_be_deleted_is_refused(stream: Stream) -> None:
    """
    A topic with another cleanup.policy is refused when a process starts; once it is compacted, the
    query continues, and a repeated batch is recognised.
    """
    stream.cluster.create_topic(stream.ledger)
    error = stream.refused(0)
    assert error.condition == "EXACTLY_ONCE_LEDGER_NOT_COMPACTED"
    assert "cleanup.policy=delete" in str(error)

    stream.configure_ledger(cleanup_policy="compact")
    stream.run(0)
    stream.configure_ledger(cleanup_policy="compact,delete")
    new_process()
    assert stream.refused(0).condition == "EXACTLY_ONCE_LEDGER_NOT_COMPACTED"
    stream.configure_ledger(cleanup_policy="compact")
    stream.run(0)
    assert stream.seen() == [b"0/0", b"0/1"]


def test_a_ledger_with_unclean_elections_is_refused(stream: Stream) -> None:
    """
    A topic with unclean elections, whose leader may lack entries, is refused until such elections
    are disabled.
    """
    stream.cluster.create_topic(stream.ledger)
    stream.configure_ledger(cleanup_policy="compact", unclean_leader_election_enable="true")
    assert stream.refused(0).condition == "EXACTLY_ONCE_LEDGER_UNCLEAN_ELECTION"

    stream.configure_ledger(cleanup_policy="compact", unclean_leader_election_enable="false")
    stream.run(0)
    assert stream.seen() == [b"0/0", b"0/1"]


@pytest.mark.parametrize("batch", [0, 1])
def test_a_ledger_without_its_first_entries_is_refused(stream: Stream, batch: int) -> None:
    """
    Entries at the front are deleted while the policy is `delete`: the next process refuses the
    ledger, again and again, until a user releases the prefix.
    """
    for number in range(batch + 1):
        stream.run(number)
    stream.configure_ledger(cleanup_policy="delete")
    stream.delete_entries(before=1)
    stream.configure_ledger(cleanup_policy="compact")
    new_process()

    errors = [stream.refused(number) for number in (batch, batch, batch + 1)]

    assert {error.condition for error in errors} == {"EXACTLY_ONCE_LEDGER_LOST"}
    assert f"{stream.ledger} begins at offset 1: its first entries were deleted" in str(errors[0])
    assert stream.release("--execute").startswith("released")
    for number in (batch, batch + 1):
        stream.run(number)
    assert set(stream.seen()) == rows_of(batch + 2)


def test_a_ledger_without_entries_is_started_again(stream: Stream) -> None:
    """
    `release` starts a new ledger if all entries were deleted, even if no broker knows of a commit.
    """
    stream.cluster.create_topic(stream.ledger)
    stream.cluster.produce(stream.ledger, [Record(b"x")])
    stream.delete_entries(before=1)
    stream.configure_ledger(cleanup_policy="compact")
    assert stream.refused(0).condition == "EXACTLY_ONCE_LEDGER_LOST"

    assert "entries of the old one were deleted" in stream.release("--execute")
    stream.run(0)
    stream.run(0)
    assert stream.seen() == [b"0/0", b"0/1"]


def test_entries_that_are_deleted_while_a_query_runs(stream: Stream) -> None:
    """
    A process that has checked the topic continues as long as the entries of its batch and of the
    previous batch exist; otherwise it refuses the batch.
    """
    for number in range(3):
        stream.run(number)
    end = end_offset(stream, stream.ledger)
    stream.configure_ledger(cleanup_policy="delete")
    stream.delete_entries(before=1)
    stream.run(2)
    stream.delete_entries(before=end - 1)

    assert [stream.refused(2).condition for _ in range(2)] == ["EXACTLY_ONCE_LEDGER_LOST"] * 2
    assert set(stream.seen()) == rows_of(3)
    assert len(stream.seen()) == 3 * 2


def test_a_compacted_ledger_is_accepted(stream: Stream) -> None:
    """
    Compaction removes entries but leaves the log start, and brokers delete nothing on request.
    """
    stream.run(0)
    stream.configure_ledger(
        min_cleanable_dirty_ratio="0.0001",
        segment_ms="100",
        min_compaction_lag_ms="0",
        max_compaction_lag_ms="100",
        delete_retention_ms="0",
    )
    batches = iter(range(1, 1_000))

    def not_compacted() -> str | None:
        # The last segment is cleaned only after a new one has been rolled.
        stream.run(next(batches))
        first = min(r.offset or 0 for r in stream.cluster.consume(stream.ledger, COMMITTED))
        return None if first > 0 else "the first entry is still there"

    wait_until(not_compacted, 60)
    last = next(batches) - 1
    new_process()
    stream.run(last)
    stream.run(last + 1)

    assert stream.log_start() == 0
    assert len(stream.seen()) == len(rows_of(last + 2))
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        stream.delete_entries(before=1)


def new_process() -> None:
    """
    Forget which ledgers were checked, as a new process.
    """
    ensure_ledger_topic.cache_clear()


def rows_of(batches: int) -> set[bytes]:
    """
    Return the values of the first batches.
    """
    return {b"%d/%d" % (batch, task) for batch in range(batches) for task in (0, 1)}


def test_a_query_that_becomes_exactly_once_later(stream: Stream) -> None:
    """
    A stream that becomes exactly-once later begins its ledger at any batch id: nothing was lost.
    """
    stream.run(57)

    assert stream.seen() == [b"57/0", b"57/1"]
    assert stream.release().startswith("would release")


def test_a_prefix_that_never_had_a_ledger(
    stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Releasing a prefix without a ledger is an error, and creates no topic.
    """
    command = ["transactions", "release", "--bootstrap-server", stream.cluster.bootstrap]
    assert main([*command, "--prefix", stream.topic, "--execute"]) == ExitCode.NOT_FOUND
    assert f"no query has the prefix '{stream.topic}'" in capsys.readouterr().err
    assert not stream.exists()


@pytest.mark.parametrize(
    ("topic", "brokers", "durability"),
    [
        (LedgerTopic("l"), 1, (1, 1)),
        (LedgerTopic("l"), 2, (2, 1)),
        (LedgerTopic("l"), 3, (3, 2)),
        (LedgerTopic("l"), 9, (3, 2)),
        (LedgerTopic("l", 5), 9, (5, 2)),
        (LedgerTopic("l", None, 1), 9, (3, 1)),
        (LedgerTopic("l", 4, 3), 9, (4, 3)),
    ],
)
def test_durability_of_a_ledger(
    topic: LedgerTopic, brokers: int, durability: tuple[int, int]
) -> None:
    """
    A ledger has one replica per broker, at most three, and one of them may be unavailable.
    """
    assert topic.durability(brokers) == durability


def test_more_replicas_than_brokers(kafka_cluster: KafkaCluster, topic: TopicFactory) -> None:
    """
    If the ledger needs more replicas than there are brokers, the error names the option.
    """
    stream = Stream(kafka_cluster, topic(), ledgerReplicationFactor="9")
    with pytest.raises(Exception, match="fewer than 9 brokers are up; .*ledgerReplicationFactor"):
        stream.run(0)

    assert stream.seen() == []
