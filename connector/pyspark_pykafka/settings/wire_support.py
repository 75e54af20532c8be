"""
Which settings the wire engine cannot honour, so that librdkafka must do the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.settings import Role, translate
from pyspark_pykafka.settings.unsecured_token import parse_unsecured_jwt_config
from pyspark_pykafka.settings.values import debug_contexts

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from pyspark_pykafka.settings import KafkaSettings

_HONOURED = """
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

# What librdkafka's own threads, queues and logs are tuned with, none of which the wire engine has.
_OF_LIBRDKAFKA = """
    message.copy.max.bytes socket.blocking.max.ms socket.max.fails statistics.interval.ms
    log_level log.thread.name log.connection.close enable.random.seed
    queued.min.messages queued.max.messages.kbytes fetch.queue.backoff.ms
    reconnect.backoff.jitter.ms
    """

# Metadata and names are asked for whenever they are needed, so there is nothing to refresh.
_REFRESHING = """
    topic.metadata.refresh.interval.ms metadata.max.age.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.sparse topic.metadata.propagation.max.ms
    metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms broker.address.ttl
    """

# The group is never joined to read, the isolation level comes with each range, a request of a
# reader's is small and the only one under way, brokers from 2.4 on tell their versions, the records
# of a range are there and need no waiting for more, and so is their topic, or the driver did not
# find it.
_WITHOUT_EFFECT = """
    group.id session.timeout.ms isolation.level message.max.bytes fetch.min.bytes
    max.in.flight.requests.per.connection broker.version.fallback api.version.fallback.ms
    allow.auto.create.topics
    """

# Of use to mechanisms that are refused as a whole.
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

# These are librdkafka's defaults or ours, and the only values that the wire engine works by.
_ONLY: dict[str, tuple[str, str]] = {
    "api.version.request": ("true", "brokers are always asked for their versions"),
    "client.dns.lookup": ("use_all_dns_ips", "names are not looked up backwards"),
    "enable.metrics.push": ("false", "no metrics are sent to the brokers"),
    "topic.blacklist": ("", "no topics are hidden"),
}

_TLS_ONLY = {
    "ssl.keystore.location": "a PKCS#12 store is read by librdkafka only",
    "ssl.keystore.password": "a PKCS#12 store is read by librdkafka only",
    "ssl.curves.list": "librdkafka alone can choose the curves",
    "ssl.sigalgs.list": "librdkafka alone can choose the signature algorithms",
    "ssl.ca.certificate.stores": "librdkafka alone reads the certificate stores of Windows",
}

_KNOWN = frozenset(
    (_HONOURED + _OF_LIBRDKAFKA + _REFRESHING + _WITHOUT_EFFECT + _OTHER_MECHANISMS).split()
) | {*_ONLY, *_TLS_ONLY}

# What the wire engine logs at ``kafka.debug``; other contexts are of librdkafka's inner parts.
_DEBUG_CONTEXTS = frozenset({"all", "broker", "protocol", "security"})

# Of a writer: what it works by; then what tunes the queues and waits of librdkafka's own producer,
# where ours sends a batch once it is full or the task's rows are over.
_HONOURED_WRITING = """
    acks compression.type compression.level batch.size message.max.bytes retries
    queue.buffering.max.kbytes delivery.timeout.ms request.timeout.ms
    max.in.flight.requests.per.connection metadata.max.age.ms
    linger.ms batch.num.messages queue.buffering.max.messages enable.gapless.guarantee
    queue.buffering.backpressure.threshold sticky.partitioning.linger.ms transaction.timeout.ms
    """

_ONLY_WRITING: dict[str, tuple[str, str]] = {
    "enable.idempotence": ("true", "records are always numbered, so that none comes twice"),
    "partitioner": ("murmur2_random", "keys go where the Java client sends them"),
    "queuing.strategy": ("fifo", "records are sent in their order"),
}

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def wire_unsupported_reason(kafka: KafkaSettings) -> str | None:
    """
    Return why the wire engine cannot honour these settings, or None if it can.

    No reason quotes a value that could be a secret.
    """
    given = translate(kafka, Role.CONSUMER).properties
    return next(_refusals(given, _KNOWN, _ONLY), None)


def wire_write_unsupported_reason(kafka: KafkaSettings) -> str | None:
    """
    Return the same of writing.
    """
    given = translate(kafka, Role.PRODUCER).properties
    known = _KNOWN | frozenset(_HONOURED_WRITING.split()) | frozenset(_ONLY_WRITING)
    return next(_refusals(given, known, _ONLY | _ONLY_WRITING), None)


def _refusals(
    given: Mapping[str, str], known: Container[str], only: Mapping[str, tuple[str, str]]
) -> Iterator[str]:
    protocol = given.get("security.protocol", "plaintext")
    if protocol.startswith("sasl_"):
        yield from _of_sasl(given)
    if protocol.endswith("ssl"):
        yield from _of_tls(given)
    yield from _of_servers(given.get("bootstrap.servers", ""), protocol)
    for context in sorted(debug_contexts(given.get("debug", "")) - _DEBUG_CONTEXTS):
        yield f"kafka.debug={context}: only librdkafka's log has it"
    for name in given:
        if name in only and given[name] != only[name][0]:
            yield f"kafka.{name}={given[name]}: {only[name][1]}"
        elif name not in known:
            yield f"kafka.{name} is honoured by librdkafka only"


def _of_sasl(given: Mapping[str, str]) -> Iterator[str]:
    mechanism = given.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MECHANISMS:
        yield f"kafka.sasl.mechanism={mechanism} is spoken by librdkafka only"
    if mechanism != "OAUTHBEARER":
        return
    if given.get("sasl.oauthbearer.method") == "oidc":
        yield "kafka.sasl.oauthbearer.method=oidc: librdkafka gets the tokens"
    elif given.get("enable.sasl.oauthbearer.unsecure.jwt") != "true":
        yield "kafka.sasl.mechanism=OAUTHBEARER without a way to get tokens"
    elif parse_unsecured_jwt_config(given.get("sasl.oauthbearer.config", "")) is None:
        yield "kafka.sasl.oauthbearer.config is for librdkafka to judge"


def _of_tls(given: Mapping[str, str]) -> Iterator[str]:
    for name, reason in _TLS_ONLY.items():
        if given.get(name):
            yield f"kafka.{name}: {reason}"


def _of_servers(servers: str, protocol: str) -> Iterator[str]:
    for server in servers.split(","):
        scheme, found, _ = server.partition("://")
        if found and scheme.strip().lower() != protocol:
            yield (
                f"kafka.bootstrap.servers has an entry with {scheme.strip()}://, "
                f"and kafka.security.protocol is {protocol}"
            )
