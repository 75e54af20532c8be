"""
The ``kafka.*`` settings: translation of the Java client's names, and rejected settings.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.settings import REJECTED, KafkaSettings, Role, translate
from pyspark_pykafka.settings.jaas import JaasError, read_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def translated(role: Role, **settings: str) -> dict[str, str]:
    translation = translate(KafkaSettings.of(settings), role)
    assert translation.mistakes == ()
    return translation.properties


def mistakes(role: Role, settings: dict[str, str]) -> tuple[str, ...]:
    return translate(KafkaSettings.of(settings), role).mistakes


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max.request.size", "2000", {"message.max.bytes": "2000"}),
        ("buffer.memory", "33554432", {"queue.buffering.max.kbytes": "32768"}),
        ("buffer.memory", "1", {"queue.buffering.max.kbytes": "1"}),
        ("receive.buffer.bytes", "-1", {"socket.receive.buffer.bytes": "0"}),
        ("send.buffer.bytes", "65536", {"socket.send.buffer.bytes": "65536"}),
        ("request.timeout.ms", "99", {"socket.timeout.ms": "99", "request.timeout.ms": "99"}),
        ("delivery.timeout.ms", "5000", {"delivery.timeout.ms": "5000"}),
        ("message.timeout.ms", "5000", {"delivery.timeout.ms": "5000"}),
        ("batch.size", "0", {"batch.size": "1"}),
        ("linger.ms", "0.5", {"linger.ms": "0.5"}),
        ("compression.type", "LZ4", {"compression.type": "lz4"}),
        ("compression.codec", "zstd", {"compression.type": "zstd"}),
        ("compression.gzip.level", "6", {}),
        ("acks", "ALL", {"acks": "-1"}),
        ("security.protocol", " SSL ", {"security.protocol": "ssl"}),
        (
            "ssl.endpoint.identification.algorithm",
            "",
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        ("ssl.truststore.certificates", "PEM", {"ssl.ca.pem": "PEM"}),
        ("ssl.keystore.certificate.chain", "PEM", {"ssl.certificate.pem": "PEM"}),
        ("ssl.keystore.key", "PEM", {"ssl.key.pem": "PEM"}),
        ("sasl.mechanisms", "gssapi", {"sasl.mechanism": "GSSAPI"}),
        ("partitioner.class", "a.DefaultPartitioner", {"partitioner": "murmur2_random"}),
        ("partitioner.ignore.keys", "true", {"partitioner": "random"}),
        ("connections.max.idle.ms", "-1", {"connections.max.idle.ms": "0"}),
        ("max.block.ms", "1", {}),
        ("metric.reporters", "a.B", {}),
        ("auto.offset.reset", "earliest", {}),
        ("fetch.max.wait.ms", "1", {}),
        ("key.deserializer", "a.B", {}),
    ],
)
def test_producer_settings_are_translated(name: str, value: str, expected: dict[str, str]) -> None:
    """
    Java names become librdkafka's; consumer settings and the connector's own are left out.
    """
    assert translated(Role.PRODUCER, **{name: value}) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("fetch.max.wait.ms", "10", {"fetch.wait.max.ms": "10"}),
        ("max.partition.fetch.bytes", "10", {"max.partition.fetch.bytes": "10"}),
        ("fetch.message.max.bytes", "10", {"max.partition.fetch.bytes": "10"}),
        ("isolation.level", "READ_COMMITTED", {"isolation.level": "read_committed"}),
        ("request.timeout.ms", "99", {"socket.timeout.ms": "99"}),
        ("max.poll.records", "1", {}),
        ("partition.assignment.strategy", "a.RangeAssignor", {}),
        ("acks", "0", {}),
        ("partitioner.class", "a.Mine", {}),
        ("key.serializer", "a.B", {}),
        ("transactional.id", "a", {}),
    ],
)
def test_consumer_settings_are_translated(name: str, value: str, expected: dict[str, str]) -> None:
    """
    Java names become librdkafka's; producer settings are left out, valid or not.
    """
    assert translated(Role.CONSUMER, **{name: value}) == expected


def test_compression_level_follows_the_codec() -> None:
    """
    Java has a level per codec; librdkafka has a single level, which is that of the chosen codec.
    """
    levels = {"compression.gzip.level": "9", "compression.zstd.level": "3"}

    config = translated(Role.PRODUCER, **{"compression.type": "zstd", **levels})

    assert config == {"compression.type": "zstd", "compression.level": "3"}


def test_explicit_socket_timeout_wins() -> None:
    """
    Java's request timeout does not override librdkafka's own setting.
    """
    timeouts = {"request.timeout.ms": "99", "socket.timeout.ms": "77"}

    assert translated(Role.CONSUMER, **timeouts) == {"socket.timeout.ms": "77"}


@pytest.mark.parametrize("name", sorted(REJECTED))
def test_rejected_settings_give_the_reason(name: str) -> None:
    """
    Each rejected setting is reported, with the reason, for the clients that it applies
    to.
    """
    role, reason = REJECTED[name]
    for_role = Role.CONSUMER if role is Role.ANY else role

    assert mistakes(for_role, {name: "secret"}) == (f"kafka.{name} is not supported: {reason}",)


@pytest.mark.parametrize("value", ["earliest", "latest", "none", "error", "foo"])
def test_auto_offset_reset_is_rejected_with_the_alternative(value: str) -> None:
    """
    Every value is rejected, and the message names startingOffsets.
    """
    (mistake,) = mistakes(Role.CONSUMER, {"auto.offset.reset": value})

    assert "set the source option startingOffsets" in mistake


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"bootstrap.servers": "host"},
            "kafka.bootstrap.servers is 'host'; it must be: the brokers",
        ),
        (
            {"bootstrap.servers": "kafka://host:9092"},
            "'host:9092,host2:9092'; give host:port only, without a URL's scheme",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "kafka.sasl.mechanism is OAUTHBEARER, which needs a source of tokens; set",
        ),
        ({"bootstrap.servers": "h:70000"}, "it must be: the brokers with their ports"),
        ({"bootstrap.servers": "h:1;h:2"}, "it must be: the brokers with their ports"),
        (
            {"fetch.min.bytes": "many"},
            "kafka.fetch.min.bytes is 'many'; it must be: a number from 0",
        ),
        ({"fetch.max.wait.ms": "1_0"}, "kafka.fetch.max.wait.ms is '1_0'; it must be: a number"),
        ({"receive.buffer.bytes": "x"}, "kafka.receive.buffer.bytes is 'x'; it must be: a whole"),
        ({"check.crcs": "maybe"}, "kafka.check.crcs is 'maybe'; it must be: one of: true, false"),
        ({"isolation.level": "x"}, "one of: read_uncommitted, read_committed"),
        ({"security.protocol": "tls"}, "one of: plaintext, ssl, sasl_plaintext, sasl_ssl"),
        (
            {"sasl.mechanism": "AWS_MSK_IAM"},
            "kafka.sasl.mechanism is 'AWS_MSK_IAM'; it must be: one",
        ),
        (
            {"request.timeout.ms": "soon"},
            "kafka.request.timeout.ms is 'soon'; it must be: a number",
        ),
        (
            {"max.block.ms": "-1"},
            "kafka.max.block.ms is '-1'; it must be: a number of milliseconds",
        ),
        ({"fetch.min.byte": "1"}, "did you mean 'kafka.fetch.min.bytes'?"),
        ({"sasl.jaas.conf": "x"}, "did you mean 'kafka.sasl.jaas.config'?"),
        ({"zzz": "1"}, "'kafka.zzz' is not a setting of the Kafka client; see docs/options.md"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"},
            "kafka.sasl.mechanisms and kafka.sasl.mechanism are two names of one setting",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "kafka.sasl.mechanism is PLAIN, which needs a user and a password",
        ),
        ({"sasl.kerberos.principal": "a;rm"}, "part of kinit's command line"),
        ({"sasl.kerberos.keytab": 'k"$(x)'}, "part of kinit's command line"),
        ({"ssl.keystore.location": "k.jks"}, "kafka.ssl.keystore.location names a JKS store"),
        ({"ssl.truststore.location": "t.jks"}, "kafka.ssl.truststore.location names a JKS store"),
        ({"ssl.truststore.location": "t"}, "or set kafka.ssl.truststore.type=PEM"),
        (
            {"ssl.truststore.location": "t.p12"},
            "names a PKCS12 store, which librdkafka cannot read",
        ),
        ({"ssl.truststore.type": "BKS", "ssl.truststore.location": "t"}, "it must be: PEM"),
        ({"ssl.keystore.type": "BKS", "ssl.keystore.location": "t"}, "one of: PEM, PKCS12"),
    ],
)
def test_invalid_settings_are_reported(settings: dict[str, str], text: str) -> None:
    """
    Settings that no client accepts are reported when options are parsed.
    """
    (mistake,) = mistakes(Role.CONSUMER, settings)

    assert text in mistake


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "p"},
            {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "p"},
        ),
        (
            {"ssl.keystore.location": "k", "ssl.keystore.type": "pkcs12"},
            {"ssl.keystore.location": "k"},
        ),
        (
            {
                "ssl.keystore.location": "k.pem",
                "ssl.keystore.password": "p",
                "ssl.key.password": "q",
            },
            {
                "ssl.certificate.location": "k.pem",
                "ssl.key.location": "k.pem",
                "ssl.key.password": "q",
            },
        ),
        (
            {"ssl.truststore.location": "t", "ssl.truststore.type": "PEM"},
            {"ssl.ca.location": "t"},
        ),
        ({"ssl.truststore.type": "JKS", "ssl.keystore.type": "JKS"}, {}),
    ],
)
def test_keystores_are_translated(settings: dict[str, str], expected: dict[str, str]) -> None:
    """
    A PEM keystore holds key and certificate; a PKCS#12 one is passed on unchanged.
    """
    assert translated(Role.CONSUMER, **settings) == expected


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"enable.ssl.certificate.verification": "false"}, 1),
        ({"ssl.endpoint.identification.algorithm": ""}, 1),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "u",
                "sasl.password": "p",
            },
            1,
        ),
        ({"sasl.password": "p"}, 1),
        ({"security.protocol": "SSL"}, 0),
    ],
)
def test_unsafe_settings_are_warned_about(settings: dict[str, str], count: int) -> None:
    """
    Switching off protection is allowed, with a warning.
    """
    assert len(translate(KafkaSettings.of(settings), Role.CONSUMER).warnings) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'{PLAIN} required username="u" password="p";',
            {"sasl.username": "u", "sasl.password": "p"},
        ),
        (
            f"\n {SCRAM}   REQUIRED\n username=u password='p w' ; ",
            {"sasl.username": "u", "sasl.password": "p w"},
        ),
        (
            rf'{PLAIN} required password="a\"b\\c;=\n\101" username="u";',
            {"sasl.username": "u", "sasl.password": 'a"b\\c;=\nA'},
        ),
        (
            'a.Krb5LoginModule required x=true keyTab="/k" principal="me/h@R" serviceName="k";',
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": "me/h@R",
                "sasl.kerberos.service.name": "k",
            },
        ),
        (
            "a.OAuthBearerLoginModule required clientId='i' clientSecret='s' scope='c';",
            {
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "c",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
        ("a.OAuthBearerLoginModule required;", {}),
    ],
)
def test_jaas_configuration_is_parsed(text: str, expected: dict[str, str]) -> None:
    """
    Java's login configuration is parsed, including quotes and escapes.
    """
    assert read_jaas(text) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from("\"'"))
def test_any_password_survives_jaas(password: str, quote: str) -> None:
    """
    Any password can be quoted and parsed back.
    """
    escaped = password.replace("\\", "\\\\").replace(quote, f"\\{quote}")

    credentials = read_jaas(f"{PLAIN} required username=u password={quote}{escaped}{quote};")

    assert credentials == {"sasl.username": "u", "sasl.password": password}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "must end with a semicolon"),
        (f'{PLAIN} required username="CANARY"', "must end with a semicolon"),
        (f'{PLAIN} required username="CANARY;', "is not closed"),
        (f'{PLAIN} username="CANARY" password="CANARY";', "must begin with a login module"),
        (f'{PLAIN} required username "CANARY";', "key="),
        (f"{PLAIN} required CANARY;", "key="),
        (f"{PLAIN} required; {PLAIN} required;", "more than one login module"),
        ('a.CanaryModule required x="CANARY";', "not one of"),
        (f'{SCRAM} required username="CANARY" tokenauth="true";', "delegation token"),
    ],
)
def test_invalid_jaas_is_rejected_without_quoting_it(text: str, expected: str) -> None:
    """
    The error gives the reason and quotes nothing from the configuration.
    """
    with pytest.raises(JaasError, match=expected) as caught:
        read_jaas(text)

    assert "CANARY" not in str(caught.value)
