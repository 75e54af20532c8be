"""
Writes to several leaders, one of which cannot be reached.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse
from tests.support.listening import listen
from tests.support.producing import batch_of, write
from tests.support.proxy import Proxy
from tests.support.scripted_broker import framed, read_frame
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.wire.network import connect
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config
from pyspark_pykafka.testing import Record

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

METADATA = 3


class Behind(Behaviour):
    """
    Three brokers. Node 1 is behind a proxy.
    """

    proxy_port = 0

    def port(self, node: int) -> int:
        return self.proxy_port if node == 1 else super().port(node)


def wait_until(condition: Callable[[], bool]) -> bool:
    limit, changed = Deadline.after(20), threading.Event()
    while not condition() and not limit.expired:
        changed.wait(0.05)
    return condition()


@pytest.mark.parametrize("kind", ["drop_syns", "black_hole"])
def test_unusable_leader_delays_no_records_of_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While one leader drops SYNs, or is silent during the login, the others get their records; when
    that leader is back, it gets its records, too.
    """
    monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", 600.0)
    # The record for the unusable leader comes first.
    records = [Record(b"k", b"v", partition) for partition in (1, 0, 2)]
    with Proxy(("127.0.0.1", 1)) as proxy:
        getattr(proxy, kind)()
        behaviour = Behind(brokers=3, topics={"t": 3}, proxy_port=proxy.port)
        with StubCluster(behaviour) as stubs:
            proxy.target = ("127.0.0.1", stubs.ports[1])
            settings: dict[str, Any] = {
                "socket_connection_setup_timeout_ms": 600_000,
                "api_version_request_timeout_ms": 300_000,
                "request_timeout_ms": 300_000,
                "delivery_timeout_ms": 900_000,
            }
            rows = [batch_of([record]) for record in records]
            written: list[int] = []
            writing = threading.Thread(
                target=lambda: written.append(write(stubs.bootstrap, rows, "t", **settings)),
                daemon=True,
            )
            writing.start()
            assert wait_until(lambda: stubs.get("logs").keys() == {("t", 0), ("t", 2)})
            assert not written
            proxy.heal()
            proxy.disconnect(reset=True)
            writing.join(60)
            assert stubs.get("logs").keys() == {("t", 0), ("t", 1), ("t", 2)}

    assert written == [3]


def answer_versions_only(listener: socket.socket, accepted: list[int]) -> None:
    """
    Close each connection after ApiVersions; return once the listener is shut down.
    """
    apis = [ApiVersionsResponse.ApiVersion(api_key=0, min_version=3, max_version=9)]
    body = bytes(ApiVersionsResponse(error_code=0, api_keys=apis, throttle_time_ms=0).encode(3))
    with contextlib.suppress(OSError):
        while True:
            peer, _ = listener.accept()
            accepted.append(1)
            with peer, contextlib.suppress(OSError, struct.error):
                (correlation,) = struct.unpack(">i", read_frame(peer)[4:8])
                peer.sendall(framed(correlation, body))


def test_leader_that_closes_its_connections_is_retried_with_pauses() -> None:
    """
    A leader that closes each connection after the login is not connected to in a tight loop.
    """
    accepted: list[int] = []
    with listen() as listener:
        serving = threading.Thread(
            target=answer_versions_only, args=(listener, accepted), daemon=True
        )
        serving.start()
        port = listener.getsockname()[1]
        with StubCluster(Behind(brokers=2, topics={"t": 2}, proxy_port=port)) as stubs:
            rows = [batch_of([Record(b"v", partition=1)])]
            timeouts = {"request_timeout_ms": 1_500, "delivery_timeout_ms": 3_000}
            with pytest.raises(PykafkaError):
                write(stubs.bootstrap, rows, "t", "wire", **timeouts)

    assert 1 < len(accepted) < 50


class Slow(Behaviour):
    """
    Three brokers. Node 1 answers no metadata request in time.
    """

    def delay(self, node: int, api_key: int) -> float:
        return 60.0 if node == 1 and api_key == METADATA else 0.0


@contextlib.contextmanager
def client_of(
    behaviour: Behaviour, now: Callable[[], float] = time.monotonic
) -> Iterator[tuple[StubCluster, Cluster]]:
    """
    Yield brokers, and a client that knows their addresses.
    """
    with StubCluster(behaviour) as stubs:
        settings = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap})
        cluster = Cluster(wire_config(settings), now=now)
        try:
            cluster.addresses(cluster.new_deadline(60))
            yield stubs, cluster
        finally:
            cluster.close()


def open_in_background(cluster: Cluster, node: int) -> None:
    """
    Open the connection to a broker, but do not take it; node 0 is connected.
    """
    assert cluster.connection_or_none(node) is None
    limit = Deadline.after(60)
    while cluster.is_connecting and not limit.expired:
        cluster.readable([], 1.0)
        assert cluster.connection_or_none(0) is not None
    assert not cluster.is_connecting


def test_opened_connection_ends_one_wait() -> None:
    """
    An open connection that the sender does not take, for example because the leader has moved, does
    not keep the sender busy.
    """
    with client_of(Behaviour(brokers=2)) as (_, cluster):
        assert cluster.connection_or_none(1) is None
        cluster.readable([], 60.0)
        started = time.monotonic()
        cluster.readable([], 0.2)

        assert time.monotonic() - started >= 0.2
        assert cluster.connection_or_none(1) is not None


def test_connection_that_another_thread_uses_is_not_shared() -> None:
    """
    A connection on which a slow Metadata response is awaited is not used for records, even if it
    was opened for them.
    """
    with client_of(Slow(brokers=3, topics={"t": 3})) as (stubs, cluster):
        open_in_background(cluster, 1)
        for port in (stubs.ports[0], stubs.ports[2]):
            cluster.demote(Address("127.0.0.1", port))
        cluster.metadata(["t"], cluster.new_deadline(60))
        connection = cluster.connection_or_none(1)

    assert connection is None


def test_old_error_of_a_connection_is_not_raised() -> None:
    """
    The error of a connection that nobody needed in time is not raised in a later write.
    """
    clock = [1000.0]
    behaviour = Behind(brokers=2, topics={"t": 2}, proxy_port=1)
    with client_of(behaviour, lambda: clock[0]) as (_, cluster):
        open_in_background(cluster, 1)
        clock[0] += 60.0

        assert cluster.connection_or_none(1) is None
        limit = Deadline.after(60)
        while cluster.is_connecting and not limit.expired:
            cluster.readable([], 1.0)
        with pytest.raises(BrokerUnavailableError):
            cluster.connection_or_none(1)
