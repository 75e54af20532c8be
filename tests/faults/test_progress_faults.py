"""
Progress stores whose servers and owners are killed, frozen and disconnected.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from pyspark_pykafka.errors import ProgressError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_store, read_progress_records
from pyspark_pykafka.progress.group_store import GroupStore
from pyspark_pykafka.progress.record import Owner
from pyspark_pykafka.progress.recorder import StoreRecorder
from pyspark_pykafka.progress.store import ClaimLostError
from pyspark_pykafka.progress.store_session import StoreSession
from pyspark_pykafka.progress.zookeeper_store import HOLDER
from pyspark_pykafka.testing import KafkaCluster
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_pykafka.testing import ZooKeeper
    from pyspark_pykafka.testing.plugin import TopicFactory

CHILD = Path(__file__).with_name("progress_owner.py")
SESSION_MS = "3000"
SECONDS = 60.0


def options(store: str, bootstrap: str, topic: str, zookeeper: ZooKeeper) -> dict[str, str]:
    """
    Return a stream's options with one kind of store; the topic's name is the group and the id.
    """
    common = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "progressStore": store}
    if store == "consumerGroup":
        return {**common, "kafka.group.id": topic, "kafka.session.timeout.ms": SESSION_MS}
    return {
        **common,
        "zookeeperHosts": zookeeper.hosts,
        "zookeeperId": topic,
        "zookeeperSessionTimeoutMs": SESSION_MS,
    }


def stream_offset(topic: str, offset: int, query: str) -> StreamOffset:
    """
    Return the offset of a query in partition 0.
    """
    return StreamOffset({TopicPartition(topic, 0): offset}, query=QueryIdentity(query, 0))


def offset_of(options: dict[str, str]) -> int | None:
    """
    Return the recorded offset of partition 0, or None if none is recorded.
    """
    records = read_progress_records(parse_stream_source(options))
    return next((record.offset for tp, record in records.items() if tp.partition == 0), None)


@contextmanager
def owner(options: dict[str, str], query: str) -> Iterator[subprocess.Popen[str]]:
    """
    Start a process that owns the store; it is killed at the end of the block.
    """
    command = [sys.executable, str(CHILD), json.dumps(options), query]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait(SECONDS)


def record(session: StoreSession, done: StreamOffset) -> None:
    """
    Record an offset, and claim again after a lost claim, as the recorder does.
    """
    while True:
        try:
            return session.record(done)
        except ClaimLostError:
            continue


def send(child: subprocess.Popen[str], offset: int) -> str:
    """
    Make the child record an offset; return its response.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{offset}\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


@pytest.mark.parametrize("store", ["consumerGroup", "zookeeper"])
@pytest.mark.parametrize("query", ["the same", "another"])
def test_frozen_owner_is_fenced(
    kafka_cluster: KafkaCluster,
    zookeeper: ZooKeeper,
    topic: TopicFactory,
    store: str,
    query: str,
) -> None:
    """
    An owner that was replaced while it was frozen still believes that it holds the claim, but is
    rejected.
    """
    name = topic(1)
    config = options(store, kafka_cluster.bootstrap, name, zookeeper)
    with owner(config, "the same") as child:
        assert send(child, 3) == "recorded"
        os.kill(child.pid, signal.SIGSTOP)
        session = StoreSession(make_progress_store(parse_stream_source(config)), "the test")
        record(session, stream_offset(name, 10, query))
        os.kill(child.pid, signal.SIGCONT)

        response = send(child, 20)

        assert "PROGRESS_FENCED" in response or "PROGRESS_OWNED" in response
        assert query in response
        assert offset_of(config) == 10
        # The session claims the store again if the client of the frozen owner joined before its
        # rejection.
        record(session, stream_offset(name, 11, query))
        assert offset_of(config) == 11
        session.close()


@pytest.mark.parametrize("store", ["consumerGroup", "zookeeper"])
def test_killed_owner_blocks_until_its_session_expires(
    kafka_cluster: KafkaCluster, zookeeper: ZooKeeper, topic: TopicFactory, store: str
) -> None:
    """
    Another query waits until the session of the killed owner expires, and then records its offsets.
    """
    name = topic(1)
    config = options(store, kafka_cluster.bootstrap, name, zookeeper)
    with owner(config, "killed") as child:
        assert send(child, 3) == "recorded"
        child.kill()
        child.wait(SECONDS)

        session = StoreSession(make_progress_store(parse_stream_source(config)), "the test")
        session.record(stream_offset(name, 4, "another"))

        assert offset_of(config) == 4
        session.close()


def test_dead_zookeeper_does_not_block_the_query(
    kafka_cluster: KafkaCluster, zookeeper: ZooKeeper, topic: TopicFactory
) -> None:
    """
    While ZooKeeper is down, a query continues; after the restart the store gets its last offsets.
    """
    name = topic(1)
    config = options("zookeeper", kafka_cluster.bootstrap, name, zookeeper)
    recorder = StoreRecorder(lambda: make_progress_store(parse_stream_source(config)), "the test")
    recorder.record_completed(stream_offset(name, 1, "q"))
    wait_until(lambda: None if offset_of(config) == 1 else "not recorded yet", SECONDS)

    zookeeper.kill()
    for offset in range(2, 100):
        recorder.record_completed(stream_offset(name, offset, "q"))
    zookeeper.restart()

    def behind() -> str | None:
        recorder.record_completed(stream_offset(name, 99, "q"))
        return None if offset_of(config) == 99 else "the store has not caught up"

    wait_until(behind, SECONDS)
    recorder.finish()


