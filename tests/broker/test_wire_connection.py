"""
The wire engine's connections to a real broker: TLS and SASL, successes and failures.
"""

from __future__ import annotations

import logging
import os
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import (
    CertificateRevocationListBuilder,
    RevokedCertificateBuilder,
    load_pem_x509_certificate,
)
from tests.support.metadata_backends import metadata_backend_of

from pyspark_pykafka.engines.selection import check_brokers, check_topic
from pyspark_pykafka.engines.wire.network.connection import Connection
from pyspark_pykafka.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    PykafkaError,
    TlsError,
)
from pyspark_pykafka.retry import Deadline
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.settings.wire_config import Address, wire_config
from pyspark_pykafka.settings.wire_support import wire_unsupported_reason
from pyspark_pykafka.testing import KafkaCluster
from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: The listeners and their security protocols; RENEWED requires a new login every 2 s.
LISTENERS = {
    "CLIENT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "SCRAM": "SASL_SSL",
    "OAUTH": "SASL_PLAINTEXT",
    "RENEWED": "SASL_PLAINTEXT",
}
USER, PASSWORD, KEY_PASSWORD = "alice-canary", 'geheim-"canary";', "schluessel-canary"
#: Characters that need escaping in a SCRAM user name.
SCRAM_USER = "al=ice,canary"


@dataclass(frozen=True, slots=True)
class Secured:
    """
    A broker with a listener for each security protocol, and the files that clients need.
    """

    kafka: KafkaCluster
    ports: dict[str, int]
    files: Path

    def settings(self, listener: str, **changed: str) -> dict[str, str]:
        """
        Return a client's settings for a listener; keywords are settings with underscores for dots.
        """
        return {
            "bootstrap.servers": f"localhost:{self.ports[listener]}",
            "security.protocol": LISTENERS[listener],
            **{name.replace("_", "."): value for name, value in changed.items()},
        }

    def open(self, listener: str, host: str = "localhost", **changed: str) -> Connection:
        """
        Open a wire connection to a listener.
        """
        kafka = KafkaSettings.of(self.settings(listener, **changed))
        assert wire_unsupported_reason(kafka) is None
        address = Address(host, self.ports[listener])
        return Connection.open(address, wire_config(kafka), Deadline.after(20))

    def trusting(self, **changed: str) -> dict[str, str]:
        """
        Return the settings of a TLS client that trusts the broker's authority.
        """
        return {"ssl_ca_location": str(self.files / "ca.pem"), **changed}


def login(mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    files = tmp_path_factory.mktemp("certificates")
    write_certificates(files)
    *ports, controller = free_ports(len(LISTENERS) + 1)
    ports_by_listener = dict(zip(LISTENERS, ports, strict=True))
    config = broker_config(ports_by_listener, controller, files)
    with KafkaCluster(config=config, port=ports_by_listener["CLIENT"]) as kafka:
        create_scram_users(kafka)
        yield Secured(kafka, ports_by_listener, files)


def write_certificates(files: Path) -> None:
    """
    Write PEM files: an authority, an unrelated one, and the broker's and a client's key pair.
    """
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(files / "ca.pem")
    stranger.cert_pem.write_to_path(files / "stranger.pem")
    broker = authority.issue_cert("localhost")
    (files / "broker.pem").write_bytes(private_key(broker) + broker.cert_chain_pems[0].bytes())
    client = authority.issue_cert("client")
    client.cert_chain_pems[0].write_to_path(files / "client.pem")
    (files / "client.key").write_bytes(
        private_key(client, BestAvailableEncryption(KEY_PASSWORD.encode()))
    )
    # Key and certificate in one file, as in the Java client's PEM store.
    (files / "store.pem").write_bytes(private_key(client) + client.cert_chain_pems[0].bytes())
    year = timedelta(days=365)
    for name, issuer, revoked, valid in (
        ("clean", authority, client, year),
        ("revoked", authority, broker, year),
        ("old", authority, client, -year),
        ("foreign", stranger, client, year),
    ):
        (files / f"{name}.crl").write_bytes(revocation_list(issuer, revoked, valid))


def revocation_list(authority: trustme.CA, revoked: trustme.LeafCert, valid: timedelta) -> bytes:
    """
    Return an authority's CRL that revokes one certificate; a negative validity makes it expired.
    """
    issuer = load_pem_x509_certificate(authority.cert_pem.bytes()).subject
    serial = load_pem_x509_certificate(revoked.cert_chain_pems[0].bytes()).serial_number
    now = datetime.now(UTC)
    entry = RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
    listed = CertificateRevocationListBuilder().issuer_name(issuer).add_revoked_certificate(entry)
    listed = listed.last_update(min(now, now + 2 * valid)).next_update(now + valid)
    key = load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return listed.sign(key, SHA256()).public_bytes(Encoding.PEM)


def private_key(
    certificate: trustme.LeafCert, lock: KeySerializationEncryption | None = None
) -> bytes:
    """
    Return a certificate's private key as PKCS#8, the only form of PEM key that Kafka reads.
    """
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock or NoEncryption())


