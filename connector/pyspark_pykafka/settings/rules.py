"""
Settings that are rejected, ignored, or named differently in librdkafka.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark_pykafka.settings.properties import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OFFSETS = (
    "Spark's checkpoint keeps the offsets; set the source option "
    "startingOffsets to earliest or latest, or to an offset per partition"
)
_COMMITS = "Spark's checkpoint keeps the offsets and the consumer commits none; leave it out"
_READ_BYTES = (
    "key and value are read as BINARY; convert the columns in Spark, for example with "
    "CAST(value AS STRING)"
)
_WRITE_BYTES = (
    "key and value are written as the BINARY or STRING columns contain them; "
    "convert the columns in Spark"
)
_JAVA_CLASS = "there is no JVM to load the class in; leave it out"
_LOADS_CODE = "it would load a native library on the driver and the executors"
_OWN = "pykafka sets it itself; leave it out"
_LOGIN_CLASS = (
    "there is no JVM to load the class in; "
    "for OAUTHBEARER use kafka.sasl.oauthbearer.method=oidc with librdkafka's "
    "sasl.oauthbearer.* settings"
)

#: The reason why a setting is rejected, with the client that it belongs to.
REJECTED: Mapping[str, tuple[Role, str]] = {
    "auto.offset.reset": (Role.CONSUMER, _OFFSETS),
    "enable.auto.commit": (Role.CONSUMER, _COMMITS),
    "auto.commit.enable": (Role.CONSUMER, _COMMITS),
    "enable.auto.offset.store": (Role.CONSUMER, _COMMITS),
    "offset.store.method": (Role.CONSUMER, _COMMITS),
    "offset.store.path": (Role.CONSUMER, _COMMITS),
    "offset.store.sync.interval.ms": (Role.CONSUMER, _COMMITS),
    "enable.partition.eof": (Role.CONSUMER, _OWN),
    "key.deserializer": (Role.CONSUMER, _READ_BYTES),
    "value.deserializer": (Role.CONSUMER, _READ_BYTES),
    "key.serializer": (Role.PRODUCER, _WRITE_BYTES),
    "value.serializer": (Role.PRODUCER, _WRITE_BYTES),
    "delivery.report.only.error": (Role.PRODUCER, _OWN),
    "produce.offset.report": (Role.PRODUCER, _OWN),
    "transactional.id": (
        Role.PRODUCER,
        "transactions belong to the sink's own tasks; leave it out",
    ),
    "transaction.two.phase.commit.enable": (
        Role.PRODUCER,
        "transactions belong to the sink's own tasks; leave it out",
    ),
    "metadata.broker.list": (Role.ANY, "name the brokers with kafka.bootstrap.servers"),
    "log.queue": (Role.ANY, _OWN),
    "interceptor.classes": (Role.ANY, _JAVA_CLASS),
    "security.providers": (Role.ANY, _JAVA_CLASS),
    "ssl.provider": (Role.ANY, _JAVA_CLASS),
    "ssl.engine.factory.class": (Role.ANY, _JAVA_CLASS),
    "sasl.login.class": (Role.ANY, _LOGIN_CLASS),
    "sasl.login.callback.handler.class": (Role.ANY, _LOGIN_CLASS),
    "sasl.client.callback.handler.class": (Role.ANY, _LOGIN_CLASS),
    "sasl.oauthbearer.jwt.retriever.class": (Role.ANY, _LOGIN_CLASS),
    "sasl.oauthbearer.jwt.validator.class": (Role.ANY, _LOGIN_CLASS),
    "plugin.library.paths": (Role.ANY, _LOADS_CODE),
    "ssl.engine.location": (Role.ANY, _LOADS_CODE),
    "ssl.engine.id": (Role.ANY, _LOADS_CODE),
    "ssl.providers": (Role.ANY, _LOADS_CODE),
    "sasl.kerberos.kinit.cmd": (
        Role.ANY,
        "it would run a command on the driver and the executors; put kinit on the PATH instead",
    ),
}

_IGNORED = """
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
auto.include.jmx.reporter socket.connection.setup.timeout.max.ms metadata.max.idle.ms
exclude.internal.topics partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms share.acknowledgement.mode
group.instance.id group.protocol group.protocol.type group.remote.assignor
partition.assignment.strategy heartbeat.interval.ms max.poll.interval.ms
max.poll.records auto.commit.interval.ms coordinator.query.interval.ms
ssl.protocol ssl.enabled.protocols ssl.trustmanager.algorithm ssl.keymanager.algorithm
ssl.secure.random.implementation
sasl.kerberos.ticket.renew.window.factor sasl.kerberos.ticket.renew.jitter
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.refresh.min.period.seconds sasl.login.refresh.buffer.seconds
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.header.urlencode
"""

#: Settings of the Java client and of librdkafka that have no effect; their names are logged once.
IGNORED: frozenset[str] = frozenset(_IGNORED.split())

#: Timeouts of the Java client that librdkafka lacks and the connector applies, with defaults (ms).
CONNECTOR_SETTINGS: Mapping[str, int] = {"max.block.ms": 60_000, "default.api.timeout.ms": 60_000}


def _integer(value: str) -> int:
    return int(value.strip())


def _or_system_default(value: str) -> str:
    # The operating system's default is -1 in the Java client, and 0 in librdkafka.
    return str(max(_integer(value), 0))


def _kilobytes(value: str) -> str:
    return str(max(math.ceil(_integer(value) / 1024), 1))


def _unchanged(value: str) -> str:
    return value


#: librdkafka's names of the Java client's settings, with the conversion of the value.
JAVA_ALIASES: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "max.request.size": ("message.max.bytes", _unchanged),
    "buffer.memory": ("queue.buffering.max.kbytes", _kilobytes),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", _or_system_default),
    "send.buffer.bytes": ("socket.send.buffer.bytes", _or_system_default),
    "fetch.max.wait.ms": ("fetch.wait.max.ms", _unchanged),
    "connections.max.idle.ms": ("connections.max.idle.ms", _or_system_default),
    # In Java 0 turns batching off; the closest is a batch size of one byte, which holds one record.
    "batch.size": ("batch.size", lambda value: str(max(_integer(value), 1))),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem", _unchanged),
    "ssl.keystore.key": ("ssl.key.pem", _unchanged),
    "ssl.truststore.certificates": ("ssl.ca.pem", _unchanged),
}

#: The settings of the Java client for compression levels, with their codecs.
LEVELS: Mapping[str, str] = {
    "compression.gzip.level": "gzip",
    "compression.lz4.level": "lz4",
    "compression.zstd.level": "zstd",
}
