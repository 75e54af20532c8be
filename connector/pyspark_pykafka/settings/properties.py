"""
librdkafka's properties, so that unknown names and invalid values are reported early.

They are the properties that ``rd_kafka_conf_properties_show`` of librdkafka 2.16 prints, except for
callbacks, settings of consumer group membership, and the settings in :mod:`.rules`.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class Role(enum.Enum):
    """
    The client that a property belongs to; ``ANY`` means every client.
    """

    ANY = "any"
    CONSUMER = "consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class Property:
    """
    One property. ``kind`` is int, number, bool, one (one of several words), shown (text) or masked
    (text that may be secret). ``limits`` are the bounds of a number, or the words.
    """

    name: str
    role: Role
    kind: str
    limits: tuple[str, ...]

    @property
    def printable(self) -> bool:
        """
        Whether values may appear in a message or a ``repr``.
        """
        return self.kind != "masked"

    def serves(self, role: Role) -> bool:
        """
        Whether a client of this role has the property.
        """
        return self.role in (Role.ANY, role)

    @property
    def expects(self) -> str:
        """
        The valid values, for error messages.
        """
        if self.kind == "bool":
            return "one of: true, false"
        if self.kind == "one":
            return "one of: " + ", ".join(self.limits)
        if self.kind in ("int", "number"):
            return f"a number from {self.limits[0]} to {self.limits[1]}"
        return "text"

    def normalise(self, value: str) -> str:
        """
        Return the value in librdkafka's form; raise ``ValueError`` if it is invalid.
        """
        if self.kind == "masked":
            return value
        text = value.strip()
        if self.kind == "bool":
            return _one_of(text, ("true", "false"))
        if self.kind == "one":
            return _one_of(text, self.limits)
        if self.kind in ("int", "number"):
            return _within(text, self.kind, self.limits)
        return text


def _one_of(text: str, choices: tuple[str, ...]) -> str:
    spelled = {choice.lower(): choice for choice in choices}
    if text.lower() not in spelled:
        raise ValueError(text)
    return spelled[text.lower()]


def _within(text: str, kind: str, limits: tuple[str, ...]) -> str:
    if not _NUMBERS[kind].fullmatch(text) or not int(limits[0]) <= float(text) <= int(limits[1]):
        raise ValueError(text)
    return text


_NUMBERS = {"int": re.compile(r"[+-]?[0-9]+"), "number": re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")}

# The columns: name, role, and kind with its limits.
_TABLE = """
client.id any shown
bootstrap.servers any shown
message.max.bytes any int:1000:1000000000
message.copy.max.bytes any int:0:1000000000
receive.message.max.bytes any int:1000:2147483647
max.in.flight.requests.per.connection any int:1:1000000
metadata.recovery.strategy any one:none,rebootstrap
metadata.recovery.rebootstrap.trigger.ms any int:0:2147483647
topic.metadata.refresh.interval.ms any int:-1:3600000
metadata.max.age.ms any int:1:86400000
topic.metadata.refresh.fast.interval.ms any int:1:60000
topic.metadata.refresh.fast.cnt any int:0:1000
topic.metadata.refresh.sparse any bool
topic.metadata.propagation.max.ms any int:0:3600000
topic.blacklist any shown
debug any shown
socket.timeout.ms any int:10:300000
socket.blocking.max.ms any int:1:60000
socket.send.buffer.bytes any int:0:100000000
socket.receive.buffer.bytes any int:0:100000000
socket.keepalive.enable any bool
socket.nagle.disable any bool
socket.max.fails any int:0:1000000
broker.address.ttl any int:0:86400000
broker.address.family any one:any,v4,v6
socket.connection.setup.timeout.ms any int:1000:2147483647
connections.max.idle.ms any int:0:2147483647
reconnect.backoff.jitter.ms any int:0:3600000
reconnect.backoff.ms any int:0:3600000
reconnect.backoff.max.ms any int:0:3600000
statistics.interval.ms any int:0:86400000
log_level any int:0:7
log.thread.name any bool
enable.random.seed any bool
log.connection.close any bool
api.version.request any bool
api.version.request.timeout.ms any int:1:300000
api.version.fallback.ms any int:0:604800000
broker.version.fallback any shown
allow.auto.create.topics any bool
security.protocol any one:plaintext,ssl,sasl_plaintext,sasl_ssl
ssl.cipher.suites any shown
ssl.curves.list any shown
ssl.sigalgs.list any shown
ssl.key.location any masked
ssl.key.password any masked
ssl.key.pem any masked
ssl.certificate.location any shown
ssl.certificate.pem any masked
ssl.ca.location any shown
https.ca.location any shown
https.ca.pem any masked
ssl.ca.pem any masked
ssl.ca.certificate.stores any shown
ssl.crl.location any shown
ssl.keystore.location any shown
ssl.keystore.password any masked
enable.ssl.certificate.verification any bool
ssl.endpoint.identification.algorithm any one:none,https
sasl.mechanism any shown
sasl.kerberos.service.name any shown
sasl.kerberos.principal any masked
sasl.kerberos.keytab any masked
sasl.kerberos.min.time.before.relogin any int:0:86400000
sasl.username any masked
sasl.password any masked
sasl.oauthbearer.config any masked
enable.sasl.oauthbearer.unsecure.jwt any bool
sasl.oauthbearer.method any one:default,oidc
sasl.oauthbearer.client.id any masked
sasl.oauthbearer.client.secret any masked
sasl.oauthbearer.scope any masked
sasl.oauthbearer.extensions any masked
sasl.oauthbearer.token.endpoint.url any masked
sasl.oauthbearer.sub.claim.name any masked
sasl.oauthbearer.grant.type any one:client_credentials,urn:ietf:params:oauth:grant-type:jwt-bearer
sasl.oauthbearer.assertion.algorithm any one:RS256,ES256
sasl.oauthbearer.assertion.private.key.file any masked
sasl.oauthbearer.assertion.private.key.passphrase any masked
sasl.oauthbearer.assertion.private.key.pem any masked
sasl.oauthbearer.assertion.file any masked
sasl.oauthbearer.assertion.claim.aud any masked
sasl.oauthbearer.assertion.claim.exp.seconds any int:1:2147483647
sasl.oauthbearer.assertion.claim.iss any masked
sasl.oauthbearer.assertion.claim.jti.include any bool
sasl.oauthbearer.assertion.claim.nbf.seconds any int:0:2147483647
sasl.oauthbearer.assertion.claim.sub any masked
sasl.oauthbearer.assertion.jwt.template.file any masked
sasl.oauthbearer.metadata.authentication.type any one:none,azure_imds,aws_iam
group.id consumer shown
session.timeout.ms consumer int:1:3600000
queued.min.messages consumer int:1:10000000
queued.max.messages.kbytes consumer int:1:2097151
fetch.wait.max.ms consumer int:0:300000
fetch.queue.backoff.ms consumer int:0:300000
max.partition.fetch.bytes consumer int:1:1000000000
fetch.max.bytes consumer int:0:2147483135
fetch.min.bytes consumer int:0:2147483647
fetch.error.backoff.ms consumer int:0:300000
isolation.level consumer one:read_uncommitted,read_committed
check.crcs consumer bool
client.rack any shown
transaction.timeout.ms producer int:1000:2147483647
enable.idempotence producer bool
enable.gapless.guarantee producer bool
queue.buffering.max.messages producer int:0:2147483647
queue.buffering.max.kbytes producer int:1:2147483647
linger.ms producer number:0:900000
retries producer int:0:2147483647
retry.backoff.ms any int:1:300000
retry.backoff.max.ms any int:1:300000
queue.buffering.backpressure.threshold producer int:1:1000000
compression.type producer one:none,gzip,snappy,lz4,zstd
batch.num.messages producer int:1:1000000
batch.size producer int:1:2147483647
sticky.partitioning.linger.ms producer int:0:900000
client.dns.lookup any one:use_all_dns_ips,resolve_canonical_bootstrap_servers_only
enable.metrics.push any bool
acks producer shown
request.timeout.ms producer int:1:900000
delivery.timeout.ms producer int:0:2147483647
queuing.strategy producer one:fifo,lifo
partitioner producer one:random,consistent,consistent_random,murmur2,murmur2_random,fnv1a,fnv1a_random
compression.level producer int:-1:12
"""  # noqa: E501 - a row is a line


def _property(line: str) -> Property:
    name, role, described = line.split(" ")
    kind, _, limits = described.partition(":")
    # Only numeric limits are split at colons: grant types contain colons.
    separator = "," if kind == "one" else ":"
    return Property(name, Role(role), kind, tuple(limits.split(separator)) if limits else ())


#: Every property by name.
PROPERTIES: dict[str, Property] = {
    prop.name: prop for prop in map(_property, _TABLE.strip().splitlines())
}

#: The name used here for each alternative name in librdkafka: the Java client's name if it has one.
ALIASES: dict[str, str] = {
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
