"""
Finds settings that the wire engine does not support, so that librdkafka must be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.settings import Role, translate
from pyspark_pykafka.settings.unsecured_token import parse_unsecured_jwt_config
from pyspark_pykafka.settings.values import debug_contexts

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from pyspark_pykafka.settings import KafkaSettings

_SUPPORTED = """
    bootstrap.servers client.id client.rack security.protocol
    sasl.mechanism sasl.username sasl.password
    sasl.oauthbearer.config enable.sasl.oauthbearer.unsecure.jwt
    ssl.ca.location ssl.ca.pem ssl.crl.location ssl.cipher.suites
    ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.key.pem ssl.key.password
    enable.ssl.certificate.verification ssl.endpoint.identification.algorithm
    broker.address.family socket.connection.setup.timeout.ms socket.timeout.ms
    api.version.request.timeout.ms connections.max.idle.ms socket.keepalive.enable
    socket.nagle.disable socket.send.buffer.bytes socket.receive.buffer.bytes
    receive.message.max.bytes fetch.wait.max.ms fetch.max.bytes
    max.partition.fetch.bytes check.crcs fetch.error.backoff.ms retry.backoff.ms
    retry.backoff.max.ms reconnect.backoff.ms reconnect.backoff.max.ms debug
    """

# Settings of librdkafka's threads, queues and logs, which the wire engine does not have.
_LIBRDKAFKA_INTERNALS = """
    message.copy.max.bytes socket.blocking.max.ms socket.max.fails statistics.interval.ms
    log_level log.thread.name log.connection.close enable.random.seed
    queued.min.messages queued.max.messages.kbytes fetch.queue.backoff.ms
    reconnect.backoff.jitter.ms
    """

# Metadata and host names are read whenever they are needed, so nothing is refreshed.
_REFRESH = """
    topic.metadata.refresh.interval.ms metadata.max.age.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.sparse topic.metadata.propagation.max.ms
    metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms broker.address.ttl
    """

# Without effect: a read joins no group and gets its isolation level from FetchSettings, a fetch
# request is small and the only one in flight, brokers since 2.4 report their API versions, and a
# range's topic and records exist when the range is read.
_WITHOUT_EFFECT = """
    group.id session.timeout.ms isolation.level message.max.bytes fetch.min.bytes
    max.in.flight.requests.per.connection broker.version.fallback api.version.fallback.ms
    allow.auto.create.topics
    """

# Settings of mechanisms that are not supported at all.
_OTHER_MECHANISMS = """
    sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.keytab
    sasl.kerberos.min.time.before.relogin https.ca.location https.ca.pem
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.scope
    sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.grant.type
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    """

# Settings with a single supported value: librdkafka's default, or the connector's.
_SINGLE_VALUE: dict[str, tuple[str, str]] = {
    "api.version.request": ("true", "wire always requests the brokers' API versions"),
    "client.dns.lookup": ("use_all_dns_ips", "wire does no reverse DNS lookups"),
    "enable.metrics.push": ("false", "wire sends no metrics to the brokers"),
    "topic.blacklist": ("", "wire hides no topics"),
}

_TLS_ONLY = {
    "ssl.keystore.location": "only librdkafka reads PKCS#12 stores",
    "ssl.keystore.password": "only librdkafka reads PKCS#12 stores",
    "ssl.curves.list": "only librdkafka can choose the curves",
    "ssl.sigalgs.list": "only librdkafka can choose the signature algorithms",
    "ssl.ca.certificate.stores": "only librdkafka reads the certificate stores of Windows",
}

_KNOWN = frozenset(
    (_SUPPORTED + _LIBRDKAFKA_INTERNALS + _REFRESH + _WITHOUT_EFFECT + _OTHER_MECHANISMS).split()
) | {*_SINGLE_VALUE, *_TLS_ONLY}

# The contexts of ``kafka.debug`` that wire logs; the others concern librdkafka's internals.
_DEBUG_CONTEXTS = frozenset({"all", "broker", "protocol", "security"})

# Supported by the producer. The settings from linger.ms to sticky.partitioning.linger.ms concern
# queues and waits of librdkafka's producer. Wire has no such waits: it sends a batch when the batch
# is full, when batches that are not full take too much memory, or when the task has no more rows.
_SUPPORTED_FOR_WRITES = """
    acks compression.type compression.level batch.size message.max.bytes retries
    queue.buffering.max.kbytes delivery.timeout.ms request.timeout.ms
    max.in.flight.requests.per.connection metadata.max.age.ms
    linger.ms batch.num.messages queue.buffering.max.messages enable.gapless.guarantee
    queue.buffering.backpressure.threshold sticky.partitioning.linger.ms transaction.timeout.ms
    """

_SINGLE_VALUE_FOR_WRITES: dict[str, tuple[str, str]] = {
    "enable.idempotence": ("true", "wire always uses idempotent producers"),
    "partitioner": ("murmur2_random", "wire always partitions as the Java client does"),
    "queuing.strategy": ("fifo", "wire sends records in their order"),
}

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def wire_unsupported_reason(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot read with these settings, or None if it can.

    The reason quotes no value that may be secret.
    """
    properties = translate(kafka, Role.CONSUMER).properties
    return next(_unsupported(properties, _KNOWN, _SINGLE_VALUE), None)


