"""
The wire engine's configuration: supported, unsupported and harmless settings.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.settings import PROPERTIES, KafkaSettings, Role
from pyspark_pykafka.settings.unsecured_token import UnsecuredToken
from pyspark_pykafka.settings.wire_config import Address, Sasl, Tls, WireConfig, wire_config
from pyspark_pykafka.settings.wire_support import _KNOWN, _SUPPORTED, wire_unsupported_reason

SASL = {"security.protocol": "SASL_SSL", "sasl.username": "alice", "sasl.password": "geheim"}
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def settings(options: dict[str, str]) -> KafkaSettings:
    return KafkaSettings.of({"bootstrap.servers": "one:9092", **options})


def configured(**options: str) -> WireConfig:
    """
    Return the configuration; names are written with underscores for dots.
    """
    return wire_config(settings({name.replace("_", "."): v for name, v in options.items()}))


def unsupported(options: dict[str, str]) -> str | None:
    return wire_unsupported_reason(settings(options))


def test_defaults_are_those_of_the_other_engine() -> None:
    """
    Without settings the connection is plaintext, with the connector's own defaults.
    """
    config = configured()

    assert config.bootstrap == (Address("one", 9092),)
    assert (config.tls, config.sasl, config.protocol) == (None, None, "PLAINTEXT")
    assert (config.client_id, config.fetch_wait_max_ms, config.check_crcs) == ("pykafka", 100, True)
    assert (config.request_seconds, config.setup_seconds) == (30, 30)
    assert config.receive_message_max_bytes == 100_000_000
    assert (config.fetch_max_bytes, config.max_partition_fetch_bytes) == (None, None)


def test_every_form_of_a_broker_address_is_read() -> None:
    """
    Brokers may have a scheme, and are names, IPv4 or IPv6 addresses.
    """
    config = configured(bootstrap_servers="one:1, PLAINTEXT://127.0.0.1:2,[::1]:3")

    assert config.bootstrap == (Address("one", 1), Address("127.0.0.1", 2), Address("::1", 3))
    assert [str(address) for address in config.bootstrap] == ["one:1", "127.0.0.1:2", "[::1]:3"]


def test_java_names_are_understood() -> None:
    """
    The JVM connector's settings give the same login as librdkafka's.
    """
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" '
    mechanism = {"sasl.mechanism": "SCRAM-SHA-512"}
    options = {"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas + 'password="geheim";'}

    expected = wire_config(settings({**SASL, **mechanism}))
    assert wire_config(settings({**options, **mechanism})) == expected
    assert expected.sasl == Sasl("SCRAM-SHA-512", "alice", "geheim")
    assert expected.protocol == "SASL_SSL"


def test_pem_store_is_certificate_and_key() -> None:
    """
    A PEM keystore of the Java client is used as the certificate file and the key file.
    """
    config = configured(
        security_protocol="ssl", ssl_keystore_type="PEM", ssl_keystore_location="/my.pem"
    )

    assert config.tls == Tls(certificate_location="/my.pem", key_location="/my.pem")


def test_whole_fetches_fit() -> None:
    """
    The maximum response size is never smaller than a fetch.
    """
    config = configured(fetch_max_bytes="200000000", receive_message_max_bytes="1000000")

    assert config.receive_message_max_bytes == 200_000_512


OTHER_VALUES: dict[str, str] = {
    "bootstrap.servers": "two:9092",
    "security.protocol": "ssl",
    "sasl.mechanism": "PLAIN",
    "sasl.oauthbearer.config": "principal=bob",
    "broker.address.family": "v6",
    "ssl.endpoint.identification.algorithm": "none",
}


def base(name: str) -> dict[str, str]:
    """
    Return settings under which a setting has an effect.
    """
    if "oauthbearer" in name:
        unsecure = {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
        # Some source of tokens is required.
        unsecure |= {"sasl.oauthbearer.method": "oidc"} if name in unsecure else {}
        return {**OAUTH, "sasl.oauthbearer.config": "principal=alice", **unsecure}
    if name.startswith("ssl.") or name == "enable.ssl.certificate.verification":
        return {"security.protocol": "SSL"}
    if name.startswith("sasl."):
        return {**SASL, "sasl.mechanism": "SCRAM-SHA-256"}
    return {}


def another(name: str) -> str:
    """
    Return a value that is not the default.
    """
    if PROPERTIES[name].kind == "bool":
        return "false" if name in TRUE_BY_DEFAULT else "true"
    return OTHER_VALUES.get(name, "123456" if PROPERTIES[name].kind == "int" else "something")


TRUE_BY_DEFAULT = {
    "check.crcs",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "enable.ssl.certificate.verification",
    "enable.sasl.oauthbearer.unsecure.jwt",
}


@pytest.mark.parametrize("name", sorted(_SUPPORTED.split()))
def test_supported_settings_change_the_configuration(name: str) -> None:
    """
    Each setting that counts as supported changes the configuration.
    """
    base_settings = base(name)
    value = "200000000" if name == "receive.message.max.bytes" else another(name)
    changed = {**base_settings, name: value}

    assert wire_config(settings(changed)) != wire_config(settings(base_settings))


def test_every_property_is_classified() -> None:
    """
    A new consumer property fails here until it is supported, rejected or known to be harmless.
    """
    classified = {name for name, prop in PROPERTIES.items() if prop.serves(Role.CONSUMER)}

    assert classified == _KNOWN


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"security.protocol": "SASL_SSL"},
            "sasl.mechanism=GSSAPI is supported by",
        ),
        (OAUTH, "OAUTHBEARER is set, but no setting says how"),
        (
            {**OAUTH, "sasl.oauthbearer.method": "oidc"},
            "method=oidc is supported by librdkafka",
        ),
        (
            {
                **OAUTH,
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "geheim",
            },
            "sasl.oauthbearer.config has a form that only librdkafka reads",
        ),
        (
            {"security.protocol": "ssl", "ssl.keystore.location": "/my.p12"},
            "PKCS#12",
        ),
        ({"security.protocol": "ssl", "ssl.curves.list": "P-256"}, "curves"),
        ({"security.protocol": "ssl", "ssl.sigalgs.list": "RSA+SHA256"}, "signature algorithms"),
        (
            {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"},
            "no reverse DNS",
        ),
        ({"enable.metrics.push": "true"}, "no metrics"),
        ({"api.version.request": "false"}, "always requests the brokers' API versions"),
        ({"topic.blacklist": "t"}, "hides no topics"),
        ({"debug": "broker,msg"}, "kafka.debug=msg: only librdkafka logs"),
        ({"bootstrap.servers": "SSL://one:1"}, "SSL://, but kafka.security.protocol is plaintext"),
    ],
)
def test_unsupported_settings_have_a_reason(options: dict[str, str], reason: str) -> None:
    """
    The reason names the setting, so that the log shows why librdkafka is used.
    """
    actual = unsupported(options)

    assert actual is not None
    assert reason in actual
    assert actual.startswith("kafka.")
    assert "geheim" not in actual


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**SASL, "sasl.mechanism": "PLAIN"},
        {**SASL, "sasl.mechanism": "scram-sha-256", "sasl.kerberos.service.name": "kafka"},
        {"group.id": "mine", "queued.min.messages": "1", "log_level": "3"},
        {"ssl.keystore.location": "/my.p12", "security.protocol": "plaintext"},
        {"enable.metrics.push": "false", "client.dns.lookup": "use_all_dns_ips"},
        {"linger.ms": "5", "acks": "all", "compression.type": "zstd"},
        {"bootstrap.servers": "plaintext://one:1"},
        {"debug": "all"},
        {"debug": " Protocol, broker,security,"},
    ],
)
def test_settings_without_effect_keep_the_wire_engine(options: dict[str, str]) -> None:
    """
    Settings without meaning for a consumer, or at their defaults, do not rule out the wire engine.
    """
    assert unsupported(options) is None


def test_unsecured_tokens_are_read() -> None:
    """
    Every field of librdkafka's description of unsigned tokens is parsed.
    """
    unsecure = {**OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": "true"}
    text = "principalClaimName=azp principal=me scope=a,b lifeSeconds=60 extension_trace=1"
    config = wire_config(settings({**unsecure, "sasl.oauthbearer.config": text}))

    assert config.sasl is not None
    assert config.sasl.token == UnsecuredToken(
        "me", "azp", ("a", "b"), life_seconds=60, extensions=(("trace", "1"),)
    )


@pytest.mark.parametrize(
    "text", ["", "scope=a", "principal=", "principal=a other=b", "principal=a lifeSeconds=x", "a b"]
)
def test_odd_token_settings_are_left_to_librdkafka(text: str) -> None:
    """
    An invalid description of an unsigned token is left to librdkafka, never guessed.
    """
    unsecure = {**OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": "true"}

    assert unsupported({**unsecure, "sasl.oauthbearer.config": text}) is not None


def test_invalid_settings_are_reported() -> None:
    """
    An invalid value raises the same error as in librdkafka's configuration.
    """
    with pytest.raises(OptionsError, match="socket.timeout.ms is 'soon'"):
        configured(socket_timeout_ms="soon")


def test_configurations_are_keys() -> None:
    """
    Equal settings give equal keys, another password gives another key, and keys can be pickled.
    """
    plain = {**SASL, "sasl.mechanism": "PLAIN"}
    first, same = wire_config(settings(plain)), wire_config(settings(plain))
    other = wire_config(settings({**plain, "sasl.password": "neu"}))

    assert len({first, same, other}) == 2
    assert pickle.loads(pickle.dumps(first)) == first  # noqa: S301 - our own bytes


def test_repr_shows_no_secret() -> None:
    """
    No part of a login, a key or a token is printed, whatever its form.
    """
    canary = "canary"
    token = UnsecuredToken(canary, extensions=((canary, canary),))
    sasl = Sasl("OAUTHBEARER", canary, canary, token)
    tls = Tls(
        key_location=canary,
        ca_pem=canary,
        certificate_pem=canary,
        key_pem=canary,
        key_password=canary,
    )
    text = repr([token, sasl, tls, replace(configured(), sasl=sasl, tls=tls)])

    assert canary not in text
    assert "OAUTHBEARER" in text