def broker_config(ports: dict[str, int], controller: int, files: Path) -> dict[str, Any]:
    """
    Return the broker's settings: each listener with its port, protocol and credentials.
    """
    addresses = [f"{name}://localhost:{port}" for name, port in ports.items()]
    protocols = ",".join(f"{name}:{kind}" for name, kind in LISTENERS.items())
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    quoted = PASSWORD.replace('"', '\\\\"')
    users = f'{plain} user_{USER}="{quoted}";'
    return {
        "listeners": ",".join([*addresses, f"CONTROLLER://localhost:{controller}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@localhost:{controller}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": users,
        "listener.name.renewed.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.renewed.plain.sasl.jaas.config": users,
        "listener.name.renewed.plain.connections.max.reauth.ms": 2000,
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
        "listener.name.scram.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": OAUTH_MODULE,
    }


SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH_MODULE = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)


def create_scram_users(kafka: KafkaCluster) -> None:
    """
    Create both users for both SCRAM mechanisms.
    """
    admin = kafka.admin()
    # A broker accepts one mechanism per user in a request.
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = ScramCredentialInfo(mechanism, 4096)
        upsertions = [
            UserScramCredentialUpsertion(user, credential, PASSWORD.encode(), None)
            for user in (USER, SCRAM_USER)
        ]
        for future in admin.alter_user_scram_credentials(upsertions).values():
            future.result(30)


def topics(connection: Connection, seconds: float = 20) -> Any:
    """
    Request the metadata of all topics, which every user may do.
    """
    from kafka.protocol.metadata import MetadataRequest

    version = connection.version(MetadataRequest, 12)
    request = MetadataRequest(topics=None, version=version)
    return connection.request(request, Deadline.after(seconds))


def test_plain_listener(secured: Secured) -> None:
    """
    A connection without security is open and can send requests.
    """
    connection = secured.open("CLIENT")

    assert topics(connection).brokers[0].port == secured.ports["CLIENT"]
    assert connection.is_usable
    connection.close()


def revoking(name: str) -> dict[str, str]:
    """
    Return the settings of a client that checks a CRL.
    """
    return {"ssl_ca_location": "{files}/ca.pem", "ssl_crl_location": f"{{files}}/{name}.crl"}


def test_tls_with_a_crl(secured: Secured) -> None:
    """
    A certificate that is not in the CRL of its authority is accepted.
    """
    clean = str(secured.files / "clean.crl")
    connection = secured.open("TLS", **secured.trusting(ssl_crl_location=clean))

    assert topics(connection).brokers
    connection.close()


@pytest.mark.parametrize("inline", [False, True])
def test_tls_with_a_known_authority(secured: Secured, inline: bool) -> None:
    """
    The authority's certificate is given as a file or as text.
    """
    pem = {"ssl_ca_pem": (secured.files / "ca.pem").read_text()}
    connection = secured.open("TLS", **(pem if inline else secured.trusting()))

    assert topics(connection).brokers[0].port == secured.ports["TLS"]
    connection.close()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "rejected: unable to get local issuer certificate"),
        ({"ssl_ca_location": "{files}/stranger.pem"}, "does kafka.ssl.ca.location name"),
        ({"ssl_ca_location": "{files}/nowhere.pem"}, "kafka.ssl.ca.location cannot be used: No"),
        (
            {"ssl_ca_location": "{files}/client.key"},
            "kafka.ssl.ca.location cannot be used: NO_CERT",
        ),
        ({"ssl_ca_pem": "canary"}, "kafka.ssl.ca.pem cannot be used"),
        (
            {"ssl_ca_location": "{files}/ca.pem", "host": "127.0.0.1"},
            "not valid for '127.0.0.1'",
        ),
        (
            {"ssl_ca_location": "{files}/ca.pem", "ssl_cipher_suites": "NONSENSE"},
            "kafka.ssl.cipher.suites cannot be used",
        ),
        (revoking("revoked"), "certificate revoked .*it was revoked"),
        (revoking("old"), "CRL has expired .*kafka.ssl.crl.location has expired; download a new"),
        (revoking("foreign"), "certificate CRL .*does kafka.ssl.crl.location hold the CRL"),
        (revoking("nowhere"), "kafka.ssl.crl.location cannot be used: No"),
    ],
)
def test_tls_failures_name_the_check(secured: Secured, config: dict[str, str], reason: str) -> None:
    """
    The error names the check that failed, and the setting to correct.
    """
    filled = {name: value.format(files=secured.files) for name, value in config.items()}

    with pytest.raises(TlsError, match=reason):
        secured.open("TLS", **filled)