def test_expired_session_is_claimed_again(
    kafka_cluster: KafkaCluster, zookeeper: ZooKeeper, topic: TopicFactory
) -> None:
    """
    If its session expires, the owner claims the nodes again, with the next epoch.

    A second client closes the session, as ZooKeeper's own tests do.
    """
    name = topic(1)
    config = options("zookeeper", kafka_cluster.bootstrap, name, zookeeper)
    store = make_progress_store(parse_stream_source(config))
    recorder = StoreRecorder(lambda: store, "the test")
    recorder.record_completed(stream_offset(name, 1, "q"))
    wait_until(lambda: None if offset_of(config) == 1 else "not recorded yet", SECONDS)

    other = KazooClient(zookeeper.hosts, client_id=store._session.client.client_id)  # type: ignore[attr-defined]
    other.start()
    other.stop()
    other.close()
    recorder.record_completed(stream_offset(name, 2, "q"))

    wait_until(lambda: None if offset_of(config) == 2 else "not recorded yet", SECONDS)
    with _client(zookeeper) as client:
        assert json.loads(client.get(f"/pykafka/{name}/{HOLDER}")[0])["epoch"] == 2
    recorder.finish()


def test_another_user_cannot_access_the_nodes(
    kafka_cluster: KafkaCluster, zookeeper: ZooKeeper, topic: TopicFactory
) -> None:
    """
    Nodes with a digest can be read only by the digest's user; the error names the option, and no
    password.
    """
    name = topic(1)
    config = options("zookeeper", kafka_cluster.bootstrap, name, zookeeper)
    config |= {"zookeeperRoot": f"/{name}", "zookeeperDigest": "me:SECRET"}
    session = StoreSession(make_progress_store(parse_stream_source(config)), "the test")
    session.record(stream_offset(name, 1, "q"))
    session.close()

    assert offset_of(config) == 1
    for digest in ({"zookeeperDigest": "you:HIDDEN"}, {}):
        stranger = {
            key: value for key, value in config.items() if key != "zookeeperDigest"
        } | digest
        with pytest.raises(Exception, match="not allowed; zookeeperDigest must be") as caught:
            offset_of(stranger)
        assert "HIDDEN" not in str(caught.value)


def test_another_user_cannot_write_readable_nodes(
    kafka_cluster: KafkaCluster, zookeeper: ZooKeeper, topic: TopicFactory
) -> None:
    """
    Other users can read nodes with ``zookeeperAcl=readable``; their writes fail at once.
    """
    name = topic(1)
    config = options("zookeeper", kafka_cluster.bootstrap, name, zookeeper)
    config |= {"zookeeperRoot": f"/{name}", "zookeeperAcl": "readable"}
    config |= {"zookeeperDigest": "me:SECRET"}
    session = StoreSession(make_progress_store(parse_stream_source(config)), "the test")
    session.record(stream_offset(name, 1, "q"))
    session.close()

    stranger = {**config, "zookeeperDigest": "you:HIDDEN"}
    assert offset_of(stranger) == 1
    with pytest.raises(Exception, match="claiming .*: not allowed; zookeeperDigest must be"):
        make_progress_store(parse_stream_source(stranger)).claim(Owner("q", "other", 0), [name])
    assert offset_of(config) == 1


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """
    Return a cluster of three brokers that tests may kill.
    """
    with KafkaCluster(3) as cluster:
        yield cluster


# test_group_backends.py has coordinators that move; librdkafka, which commits, finds new ones, too.
@pytest.mark.soak
def test_killed_coordinator_is_replaced(three: KafkaCluster, zookeeper: ZooKeeper) -> None:
    """
    If the group's coordinator is killed, offsets are recorded at another broker, and the group
    still has its writer.

    If the membership expires in the meantime, the group is claimed again. The old coordinator is
    not used again once it is back.
    """
    three.create_topic("moves")
    config = options("consumerGroup", three.bootstrap, "moves", zookeeper)
    session = StoreSession(make_progress_store(parse_stream_source(config)), "the test")
    session.record(stream_offset("moves", 1, "q"))
    onlooker = make_progress_store(parse_stream_source(config))
    assert isinstance(onlooker, GroupStore)
    assert onlooker.has_writer()

    admin = three.admin()
    group = admin.describe_consumer_groups(["moves"])["moves"].result(SECONDS)
    coordinator = group.coordinator.id
    three.kill(coordinator)
    record(session, stream_offset("moves", 2, "q"))
    three.restart(coordinator)

    assert onlooker.has_writer()
    assert offset_of(config) == 2
    session.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_consumers_is_rejected(
    kafka_cluster: KafkaCluster, zookeeper: ZooKeeper, topic: TopicFactory, protocol: str
) -> None:
    """
    Recording offsets in a group that a consumer uses, in either protocol, is an error that names
    the consumer.
    """
    from confluent_kafka import Consumer

    name = topic(1)
    config = options("consumerGroup", kafka_cluster.bootstrap, name, zookeeper)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_cluster.bootstrap,
            "group.id": name,
            "client.id": "a-reader",
            "group.protocol": protocol,
        }
    )
    assigned: list[object] = []
    consumer.subscribe([name], on_assign=lambda *_: assigned.append(1))

    def missing() -> str | None:
        consumer.poll(0.1)
        return None if assigned else "not in the group yet"

    wait_until(missing, SECONDS)
    session = StoreSession(make_progress_store(parse_stream_source(config)), "the test")
    with pytest.raises(ProgressError, match="in use by a-reader at 127.0.0.1"):
        session.record(stream_offset(name, 1, "q"))
    consumer.close()


@contextmanager
def _client(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
