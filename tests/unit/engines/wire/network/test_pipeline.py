"""
Requests to several brokers at the same time, on connections that throttle or end.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.proxy import Proxy
from tests.support.scripted_broker import (
    GREETING,
    ScriptedBroker,
    authenticated,
    handshake,
    metadata,
    responding,
)
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.wire.consumer.leader_requests import (
    list_offsets_api,
    request_from_leaders,
)
from pyspark_pykafka.engines.wire.network import connect
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.pipeline import request_pipelined
from pyspark_pykafka.engines.wire.protocol.list_offsets import ListOffsetsPartition
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import BrokerUnavailableError, TimeoutExceededError
from pyspark_pykafka.offsets import LATEST
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.engines.wire.network.connection import Connection
    from pyspark_pykafka.engines.wire.protocol.metadata import MetadataResponse
    from pyspark_pykafka.engines.wire.protocol.request import Request

# Longer than a test may take.
THROTTLE_MS = 3_600_000


def metadata_of_t(connection: Connection) -> Request[MetadataResponse]:
    version = connection.version(METADATA)
    return metadata_request(version, ["t"], allow_auto_topic_creation=False)


class Throttling(Behaviour):
    """
    A broker whose quota is used up.
    """

    def throttle_ms(self, node: int, api_key: int) -> int:  # noqa: ARG002
        return THROTTLE_MS


def test_a_connection_that_ends_while_it_is_throttled_is_an_error() -> None:
    """
    Nothing is in flight at that point: the end of the connection arrives as input that is no
    response.
    """
    with ExitStack() as client, ExitStack() as brokers:
        stubs = brokers.enter_context(StubCluster(Throttling()))
        cluster = Cluster(wire_config(KafkaSettings.of({"bootstrap.servers": stubs.bootstrap})))
        client.callback(cluster.close)
        (address,) = cluster.addresses(Deadline.after(10))
        closing = threading.Timer(0.3, brokers.pop_all().close)
        closing.start()
        result = request_pipelined(
            cluster,
            {address: [("t", metadata_of_t)]},
            Deadline.after(7_200),
            7_200.0,
        )
        closing.join()

    assert isinstance(result.errors[address], BrokerUnavailableError)


def test_a_connection_that_ends_before_a_request_is_repeated(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    If a broker closes its connection while a request to it waits to be repeated, its last response
    is kept, and the error says nothing of a throttle time.
    """
    good = scripted(GREETING, responding(metadata(12), flexible=True))
    silent = scripted(GREETING)
    cluster = Cluster(wire_config(KafkaSettings.of({"bootstrap.servers": f"{good.address}"})))
    for broker in (good, silent):
        cluster.connection_at(broker.address, Deadline.after(60))
    addresses = [good.address, silent.address]
    requested = {address: [(address, metadata_of_t)] for address in addresses}
    closing = threading.Timer(0.3, good.script.over.set)
    closing.start()
    result = request_pipelined(
        cluster, requested, Deadline.after(2.0), 600.0, is_repeated=lambda *_: True
    )
    closing.join()
    cluster.close()

    assert result.responses.keys() == {good.address}
    assert str(result.errors[good.address]) == (
        f"{good.address}: the connection ended while no request was in flight"
    )


# One of the requests is never answered before this deadline; all others must be.
SECONDS = 4.0


@contextmanager
def cluster_without_one(kind: str) -> Iterator[tuple[StubCluster, Cluster, Address]]:
    """
    Yield three brokers, a client of them, and the address at which node 1 cannot be used.
    """
    with Proxy(("127.0.0.1", 1)) as hole:
        # Drops SYNs, or accepts connections and is silent.
        getattr(hole, kind)()
        host, port = hole.address.split(":")
        with StubCluster(Moved(brokers=3, topics={"t": 3}, moved_to=int(port))) as stubs:
            options = {
                "bootstrap.servers": stubs.bootstrap,
                "socket.connection.setup.timeout.ms": "600000",
                "api.version.request.timeout.ms": "300000",
            }
            cluster = Cluster(wire_config(KafkaSettings.of(options)))
            try:
                yield stubs, cluster, Address(host, int(port))
            finally:
                cluster.close()


