"""
Makes the wire engine's configuration from the user's settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.librdkafka_config import (
    consumer_config,
    max_block_ms,
    producer_config,
)
from pyspark_pykafka.settings.unsecured_token import UnsecuredToken, parse_unsecured_jwt_config
from pyspark_pykafka.settings.values import debug_contexts

if TYPE_CHECKING:
    from collections.abc import Mapping

# librdkafka's defaults for settings without a default of the connector.
_DEFAULTS: dict[str, str] = {
    "security.protocol": "plaintext",
    "sasl.mechanism": "GSSAPI",
    "enable.ssl.certificate.verification": "true",
    "ssl.endpoint.identification.algorithm": "https",
    "socket.connection.setup.timeout.ms": "30000",
    "api.version.request.timeout.ms": "10000",
    "connections.max.idle.ms": "0",
    "socket.nagle.disable": "true",
    "socket.send.buffer.bytes": "0",
    "socket.receive.buffer.bytes": "0",
    "broker.address.family": "any",
    "client.rack": "",
    "retry.backoff.ms": "100",
    "retry.backoff.max.ms": "1000",
    "reconnect.backoff.ms": "100",
}

# Large batches mean fewer requests. Compression level -1 is the codec's default.
_PRODUCER_DEFAULTS: dict[str, str] = {
    "batch.size": "262144",
    "compression.type": "none",
    "compression.level": "-1",
    "max.in.flight.requests.per.connection": "5",
    "retries": "2147483647",
    "request.timeout.ms": "30000",
    "metadata.max.age.ms": "300000",
}

#: How many batches a broker remembers per partition and idempotent producer (KIP-98).
MAX_IDEMPOTENT_IN_FLIGHT = 5

_RECEIVE_BYTES = 100_000_000
_FETCH_BYTES = 52_428_800
_RESPONSE_OVERHEAD = 512
# 1/16 of a response is left for the list of aborted transactions, and for names.
_OVERHEAD_DIVISOR = 16


class Address(NamedTuple):
    """
    The address of a broker's listener; an IPv6 host is without brackets.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, repr=False)
class Tls:
    """
    TLS settings: trusted certificates, checks, and the client's certificate, as file names or PEM.
    """

    ca_location: str = ""
    ca_pem: str = ""
    crl_location: str = ""
    certificate_location: str = ""
    certificate_pem: str = ""
    key_location: str = ""
    key_pem: str = ""
    key_password: str = ""
    cipher_suites: str = ""
    verify: bool = True
    check_hostname: bool = True

    def __repr__(self) -> str:
        return _shown(self, ("ca_location", "certificate_location", "verify", "check_hostname"))


@dataclass(frozen=True, slots=True, repr=False)
class Sasl:
    """
    SASL credentials: a user and a password, or an unsigned token.
    """

    mechanism: str
    username: str = ""
    password: str = ""
    token: UnsecuredToken | None = None

    def __repr__(self) -> str:
        return _shown(self, ("mechanism",))


@dataclass(frozen=True, slots=True, repr=False)
class WireConfig:
    """
    The configuration of the wire engine's connections and fetches.

    Equal configurations share connections. ``tls`` is None without TLS, and ``sasl`` without SASL;
    a fetch size is None if the user set none. The ``repr`` shows an allow-list of fields, without
    secrets.
    """

    bootstrap: tuple[Address, ...]
    client_id: str
    tls: Tls | None
    sasl: Sasl | None
    address_family: str
    setup_seconds: float
    api_versions_seconds: float
    request_seconds: float
    idle_seconds: float
    keepalive: bool
    nodelay: bool
    send_buffer_bytes: int
    receive_buffer_bytes: int
    receive_message_max_bytes: int
    client_rack: str
    fetch_wait_max_ms: int
    fetch_max_bytes: int | None
    max_partition_fetch_bytes: int | None
    check_crcs: bool
    fetch_error_backoff_seconds: float
    retry_backoff_seconds: float
    retry_backoff_max_seconds: float
    reconnect_backoff_seconds: float
    reconnect_backoff_max_seconds: float
    debug: frozenset[str]

    @property
    def protocol(self) -> str:
        """
        Kafka's name of the security protocol.
        """
        return ("SASL_" if self.sasl else "") + ("SSL" if self.tls else "PLAINTEXT")

    @property
    def max_fetch_bytes(self) -> int:
        """
        The maximum bytes of records to request, so that a connection accepts the whole response.
        """
        limits = (self.fetch_max_bytes, self.max_partition_fetch_bytes)
        overhead = self.receive_message_max_bytes // _OVERHEAD_DIVISOR
        accepted = self.receive_message_max_bytes - overhead
        return min([accepted, *(limit for limit in limits if limit is not None)])

    def __repr__(self) -> str:
        names = ("bootstrap", "client_id", "tls", "sasl", "client_rack", "request_seconds")
        return _shown(self, names)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """
    The configuration of the wire engine's producer.

    ``batch_bytes`` is the size at which a record batch is closed. ``request_bytes`` is the maximum
    size of a request and of a record, and ``buffer_bytes`` the maximum size of all unacknowledged
    records together. ``request_seconds`` is the timeout of one response, ``delivery_seconds`` the
    timeout of a batch with all its retries (KIP-91), and ``block_seconds`` is max.block.ms.
    """

    wire: WireConfig
    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    codec: str
    level: int
    in_flight: int
    retries: int
    request_seconds: float
    delivery_seconds: float
    block_seconds: float
    metadata_max_age_seconds: float


def wire_config(kafka: KafkaSettings) -> WireConfig:
    """
    Return the configuration of connections and fetches, for settings that wire supports.

    Raises :class:`OptionsError` if a setting is invalid.
    """
    return _wire_config({**_DEFAULTS, **consumer_config(kafka, group_id="")})


