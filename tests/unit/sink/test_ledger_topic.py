"""
The checks of a ledger's topic before a task of a new process writes.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.stub_behaviour import DESCRIBE_CONFIGS, LIST_TRANSACTIONS, PRODUCE
from tests.support.stub_brokers import (
    Behaviour,
    FetchAnswer,
    StubCluster,
    StubTransaction,
    record_batch,
)

from pyspark_pykafka.errors import ExactlyOnceError, PykafkaError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.sink.delivery import ExactlyOnceStream, SinkTask
from pyspark_pykafka.sink.ledger_topic import ensure_ledger_topic
from pyspark_pykafka.sink.transactional_ids import stream_task_transactional_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX, QUERY = "out", "0a1b2c3d-0000-0000-0000-000000000000"
LEDGER = f"{PREFIX}-ledger"
_FORBIDDEN, _UNKNOWN_TOPIC = 29, 3
_ENTRIES: dict[str, dict[str, object]] = {
    "marker": {"query": QUERY, "batch": 1, "write": "w", "task": 0, "records": 1},
    "release": {"query": QUERY},
}


class LedgerBroker(Behaviour):
    """
    A broker whose ledger has the entries ``kinds`` after ``log_start`` deleted ones.
    """

    policy = "compact"
    settings: tuple[tuple[str, str], ...] = ()
    replica_count = 1
    policy_errors: tuple[int, ...] = ()
    log_start = 0
    kinds: tuple[str, ...] = ()

    def topic_settings(self, node: int, topic: str) -> tuple[int, dict[str, str]]:  # noqa: ARG002
        errors = self.policy_errors or (0,)
        self.policy_errors = errors[1:]
        return errors[0], {"cleanup.policy": self.policy, **dict(self.settings)}

    def replicas(self, topic: str, leader: int) -> list[int]:
        return list(range(self.replica_count)) if topic == LEDGER else [leader]

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        if topic == LEDGER and timestamp == -2:
            return 0, self.log_start
        return super().offsets(node, topic, partition, timestamp)

    def end(self, topic: str, partition: int) -> int:
        if topic == LEDGER and (topic, partition) not in self.logs:
            return self.log_start + len(self.kinds)
        return super().end(topic, partition)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if (topic, partition) != (LEDGER, 0) or not self.kinds:
            return super().fetch(node, topic, partition, offset)
        entries = [
            json.dumps({"kind": kind} | _ENTRIES[kind]).encode()
            for kind in self.kinds[offset - self.log_start :]
        ]
        end = self.log_start + len(self.kinds)
        return FetchAnswer(0, end, record_batch(offset, entries) if entries else b"")


@pytest.fixture(scope="module")
def broker() -> Iterator[StubCluster]:
    """
    Return a broker with a topic and its ledger.
    """
    topics = {"out": 1, LEDGER: 1}
    with StubCluster(LedgerBroker(topics=topics, high_watermark=0)) as stubs:
        yield stubs


@pytest.fixture
def stubs(broker: StubCluster) -> StubCluster:
    """
    Return the broker in its first state, as a new process finds it.
    """
    ensure_ledger_topic.cache_clear()
    state = {"policy": "compact", "policy_errors": (), "log_start": 0, "kinds": ()}
    state |= {"settings": (), "replica_count": 1, "_metadata": {}}
    broker.set(requests=Counter(), logs={}, transactions={}, **state)
    return broker


def write(
    stubs: StubCluster,
    batch: int = 1,
    block_ms: int = 30_000,
    more_options: Mapping[str, str] | None = None,
) -> None:
    """
    Write a row of a micro-batch, as a task does.
    """
    options = {
        "kafka.bootstrap.servers": stubs.bootstrap,
        "kafka.max.block.ms": str(block_ms),
        "topic": "out",
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": PREFIX,
        **(more_options or {}),
    }
    delivery = ExactlyOnceStream(parse_sink(options, streaming=True))
    row = pa.RecordBatch.from_pydict({"value": [b"x"]})
    delivery.write([row], SinkTask(0, 0, QUERY, batch, 7))


def refused(stubs: StubCluster, batch: int = 1) -> ExactlyOnceError:
    """
    Return the error of a write that has sent no record.
    """
    with pytest.raises(ExactlyOnceError) as caught:
        write(stubs, batch)
    assert PRODUCE not in stubs.stats()["requests"]
    assert not caught.value.retriable
    return caught.value


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact", ""])
def test_a_ledger_that_is_not_only_compacted_is_refused(stubs: StubCluster, policy: str) -> None:
    """
    Brokers may delete entries of the topic at any time; the error says how to change it.
    """
    stubs.set(policy=policy)

    error = refused(stubs)

    assert error.condition == "EXACTLY_ONCE_LEDGER_NOT_COMPACTED"
    assert f"cleanup.policy={policy}," in str(error)
    assert f"--topic {LEDGER} --add-config cleanup.policy=compact" in str(error)


@pytest.mark.parametrize("kinds", [(), ("marker",)])
def test_a_ledger_that_may_lose_decisions_in_an_election_is_refused(
    stubs: StubCluster, kinds: tuple[str, ...]
) -> None:
    """
    An unclean election drops acknowledged entries, after which committed rows would be written
    again; the error says how to change the topic.
    """
    stubs.set(kinds=kinds, settings=(("unclean.leader.election.enable", "true"),))

    error = refused(stubs)

    assert error.condition == "EXACTLY_ONCE_LEDGER_UNCLEAN_ELECTION"
    assert f"--topic {LEDGER} --add-config unclean.leader.election.enable=false" in str(error)


@pytest.mark.parametrize(
    ("replicas", "min_in_sync", "options", "warns"),
    [
        (3, 1, {}, True),
        (5, 1, {}, True),
        (3, 2, {}, False),
        (2, 1, {}, False),
        (1, 1, {}, False),
        (3, 1, {"ledgerMinInsyncReplicas": "1"}, False),
    ],
)
def test_a_ledger_whose_entries_one_broker_may_lose_is_reported(
    stubs: StubCluster,
    caplog: pytest.LogCaptureFixture,
    replicas: int,
    min_in_sync: int,
    options: dict[str, str],
    warns: bool,
) -> None:
    """
    With enough replicas, an entry that only one of them has should not count as written, unless the
    user chose so.
    """
    settings = (
        ("unclean.leader.election.enable", "false"),
        ("min.insync.replicas", str(min_in_sync)),
    )
    stubs.set(kinds=("marker",), settings=settings, replica_count=replicas)
    write(stubs, more_options=options)

    advice = f"--topic {LEDGER} --add-config min.insync.replicas=2"
    assert (advice in caplog.text) is warns


def test_more_in_sync_replicas_than_replicas_are_reported(
    stubs: StubCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Nothing can be appended to such a ledger: a warning says so before the first task waits.
    """
    stubs.set(kinds=("marker",), settings=(("min.insync.replicas", "2"),))
    write(stubs)

    assert f"the ledger {LEDGER} has min.insync.replicas=2, but 1 replica" in caplog.text