@pytest.mark.parametrize(
    "off",
    [
        {"ssl_endpoint_identification_algorithm": "none"},
        {"enable_ssl_certificate_verification": "false", "ssl_ca_location": ""},
    ],
)
def test_checks_can_be_switched_off(secured: Secured, off: dict[str, str]) -> None:
    """
    A wrong host name and an unknown authority are accepted if the settings say so.
    """
    connection = secured.open("TLS", host="127.0.0.1", **secured.trusting(**off))

    assert topics(connection).brokers
    connection.close()


def own_certificate(files: Path, form: str) -> dict[str, str]:
    """
    Return the settings of a client's certificate, in one of the supported forms.
    """
    if form == "store":
        return {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(files / "store.pem")}
    certificate, key = files / "client.pem", files / "client.key"
    locked = {"ssl_key_password": KEY_PASSWORD}
    if form == "files":
        return {
            **locked,
            "ssl_certificate_location": str(certificate),
            "ssl_key_location": str(key),
        }
    return {
        **locked,
        "ssl_certificate_pem": certificate.read_text(),
        "ssl_key_pem": key.read_text(),
    }


@pytest.mark.parametrize("form", ["files", "texts", "store"])
def test_tls_with_a_client_certificate(secured: Secured, form: str) -> None:
    """
    A client certificate is accepted with a plain and with an encrypted private key.
    """
    connection = secured.open("MUTUAL", **secured.trusting(**own_certificate(secured.files, form)))

    assert topics(connection).brokers
    connection.close()


def test_tls_without_a_client_certificate(secured: Secured) -> None:
    """
    A broker that requires a certificate closes the connection, and the error names the setting.
    """
    with pytest.raises((TlsError, BrokerUnavailableError), match=r"kafka\.ssl\.certificate"):
        secured.open("MUTUAL", **secured.trusting())


@pytest.mark.parametrize("password", ["wrong-canary", ""])
def test_an_encrypted_key_needs_its_password(secured: Secured, password: str) -> None:
    """
    A wrong or missing password is an error; nothing prompts on a terminal.
    """
    config = {**own_certificate(secured.files, "files"), "ssl_key_password": password}

    with pytest.raises(TlsError, match="kafka.ssl.key.password"):
        secured.open("MUTUAL", **secured.trusting(**config))


