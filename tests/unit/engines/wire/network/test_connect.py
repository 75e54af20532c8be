"""
Dead hosts, names with several addresses, and connections that a firewall has forgotten.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.listening import unused_address
from tests.support.metadata_backends import metadata_backend_of
from tests.support.proxy import Proxy
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.wire.network import broker_selector, connect
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.network.reachability import UNREACHABLE_SECONDS, Reachability
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError
from pyspark_pykafka.offsets import TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config
from pyspark_pykafka.source.factory import metadata_client
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Longer than the time limit of a test, in seconds.
TOO_LONG = 600.0
NAME = "two.test"
FAR = "127.0.0.9"


def free_port() -> int:
    return unused_address()[1]


def soon(seconds: float = 20) -> Deadline:
    return Deadline.after(seconds)


def config_of(servers: str, **changed: str) -> Any:
    settings = {name.replace("_", "."): value for name, value in changed.items()}
    return wire_config(KafkaSettings.of({"bootstrap.servers": servers, **settings}))


def cluster_of(servers: str, **changed: str) -> Cluster:
    """
    Return a cluster that tries the bootstrap servers in their order.
    """
    turns = iter(range(1_000_000))
    return Cluster(config_of(servers, **changed), jitter=lambda: float(next(turns)))


def stream(servers: str, engine: str = "wire", **kafka: str) -> MicroBatchStream:
    settings = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    source_options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "t",
        "startingOffsets": "earliest",
        "engine": engine,
        **settings,
    }
    options = parse_stream_source(source_options)
    return MicroBatchStream(
        options, metadata_client(options), lambda offsets: dict.fromkeys(offsets, 100.0)
    )


def timed(work: Callable[[], object]) -> float:
    started_at = time.monotonic()
    work()
    return time.monotonic() - started_at


@pytest.fixture
def stub() -> Iterator[StubCluster]:
    """
    Return a single broker.
    """
    with StubCluster(Behaviour()) as cluster:
        yield cluster


@pytest.fixture
def dead() -> Iterator[Proxy]:
    """
    Return a host that ignores connection attempts.
    """
    with Proxy(("127.0.0.1", 1)) as proxy:
        proxy.drop_syns()
        yield proxy


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a host name have two addresses.
    """
    real = socket.getaddrinfo

    def look_up(host: Any, port: int, family: int = 0, kind: int = 0, flags: int = 0) -> Any:
        if host != NAME.encode():
            return real(host, port, family, kind, flags=flags)
        if flags:
            raise socket.gaierror(-2, "Name or service not known")
        family = socket.AF_INET
        return [(family, kind, 6, "", (address, port)) for address in (FAR, "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.usefixtures("two_addresses")
def test_next_address_of_a_name_overtakes_a_dead_one(
    stub: StubCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A dead address costs one second, once; afterwards the other address comes first.
    """
    address = Address(NAME, stub.ports[0])
    assert connect.ATTEMPT_DELAY_SECONDS == 1
    with Proxy(("127.0.0.1", 1), host=FAR, port=stub.ports[0]) as proxy:
        proxy.drop_syns()
        config = config_of(str(address), socket_connection_setup_timeout_ms="600000")
        monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", TOO_LONG)
        assert timed(lambda: Connection.open(address, config, soon(TOO_LONG)).close()) > 0.9
        monkeypatch.setattr(connect, "ATTEMPT_DELAY_SECONDS", TOO_LONG)
        monkeypatch.setattr(connect, "_UNREACHABLE_TIMEOUT_SECONDS", TOO_LONG)
        Connection.open(address, config, soon(TOO_LONG)).close()


@pytest.mark.usefixtures("two_addresses")
def test_next_address_follows_a_refusal_at_once(
    stub: StubCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The second address is tried without a delay if the first refuses.
    """
    address = Address(NAME, stub.ports[0])
    config = config_of(str(address), socket_connection_setup_timeout_ms="600000")
    monkeypatch.setattr(connect, "ATTEMPT_DELAY_SECONDS", TOO_LONG)

    Connection.open(address, config, soon(TOO_LONG)).close()


def test_only_one_host_is_connected_if_it_responds(stub: StubCluster) -> None:
    """
    The other hosts are not tried, and no socket is left open.
    """
    with (
        Proxy(("127.0.0.1", stub.ports[0])) as first,
        Proxy(("127.0.0.1", stub.ports[0])) as second,
    ):
        cluster = cluster_of(f"{first.address},{second.address}")
        cluster.any_connection(soon())
        cluster.close()
        time.sleep(0.1)

        assert (first.accepted, second.accepted) == (1, 0)


def test_next_bootstrap_host_overtakes_a_dead_one(
    stub: StubCluster, dead: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A dead host costs a second or two, and nothing while it is known to be unreachable.
    """
    servers = f"{dead.address},{stub.bootstrap}"
    assert broker_selector.ATTEMPT_DELAY_SECONDS == 1.5
    monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", TOO_LONG)
    for delay in (1.5, TOO_LONG):
        monkeypatch.setattr(broker_selector, "ATTEMPT_DELAY_SECONDS", delay)
        cluster = cluster_of(servers, socket_connection_setup_timeout_ms="600000")
        cluster.leader(TopicPartition("t", 0), soon(TOO_LONG))
        cluster.close()


def test_a_silent_host_is_overtaken(stub: StubCluster) -> None:
    """
    A host that accepts the connection but never responds does not take up the whole deadline.
    """
    with Proxy(("127.0.0.1", stub.ports[0])) as hole:
        hole.black_hole()
        cluster = cluster_of(f"{hole.address},{stub.bootstrap}")
        deadline = soon(600)
        cluster.leader(TopicPartition("t", 0), deadline)
        cluster.close()

    assert not deadline.expired


class Replaced(Behaviour):
    """
    Brokers that can be replaced. Before that, node 0 advertises an old port; afterwards it
    advertises its own, and no other node answers.
    """

    are_gone = False
    old_port = 0

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        return TOO_LONG if node and self.are_gone else 0.0

    def port(self, node: int) -> int:
        return super().port(node) if node or self.are_gone else self.old_port


def test_bootstrap_server_is_the_third_broker_that_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    If all of a large cluster's brokers were replaced, the bootstrap servers lead to the new ones
    soon.
    """
    monkeypatch.setattr(broker_selector, "ATTEMPT_DELAY_SECONDS", 0.5)
    replaced = Replaced(brokers=40, old_port=free_port())
    with StubCluster(replaced) as stubs:
        cluster = cluster_of(stubs.bootstrap)
        assert len(cluster.addresses(soon(60))) == 40
        connection = cluster.any_connection(soon(60))
        assert str(connection.address) == stubs.bootstrap
        cluster.drop(connection)
        stubs.set(are_gone=True)
        # Less than the time in which half of the known brokers are tried.
        addresses = cluster.addresses(soon(10))
        cluster.close()

    assert stubs.bootstrap in map(str, addresses)


def test_bootstrap_hosts_are_tried_in_random_order() -> None:
    """
    Clients start with different hosts, so that not all tasks of a job connect to the first one.
    """
    with StubCluster(Behaviour(brokers=5)) as stubs:
        addresses = set()
        for _ in range(20):
            cluster = Cluster(config_of(stubs.all_brokers))
            addresses.add(cluster.any_connection(soon()).address)
            cluster.close()

    assert len(addresses) > 1


def test_a_dead_address_has_its_own_timeout(dead: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Connecting to one address takes ten seconds at most, and less while it is known to be
    unreachable.
    """
    assert connect.ADDRESS_TIMEOUT_SECONDS == 10
    address = Address("127.0.0.1", dead.port)
    config = config_of(str(address), socket_connection_setup_timeout_ms="600000")
    for seconds in (3.0, TOO_LONG):
        monkeypatch.setattr(connect, "ADDRESS_TIMEOUT_SECONDS", seconds)
        with pytest.raises(PykafkaError, match="connecting timed out"):
            Connection.open(address, config, soon(TOO_LONG))


def test_a_plan_without_brokers_ends_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """
    Retries are not nested: planning fails after the API timeout, and one warning says that it is
    retried.
    """
    servers = f"127.0.0.1:{free_port()}"
    query = stream(servers, default_api_timeout_ms="6000")
    caplog.set_level(logging.WARNING, "pyspark_pykafka")

    with pytest.raises(PykafkaError, match="no broker answer") as caught:
        query.latest_offset(query.initial_offset())
    assert caught.value.retriable
    assert len([message for message in caplog.messages if "retrying for" in message]) == 1


@pytest.mark.parametrize(
    ("reached", "settings", "milliseconds"),
    [
        (False, {}, 10_000),
        (True, {}, 60_000),
        (False, {"default.api.timeout.ms": "90000", "max.block.ms": "90000"}, 90_000),
        (False, {"default.api.timeout.ms": "500", "max.block.ms": "500"}, 500),
    ],
)
def test_brokers_that_never_answered_have_a_shorter_limit(
    settings: dict[str, str],
    milliseconds: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    reached: bool,
) -> None:
    """
    The driver waits for the first contact for only ten seconds, because the address may be wrong; a
    timeout that the user sets applies from the beginning.
    """
    monkeypatch.setattr(first_contact, "_reached", set())
    kafka = KafkaSettings.of({"bootstrap.servers": "b:1", **settings})
    if reached:
        first_contact.record_contact(kafka)

    assert first_contact.request_seconds(kafka) == milliseconds / 1000
    assert first_contact.block_seconds(kafka) == milliseconds / 1000


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_a_response_of_a_broker_is_the_first_contact(engine: str, stub: StubCluster) -> None:
    """
    After a first response the driver waits through an outage as long as the settings say.
    """
    kafka = KafkaSettings.of({"bootstrap.servers": stub.bootstrap, "client.id": engine})
    backend = metadata_backend_of(kafka, "read_uncommitted", engine)
    first_contact._reached.discard(stub.bootstrap)
    before = backend.timeout_seconds

    backend.describe_topics(["t"])

    assert (before, backend.timeout_seconds) == (10.0, 60.0)


def test_a_plan_without_brokers_ends_with_the_api_timeout_of_librdkafka() -> None:
    """
    With librdkafka too, a plan without brokers fails after default.api.timeout.ms.
    """
    servers = f"127.0.0.1:{free_port()}"
    settings = {"bootstrap.servers": servers, "default.api.timeout.ms": "2000"}
    backend = metadata_backend_of(KafkaSettings.of(settings), "read_uncommitted", "librdkafka")
    query = stream(servers, engine="librdkafka", default_api_timeout_ms="2000")

    assert backend.timeout_seconds == 2.0
    with pytest.raises(PykafkaError, match="reading the partitions of t"):
        query.latest_offset(query.initial_offset())


class Advertised(Behaviour):
    """
    A broker that advertises another port.
    """

    elsewhere = 0

    def port(self, node: int) -> int:
        return self.elsewhere or super().port(node)


@pytest.mark.parametrize("answers_syns", [True, False])
def test_an_advertised_address_that_is_unreachable(dead: Proxy, *, answers_syns: bool) -> None:
    """
    The error names the address, and the brokers' setting from which the address comes.
    """
    port = free_port() if answers_syns else dead.port
    with StubCluster(Advertised(elsewhere=port)) as stubs:
        query = stream(stubs.bootstrap, default_api_timeout_ms="2000")
        pattern = f"127.0.0.1:{port}.*advertised.listeners"
        with pytest.raises(PykafkaError, match=pattern):
            query.latest_offset(query.initial_offset())
        cluster = cluster_of(stubs.bootstrap)
        node = cluster.leader(TopicPartition("t", 0), soon()).node
        with pytest.raises(PykafkaError, match=pattern):
            cluster.connection(node, soon(0.5))
        cluster.close()


class Proxied(Behaviour):
    """
    Brokers that advertise proxies.
    """

    advertised: tuple[int, ...] = ()

    def port(self, node: int) -> int:
        return self.advertised[node] if self.advertised else super().port(node)


@pytest.fixture
def proxied() -> Iterator[list[Proxy]]:
    """
    Return the proxies of four brokers.
    """
    with contextlib.ExitStack() as stack:
        stubs = stack.enter_context(StubCluster(Proxied(brokers=4, topics={"t": 4})))
        targets = [("127.0.0.1", port) for port in stubs.ports]
        proxies = [stack.enter_context(Proxy(target)) for target in targets]
        stubs.set(advertised=tuple(proxy.port for proxy in proxies))
        yield proxies


def test_forgotten_connections_cost_one_timeout(proxied: list[Proxy]) -> None:
    """
    Once a request has had no response for the request timeout, the other connections that have been
    idle as long as this request's connection are reopened: a firewall forgets all of them.
    """
    cluster = cluster_of(proxied[0].address, request_timeout_ms="2000")
    timed_out: list[int] = []

    def send_request(node: int) -> None:
        connection = cluster.connection(node, soon())
        request = metadata_request(
            connection.version(METADATA), (), allow_auto_topic_creation=False
        )
        for attempt in range(2):
            try:
                cluster.request(connection, request, soon())
            except PykafkaError:
                if attempt:
                    raise
                timed_out.append(node)
                connection = cluster.connection(node, soon())

    def send_requests() -> None:
        for node in range(4):
            send_request(node)

    cluster.metadata((), soon())
    send_requests()
    # All have been idle equally long; a connection used in the meantime would be trusted.
    time.sleep(0.5)
    for proxy in proxied:
        proxy.forget_connections()
    send_requests()
    cluster.close()

    assert len(timed_out) == 1


def test_a_plan_over_forgotten_connections(proxied: list[Proxy]) -> None:
    """
    The driver's requests use new connections after a moment, however long their timeouts are.
    """
    # Longer than a test may take.
    timeouts = {"socket_timeout_ms": "300000", "default_api_timeout_ms": "3600000"}
    query = stream(proxied[0].address, **timeouts)
    offset = query.latest_offset(query.initial_offset())
    for proxy in proxied:
        proxy.forget_connections()

    assert query.latest_offset(offset) == offset


def test_unreachable_addresses_are_remembered_for_a_while() -> None:
    """
    An address that failed comes last until it is reached, or some time has passed.
    """
    clock = [100.0]
    reachability = Reachability(lambda: clock[0])
    reachability.record_failure("a")
    reachability.record_failure("b")
    reachability.record_success("b")

    assert reachability.ordered(["a", "b", "c"]) == ["b", "c", "a"]
    clock[0] += UNREACHABLE_SECONDS
    assert reachability.ordered(["a", "b", "c"]) == ["a", "b", "c"]


def test_connections_with_later_responses_are_trusted() -> None:
    """
    A connection that was idle for less than half as long as the silent one is kept.
    """
    reachability = Reachability()
    reachability.record_silence(4.0, 6.0)
    reachability.record_silence(3.0, 6.0)

    assert [reachability.is_trusted(time) for time in (4.0, 5.0, 6.0)] == [False, False, True]


def test_no_broker_is_reachable() -> None:
    """
    The error lists the reason of each broker.
    """
    ports = [free_port(), free_port()]
    cluster = cluster_of(",".join(f"127.0.0.1:{port}" for port in ports))

    with pytest.raises(BrokerUnavailableError, match=rf"{ports[0]}.*refused.*{ports[1]}.*refused"):
        cluster.any_connection(soon())