@pytest.mark.parametrize("log_start", [1, 700])
@pytest.mark.parametrize("kinds", [(), ("marker", "marker")])
@pytest.mark.parametrize("batch", [0, 1, 9])
def test_a_ledger_without_its_first_entries_is_refused(
    stubs: StubCluster, log_start: int, kinds: tuple[str, ...], batch: int
) -> None:
    """
    Whatever is left, the task fails before it writes; the error names the way out.
    """
    stubs.set(log_start=log_start, kinds=kinds)

    error = refused(stubs, batch)

    assert error.condition == "EXACTLY_ONCE_LEDGER_LOST"
    assert f"begins at offset {log_start}: its first entries were deleted" in str(error)
    assert f"pykafka transactions release --prefix {PREFIX}" in str(error)


@pytest.mark.parametrize(
    ("log_start", "kinds"), [(0, ("marker",)), (9, ("marker", "release")), (9, ("release",))]
)
def test_a_whole_or_released_ledger_is_accepted(
    stubs: StubCluster, log_start: int, kinds: tuple[str, ...]
) -> None:
    """
    Compaction leaves the log start at 0, and all entries deleted before a release are irrelevant.

    A process checks once.
    """
    stubs.set(log_start=log_start, kinds=kinds)
    write(stubs)
    write(stubs, batch=2)

    assert stubs.stats()["requests"][DESCRIBE_CONFIGS] == 1


def test_a_policy_that_is_not_known_yet_is_read_again(stubs: StubCluster) -> None:
    """
    A broker that does not know a new topic yet is queried again.
    """
    stubs.set(kinds=("marker",), policy_errors=(_UNKNOWN_TOPIC,))
    write(stubs)

    assert stubs.stats()["requests"][DESCRIBE_CONFIGS] == 2


def test_a_policy_that_may_not_be_read_is_reported(
    stubs: StubCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A write does not need the permission DescribeConfigs: without it, a warning says what to check.
    """
    stubs.set(kinds=("marker",), policy_errors=(_FORBIDDEN,))
    write(stubs)

    (record,) = caplog.records
    assert "Allow DescribeConfigs on it, or check that its cleanup.policy is compact" in (
        record.getMessage()
    )


def test_a_policy_that_the_broker_cannot_describe_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    A service that has no DescribeConfigs is accepted, with a warning.
    """
    behaviour = LedgerBroker(topics={"out": 1, LEDGER: 1}, high_watermark=0, kinds=("marker",))
    del behaviour.versions[DESCRIBE_CONFIGS]
    ensure_ledger_topic.cache_clear()
    with StubCluster(behaviour) as without_configs:
        write(without_configs)

    assert "check that its cleanup.policy is compact" in caplog.text


@pytest.mark.parametrize("batch", [0, 5])
@pytest.mark.parametrize("parity", [0, 1])
def test_an_empty_ledger_of_a_query_that_has_committed_is_refused(
    stubs: StubCluster, batch: int, parity: int
) -> None:
    """
    The topic was deleted and created again while no process ran: the coordinators remember the
    query's commits, including those of the replayed batch.
    """
    name = stream_task_transactional_id(PREFIX, QUERY, parity, 0, 0)
    stubs.set(transactions={name: StubTransaction(7, 3, "CompleteCommit")})

    error = refused(stubs, batch)

    assert error.condition == "EXACTLY_ONCE_LEDGER_LOST"
    assert f"the topic {LEDGER} is empty. The query" in str(error)
    assert name in str(error)


def test_an_empty_ledger_of_a_new_query_is_accepted(stubs: StubCluster) -> None:
    """
    A topic that was created for the query has no entries; transactions of others do not count.
    """
    name = stream_task_transactional_id("other", QUERY, 0, 0, 0)
    stubs.set(transactions={name: StubTransaction(7, 3, "CompleteCommit")})
    write(stubs)

    assert stubs.stats()["requests"][LIST_TRANSACTIONS] == 1
    assert stubs.stats()["requests"][PRODUCE] > 0


def test_the_policy_is_requested_for_max_block_ms(stubs: StubCluster) -> None:
    """
    A topic that no broker describes ends in a retriable error after kafka.max.block.ms.
    """
    stubs.set(kinds=("marker",), policy_errors=(_UNKNOWN_TOPIC,) * 10_000)

    with pytest.raises(PykafkaError) as caught:
        write(stubs, block_ms=1_500)

    assert caught.value.retriable
    assert f"reading the settings of {LEDGER}" in str(caught.value)
