"""
A real broker that is cut off from its controllers, and that clients still reach.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import NewTopic
from tests.support.fetching import VALUES, settings
from tests.support.proxy import Proxy

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.network import last_seen_epochs, metadata_reader
from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.network.last_seen_epochs import LastSeenEpochs
from pyspark_pykafka.engines.wire.network.reachability import Reachability
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.ports import free_ports
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyspark_pykafka.testing.properties import Node, Setting

pytestmark = pytest.mark.soak

CONTROLLER, CUT_OFF = 1, 2
P0 = TopicPartition("t", 0)
BEFORE, AFTER = 100, 200
SECONDS, QUERY_SECONDS = 60, 180
TARGETS = ("batch-at-least-once", "batch-exactly-once", "stream-exactly-once")


class OneController(KafkaCluster):
    """
    Three brokers; the first is the only controller, and the second reaches it through a proxy.
    """

    def __init__(self, link: Proxy) -> None:
        super().__init__(3)
        self.link = link

    def node_config(self, node: Node) -> Mapping[str, Setting]:
        host, port = self.link.target
        client, controller = f"CLIENT://{node.address}", f"CONTROLLER://{host}:{port}"
        if node.id == CONTROLLER:
            return {
                "controller.quorum.voters": f"{CONTROLLER}@{host}:{port}",
                "listeners": f"{client},{controller}",
                # The brokers connect to the proxy, which forwards to the controller.
                "advertised.listeners": f"{client},CONTROLLER://{self.link.address}",
            }
        voter = self.link.address if node.id == CUT_OFF else f"{host}:{port}"
        return {
            "process.roles": "broker",
            "controller.quorum.voters": f"{CONTROLLER}@{voter}",
            "listeners": client,
        }

    def servers(self, *nodes: int) -> str:
        addresses = self.bootstrap.split(",")
        return ",".join(addresses[node - 1] for node in nodes)


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneController]:
    """
    A topic whose leader is cut off after 100 records, and whose new leader receives 200 more.
    """
    (port,) = free_ports(1)
    with Proxy(("127.0.0.1", port)) as link, OneController(link) as kafka:
        topics = [
            NewTopic(name, 1, replica_assignment=[[CUT_OFF, CONTROLLER, 3]])
            for name in ("t", *TARGETS)
        ]
        admin = kafka.admin()
        for created in admin.create_topics(topics).values():
            created.result(SECONDS)
        fresh = {"bootstrap.servers": kafka.servers(CONTROLLER)}
        wait_until(
            lambda: None if leader(kafka, CUT_OFF) == CUT_OFF else "t-0 has no leader", SECONDS
        )
        kafka.produce("t", [Record(value=b"before") for _ in range(BEFORE)], fresh)
        link.black_hole()
        wait_until(partial(_cut_off_leader, kafka, "t"), SECONDS)
        kafka.produce("t", [Record(value=b"after") for _ in range(AFTER)], fresh)
        for target in TARGETS:
            wait_until(partial(_cut_off_leader, kafka, target), SECONDS)
        assert leader(kafka, CUT_OFF) == CUT_OFF, "the broker knows that it was replaced"
        yield kafka
        link.heal()


def leader(cluster: OneController, node: int, topic: str = "t") -> int:
    """
    Return the leader of the partition, as one broker reports it; -1 before it knows the topic.

    A librdkafka client would send the request to any broker.
    """
    host, port = cluster.servers(node).split(":")
    config = wire_config(KafkaSettings.of({"bootstrap.servers": cluster.servers(node)}))
    deadline = Deadline.after(SECONDS)
    connection = Connection.open(Address(host, int(port)), config, deadline)
    try:
        version = connection.version(METADATA)
        request = metadata_request(version, (topic,), allow_auto_topic_creation=False)
        (metadata,) = connection.request(request, deadline).topics
    finally:
        connection.close()
    return metadata.partitions[0].leader_id if metadata.partitions else -1


def _cut_off_leader(cluster: OneController, topic: str) -> str | None:
    """
    Return a reason to wait while the controller still reports the cut-off leader.
    """
    is_replaced = leader(cluster, CONTROLLER, topic) != CUT_OFF
    return None if is_replaced else f"no other broker leads {topic}-0"


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Clear the leader epochs that this process has seen, as in a new process.
    """
    monkeypatch.setattr(last_seen_epochs, "LAST_SEEN_EPOCHS", LastSeenEpochs())
    monkeypatch.setattr(metadata_reader, "_SECOND_RESPONSES", Reachability())


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
@pytest.mark.parametrize("nodes", [(2,), (2, 1), (2, 3), (3, 2), (1, 2, 3)])
def test_a_task_reads_to_the_new_leaders_end(
    cluster: OneController, nodes: tuple[int, ...], engine: str
) -> None:
    """
    A task that resolves ``latest`` reads all records, whichever broker its bootstrap list names
    first.
    """
    full_range = OffsetRange(P0, EARLIEST, LATEST)
    task = settings(cluster.servers(*nodes), engine, schema=VALUES)
    offsets = [
        offset for batch in fetch(full_range, task) for offset in batch["offset"].to_pylist()
    ]

    assert offsets == list(range(BEFORE + AFTER))


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_query_reads_to_the_new_leaders_end(
    spark: SparkSession, cluster: OneController, engine: str, fail: str
) -> None:
    """
    A batch query that knows only the broker that was cut off reads all records.
    """
    options = {
        "kafka.bootstrap.servers": cluster.servers(CUT_OFF),
        "subscribe": "t",
        "engine": engine,
        "failOnDataLoss": fail,
    }
    read = spark.read.format("pykafka").options(**options)
    planned = read.option("endingOffsets", json.dumps({"t": {"0": BEFORE + AFTER}}))

    assert read.load().count() == BEFORE + AFTER
    assert planned.load().count() == BEFORE + AFTER


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_batch_write_through_the_cut_off_broker(
    spark: SparkSession, cluster: OneController, guarantee: str
) -> None:
    """
    A batch write that knows only the broker that was cut off writes each row once to the new
    leader.
    """
    topic = f"batch-{guarantee}"
    options = {
        "kafka.bootstrap.servers": cluster.servers(CUT_OFF),
        "topic": topic,
        "deliveryGuarantee": guarantee,
    }
    rows = spark.range(AFTER).repartition(2).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("pykafka").options(**options).mode("append").save()

    assert committed_values(cluster, topic) == sorted(str(number) for number in range(AFTER))


