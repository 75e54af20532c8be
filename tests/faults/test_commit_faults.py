"""
Exactly-once commits on three brokers behind proxies: late requests, unreachable brokers.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.admin import ConfigResource, NewTopic
from tests.support.leadership import NODES, leader, move_leader
from tests.support.proxied import ProxiedCluster

from pyspark_pykafka.engines.selection import transaction_client, write_in_transaction
from pyspark_pykafka.engines.wire.network.topic_replicas import fetch_topic_replicas
from pyspark_pykafka.errors import TimeoutExceededError
from pyspark_pykafka.options import parse_sink
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.sink.batch_committer import abort_write, commit_write
from pyspark_pykafka.sink.delivery import ExactlyOnceStream, SinkTask
from pyspark_pykafka.sink.transactional_ids import fence_id, task_transactional_id, write_pattern
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.engines.transaction_contract import PreparedTransaction

SECONDS = 30.0
COMMITTED = {"isolation.level": "read_committed"}
QUERY = "0a1b2c3d-0000-0000-0000-000000000000"
END_TXN = 26
BATCHES = 10


@pytest.fixture(scope="module")
def three() -> Iterator[ProxiedCluster]:
    """
    Three brokers, one of which coordinates all transactions.
    """
    log = "transaction.state.log"
    counts = ("num.partitions", "replication.factor", "min.isr")
    alone = {f"{log}.{name}": 1 for name in counts}
    with ProxiedCluster(3, config=alone) as cluster:
        yield cluster


def settings(three: ProxiedCluster, **settings_by_name: object) -> KafkaSettings:
    """
    Return the settings of a client that connects through the proxies.
    """
    kafka = {name.replace("_", "."): str(value) for name, value in settings_by_name.items()}
    return KafkaSettings.of({"bootstrap.servers": three.bootstrap, **kafka})


def write(
    kafka: KafkaSettings, topic: str, count: int, prefix: str | None = None
) -> list[PreparedTransaction]:
    """
    Write a row in each of this many tasks' transactions, and leave them open.

    The prefix of the transactional ids is the topic's name by default.
    """
    row = pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})
    names = (task_transactional_id(prefix or topic, task, 0) for task in range(count))
    written = [write_in_transaction([row], kafka, topic, name).prepared for name in names]
    return [transaction for transaction in written if transaction is not None]


def seen(three: ProxiedCluster, topic: str) -> int:
    """
    Return how many rows a read_committed reader finds.
    """
    return len(three.kafka.consume(topic, COMMITTED))


def stream(three: ProxiedCluster, topic: str, batch: int, **changed: str) -> None:
    """
    Write and commit a micro-batch of one row, as a new execution does.
    """
    options = parse_sink(
        {
            "kafka.bootstrap.servers": three.bootstrap,
            "topic": topic,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": topic,
            **changed,
        },
        streaming=True,
    )
    delivery = ExactlyOnceStream(options)
    row = pa.RecordBatch.from_pydict({"value": [b"x"]})
    message = delivery.write([row], SinkTask(0, 0, QUERY, batch, batch))
    delivery.commit([message], 1, batch)


def create_topic_on(
    three: ProxiedCluster, name: str, *nodes: int, cleanup_policy: str = "delete"
) -> None:
    """
    Create a topic of one partition on these brokers, the first of which leads.
    """
    admin = three.kafka.admin()
    config = {"cleanup.policy": cleanup_policy}
    new_topic = NewTopic(name, num_partitions=1, replica_assignment=[list(nodes)], config=config)
    admin.create_topics([new_topic])[name].result(SECONDS)


def test_a_late_commit_does_not_contradict_the_error(three: ProxiedCluster) -> None:
    """
    If EndTxn hangs until the driver gives up, the error says that nothing is visible, and nothing
    becomes visible later.
    """
    topic = three.kafka.create_topic("late", 2)
    kafka = settings(three, request_timeout_ms=1_500, max_block_ms=4_000, delivery_timeout_ms=9_000)
    waiting = write(kafka, topic, 2)
    names, end = write_pattern(topic), fence_id(topic, "1")
    for proxy in three.proxies.values():
        proxy.hold({END_TXN})
    try:
        with (
            transaction_client(kafka) as transactions,
            pytest.raises(TimeoutExceededError, match="nothing of this write is visible"),
        ):
            commit_write(transactions, waiting, names, end)
    finally:
        for proxy in three.proxies.values():
            proxy.release()
    with transaction_client(kafka) as transactions:
        abort_write(transactions, waiting, names, end)

    assert seen(three, topic) == 0


@pytest.mark.parametrize("fault", ["drop_syns", "refuse_connections"])
def test_an_unreachable_broker_that_is_not_needed(three: ProxiedCluster, fault: str) -> None:
    """
    Micro-batches and batch writes commit without a connection to a broker that leads none of their
    partitions and coordinates none of their transactions.
    """
    warm = three.kafka.create_topic(f"warm-{fault}".replace("_", "-"), 1)
    commit_one(three, warm)
    coordinator = leader(three.kafka, "__transaction_state")
    spare = next(node for node in three.proxies if node != coordinator)
    topic = f"needed-{fault}".replace("_", "-")
    create_topic_on(three, topic, coordinator)
    create_topic_on(three, f"{topic}-ledger", coordinator, cleanup_policy="compact")
    wait_until(lambda: None if leader(three.kafka, topic) == coordinator else "no leader", SECONDS)
    stream(three, topic, 0)
    proxy = three.proxies[spare]
    getattr(proxy, fault)()
    proxy.disconnect()
    try:
        # Waiting for a connection that is not accepted would exceed kafka.max.block.ms.
        commit_one(three, topic, socket_connection_setup_timeout_ms=3_600_000)
        stream(three, topic, 1, **{"kafka.socket.connection.setup.timeout.ms": "3600000"})
    finally:
        proxy.heal()

    assert seen(three, topic) == 3


def commit_one(three: ProxiedCluster, topic: str, **settings_by_name: object) -> None:
    """
    Write a row and commit it.
    """
    kafka = settings(three, **settings_by_name)
    with transaction_client(kafka) as transactions:
        commit_write(
            transactions, write(kafka, topic, 1), write_pattern(topic), fence_id(topic, "1")
        )


def test_the_ledger_of_three_brokers(
    three: ProxiedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """
    On three brokers a new ledger has three replicas, two of which must be in sync; a ledger with
    one replica causes a warning.
    """
    three.kafka.create_topic("durable", 1)
    stream(three, "durable", 0)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "durable-ledger")
    admin = three.kafka.admin()
    config = admin.describe_configs([resource])[resource].result(SECONDS)
    with transaction_client(settings(three)) as transactions:
        limit = Deadline.after(SECONDS)
        replicas = fetch_topic_replicas(transactions.cluster, "durable-ledger", limit)
    assert replicas == (3, 3)
    assert config["min.insync.replicas"].value == "2"
    assert not [message for message in caplog.messages if "has one replica" in message]

    three.kafka.create_topic("alone", 1)
    three.kafka.create_topic("alone-ledger", 1, {"cleanup.policy": "compact"}, 1)
    stream(three, "alone", 0)
    assert [
        message
        for message in caplog.messages
        if "alone-ledger has one replica on a cluster of 3" in message
    ]


@pytest.mark.soak
def test_five_hundred_tasks(three: ProxiedCluster) -> None:
    """
    Real coordinators commit the 500 transactions of one job in less than 100 times the time that a
    single transaction takes.
    """
    topic = three.kafka.create_topic("many", 6)
    kafka = settings(three)
    one = commit_seconds(kafka, "one", write(kafka, topic, 1, "one"))
    many = commit_seconds(kafka, "many", write(kafka, topic, 500, "many"))

    assert seen(three, topic) == 501
    assert many < 100 * one


def commit_seconds(kafka: KafkaSettings, prefix: str, waiting: list[PreparedTransaction]) -> float:
    """
    Commit the transactions of a write, and return the duration.
    """
    started_at = time.monotonic()
    with transaction_client(kafka) as transactions:
        commit_write(transactions, waiting, write_pattern(prefix), fence_id(prefix, "1"))
    return time.monotonic() - started_at


@pytest.mark.soak
def test_micro_batches_commit_while_the_leader_of_the_ledger_moves(three: ProxiedCluster) -> None:
    """
    While the ledger of an exactly-once stream gets one leader after another, each micro-batch
    commits once.
    """
    topic = three.kafka.create_topic("moving-ledger", 1)
    ledger = f"{topic}-ledger"
    stream(three, topic, 0)

    is_over = threading.Event()

    def move_on() -> int:
        moves = 0
        while not is_over.is_set():
            following = leader(three.kafka, ledger) % len(NODES) + 1
            move_leader(three.kafka, ledger, 0, following)
            moves += 1
        return moves

    with ThreadPoolExecutor(1) as pool:
        moves = pool.submit(move_on)
        try:
            for batch in range(1, BATCHES):
                stream(three, topic, batch)
        finally:
            is_over.set()

    assert moves.result() >= BATCHES
    assert seen(three, topic) == BATCHES
