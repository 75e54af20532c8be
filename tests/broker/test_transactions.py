"""
Transactions that one process writes and another one ends, judged by plain readers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_pykafka.engines.transaction_contract import (
    PreparedTransaction,
    TaskWriteResult,
    TransactionSpec,
)
from pyspark_pykafka.engines.wire.producer.producer import (
    transaction_client,
    write_in_transaction,
)
from pyspark_pykafka.engines.wire.transactions.transaction_errors import FencedError
from pyspark_pykafka.engines.wire.transactions.transactions import Transactions
from pyspark_pykafka.engines.wire.transactions.values import (
    TransactionState,
)
from pyspark_pykafka.errors import (
    BrokerUnavailableError,
    ExactlyOnceError,
    KafkaClientError,
    RecordError,
    TimeoutExceededError,
)
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink import batch_committer
from pyspark_pykafka.sink.batch_committer import abort_write, commit_write
from pyspark_pykafka.sink.transactional_ids import starting_with_pattern, write_pattern
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.engines.wire.transactions.values import (
        TransactionDescription,
    )
    from pyspark_pykafka.testing import KafkaCluster
    from pyspark_pykafka.testing.plugin import TopicFactory

SECONDS = 30.0
TIMEOUT_MS = 60_000
COMMITTED = {"isolation.level": "read_committed"}
#: The states after an abort, whose markers may reach the partitions a moment later.
ABORTED = {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT, TransactionState.EMPTY}

PREPARING = """
import sys
import pyarrow as pa
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.engines.transaction_contract import TransactionSpec
from pyspark_pykafka.engines.wire.producer.producer import write_in_transaction