def test_wrong_security_protocols_are_recognised(secured: Secured) -> None:
    """
    Each mismatch of client and listener gives an error that names the likely cause.
    """
    with pytest.raises(TlsError, match="is it a TLS listener"):
        secured.open("TLS", security_protocol="plaintext")
    with pytest.raises(TlsError, match="is a listener without TLS"):
        secured.open("CLIENT", **secured.trusting(security_protocol="ssl"))
    with pytest.raises(AuthenticationError, match="the listener does not use SASL"):
        secured.open("CLIENT", security_protocol="sasl_plaintext", **login("PLAIN"))
    with pytest.raises(AuthenticationError, match="is a listener that requires a login"):
        topics(secured.open("PLAIN", security_protocol="plaintext"))


LOGINS: dict[str, tuple[str, dict[str, str]]] = {
    "plain": ("PLAIN", login("PLAIN")),
    "scram-256": ("SCRAM", login("SCRAM-SHA-256")),
    "scram-512": ("SCRAM", login("SCRAM-SHA-512")),
    "scram-escaped": ("SCRAM", login("SCRAM-SHA-512", SCRAM_USER)),
    "oauthbearer": (
        "OAUTH",
        {
            "sasl_mechanism": "OAUTHBEARER",
            "enable_sasl_oauthbearer_unsecure_jwt": "true",
            "sasl_oauthbearer_config": f"principal={USER} scope=read,write extension_trace=1",
        },
    ),
}


@pytest.mark.parametrize("way", LOGINS)
def test_good_logins(secured: Secured, way: str) -> None:
    """
    Each mechanism works, even for a user whose name needs escaping.
    """
    listener, config = LOGINS[way]
    connection = secured.open(listener, **secured.trusting(**config))

    assert topics(connection).brokers[0].port == secured.ports[listener]
    connection.close()


@pytest.mark.parametrize("way", LOGINS)
def test_librdkafka_logs_in_alike(secured: Secured, way: str) -> None:
    """
    The driver's librdkafka client logs in with the same settings as the wire engine.
    """
    listener, config = LOGINS[way]
    admin = AdminClient(secured.settings(listener, **secured.trusting(**config)))

    assert admin.list_topics(timeout=20).brokers


@pytest.mark.parametrize(
    ("listener", "config", "reason"),
    [
        ("PLAIN", login("PLAIN", password="wrong-canary"), "Invalid username or password"),  # noqa: S106
        ("PLAIN", login("SCRAM-SHA-256"), "does not offer it; it offers: PLAIN"),
        ("SCRAM", login("SCRAM-SHA-256", password="wrong-canary"), "invalid credentials"),  # noqa: S106
        ("SCRAM", login("SCRAM-SHA-512", "nobody-canary"), "invalid credentials"),
        (
            "OAUTH",
            {
                **LOGINS["oauthbearer"][1],
                "sasl_oauthbearer_config": f"principal={USER} lifeSeconds=0",
            },
            "invalid_token",
        ),
    ],
)
def test_bad_logins_show_the_reason_and_no_secret(
    secured: Secured,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    config: dict[str, str],
    reason: str,
) -> None:
    """
    The error has the broker's reason; names, passwords and tokens are in no message and no log.
    """
    caplog.set_level(logging.DEBUG)

    with pytest.raises(AuthenticationError, match=reason) as caught:
        secured.open(listener, **secured.trusting(**config))
    texts = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "canary" not in texts.replace(__file__, "")


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
def test_metadata_requests_fail_alike_on_a_bad_login(secured: Secured, engine: str) -> None:
    """
    Both engines raise the same authentication error, at once.
    """
    wrong = login("PLAIN", password="wrong-canary")  # noqa: S106
    config = secured.settings("PLAIN", **secured.trusting(**wrong))
    backend = metadata_backend_of(KafkaSettings.of(config), "read_committed", engine)

    with pytest.raises(AuthenticationError, match="nvalid username or password") as caught:
        backend.describe_topics({"t"})
    assert not caught.value.retriable


