"""
Translates the Java client's TLS key and trust stores into librdkafka's file settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The settings that this module translates.
STORE_NAMES = frozenset(
    {
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.keystore.type",
        "ssl.keystore.location",
    }
)

_ENDINGS = {
    "JKS": (".jks",),
    "PKCS12": (".p12", ".pfx", ".pkcs12"),
    "PEM": (".pem", ".crt", ".cer"),
}

_TYPES = "one of: PEM, PKCS12"


def translate_keystores(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """
    Return (librdkafka's settings, the mistakes).

    A PEM key store has the key and the certificates, so its file is used for both
    ``ssl.key.location`` and ``ssl.certificate.location``.
    """
    keys, key_mistakes = _keystore(settings)
    trust, trust_mistakes = _truststore(settings)
    return {**keys, **trust}, [*key_mistakes, *trust_mistakes]


def _keystore(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    location = settings.get("ssl.keystore.location", "").strip()
    kind = _kind(settings, "ssl.keystore.type", location) or "PKCS12"
    if kind not in ("PEM", "PKCS12", "JKS"):
        return {}, [f"kafka.ssl.keystore.type is '{kind}'; it must be: {_TYPES}"]
    if not location:
        return {}, []
    if kind == "JKS":
        mistake = (
            "kafka.ssl.keystore.location names a JKS store, which librdkafka cannot read; convert "
            "it with 'keytool -importkeystore -deststoretype PKCS12', or give PEM files as "
            "kafka.ssl.certificate.location and kafka.ssl.key.location"
        )
        return {}, [mistake]
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}, []
    return {"ssl.keystore.location": location}, []


def _truststore(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    location = settings.get("ssl.truststore.location", "").strip()
    kind = _kind(settings, "ssl.truststore.type", location) or "JKS"
    if kind not in ("PEM", "PKCS12", "JKS"):
        return {}, [f"kafka.ssl.truststore.type is '{kind}'; it must be: PEM"]
    if kind == "PEM":
        return ({"ssl.ca.location": location} if location else {}), []
    if not location:
        return {}, []
    mistake = (
        f"kafka.ssl.truststore.location names a {kind} store, which librdkafka cannot read; write "
        "its certificates out with 'keytool -list -rfc -keystore ... > ca.pem' and give "
        "kafka.ssl.ca.location=ca.pem, or set kafka.ssl.truststore.type=PEM if it is a PEM file"
    )
    return {}, [mistake]


def _kind(settings: Mapping[str, str], name: str, location: str) -> str | None:
    if settings.get(name, "").strip():
        return settings[name].strip().upper()
    for kind, endings in _ENDINGS.items():
        if location.lower().endswith(endings):
            return kind
    return None
