"""
A write whose rows name their topics contacts the brokers on the driver, before any task starts.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.listening import listen, unused_address
from tests.support.proxy import Proxy
from tests.support.stub_behaviour import METADATA
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka import DefaultSource
from pyspark_pykafka.engines import first_contact
from pyspark_pykafka.engines.selection import check_brokers, check_topic
from pyspark_pykafka.engines.wire.network import bootstrap_check
from pyspark_pykafka.errors import PykafkaError, TimeoutExceededError
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = StructType([StructField("value", StringType()), StructField("topic", StringType())])
ENGINES = ["wire", "librdkafka"]
# Shorter than the retries to connect to a broker, and long enough on a busy machine.
MAX_BLOCK_MS = 8_000


class Recording(Behaviour):
    """
    Brokers that record the topics of each metadata request; None for all topics.
    """

    requested: tuple[Any, ...] = ()

    def answer(self, node: int, api_key: int, version: int, body: bytes) -> bytes | None:
        if api_key == METADATA:
            from kafka.protocol.metadata import MetadataRequest

            topics = MetadataRequest.decode(body, version=version, header=False).topics
            names = None if topics is None else tuple(topic.name for topic in topics)
            self.requested = (*self.requested, names)
        return super().answer(node, api_key, version, body)


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    Two brokers, for one test.
    """
    with StubCluster(Recording(brokers=2)) as cluster:
        yield cluster


@pytest.fixture
def first_contacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let a first contact take half a second, and forget all earlier ones.
    """
    monkeypatch.setattr(first_contact, "FIRST_CONTACT_MS", 500)
    monkeypatch.setattr(first_contact, "_reached", set())


def writer_call(source: DefaultSource, *, streaming: bool) -> Callable[[], object]:
    """
    Return the call by which Spark makes the writer on the driver.
    """
    make = source.streamWriter if streaming else source.writer
    return lambda: make(ROWS, overwrite=False)


@pytest.mark.usefixtures("first_contacts")
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_unreachable_brokers_of_a_topic_column(engine: str, *, streaming: bool) -> None:
    """
    Without the option topic, too, the driver reports brokers that cannot be reached, after the time
    limit of a first contact.
    """
    address = "{}:{}".format(*unused_address())
    source = DefaultSource({"kafka.bootstrap.servers": address, "engine": engine})

    with pytest.raises(TimeoutExceededError, match=f"500 ms.*{address}.*refused"):
        writer_call(source, streaming=streaming)()


@pytest.mark.parametrize("engine", ENGINES)
def test_brokers_are_checked_without_topics(stubs: StubCluster, engine: str) -> None:
    """
    The driver does not know the rows' topics, so its metadata request names none; only the first
    writer of a process sends it.
    """
    source = DefaultSource({"kafka.bootstrap.servers": stubs.bootstrap, "engine": engine})
    writer_call(source, streaming=False)()
    requested = stubs.get("requested")

    for _ in range(3):
        writer_call(source, streaming=True)()

    assert set(requested) == {()}
    assert stubs.get("requested") == requested


@pytest.mark.parametrize("fault", ["drop_syns", "refuse_connections"])
def test_one_unreachable_broker_fails_no_check(stubs: StubCluster, fault: str) -> None:
    """
    An exactly-once write starts although one of its bootstrap servers cannot be reached.
    """
    with Proxy(("127.0.0.1", stubs.ports[1])) as proxy:
        getattr(proxy, fault)()
        options = {
            "kafka.bootstrap.servers": f"{proxy.address},{stubs.bootstrap}",
            "kafka.max.block.ms": str(MAX_BLOCK_MS),
            "kafka.socket.connection.setup.timeout.ms": "3600000",
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": "prefix",
        }

        writer_call(DefaultSource(options), streaming=False)()


def check_topic_t(kafka: KafkaSettings, engine: str) -> None:
    """
    Check the topic ``t`` as the driver does.
    """
    check_topic(kafka, "t", engine)


@pytest.mark.usefixtures("first_contacts")
@pytest.mark.parametrize("check", [check_brokers, check_topic_t])
@pytest.mark.parametrize("engine", ENGINES)
def test_silent_addresses_do_not_add_up(
    monkeypatch: pytest.MonkeyPatch, engine: str, check: Callable[[KafkaSettings, str], None]
) -> None:
    """
    Neither check takes longer for more bootstrap servers. librdkafka does not report why none of
    them responds, and the search for the reason has one time limit for all servers.
    """
    monkeypatch.setattr(bootstrap_check, "PROBE_SECONDS", 0.5)
    with ExitStack() as stack:
        ports = [stack.enter_context(listen()).getsockname()[1] for _ in range(8)]
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        started = time.monotonic()

        with pytest.raises(PykafkaError, match="127.0.0.1"):
            check(KafkaSettings.of({"bootstrap.servers": servers}), engine)

    assert time.monotonic() - started < 3.5