bootstrap, topic, name = sys.argv[1:]
rows = {"value": [b"0", b"1", b"2"], "partition": pa.array([0, 1, 0], "int32")}
kafka = KafkaSettings.of({"bootstrap.servers": bootstrap})
batch, transaction = pa.RecordBatch.from_pydict(rows), TransactionSpec(name, 60000)
written = write_in_transaction([batch], kafka, topic, transaction)
print(*written.prepared)
"""


def rows(*values: bytes) -> pa.RecordBatch:
    """
    Return rows with these values and no key.
    """
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


class Sink:
    """
    Writes transactions to one topic.
    """

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._cluster = cluster
        self.topic = topic
        self.settings = KafkaSettings.of({"bootstrap.servers": cluster.bootstrap})

    def write_in_transaction(
        self, name: str, *values: bytes, timeout_ms: int = TIMEOUT_MS
    ) -> PreparedTransaction:
        """
        Write values into a transaction that stays open.
        """
        transaction = TransactionSpec(f"{self.topic}-{name}", timeout_ms)
        written = write_in_transaction([rows(*values)], self.settings, self.topic, transaction)
        assert written.records == len(values)
        assert written.prepared is not None
        return written.prepared

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """
        Commit or abort a transaction, and wait until its partitions have the markers.
        """
        with transaction_client(self.settings) as transactions:
            transactions.end(prepared, commit=commit)
            transactions.wait_until_visible([prepared.transactional_id])

    def state(self, name: str) -> TransactionState | None:
        """
        Return the state of the transaction with this id, or None if the brokers know no such id.
        """
        description = self._described(name)
        return None if description is None else description.state

    def epoch(self, name: str) -> int | None:
        """
        Return the current producer epoch of this id, or None if the brokers know no such id; the
        next write gets a later epoch.
        """
        description = self._described(name)
        return None if description is None else description.epoch

    def _described(self, name: str) -> TransactionDescription | None:
        with transaction_client(self.settings) as transactions:
            return transactions.describe(f"{self.topic}-{name}")

    def visible(self) -> list[bytes]:
        """
        Return the values that a plain read_committed reader returns.
        """
        return sorted(r.value or b"" for r in self._cluster.consume(self.topic, COMMITTED))

    def written(self) -> int:
        """
        Return how many records lie in the topic, committed or not.
        """
        return len(self._cluster.consume(self.topic))


@pytest.fixture
def sink(kafka_cluster: KafkaCluster, topic: TopicFactory) -> Sink:
    """
    Return a sink for a new topic of two partitions.
    """
    return Sink(kafka_cluster, topic(2))


def test_another_process_commits(sink: Sink, kafka_cluster: KafkaCluster) -> None:
    """
    A transaction that a dead process prepared can be committed by its id, producer id and epoch.
    """
    name = f"{sink.topic}-of-another"
    completed = subprocess.run(
        [sys.executable, "-c", PREPARING, kafka_cluster.bootstrap, sink.topic, name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    printed_id, producer_id, epoch = completed.stdout.split()
    assert printed_id == name
    assert sink.written() == 3
    assert sink.visible() == []

    sink.end(PreparedTransaction(name, int(producer_id), int(epoch)), commit=True)

    assert sink.visible() == [b"0", b"1", b"2"]


def test_ending_a_transaction_is_idempotent(sink: Sink) -> None:
    """
    EndTxn may be sent twice, as by a client that did not get the response.
    """
    prepared = sink.write_in_transaction("a", b"x")
    for _ in range(2):
        sink.end(prepared, commit=True)

    assert sink.visible() == [b"x"]
    assert sink.state("a") is TransactionState.COMPLETE_COMMIT


def test_aborted_records_are_not_visible(sink: Sink) -> None:
    """
    Aborted records stay in the log, but no read_committed reader gets them.
    """
    prepared = sink.write_in_transaction("a", b"x")
    for _ in range(2):
        sink.end(prepared, commit=False)

    assert (sink.visible(), sink.written()) == ([], 1)
    with pytest.raises(FencedError, match="committing .*-a: .*was ended"):
        sink.end(prepared, commit=True)
    assert sink.visible() == []


def test_a_transactional_id_fences_its_previous_producer(sink: Sink) -> None:
    """
    A retried task takes over the id, and the rows of the first attempt can no longer be committed.
    """
    first = sink.write_in_transaction("a", b"first")
    second = sink.write_in_transaction("a", b"second")

    with pytest.raises(FencedError):
        sink.end(first, commit=True)
    sink.end(second, commit=True)

    assert sink.visible() == [b"second"]


def test_a_late_end_does_not_end_the_next_transaction(sink: Sink) -> None:
    """
    A late EndTxn request of the first transaction is fenced, and the next transaction stays open.
    """
    first = sink.write_in_transaction("a", b"first")
    sink.end(first, commit=True)
    second = sink.write_in_transaction("a", b"second")

    for commit in (True, False):
        with pytest.raises(FencedError):
            sink.end(first, commit=commit)

    assert sink.state("a") is TransactionState.ONGOING
    sink.end(second, commit=True)
    assert sink.visible() == [b"first", b"second"]


def test_a_failed_write_is_aborted_at_once(sink: Sink) -> None:
    """
    A failed write is aborted at once, so that it blocks no reader of committed records.
    """
    bad = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"x"], pa.binary()), "partition": pa.array([7], pa.int32())}
    )

    def good_then_bad() -> Iterator[pa.RecordBatch]:
        limit = Deadline.after(SECONDS)
        while not sink.written() and not limit.expired:
            yield rows(*[b"%d" % number * 1_000 for number in range(2_000)])
        yield bad

    with pytest.raises(RecordError, match="partition 7"):
        write_in_transaction(
            good_then_bad(),
            sink.settings,
            sink.topic,
            TransactionSpec(f"{sink.topic}-a", TIMEOUT_MS),
        )

    assert sink.state("a") in ABORTED
    # The epoch is higher, so records in flight are rejected; after a transaction marker with the
    # same epoch they would be accepted.
    assert sink.epoch("a") not in {None, 0}
    assert sink.visible() == []
    assert sink.written() > 0


def test_a_transaction_whose_first_response_is_lost_is_aborted(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the coordinator has begun a transaction, but its response is lost and the write fails, the
    transaction is aborted at once.
    """
    add_partitions = Transactions.add_partitions

    def add_and_say_nothing(self: Transactions, *arguments: Any) -> None:
        add_partitions(self, *arguments)
        assert sink.state("a") is TransactionState.ONGOING
        msg = "no answer"
        raise BrokerUnavailableError(msg)

    monkeypatch.setattr(Transactions, "add_partitions", add_and_say_nothing)
    with pytest.raises(BrokerUnavailableError, match="no answer"):
        sink.write_in_transaction("a", b"x")

    assert sink.state("a") in ABORTED


