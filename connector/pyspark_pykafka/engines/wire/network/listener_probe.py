"""
Checks whether a listener ended a connection because it does not use our security protocol.

A broker that shuts down also ends connections, and those are retried. A wrong protocol stays wrong,
so one more connection is opened to distinguish the two cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_pykafka.engines.wire.network.connect import HandshakeEndedError, connect
from pyspark_pykafka.engines.wire.network.sasl import offered_mechanisms
from pyspark_pykafka.errors import AuthenticationError, PykafkaError, TlsError
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings.wire_config import Tls

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from pyspark_pykafka.engines.wire.protocol.request import KafkaPythonRequest
    from pyspark_pykafka.settings.wire_config import Address, WireConfig

    class ProbeConnection(Protocol):
        """
        The part of :class:`Connection` that a probe uses; its module imports this one.
        """

        def disable_listener_probe(self) -> None:
            """
            Report a lost connection as such from now on, without another probe.
            """

        def request(self, request: KafkaPythonRequest[object], deadline: Deadline) -> object:
            """
            Send a request and return its decoded response.
            """

        def close(self) -> None:
            """
            Close the connection.
            """

    Open = Callable[[Address, WireConfig, Deadline], ProbeConnection]

_PROBE_SECONDS = 2.0

_WITH_TLS, _WITHOUT_TLS = "a TLS listener", "a listener without TLS"


def tls_listener_error(address: Address, config: WireConfig) -> PykafkaError | None:
    """
    Return the error for a listener that answers a TLS handshake, or None.
    """
    # Nothing is sent over this connection, so the certificate need not be trusted.
    untrusted = replace(config, tls=Tls(verify=False, check_hostname=False))
    try:
        transport, _ = connect(address, untrusted, Deadline.after(_PROBE_SECONDS))
    except TlsError as error:
        # Only an alert is an answer in TLS; a client certificate may be missing.
        if "ALERT" not in (getattr(error.__cause__, "reason", None) or ""):
            return None
    except (HandshakeEndedError, PykafkaError):
        return None
    else:
        transport.close()
    secured = "SSL" if config.sasl is None else "SASL_SSL"
    return _protocol_error(address, config, _WITH_TLS, secured, _WITHOUT_TLS)


def plaintext_listener_error(
    address: Address, config: WireConfig, open_connection: Open
) -> PykafkaError | None:
    """
    Return the error for a listener that speaks Kafka's protocol without TLS, or None.
    """
    limit = Deadline.after(_PROBE_SECONDS)
    try:
        open_connection(address, replace(config, tls=None, sasl=None), limit).close()
    except PykafkaError:
        return None
    protocol = "PLAINTEXT" if config.sasl is None else "SASL_PLAINTEXT"
    return _protocol_error(address, config, _WITHOUT_TLS, protocol, _WITH_TLS)


def login_required_error(
    address: Address, config: WireConfig, open_connection: Open
) -> PykafkaError | None:
    """
    Return the error for a listener that requires a login, which the settings lack, or None.
    """
    limit = Deadline.after(_PROBE_SECONDS)
    try:
        connection = open_connection(address, config, limit)
    except PykafkaError:
        return None
    connection.disable_listener_probe()
    try:
        mechanisms = offered_mechanisms(lambda request: connection.request(request, limit))
    except PykafkaError:
        return None
    finally:
        connection.close()
    if mechanisms is None:
        return None
    secured = "SASL_PLAINTEXT" if config.tls is None else "SASL_SSL"
    return AuthenticationError(
        f"{address} is a listener that requires a login, but kafka.security.protocol is "
        f"{config.protocol}; set it to {secured}, kafka.sasl.mechanism to one of "
        f"{', '.join(mechanisms)}, and the credentials"
    )


def _protocol_error(
    address: Address, config: WireConfig, listener: str, protocol: str, other_listener: str
) -> PykafkaError:
    return TlsError(
        f"{address} is {listener}, but kafka.security.protocol is {config.protocol}; set it to "
        f"{protocol}, or use the port of {other_listener}"
    )