def wire_write_unsupported_reason(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot write with these settings, or None if it can.
    """
    properties = translate(kafka, Role.PRODUCER).properties
    supported = (
        _KNOWN | frozenset(_SUPPORTED_FOR_WRITES.split()) | frozenset(_SINGLE_VALUE_FOR_WRITES)
    )
    return next(_unsupported(properties, supported, _SINGLE_VALUE | _SINGLE_VALUE_FOR_WRITES), None)


def _unsupported(
    properties: Mapping[str, str],
    supported: Container[str],
    single_values: Mapping[str, tuple[str, str]],
) -> Iterator[str]:
    protocol = properties.get("security.protocol", "plaintext")
    if protocol.startswith("sasl_"):
        yield from _unsupported_sasl(properties)
    if protocol.endswith("ssl"):
        yield from _unsupported_tls(properties)
    yield from _unsupported_servers(properties.get("bootstrap.servers", ""), protocol)
    for context in sorted(debug_contexts(properties.get("debug", "")) - _DEBUG_CONTEXTS):
        yield f"kafka.debug={context}: only librdkafka logs this context"
    for name in properties:
        if name in single_values and properties[name] != single_values[name][0]:
            yield f"kafka.{name}={properties[name]}: {single_values[name][1]}"
        elif name not in supported:
            yield f"kafka.{name} is supported by librdkafka only"


def _unsupported_sasl(properties: Mapping[str, str]) -> Iterator[str]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MECHANISMS:
        yield f"kafka.sasl.mechanism={mechanism} is supported by librdkafka only"
    if mechanism != "OAUTHBEARER":
        return
    if properties.get("sasl.oauthbearer.method") == "oidc":
        yield "kafka.sasl.oauthbearer.method=oidc is supported by librdkafka only"
    elif properties.get("enable.sasl.oauthbearer.unsecure.jwt") != "true":
        yield "kafka.sasl.mechanism=OAUTHBEARER is set, but no setting says how to get a token"
    elif parse_unsecured_jwt_config(properties.get("sasl.oauthbearer.config", "")) is None:
        yield "kafka.sasl.oauthbearer.config has a form that only librdkafka reads"


def _unsupported_tls(properties: Mapping[str, str]) -> Iterator[str]:
    for name, reason in _TLS_ONLY.items():
        if properties.get(name):
            yield f"kafka.{name}: {reason}"


def _unsupported_servers(servers: str, protocol: str) -> Iterator[str]:
    for server in servers.split(","):
        scheme, separator, _ = server.partition("://")
        if separator and scheme.strip().lower() != protocol:
            yield (
                f"kafka.bootstrap.servers has an entry with {scheme.strip()}://, "
                f"but kafka.security.protocol is {protocol}"
            )