class Moved(Behaviour):
    """
    Brokers; node 1 advertises another port than its own.
    """

    moved_to = 0

    def port(self, node: int) -> int:
        return self.moved_to if node == 1 else super().port(node)


@pytest.mark.parametrize("kind", ["drop_syns", "black_hole"])
def test_unusable_broker_delays_no_requests_to_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While one broker drops SYNs, or is silent during the login, the others get their requests.
    """
    monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", 600.0)
    with cluster_without_one(kind) as (_, cluster, unusable):
        addresses = cluster.addresses(Deadline.after(60))
        # The unusable broker is tried first.
        requested = {unusable: [(unusable, metadata_of_t)]}
        requested |= {address: [(address, metadata_of_t)] for address in addresses}
        result = request_pipelined(cluster, requested, Deadline.after(SECONDS), 600.0)

    assert result.responses.keys() == {*addresses} - {unusable}
    assert result.errors.keys() == {unusable}
    assert isinstance(result.errors[unusable], TimeoutExceededError)


@pytest.mark.parametrize("kind", ["drop_syns", "black_hole"])
def test_unusable_leader_delays_no_offsets_of_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While one leader drops SYNs, or is silent during the login, the others return their offsets.
    """
    monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", 600.0)
    with cluster_without_one(kind) as (_, cluster, unusable):
        cluster.addresses(Deadline.after(60))
        requested = {node: {"t": [ListOffsetsPartition(node, -1, LATEST)]} for node in (1, 0, 2)}
        leaders = request_from_leaders(
            cluster, requested, list_offsets_api(0), Deadline.after(SECONDS)
        )

    assert leaders.responses.keys() == {0, 2}
    (error,) = leaders.errors
    assert str(unusable) in str(error)


def test_silent_renewal_of_a_login_delays_no_other_broker(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    A broker that is silent when its login is renewed (KIP-368) loses only its own requests.
    """
    login = [GREETING, handshake()]
    stuck = scripted(*login, authenticated(lifetime=1000))
    good = scripted(*login, authenticated(), responding(metadata(12), flexible=True))
    options = {
        "bootstrap.servers": f"{stuck.address}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "geheim",
    }
    cluster = Cluster(wire_config(KafkaSettings.of(options)))
    connection = cluster.connection_at(stuck.address, Deadline.after(60))
    cluster.connection_at(good.address, Deadline.after(60))
    give_up = Deadline.after(60)
    while not connection.is_login_due and not give_up.expired:
        time.sleep(0.01)
    addresses = [stuck.address, good.address]
    requested = {address: [(address, metadata_of_t)] for address in addresses}
    result = request_pipelined(cluster, requested, Deadline.after(SECONDS), 600.0)
    cluster.close()

    assert result.responses.keys() == {good.address}
    assert result.errors.keys() == {stuck.address}


def test_connection_whose_login_cannot_be_renewed_in_time_is_closed(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    """
    A connection whose login (KIP-368) could be renewed only after a long throttle time is closed.
    """
    throttled = responding(metadata(12, throttle=THROTTLE_MS), flexible=True)
    broker = scripted(GREETING, handshake(), authenticated(lifetime=1000), throttled)
    options = {
        "bootstrap.servers": f"{broker.address}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "geheim",
    }
    cluster = Cluster(wire_config(KafkaSettings.of(options)))
    connection = cluster.connection_at(broker.address, Deadline.after(60))
    cluster.request(connection, metadata_of_t(connection), Deadline.after(60))
    give_up = Deadline.after(60)
    while not connection.is_login_due and not give_up.expired:
        time.sleep(0.01)
    with cluster.connect_all([], Deadline.after(60)) as opener:
        opener.start(broker.address)
        opener.readable([], 60)
        ((_, result),) = opener.take()
    cluster.close()

    assert isinstance(result, TimeoutExceededError)
    assert connection.closed
