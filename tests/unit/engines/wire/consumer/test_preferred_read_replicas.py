"""
Fetches from the replica in the client's rack (KIP-392) while that replica cannot be reached.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.proxy import Proxy
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.engines.wire.consumer.partition_fetcher import PartitionFetcher
from pyspark_pykafka.engines.wire.network import connect
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.network.preferred_read_replicas import PreferredReadReplicas
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import wire_config

if TYPE_CHECKING:
    from collections.abc import Iterator

LEADER, NEAR = 0, 1


class Racks(Behaviour):
    """
    Two brokers; the leader sends clients with a rack to the other one, which is behind a proxy.
    """

    rack = ""
    proxy_port = 0

    def port(self, node: int) -> int:
        return self.proxy_port if node == NEAR else super().port(node)

    def leader(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return LEADER

    def _on_1(self, node: int, request: Any) -> Any:
        self.rack = request.rack_id
        return super()._on_1(node, request)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if self.rack and node == LEADER:
            return FetchAnswer(0, self.high_watermark, b"", NEAR)
        return super().fetch(node, topic, partition, offset)


@dataclass
class Client:
    """
    A cluster, and a clock for its replicas and partitions.
    """

    cluster: Cluster
    proxy: Proxy
    clock: list[float] = field(default_factory=lambda: [1000.0])

    def now(self) -> float:
        return self.clock[0]

    def fetcher(self, partition: int = 0) -> PartitionFetcher:
        tp = TopicPartition("t", partition)
        return PartitionFetcher(self.cluster, tp, "read_uncommitted", now=self.now)


def fetch(fetcher: PartitionFetcher) -> tuple[int, bool]:
    """
    Return the broker of one fetch, and whether it has returned records.
    """
    deadline = Deadline.after(60)
    fetcher.send_fetch(0, 100_000, 100, deadline)
    result = fetcher.receive_fetch(deadline)
    return result.node, bool(result.records)


@contextmanager
def preferred_read_replica() -> Iterator[Client]:
    with Proxy(("127.0.0.1", 1)) as proxy:
        stubs = Racks(brokers=2, topics={"t": 2}, proxy_port=proxy.port)
        with StubCluster(stubs) as brokers:
            proxy.target = ("127.0.0.1", brokers.ports[NEAR])
            kafka = {"bootstrap.servers": brokers.bootstrap, "client.rack": "a"}
            cluster = Cluster(wire_config(KafkaSettings.of(kafka)))
            client = Client(cluster, proxy)
            cluster.preferred_read_replicas.now = client.now
            cluster.preferred_read_replicas.jitter = lambda: 0.0
            try:
                yield client
            finally:
                cluster.close()


def test_unreachable_replica_stalls_one_fetch_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    After the first failure no partition of the process waits for the replica: all are read from
    their leader, one warning says so, and the replica is used again once it can be reached.
    """
    monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", 0.5)
    caplog.set_level(logging.WARNING, "pyspark_pykafka")
    with preferred_read_replica() as client:
        client.proxy.drop_syns()
        first = client.fetcher()
        assert fetch(first) == (LEADER, False)
        with pytest.raises(PykafkaError, match="timed out"):
            fetch(first)
        first.reset()
        # None of these calls connects to the replica, whatever the time, so none raises an error.
        monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", 600.0)
        assert fetch(first) == (LEADER, True)
        second = client.fetcher(1)
        assert [fetch(second) for _ in range(2)] == [(LEADER, False), (LEADER, True)]
        for _ in range(5):
            client.clock[0] += 100.0
            assert [fetch(first) for _ in range(2)] == [(LEADER, False), (LEADER, True)]
        client.proxy.heal()
        served_by, limit = LEADER, Deadline.after(60)
        while served_by != NEAR and not limit.expired:
            client.clock[0] += 100.0
            served_by, _ = fetch(second)

    assert served_by == NEAR
    (warning,) = [message for message in caplog.messages if "cannot read from broker" in message]
    assert client.proxy.address in warning
    assert "or set no rack (kafka.client.rack" in warning


def test_silent_replica_leaves_time_for_the_leader() -> None:
    """
    A replica that accepts connections and is silent takes at most half of the time for progress.
    """
    with preferred_read_replica() as client:
        client.proxy.black_hole()
        fetcher = client.fetcher()
        assert fetch(fetcher) == (LEADER, False)
        deadline = Deadline.after(4)
        with pytest.raises(PykafkaError, match="timed out"):
            fetcher.send_fetch(0, 100_000, 100, deadline)
        assert not deadline.expired
        fetcher.reset()
        assert fetch(fetcher) == (LEADER, True)


def test_replica_that_takes_no_request_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A replica whose connection ends when a request is sent counts as failed, like a replica to which
    no connection can be opened, or that does not answer.
    """
    with preferred_read_replica() as client:
        fetcher = client.fetcher()
        assert [fetch(fetcher)[0] for _ in range(2)] == [LEADER, NEAR]

        def fail(connection: Connection, *_: object) -> None:
            assert connection.address.port == client.proxy.port
            msg = "the connection ended"
            raise BrokerUnavailableError(msg)

        with monkeypatch.context() as broken:
            broken.setattr(Connection, "send", fail)
            with pytest.raises(BrokerUnavailableError):
                fetch(fetcher)

        assert not client.cluster.preferred_read_replicas.is_usable(NEAR)


def test_pause_of_a_replica_grows_with_its_failures() -> None:
    """
    A replica that fails again and again is tried after 10 s, 20 s and so on, but at least every 5
    min. Once it has returned records, the pauses begin at 10 s again.
    """
    now, connected, connects = [0.0], [True], list[int]()
    replicas = PreferredReadReplicas(
        lambda: now[0], lambda _: connected[0], connects.append, jitter=lambda: 0.0
    )
    error = BrokerUnavailableError("down")
    pauses = []
    for _ in range(7):
        replicas.record_failure(NEAR, "near:9092", error)
        pauses.append(replicas.retry_at(NEAR) - now[0])
        assert not replicas.is_usable(NEAR)
        now[0] = replicas.retry_at(NEAR)
        assert replicas.is_usable(NEAR)

    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    assert replicas.is_usable(LEADER)
    assert not connects
    connected[0] = False
    # The replica is connected to in the background, once in each pause.
    assert not replicas.is_usable(NEAR)
    assert not replicas.is_usable(NEAR)
    assert connects == [NEAR]
    connected[0] = True
    assert replicas.is_usable(NEAR)
    replicas.record_success(NEAR)
    replicas.record_failure(NEAR, "near:9092", error)
    assert replicas.retry_at(NEAR) - now[0] == 10


def test_reconnected_replica_is_used_by_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Once the connection to a replica is open again, all of its partitions are read from it, not only
    after the pause that another failure would need.
    """
    monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", 0.5)
    with preferred_read_replica() as client:
        client.proxy.drop_syns()
        fetchers = [client.fetcher(0), client.fetcher(1)]
        assert fetch(fetchers[0]) == (LEADER, False)
        with pytest.raises(PykafkaError, match="timed out"):
            fetch(fetchers[0])
        fetchers[0].reset()
        client.proxy.heal()
        client.clock[0] += 11.0
        # Connects in the background.
        assert fetch(fetchers[0]) == (LEADER, False)
        limit, changed = Deadline.after(60), threading.Event()
        while not client.cluster.preferred_read_replicas.is_connected(NEAR) and not limit.expired:
            changed.wait(0.01)
        client.clock[0] += 11.0
        fetched = [[fetch(fetcher) for _ in range(2)] for fetcher in fetchers]

    assert fetched == 2 * [[(LEADER, False), (NEAR, True)]]
