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

# The default batch size keeps requests few. Compression level -1 is the codec's default.
_PRODUCER_DEFAULTS: dict[str, str] = {
    "batch.size": "262144",
    "compression.type": "none",
    "compression.level": "-1",
    "max.in.flight.requests.per.connection": "5",
    "retries": "2147483647",
    "request.timeout.ms": "30000",
    "metadata.max.age.ms": "300000",
}

#: The number of batches per partition that brokers remember of an idempotent producer (KIP-98).
MAX_IDEMPOTENT_IN_FLIGHT = 5

_RECEIVE_BYTES = 100_000_000
_FETCH_BYTES = 52_428_800
_RESPONSE_OVERHEAD = 512


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
    The trusted certificates, the checks, and the client's certificate: file names or PEM texts.
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
    The credentials: a user and a password, or an unsigned token.
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

    def __repr__(self) -> str:
        shown = ("bootstrap", "client_id", "tls", "sasl", "client_rack", "request_seconds")
        return _shown(self, shown)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """
    The configuration of the wire engine's producer.

    ``batch_bytes`` is the size at which a record batch is closed, ``request_bytes`` the maximum of
    a request and of a record, ``buffer_bytes`` that of all unacknowledged records.
    ``request_seconds`` is the timeout of one response, ``delivery_seconds`` that of a batch with
    all its retries (KIP-91), ``block_seconds`` is max.block.ms.
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
    metadata_seconds: float


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
    consumers = consumer_config(KafkaSettings.of({}), group_id="")
    given = {**_DEFAULTS, **consumers, **_PRODUCER_DEFAULTS, **producer_config(kafka)}
    return ProducerConfig(
        wire=_wire_config(given),
        batch_bytes=int(given["batch.size"]),
        request_bytes=int(given["message.max.bytes"]),
        buffer_bytes=1024 * int(given["queue.buffering.max.kbytes"]),
        codec=given["compression.type"],
        level=int(given["compression.level"]),
        in_flight=min(
            int(given["max.in.flight.requests.per.connection"]), MAX_IDEMPOTENT_IN_FLIGHT
        ),
        retries=int(given["retries"]),
        request_seconds=_seconds(given, "request.timeout.ms"),
        delivery_seconds=_seconds(given, "delivery.timeout.ms"),
        block_seconds=max_block_ms(kafka) / 1000,
        metadata_seconds=_seconds(given, "metadata.max.age.ms"),
    )


def _wire_config(given: Mapping[str, str]) -> WireConfig:
    protocol = given["security.protocol"]
    return WireConfig(
        bootstrap=tuple(map(_address, filter(None, given.get("bootstrap.servers", "").split(",")))),
        client_id=given["client.id"],
        tls=_tls(given) if protocol.endswith("ssl") else None,
        sasl=_sasl(given) if protocol.startswith("sasl_") else None,
        address_family=given["broker.address.family"],
        setup_seconds=_seconds(given, "socket.connection.setup.timeout.ms"),
        api_versions_seconds=_seconds(given, "api.version.request.timeout.ms"),
        request_seconds=_seconds(given, "socket.timeout.ms"),
        idle_seconds=_seconds(given, "connections.max.idle.ms"),
        keepalive=given["socket.keepalive.enable"] == "true",
        nodelay=given["socket.nagle.disable"] == "true",
        send_buffer_bytes=int(given["socket.send.buffer.bytes"]),
        receive_buffer_bytes=int(given["socket.receive.buffer.bytes"]),
        receive_message_max_bytes=_receive_limit(given),
        client_rack=given["client.rack"],
        fetch_wait_max_ms=int(given["fetch.wait.max.ms"]),
        fetch_max_bytes=_number(given, "fetch.max.bytes"),
        max_partition_fetch_bytes=_number(given, "max.partition.fetch.bytes"),
        check_crcs=given["check.crcs"] == "true",
        fetch_error_backoff_seconds=_seconds(given, "fetch.error.backoff.ms"),
        retry_backoff_seconds=_seconds(given, "retry.backoff.ms"),
        retry_backoff_max_seconds=_seconds(given, "retry.backoff.max.ms"),
        reconnect_backoff_seconds=_seconds(given, "reconnect.backoff.ms"),
        reconnect_backoff_max_seconds=_seconds(given, "reconnect.backoff.max.ms"),
        debug=debug_contexts(given.get("debug", "")),
    )


def _tls(given: Mapping[str, str]) -> Tls:
    return Tls(
        ca_location=given.get("ssl.ca.location", ""),
        ca_pem=given.get("ssl.ca.pem", ""),
        crl_location=given.get("ssl.crl.location", ""),
        certificate_location=given.get("ssl.certificate.location", ""),
        certificate_pem=given.get("ssl.certificate.pem", ""),
        key_location=given.get("ssl.key.location", ""),
        key_pem=given.get("ssl.key.pem", ""),
        key_password=given.get("ssl.key.password", ""),
        cipher_suites=given.get("ssl.cipher.suites", ""),
        verify=given["enable.ssl.certificate.verification"] == "true",
        check_hostname=given["ssl.endpoint.identification.algorithm"] == "https",
    )


def _sasl(given: Mapping[str, str]) -> Sasl:
    mechanism = given["sasl.mechanism"]
    return Sasl(
        mechanism=mechanism,
        username=given.get("sasl.username", ""),
        password=given.get("sasl.password", ""),
        token=_token(given) if mechanism == "OAUTHBEARER" else None,
    )


def _token(given: Mapping[str, str]) -> UnsecuredToken | None:
    allowed = given.get("enable.sasl.oauthbearer.unsecure.jwt") == "true"
    return parse_unsecured_jwt_config(given.get("sasl.oauthbearer.config", "")) if allowed else None


def _address(entry: str) -> Address:
    host, _, port = entry.strip().rpartition("://")[2].rpartition(":")
    return Address(host.strip("[]"), int(port))


def _receive_limit(given: Mapping[str, str]) -> int:
    # As in librdkafka: the limit is raised to hold a whole fetch.
    fetch = int(given.get("fetch.max.bytes", _FETCH_BYTES)) + _RESPONSE_OVERHEAD
    return max(int(given.get("receive.message.max.bytes", _RECEIVE_BYTES)), fetch)


def _seconds(given: Mapping[str, str], name: str) -> float:
    return int(given[name]) / 1000


def _number(given: Mapping[str, str], name: str) -> int | None:
    return int(given[name]) if name in given else None


def _shown(value: object, names: tuple[str, ...]) -> str:
    fields = ", ".join(f"{name}={getattr(value, name)!r}" for name in names)
    return f"{type(value).__name__}({fields}, ...)"
