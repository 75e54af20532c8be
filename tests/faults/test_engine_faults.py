"""
Engines that lose brokers during a range: every record once, in order, or a named error.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Position
from tests.support import fetching, kafka_tool, producing

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.consumer.partition_fetcher import PartitionFetcher
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.errors import DataLossError, RecordError, TimeoutExceededError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.wire_config import wire_config
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_pykafka.engines.contract import FetchSettings

ENGINES = ("wire", "librdkafka")
RECORDS = 3000
NEAR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """
    Three brokers that tests may kill; each test leaves all of them running.
    """
    with KafkaCluster(3, config={"replica.selector.class": NEAR}) as cluster:
        yield cluster


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """
    Return the name of each engine in turn.
    """
    return str(request.param)


def settings(cluster: KafkaCluster, engine: str, **kafka: str) -> FetchSettings:
    """
    Return settings for many small fetches; keywords are Kafka settings, underscores for dots.
    """
    return fetching.settings(
        cluster.bootstrap,
        engine,
        kafka=producing.settings(cluster.bootstrap, **kafka),
        schema=fetching.VALUES,
        group_id="engine-faults",
        poll_timeout_ms=60_000,
        # A new leader's end lags behind until its followers have fetched from it (KAFKA-7703).
        end_retries=20,
        end_retry_ms=500,
        memory_bytes=1 << 20,
    )


def filled(cluster: KafkaCluster, name: str, replication_factor: int = -1) -> OffsetRange:
    """
    Create a topic of one partition with numbered records, and return their range.
    """
    cluster.create_topic(name, replication_factor=replication_factor)
    cluster.produce(name, [Record(b"%d" % i + b"." * 1000) for i in range(RECORDS)])
    return OffsetRange(TopicPartition(name, 0), 0, RECORDS)


def read(
    offset_range: OffsetRange,
    fetch_settings: FetchSettings,
    between: Callable[[int], Any] = lambda _: None,
) -> list[int]:
    """
    Read a range, and return its offsets; ``between`` is called after each batch.
    """
    offsets: list[int] = []
    for number, batch in enumerate(fetch(offset_range, fetch_settings)):
        offsets += batch["offset"].to_pylist()
        values = [int(v.split(b".")[0]) for v in batch["value"].to_pylist()]
        assert values == batch["offset"].to_pylist()
        between(number)
    return offsets


def leader(cluster: KafkaCluster, topic: str) -> int:
    """
    Return the leader of partition 0.
    """
    return int(cluster.admin().list_topics(topic, timeout=30).topics[topic].partitions[0].leader)


def test_killed_leader(three: KafkaCluster, engine: str) -> None:
    """
    After kill -9 of the leader during the range, another broker returns the rest.
    """
    offset_range = filled(three, f"killed-{engine}")
    killed: list[int] = []

    def kill(number: int) -> None:
        if number == 1:
            killed.append(leader(three, offset_range.tp.topic))
            three.kill(killed[0])

    try:
        assert read(offset_range, settings(three, engine), kill) == list(range(RECORDS))
    finally:
        for node in killed:
            three.restart(node)
    assert killed


# The simulation stops brokers, and moves leaders, in most histories.
@pytest.mark.soak
def test_rolling_restart(three: KafkaCluster, engine: str) -> None:
    """
    Every broker is restarted while the range is read, and each record arrives once.
    """
    offset_range = filled(three, f"rolling-{engine}")
    done: list[int] = []

    def bounce(number: int) -> None:
        if number < 3:
            three.restart(number + 1)
            done.append(number)

    assert read(offset_range, settings(three, engine), bounce) == list(range(RECORDS))
    assert done == [0, 1, 2]


def test_frozen_leader(three: KafkaCluster) -> None:
    """
    A leader that keeps connections open without responding is abandoned after the socket timeout.
    """
    offset_range = filled(three, "frozen")
    frozen: list[int] = []

    def freeze(number: int) -> None:
        if number == 1:
            frozen.append(leader(three, offset_range.tp.topic))
            three.pause(frozen[0])

    try:
        fetch_settings = settings(three, "wire", socket_timeout_ms="2000")
        assert read(offset_range, fetch_settings, freeze) == list(range(RECORDS))
    finally:
        for node in frozen:
            three.resume(node)
    assert frozen


@pytest.mark.soak
def test_leader_that_hands_over(three: KafkaCluster) -> None:
    """
    If an election moves the leadership during the range, the reader continues at the new leader.
    """
    offset_range = filled(three, "handing-over")
    first = leader(three, offset_range.tp.topic)
    three.restart(first)
    other = leader(three, offset_range.tp.topic)
    assert other != first
    admin = three.admin()

    def elect(number: int) -> None:
        if number == 1:
            position = Position(offset_range.tp.topic, 0)
            admin.elect_leaders(ElectionType.PREFERRED, [position]).result(30)

    assert read(offset_range, settings(three, "wire"), elect) == list(range(RECORDS))
    assert leader(three, offset_range.tp.topic) == first


@pytest.mark.soak
def test_partition_that_moves(three: KafkaCluster, engine: str, tmp_path: Path) -> None:
    """
    If a partition is reassigned to another broker during the range, the rest is read there.
    """
    name = f"moved-{engine}"
    offset_range = filled(three, name, replication_factor=1)
    first = leader(three, name)
    other = first % 3 + 1

    def move(number: int) -> None:
        if number == 1:
            reassign(three, tmp_path / "plan.json", offset_range.tp, other)

    try:
        assert read(offset_range, settings(three, engine), move) == list(range(RECORDS))
        assert leader(three, name) == other
    finally:
        # Kafka 4.3.1 elects no leader for a moved single replica once its broker has been killed,
        # and the restart of that broker waits for all partitions.
        admin = three.admin()
        admin.delete_topics([name])[name].result(30)


def reassign(cluster: KafkaCluster, plan: Path, tp: TopicPartition, node: int) -> None:
    """
    Move a partition to a broker, and return when the reassignment is complete.
    """
    assignment = {"topic": tp.topic, "partition": tp.partition, "replicas": [node]}
    plan.write_text(json.dumps({"version": 1, "partitions": [assignment]}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    arguments = (cluster.bootstrap, "--reassignment-json-file", str(plan))
    kafka_tool.run(tool, *arguments, "--execute")

    def elsewhere() -> str | None:
        output = kafka_tool.run(tool, *arguments, "--verify")
        return None if "is completed" in output else output

    wait_until(elsewhere, 60)


def test_preferred_read_replica(three: KafkaCluster) -> None:
    """
    With client.rack, records are fetched from the preferred read replica (KIP-392), and
    from the leader once that replica is gone.
    """
    offset_range = filled(three, "near")
    first = leader(three, offset_range.tp.topic)
    near = next(node for node in (1, 2, 3) if node != first)
    fetch_settings = settings(three, "wire", client_rack=f"rack-{near}")

    cluster = Cluster(wire_config(fetch_settings.kafka))
    client = PartitionFetcher(cluster, offset_range.tp, "read_uncommitted")
    deadline = Deadline.after(30)
    client.send_fetch(0, 100_000, 1000, deadline)
    first_response = client.receive_fetch(deadline)
    client.send_fetch(0, 100_000, 1000, deadline)
    served_by = client.in_flight_node
    second = client.receive_fetch(deadline)
    cluster.close()

    assert not first_response.records
    assert served_by == near
    assert second.records
    assert read(offset_range, fetch_settings) == list(range(RECORDS))
    killed = [near]
    three.kill(near)
    try:
        assert read(offset_range, fetch_settings) == list(range(RECORDS))
    finally:
        three.restart(killed[0])


def test_topic_deleted_during_a_range(three: KafkaCluster, engine: str) -> None:
    """
    A topic that is deleted while it is read is reported as data loss.
    """
    offset_range = filled(three, f"deleted-{engine}")
    admin = three.admin()

    def still_known() -> str | None:
        topic = offset_range.tp.topic
        admins = map(three.admin, three.running_addresses())
        is_known = any(topic in admin.list_topics(timeout=30).topics for admin in admins)
        return f"a broker still knows {topic}" if is_known else None

    def delete(number: int) -> None:
        if number == 0:
            admin.delete_topics([offset_range.tp.topic])[offset_range.tp.topic].result(30)
            # A broker that still knows the topic might return all remaining records.
            wait_until(still_known, 30)

    with pytest.raises(DataLossError, match="no longer exists"):
        read(offset_range, replace(settings(three, engine), poll_timeout_ms=5_000), delete)


def test_topic_recreated_during_a_range(three: KafkaCluster) -> None:
    """
    Records of a new topic with the same name are not read as the rest of the old one.
    """
    offset_range = filled(three, "made-again")
    admin = three.admin()

    def make_again(number: int) -> None:
        if number == 0:
            admin.delete_topics(["made-again"])["made-again"].result(30)
            filled(three, "made-again")

    with pytest.raises(DataLossError, match="no longer exists"):
        read(offset_range, replace(settings(three, "wire"), poll_timeout_ms=5_000), make_again)
    # The same worker reads the new topic, although it had cached the old id.
    assert read(offset_range, settings(three, "wire")) == list(range(RECORDS))


# test_engines.py has a broker that cannot be reached, test_broker_outage.py one that comes back.
@pytest.mark.soak
def test_all_brokers_gone(engine: str) -> None:
    """
    Without brokers the read ends after its timeout; if they return in time, it continues.
    """
    with KafkaCluster() as cluster:
        offset_range = filled(cluster, "gone")

        def away(number: int) -> None:
            if number == 0:
                cluster.kill()

        short = replace(settings(cluster, engine), poll_timeout_ms=3000)
        with pytest.raises(TimeoutExceededError, match=r"3000 ms"):
            read(offset_range, short, away)

        def bounced(number: int) -> None:
            if number == 0:
                cluster.kill()
                cluster.restart()

        cluster.restart()
        assert read(offset_range, settings(cluster, engine), bounced) == list(range(RECORDS))


def test_corrupt_record_batch() -> None:
    """
    A flipped byte on the broker's disk is an error with topic, partition and offset; without
    check.crcs the record is read as it is.
    """
    with KafkaCluster() as cluster:
        offset_range = filled(cluster, "damaged")
        cluster.produce("damaged", [Record(b"the damaged one")])
        cluster.produce("damaged", [Record(b"after it")])
        cluster.stop(1)
        flip(cluster, b"the damaged one")
        cluster.restart(1)

        assert read(offset_range, settings(cluster, "wire")) == list(range(RECORDS))
        damaged = OffsetRange(offset_range.tp, RECORDS - 10, RECORDS + 2)
        with pytest.raises(
            RecordError, match=rf"BATCH\] cannot read damaged-0 at offset {RECORDS}: .*checksum"
        ):
            list(fetch(damaged, settings(cluster, "wire")))
        trusting = settings(cluster, "wire", check_crcs="false")
        values = pa.Table.from_batches(fetch(damaged, trusting))["value"].to_pylist()
        assert values[-2:] == [b"The damaged one", b"after it"]


def flip(cluster: KafkaCluster, text: bytes) -> None:
    """
    Change the case of the first letter of a text wherever a log segment has it.
    """
    changed = 0
    for segment in cluster.data_folder(1).glob("damaged-0/*.log"):
        data = segment.read_bytes()
        changed += data.count(text)
        segment.write_bytes(data.replace(text, bytes([text[0] ^ 0x20]) + text[1:]))
    assert changed == 1


# test_old_broker.py reads from an older one.
@pytest.mark.soak
def test_older_broker() -> None:
    """
    A broker of the previous major version is read in the same way.
    """
    with KafkaCluster(version="3.9.2") as cluster:
        offset_range = filled(cluster, "older")
        assert read(offset_range, settings(cluster, "wire")) == list(range(RECORDS))
