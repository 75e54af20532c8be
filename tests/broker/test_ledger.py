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

from pyspark_pykafka.cli import main
from pyspark_pykafka.engines.selection import transaction_client
from pyspark_pykafka.engines.wire.network.topic_replicas import fetch_topic_replicas
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.errors import ExactlyOnceError, RecordError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.sink.delivery import ExactlyOnceStream, SinkTask
from pyspark_pykafka.sink.ledger import Ledger
from pyspark_pykafka.sink.ledger_topic import LedgerTopic, ensure_ledger_topic
from pyspark_pykafka.sink.transactional_ids import any_query_pattern
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
        Write a batch and commit it, as a new execution does.
        """
        delivery = ExactlyOnceStream(self.options)
        commit_messages = [self._write(delivery, batch, task) for task in range(2)]
        delivery.commit(commit_messages, len(commit_messages), batch)

    def _write(self, delivery: ExactlyOnceStream, batch: int, task: int) -> TaskCommitMessage:
        row = pa.RecordBatch.from_pydict({"value": [b"%d/%d" % (batch, task)]})
        return delivery.write([row], SinkTask(task, 0, QUERY, batch, batch * 10 + task))

    def seen(self) -> list[bytes]:
        """
        Return the values that a read_committed reader returns.
        """
        return sorted(r.value or b"" for r in self.cluster.consume(self.topic, COMMITTED))

    def lose_ledger(self) -> None:
        """
        Delete the ledger and clear the cache of its existence, as in a new process.
        """
        admin = self.cluster.admin()
        admin.delete_topics([self.ledger])[self.ledger].result(SECONDS)
        wait_until(lambda: "it is there still" if self.exists() else None, SECONDS)
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

    def release(self, *more: str) -> str:
        """
        Return the output of `pykafka transactions release`.
        """
        printed = StringIO()
        command = ["transactions", "release", "--bootstrap-server", self.cluster.bootstrap]
        with redirect_stdout(printed):
            assert main([*command, "--prefix", self.topic, *more]) == 0
        return printed.getvalue()


@pytest.fixture
def stream(kafka_cluster: KafkaCluster, topic: TopicFactory) -> Stream:
    """
    Return a stream to a new topic.
    """
    return Stream(kafka_cluster, topic())


def test_rows_for_the_ledger_are_refused(stream: Stream) -> None:
    """
    Rows for the ledger in the topic column fail the task; the stream then continues.
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

    # Two tasks with a row each: two markers in the topic, which come after the commit.
    expected = batches * (2 + 2)

    def wrong() -> str | None:
        end = end_offset(stream, stream.topic)
        return None if end == expected else f"the topic ends at {end}, not at {expected}"

    wait_until(wrong, SECONDS)
    # An entry and a marker for each task, and the intent.
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
    assert set(stream.seen()) == {b"%d/%d" % (n, task) for n in range(batch + 2) for task in (0, 1)}


def test_a_recreated_ledger_counts_as_lost(stream: Stream) -> None:
    """
    A ledger that is deleted while the query runs, and auto-created by the brokers, counts as lost.
    """
    stream.run(0)
    cached = ensure_ledger_topic.cache_info().currsize
    admin = stream.cluster.admin()
    admin.delete_topics([stream.ledger])[stream.ledger].result(SECONDS)
    wait_until(lambda: "it is there still" if stream.exists() else None, SECONDS)
    stream.cluster.create_topic(stream.ledger)

    with pytest.raises(ExactlyOnceError, match=r"is empty\. The query") as caught:
        stream.run(1)

    assert cached
    assert caught.value.condition == "EXACTLY_ONCE_LEDGER_LOST"
    assert stream.seen() == [b"0/0", b"0/1"]
    assert stream.release("--execute").startswith("started")
    stream.run(1)
    assert stream.seen() == [b"0/0", b"0/1", b"1/0", b"1/1"]


def test_a_query_that_becomes_exactly_once_later(stream: Stream) -> None:
    """
    A stream that becomes exactly-once later begins its ledger at any batch id: nothing was lost.
    """
    stream.run(57)

    assert stream.seen() == [b"57/0", b"57/1"]
    assert stream.release().startswith("would release")


def test_a_prefix_that_never_had_a_ledger(stream: Stream) -> None:
    """
    Releasing a prefix without a ledger does nothing, and creates no topic.
    """
    assert stream.release("--execute") == f"No query has the prefix {stream.topic}.\n"
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