def test_an_exactly_once_stream_through_the_cut_off_broker(
    spark: SparkSession, cluster: OneController, tmp_path: Path
) -> None:
    """
    A stream that knows only the broker that was cut off reads and writes each record once.
    """
    servers = {"kafka.bootstrap.servers": cluster.servers(CUT_OFF)}
    source = {**servers, "subscribe": "t", "startingOffsets": "earliest"}
    source["maxOffsetsPerTrigger"] = "120"
    sink = {
        **servers,
        "topic": "stream-exactly-once",
        "deliveryGuarantee": "exactly-once",
        "checkpointLocation": str(tmp_path),
    }
    rows = spark.readStream.format("pykafka").options(**source).load()
    copied = rows.selectExpr("CONCAT(CAST(value AS STRING), '-', offset) AS value")
    query = copied.writeStream.format("pykafka").options(**sink).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_SECONDS)
    finally:
        query.stop()

    expected = [
        f"{'before' if number < BEFORE else 'after'}-{number}" for number in range(BEFORE + AFTER)
    ]
    assert committed_values(cluster, "stream-exactly-once") == sorted(expected)


def committed_values(cluster: OneController, topic: str) -> list[str]:
    """
    Return the values of committed records, read by a plain client from the other brokers.
    """
    servers = {"bootstrap.servers": cluster.servers(CONTROLLER, 3)}
    records = cluster.consume(topic, {**servers, "isolation.level": "read_committed"})
    return sorted((record.value or b"").decode() for record in records)
