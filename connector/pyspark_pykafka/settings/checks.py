"""
Reports values of settings, and combinations of settings, that no client accepts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_pykafka.settings.properties import Property, Role
from pyspark_pykafka.settings.values import redacted_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# As in librdkafka, an entry may name its listener's protocol.
_SERVER = re.compile(
    r"(?:(?i:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._%-]+):(?P<port>[0-9]{1,5})"
)
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
_MAX_INT = 2**31 - 1
_MAX_PORT = 65_535
_IDEMPOTENT_IN_FLIGHT = 5


def check_value(prop: Property, value: str, source: str) -> tuple[str, str | None]:
    """
    Return (the value in librdkafka's form, the mistake or None).

    ``source`` is the user's name of the setting; secret values are masked in the mistake.
    """
    special = _SPECIAL.get(prop.name)
    try:
        return (special or prop.normalise)(value), None
    except ValueError as cause:
        expects = str(cause) if special else prop.expects
        text = redacted_value(source, value)
        return value, f"kafka.{source} is {text}; it must be: {expects}"


def _servers(value: str) -> str:
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    matches = [_SERVER.fullmatch(entry) for entry in entries]
    if not entries or not all(match and 0 < int(match["port"]) <= _MAX_PORT for match in matches):
        has_scheme = any("://" in entry for entry in entries)
        hint = "; give host:port only, without a URL's scheme" if has_scheme else ""
        msg = f"the brokers with their ports, as 'host:9092,host2:9092'{hint}"
        raise ValueError(msg)
    return ",".join(entries)


def _mechanism(value: str) -> str:
    name = value.strip().upper()
    if name not in _MECHANISMS:
        msg = f"one of: {', '.join(_MECHANISMS)}"
        raise ValueError(msg)
    return name


def _acks(value: str) -> str:
    if value.strip().lower() not in ("all", "-1"):
        msg = "all; with fewer acknowledgements, rows reported as written can be lost"
        raise ValueError(msg)
    return "-1"


def _endpoint_algorithm(value: str) -> str:
    name = value.strip().lower() or "none"
    if name not in ("none", "https"):
        msg = "one of: https, none"
        raise ValueError(msg)
    return name


def _delivery_timeout(value: str) -> str:
    # For librdkafka 0 means no limit, but every wait must have a limit.
    if not re.fullmatch(r"[0-9]{1,10}", value.strip()) or not 0 < int(value) <= _MAX_INT:
        msg = "a number of milliseconds, at least 1"
        raise ValueError(msg)
    return value.strip()


def _shell_safe(value: str) -> str:
    # librdkafka puts the value into a command line for kinit, which a shell runs.
    if re.search(r"[^\w./@:+,= -]", value) or value.startswith("-"):
        msg = "letters, digits and . / @ : + , = - _ only, since it is part of kinit's command line"
        raise ValueError(msg)
    return value


_SPECIAL: Mapping[str, Callable[[str], str]] = {
    "bootstrap.servers": _servers,
    "sasl.mechanism": _mechanism,
    "acks": _acks,
    "delivery.timeout.ms": _delivery_timeout,
    "ssl.endpoint.identification.algorithm": _endpoint_algorithm,
    "sasl.kerberos.principal": _shell_safe,
    "sasl.kerberos.keytab": _shell_safe,
    "sasl.kerberos.service.name": _shell_safe,
}


def check_combination(properties: Mapping[str, str], role: Role) -> list[str]:
    """
    Return the mistakes in combinations of settings.
    """
    mistakes = [*_credentials(properties)]
    if role is Role.PRODUCER and properties.get("enable.idempotence", "true") == "true":
        mistakes += _idempotence(properties)
    return mistakes


def _credentials(properties: Mapping[str, str]) -> Iterator[str]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    uses_sasl = properties.get("security.protocol", "").startswith("sasl_")
    by_password = mechanism == "PLAIN" or mechanism.startswith("SCRAM")
    has_credentials = properties.get("sasl.username") and properties.get("sasl.password")
    if uses_sasl and by_password and not has_credentials:
        yield (
            f"kafka.sasl.mechanism is {mechanism}, which needs a user and a password; give "
            "kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config"
        )
    by_oidc = properties.get("sasl.oauthbearer.method") == "oidc"
    is_unsecured = properties.get("enable.sasl.oauthbearer.unsecure.jwt") == "true"
    if uses_sasl and mechanism == "OAUTHBEARER" and not (by_oidc or is_unsecured):
        yield (
            "kafka.sasl.mechanism is OAUTHBEARER, which needs a source of tokens; set "
            "kafka.sasl.oauthbearer.method to oidc, and kafka.sasl.oauthbearer.token.endpoint.url, "
            "kafka.sasl.oauthbearer.client.id and kafka.sasl.oauthbearer.client.secret"
        )


def _idempotence(properties: Mapping[str, str]) -> Iterator[str]:
    advice = "for the idempotent producer; or set kafka.enable.idempotence=false"
    in_flight = properties.get("max.in.flight.requests.per.connection", "5")
    if int(in_flight) > _IDEMPOTENT_IN_FLIGHT:
        yield (
            f"kafka.max.in.flight.requests.per.connection is '{in_flight}'; "
            f"it must be: at most {_IDEMPOTENT_IN_FLIGHT} {advice}"
        )
    if int(properties.get("retries", "1")) == 0:
        yield f"kafka.retries is '0'; it must be: at least 1 {advice}"


def warnings_about(properties: Mapping[str, str]) -> Iterator[str]:
    """
    Yield warnings about settings that are allowed but unsafe.
    """
    if properties.get("enable.ssl.certificate.verification") == "false":
        yield "kafka.enable.ssl.certificate.verification=false: any server can pose as a broker"
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        yield "kafka.ssl.endpoint.identification.algorithm is off: host names are not checked"
    protocol = properties.get("security.protocol", "plaintext")
    if "sasl.password" in properties and not protocol.startswith("sasl_"):
        yield f"kafka.security.protocol is {protocol}: the sasl.* settings are ignored"
    is_plain = properties.get("sasl.mechanism") == "PLAIN"
    if is_plain and protocol == "sasl_plaintext":
        yield "kafka.sasl.mechanism=PLAIN over SASL_PLAINTEXT sends the password in clear text"