def test_a_login_is_renewed_between_requests(secured: Secured) -> None:
    """
    A broker that requires a new login every two seconds gets it (KIP-368).
    """
    connection = secured.open("RENEWED", **login("PLAIN"))
    until = Deadline.after(4.5)
    answers = 0
    while not until.expired:
        answers += bool(topics(connection).brokers)

    assert answers > 10
    connection.close()


def test_an_expired_login_is_renewed(secured: Secured) -> None:
    """
    A session that expired while the connection was idle is renewed before the next request.
    """
    connection = secured.open("RENEWED", **login("PLAIN"))
    # A real pause: the broker ends a session after two seconds.
    time.sleep(2.5)

    assert topics(connection).brokers
    connection.close()


def test_a_forked_process_does_not_close_the_connection(secured: Secured) -> None:
    """
    A forked process that closes its inherited socket does not end its parent's TLS connection.
    """
    connection = secured.open("TLS", **secured.trusting())
    child = os.fork()
    if child == 0:
        connection.close()
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connection.is_usable
    assert topics(connection).brokers
    connection.close()


WRONG_LISTENERS: dict[str, tuple[str, dict[str, str], type[PykafkaError], str]] = {
    "tls-port": ("TLS", {"security_protocol": "plaintext"}, TlsError, "is it a TLS listener"),
    "plaintext-port": (
        "CLIENT",
        {"security_protocol": "ssl", "ssl_ca_location": "{files}/ca.pem"},
        TlsError,
        "is a listener without TLS, .* set it to PLAINTEXT|to a PLAINTEXT broker listener",
    ),
    "plaintext-port-with-login": (
        "PLAIN",
        {
            "security_protocol": "sasl_ssl",
            "ssl_ca_location": "{files}/ca.pem",
            **login("PLAIN"),
        },
        TlsError,
        "is SASL_SSL; set it to SASL_PLAINTEXT|to a PLAINTEXT broker listener",
    ),
    "no-login": (
        "PLAIN",
        {"security_protocol": "plaintext"},
        AuthenticationError,
        "is PLAINTEXT; set it to SASL_PLAINTEXT, kafka.sasl.mechanism to one of PLAIN, and the",
    ),
    "no-login-over-tls": (
        "SCRAM",
        {"security_protocol": "ssl", "ssl_ca_location": "{files}/ca.pem"},
        AuthenticationError,
        "set it to SASL_SSL, kafka.sasl.mechanism to one of SCRAM-SHA-256, SCRAM-SHA-512",
    ),
    "no-certificate": (
        "MUTUAL",
        {"ssl_ca_location": "{files}/ca.pem"},
        TlsError,
        "may require a client certificate",
    ),
}


@pytest.mark.parametrize("engine", ["wire", "librdkafka"])
@pytest.mark.parametrize("case", WRONG_LISTENERS)
def test_a_wrong_listener_is_named_soon(secured: Secured, case: str, engine: str) -> None:
    """
    A wrong listener is an error of the settings that retries cannot correct: both engines report it
    before any timeout.
    """
    listener, config, kind, text = WRONG_LISTENERS[case]
    filled = {name: value.replace("{files}", str(secured.files)) for name, value in config.items()}
    # Longer than a test may take.
    timeouts = {"default.api.timeout.ms": "3600000", "max.block.ms": "3600000"}
    kafka = KafkaSettings.of({**secured.settings(listener, **filled), **timeouts})

    with pytest.raises(kind, match=text) as raised:
        metadata_backend_of(kafka, "read_uncommitted", engine).describe_topics(["t"])
    assert not raised.value.retriable
    with pytest.raises(kind, match=text):
        check_topic(kafka, "t", engine)
    with pytest.raises(kind, match=text):
        check_brokers(kafka, engine)