@pytest.mark.parametrize("commit", [True, False])
def test_a_task_that_begins_after_the_fence(sink: Sink, commit: bool) -> None:
    """
    A task that begins after the fence of its write leaves nothing open, and the next write can use
    the id.
    """
    done = sink.write_in_transaction("0-0", b"done")
    end = f"{sink.topic}-ended-first"
    with transaction_client(sink.settings) as transactions:
        finish = commit_write if commit else abort_write
        finish(transactions, [done], write_pattern(sink.topic), end)
    late = TransactionSpec(f"{sink.topic}-1-0", TIMEOUT_MS, fence_id=end)

    with pytest.raises(FencedError, match="-1-0 belongs to has ended without it"):
        write_in_transaction([rows(b"late")], sink.settings, sink.topic, late)

    assert sink.state("1-0") in ABORTED
    assert sink.visible() == ([b"done"] if commit else [])
    sink.end(sink.write_in_transaction("1-0", b"next"), commit=True)
    assert sink.visible()[-1:] == [b"next"]


def coordinator_unavailable(_: Transactions, name: str) -> None:
    """
    Raise the error of a coordinator that is unavailable.
    """
    msg = f"no coordinator for {name}"
    raise BrokerUnavailableError(msg)


def test_an_error_after_the_commit_is_only_logged(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    An error after the commit is only logged: the rows are visible, and the user must not write them
    again.
    """
    done = sink.write_in_transaction("0-0", b"done")
    monkeypatch.setattr(Transactions, "register_id", coordinator_unavailable)
    with transaction_client(sink.settings) as transactions:
        commit_write(transactions, [done], write_pattern(sink.topic), "first")

    assert sink.visible() == [b"done"]
    assert "everything is committed, but" in caplog.text
    assert "no coordinator for first" in caplog.text


def test_a_partial_commit_is_reported(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The error of a partial commit says how many tasks are committed: writing everything again would
    duplicate their rows.
    """
    waiting = [sink.write_in_transaction(name, name.encode()) for name in ("0-0", "1-0", "2-0")]
    sink.end(waiting[1], commit=False)
    monkeypatch.setattr(batch_committer, "check_open", lambda *_: None)

    with (
        transaction_client(sink.settings) as transactions,
        pytest.raises(ExactlyOnceError, match="2 of 3 tasks are committed"),
    ):
        commit_write(transactions, waiting, write_pattern(sink.topic), f"{sink.topic}-ended-first")

    assert sink.visible() == [b"0-0", b"2-0"]


def test_a_commit_whose_response_is_lost_succeeds(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A commit whose response is lost is found committed, and the write succeeds.
    """
    end_all = Transactions.end_all

    def end_and_say_nothing(
        self: Transactions, prepared: list[PreparedTransaction], *, commit: bool
    ) -> None:
        end_all(self, prepared, commit=commit)
        msg = "no answer"
        raise BrokerUnavailableError(msg)

    waiting = [sink.write_in_transaction(name, b"x") for name in ("0-0", "1-0")]
    monkeypatch.setattr(Transactions, "end_all", end_and_say_nothing)
    with transaction_client(sink.settings) as transactions:
        commit_write(transactions, waiting, write_pattern(sink.topic), f"{sink.topic}-ended-first")

    assert sink.visible() == [b"x", b"x"]


def test_a_failed_commit_is_aborted(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A failed commit is aborted as a whole: the error gives the reason, and says that nothing is
    visible.
    """

    def end_nothing(_: Transactions, __: list[PreparedTransaction], *, commit: bool) -> None:
        assert commit
        msg = "nobody is there"
        raise BrokerUnavailableError(msg)

    waiting = [sink.write_in_transaction("0-0", b"x")]
    monkeypatch.setattr(Transactions, "end_all", end_nothing)
    with (
        transaction_client(sink.settings) as transactions,
        pytest.raises(TimeoutExceededError, match="nobody is there.*nothing of this write is vis"),
    ):
        commit_write(transactions, waiting, write_pattern(sink.topic), f"{sink.topic}-ended-first")

    monkeypatch.undo()
    with pytest.raises(FencedError):
        sink.end(waiting[0], commit=True)
    assert sink.state("0-0") in ABORTED
    assert sink.visible() == []


def test_an_abort_needs_no_fence(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If the fence id cannot be registered, the transactions are aborted all the same, and the error
    is only logged.
    """
    reported, unreported = (
        sink.write_in_transaction("0-1", b"x"),
        sink.write_in_transaction("0-0", b"x"),
    )
    monkeypatch.setattr(Transactions, "register_id", coordinator_unavailable)
    with transaction_client(sink.settings) as transactions:
        abort_write(transactions, [reported], write_pattern(sink.topic), "first")

    assert "no coordinator for first" in caplog.text
    assert sink.state("0-1") is not TransactionState.ONGOING
    assert sink.state("0-0") is not TransactionState.ONGOING
    for one in (reported, unreported):
        with pytest.raises(FencedError):
            sink.end(one, commit=True)


@pytest.mark.parametrize("commit", [True, False])
def test_similar_prefixes_do_not_interfere(sink: Sink, commit: bool) -> None:
    """
    A write aborts the transactions of its own losing attempts, and none with a longer prefix.
    """
    done, unreported, other = (
        sink.write_in_transaction(name, b"x") for name in ("0-1", "0-0", "2-0-0")
    )

    with transaction_client(sink.settings) as transactions:
        finish = commit_write if commit else abort_write
        finish(transactions, [done], write_pattern(sink.topic), f"{sink.topic}-ended-first")

    assert sink.state("0-0") is not TransactionState.ONGOING
    assert sink.state("2-0-0") is TransactionState.ONGOING
    with pytest.raises(FencedError):
        sink.end(unreported, commit=True)
    sink.end(other, commit=True)


def test_a_task_without_rows_has_no_transaction(sink: Sink) -> None:
    """
    A task without rows begins no transaction.
    """
    assert write_in_transaction(
        [rows()], sink.settings, sink.topic, TransactionSpec(f"{sink.topic}-a", TIMEOUT_MS)
    ) == TaskWriteResult(0, None, -1)
    assert sink.state("a") is None


def test_transactions_are_listed_and_described(sink: Sink) -> None:
    """
    Transactions are listed by prefix and state, and described with their partitions and timeout.
    """
    prefix = f"{sink.topic}-"
    names = starting_with_pattern(prefix)
    done, open_one = (
        sink.write_in_transaction("done", b"x"),
        sink.write_in_transaction("open", b"y"),
    )
    sink.end(done, commit=True)

    with transaction_client(sink.settings) as transactions:
        wait_until(
            lambda: (
                None
                if transactions.list_ids(names, [TransactionState.ONGOING]) == [f"{prefix}open"]
                else "both"
            ),
            SECONDS,
        )
        assert transactions.list_ids(names) == [f"{prefix}done", f"{prefix}open"]
        assert transactions.list_ids(starting_with_pattern(f"{prefix}other")) == []
        description = transactions.describe(open_one.transactional_id)
    assert description is not None
    assert (description.state, description.partitions, description.timeout_ms) == (
        TransactionState.ONGOING,
        1,
        TIMEOUT_MS,
    )
    assert (description.producer_id, description.epoch) == open_one[1:]
    sink.end(open_one, commit=False)


def test_a_timeout_beyond_the_brokers_limit(sink: Sink) -> None:
    """
    A transaction timeout beyond the brokers' limit is an error that names both settings.
    """
    with pytest.raises(
        KafkaClientError,
        match=r"kafka.transaction.timeout.ms exceeds .* raise transaction.max.timeout.ms",
    ):
        sink.write_in_transaction("a", b"x", timeout_ms=2**31 - 1)


def test_many_records_in_one_transaction(sink: Sink, kafka_cluster: KafkaCluster) -> None:
    """
    A transaction of several requests and batches, larger than the buffer, is invisible before its
    commit and completely visible afterwards.
    """
    values = [b"%06d" % number + b"x" * 200 for number in range(20_000)]
    kafka = KafkaSettings.of(
        {
            "bootstrap.servers": kafka_cluster.bootstrap,
            "batch.size": "10000",
            "buffer.memory": "100000",
        }
    )
    name = f"{sink.topic}-a"

    transaction = TransactionSpec(name, TIMEOUT_MS)
    written, prepared, *_ = write_in_transaction([rows(*values)], kafka, sink.topic, transaction)

    assert written == len(values)
    assert prepared is not None
    assert sink.visible() == []
    sink.end(prepared, commit=True)
    assert sink.visible() == values
