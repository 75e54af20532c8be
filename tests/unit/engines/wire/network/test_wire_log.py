"""
The log lines of ``kafka.debug`` and the reprs of connections, without payloads or secrets.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest
from tests.support import fetching
from tests.support.scripted_broker import (
    GREETING,
    authenticated,
    disconnecting,
    handshake,
    metadata,
    metadata_request,
    responding,
    soon,
)
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.network.cluster import Cluster
from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Sasl

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.scripted_broker import ScriptedBroker

CANARY = "canary-8f1d"
LOGIN = Sasl("PLAIN", "alice", CANARY)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """
    Return the log lines so far, without broker addresses; all are at level DEBUG.
    """
    caplog.set_level(logging.DEBUG, "pyspark_pykafka.wire")

    def logged() -> list[str]:
        records = [record for record in caplog.records if record.name == "pyspark_pykafka.wire"]
        assert all(record.levelno == logging.DEBUG for record in records)
        return [record.getMessage().partition(": ")[2] for record in records]

    return logged


def test_requests_and_responses_are_logged(
    scripted: Callable[..., ScriptedBroker], lines: Callable[[], list[str]]
) -> None:
    """
    A request is logged with its API, version, correlation id and size; a response also with the
    milliseconds that it took.
    """
    broker = scripted(GREETING, responding(metadata(1)))
    broker.open(debug="protocol").request(metadata_request(1), soon())

    requests = broker.script.requests
    sent, received = lines()[-2:]
    assert sent == f"sent Metadata v1, correlation id 2, {len(requests[1]) + 4} bytes"
    size = len(metadata(1)) + 8
    assert re.fullmatch(
        rf"received Metadata v1, correlation id 2, {size} bytes after \d+\.\d ms", received
    )
    assert [line.split()[:3] for line in lines()[:2]] == [
        ["sent", "ApiVersions", "v3,"],
        ["received", "ApiVersions", "v3,"],
    ]


def test_each_line_names_its_broker(
    scripted: Callable[..., ScriptedBroker],
    lines: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Lines of several connections can be distinguished.
    """
    broker = scripted(GREETING)
    broker.open(debug="all")

    assert lines()
    assert all(record.getMessage().startswith(f"{broker.address}: ") for record in caplog.records)


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [
        ("protocol", {"sent", "received"}),
        ("broker", {"connected", "closed"}),
        ("security", {"logged"}),
        ("security, Broker", {"connected", "closed", "logged"}),
        ("all", {"sent", "received", "connected", "closed", "logged"}),
        ("", set()),
    ],
)
def test_contexts_choose_the_lines(
    scripted: Callable[..., ScriptedBroker],
    lines: Callable[[], list[str]],
    contexts: str,
    expected: set[str],
) -> None:
    """
    The contexts are librdkafka's; without any, nothing is logged.
    """
    connection = scripted(GREETING, handshake(), authenticated()).open(sasl=LOGIN, debug=contexts)
    connection.close()
    connection.close()

    assert {line.split()[0] for line in lines()} == expected
    assert sum(line.startswith("closed") for line in lines()) == ("closed" in expected)


def test_no_secret_is_logged(
    scripted: Callable[..., ScriptedBroker],
    lines: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Neither the password nor the broker's bytes are in the log, at any level of any logger.
    """
    caplog.set_level(logging.DEBUG)
    login = [handshake(), authenticated(message=CANARY, lifetime=60_000)]
    broker = scripted(GREETING, *login)
    broker.open(sasl=LOGIN, debug="all").close()

    assert CANARY.encode() in broker.script.requests[2]
    assert "logged in with PLAIN, for 60 s" in lines()
    assert CANARY not in caplog.text


def test_a_failure_shows_what_was_in_flight(
    scripted: Callable[..., ScriptedBroker], lines: Callable[[], list[str]]
) -> None:
    """
    A connection that the broker closes ends with the number of requests without a response.
    """
    connection = scripted(GREETING, disconnecting).open(debug="all")
    connection.send(metadata_request(1), soon())

    with pytest.raises(BrokerUnavailableError):
        connection.receive_frame(soon()).decode()
    assert lines()[-1] == "closed with 1 requests in flight"


def test_a_read_is_logged(lines: Callable[[], list[str]], caplog: pytest.LogCaptureFixture) -> None:
    """
    A user's ``kafka.debug`` reaches every connection of a read; record values are not logged.
    """
    with StubCluster(Behaviour(topics={"t": 1})) as stubs:
        kafka = KafkaSettings.of({"bootstrap.servers": stubs.bootstrap, "debug": "protocol"})
        settings = fetching.settings(
            stubs.bootstrap, engine="wire", schema=fetching.VALUES, kafka=kafka
        )
        batches = list(fetch(OffsetRange(TopicPartition("t", 0), 0, 10), settings))

    assert sum(batch.num_rows for batch in batches) == 10
    apis = {line.split()[1] for line in lines() if line.startswith("received")}
    assert {"ApiVersions", "Metadata", "Fetch"} <= apis
    (value, *_) = batches[0].column("value").to_pylist()
    assert value.decode() not in caplog.text


def test_reprs_show_the_state_and_no_secret(scripted: Callable[..., ScriptedBroker]) -> None:
    """
    The reprs show addresses, the security protocol and requests in flight.
    """
    broker = scripted(GREETING, handshake(), authenticated())
    connection = broker.open(sasl=LOGIN)
    connection.send(metadata_request(1), soon())
    cluster = Cluster(connection._config)

    assert repr(connection) == f"<Connection {broker.address} SASL_PLAINTEXT, 1 in flight>"
    connection.close()
    assert repr(connection) == f"<Connection {broker.address} SASL_PLAINTEXT, closed>"
    assert repr(cluster) == (
        f"<Cluster {broker.address} SASL_PLAINTEXT, 0 brokers, 0 topics, <ConnectionCache []>>"
    )
    assert CANARY not in repr([connection, cluster, cluster._brokers, connection._config])
