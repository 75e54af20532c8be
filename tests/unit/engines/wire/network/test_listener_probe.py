"""
One more connection shows what kind of listener ended a connection.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest
import trustme
from tests.support.listening import listen
from tests.support.scripted_broker import GREETING, disconnecting, scripted_brokers

from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.engines.wire.protocol.metadata import METADATA, metadata_request
from pyspark_pykafka.errors import BrokerUnavailableError, PykafkaError, TlsError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config

if TYPE_CHECKING:
    from collections.abc import Iterator


def open_connection(address: Address, protocol: str) -> Connection:
    """
    Open a connection with a security protocol.
    """
    servers = {"bootstrap.servers": str(address), "security.protocol": protocol}
    return Connection.open(address, wire_config(KafkaSettings.of(servers)), Deadline.after(10))


@pytest.fixture
def tls_address() -> Iterator[Address]:
    """
    A TLS listener that ends connections without TLS, and sends no alert, as proxies do.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer, contextlib.suppress(OSError):
                    # A TLS record that begins a handshake.
                    if peer.recv(1, socket.MSG_PEEK) == b"\x16":
                        context.wrap_socket(peer, server_side=True).close()

    with listen() as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address(*listener.getsockname())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_a_silent_tls_listener_is_recognised(tls_address: Address) -> None:
    """
    A silent listener that completes a TLS handshake is recognised, so that retries without TLS end.
    """
    with pytest.raises(TlsError, match="is a TLS listener, but kafka.security.protocol is PLAIN"):
        open_connection(tls_address, "plaintext")


def test_a_broker_that_only_ends_connections_is_retried() -> None:
    """
    A listener that only ends connections may be a broker that shuts down: an outage, not a TLS
    error.
    """
    with scripted_brokers() as start, pytest.raises(PykafkaError, match="connection ended") as end:
        open_connection(start(disconnecting).address, "plaintext")
    assert type(end.value) is BrokerUnavailableError


def test_a_broker_that_ends_before_the_first_response_is_retried() -> None:
    """
    A broker that closes its connections on any listener may come back, so it is retried; the
    connection of the probe starts no second probe.
    """
    with scripted_brokers() as start:
        broker = start(GREETING, disconnecting)
        connection = broker.open()
        version = connection.version(METADATA)
        request = metadata_request(version, None, allow_auto_topic_creation=False)
        with pytest.raises(PykafkaError, match="connection ended") as end:
            connection.request(request, Deadline.after(5))
    assert type(end.value) is BrokerUnavailableError