def wire_producer_config(kafka: KafkaSettings) -> ProducerConfig:
    """
    Return the configuration of a producer, for settings that wire supports.

    Raises :class:`OptionsError` if a setting is invalid.
    """
    # A WireConfig has settings of consumers, too, which the settings of a producer lack.
    consumer_defaults = consumer_config(KafkaSettings.of({}), group_id="")
    properties = {**_DEFAULTS, **consumer_defaults, **_PRODUCER_DEFAULTS, **producer_config(kafka)}
    return ProducerConfig(
        wire=_wire_config(properties),
        batch_bytes=int(properties["batch.size"]),
        request_bytes=int(properties["message.max.bytes"]),
        buffer_bytes=1024 * int(properties["queue.buffering.max.kbytes"]),
        codec=properties["compression.type"],
        level=int(properties["compression.level"]),
        in_flight=min(
            int(properties["max.in.flight.requests.per.connection"]), MAX_IDEMPOTENT_IN_FLIGHT
        ),
        retries=int(properties["retries"]),
        request_seconds=_seconds(properties, "request.timeout.ms"),
        delivery_seconds=_seconds(properties, "delivery.timeout.ms"),
        block_seconds=max_block_ms(kafka) / 1000,
        metadata_max_age_seconds=_seconds(properties, "metadata.max.age.ms"),
    )


def _wire_config(properties: Mapping[str, str]) -> WireConfig:
    protocol = properties["security.protocol"]
    return WireConfig(
        bootstrap=tuple(
            map(_address, filter(None, properties.get("bootstrap.servers", "").split(",")))
        ),
        client_id=properties["client.id"],
        tls=_tls(properties) if protocol.endswith("ssl") else None,
        sasl=_sasl(properties) if protocol.startswith("sasl_") else None,
        address_family=properties["broker.address.family"],
        setup_seconds=_seconds(properties, "socket.connection.setup.timeout.ms"),
        api_versions_seconds=_seconds(properties, "api.version.request.timeout.ms"),
        request_seconds=_seconds(properties, "socket.timeout.ms"),
        idle_seconds=_seconds(properties, "connections.max.idle.ms"),
        keepalive=properties["socket.keepalive.enable"] == "true",
        nodelay=properties["socket.nagle.disable"] == "true",
        send_buffer_bytes=int(properties["socket.send.buffer.bytes"]),
        receive_buffer_bytes=int(properties["socket.receive.buffer.bytes"]),
        receive_message_max_bytes=_receive_limit(properties),
        client_rack=properties["client.rack"],
        fetch_wait_max_ms=int(properties["fetch.wait.max.ms"]),
        fetch_max_bytes=_number(properties, "fetch.max.bytes"),
        max_partition_fetch_bytes=_number(properties, "max.partition.fetch.bytes"),
        check_crcs=properties["check.crcs"] == "true",
        fetch_error_backoff_seconds=_seconds(properties, "fetch.error.backoff.ms"),
        retry_backoff_seconds=_seconds(properties, "retry.backoff.ms"),
        retry_backoff_max_seconds=_seconds(properties, "retry.backoff.max.ms"),
        reconnect_backoff_seconds=_seconds(properties, "reconnect.backoff.ms"),
        reconnect_backoff_max_seconds=_seconds(properties, "reconnect.backoff.max.ms"),
        debug=debug_contexts(properties.get("debug", "")),
    )


def _tls(properties: Mapping[str, str]) -> Tls:
    return Tls(
        ca_location=properties.get("ssl.ca.location", ""),
        ca_pem=properties.get("ssl.ca.pem", ""),
        crl_location=properties.get("ssl.crl.location", ""),
        certificate_location=properties.get("ssl.certificate.location", ""),
        certificate_pem=properties.get("ssl.certificate.pem", ""),
        key_location=properties.get("ssl.key.location", ""),
        key_pem=properties.get("ssl.key.pem", ""),
        key_password=properties.get("ssl.key.password", ""),
        cipher_suites=properties.get("ssl.cipher.suites", ""),
        verify=properties["enable.ssl.certificate.verification"] == "true",
        check_hostname=properties["ssl.endpoint.identification.algorithm"] == "https",
    )


def _sasl(properties: Mapping[str, str]) -> Sasl:
    mechanism = properties["sasl.mechanism"]
    return Sasl(
        mechanism=mechanism,
        username=properties.get("sasl.username", ""),
        password=properties.get("sasl.password", ""),
        token=_token(properties) if mechanism == "OAUTHBEARER" else None,
    )


def _token(properties: Mapping[str, str]) -> UnsecuredToken | None:
    allowed = properties.get("enable.sasl.oauthbearer.unsecure.jwt") == "true"
    return (
        parse_unsecured_jwt_config(properties.get("sasl.oauthbearer.config", ""))
        if allowed
        else None
    )


def _address(entry: str) -> Address:
    host, _, port = entry.strip().rpartition("://")[2].rpartition(":")
    return Address(host.strip("[]"), int(port))


def _receive_limit(properties: Mapping[str, str]) -> int:
    # As in librdkafka: the limit is raised to hold a whole fetch.
    fetch = int(properties.get("fetch.max.bytes", _FETCH_BYTES)) + _RESPONSE_OVERHEAD
    return max(int(properties.get("receive.message.max.bytes", _RECEIVE_BYTES)), fetch)


def _seconds(properties: Mapping[str, str], name: str) -> float:
    return int(properties[name]) / 1000


def _number(properties: Mapping[str, str], name: str) -> int | None:
    return int(properties[name]) if name in properties else None


def _shown(value: object, names: tuple[str, ...]) -> str:
    fields = ", ".join(f"{name}={getattr(value, name)!r}" for name in names)
    return f"{type(value).__name__}({fields}, ...)"
