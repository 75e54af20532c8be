"""
Makes the configuration of librdkafka's clients from the user's settings and Java's defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.settings import CONNECTOR_SETTINGS, Role, translate

if TYPE_CHECKING:
    from pyspark_pykafka.settings import KafkaSettings

_REQUEST_TIMEOUT_MS = 30_000
_MAX_REQUEST_BYTES = 1_048_576
_DELIVERY_TIMEOUT_MS = 120_000
_BUFFER_KBYTES = 65_536
_TRANSACTION_TIMEOUT_MS = 900_000

# The user's settings take precedence over these.
_DEFAULTS: dict[str, str] = {
    "client.id": "pykafka",
    "socket.keepalive.enable": "true",
    # Java's default; with librdkafka's 10 s, a restarted broker is noticed late.
    "reconnect.backoff.max.ms": "1000",
    # Metrics pushed to the brokers (KIP-714) would double the requests of a short-lived client.
    "enable.metrics.push": "false",
}

# The driver's clients log only critical messages. By default librdkafka logs each attempt to
# connect, about 20 a second while no broker can be reached; the error of a request has the reason.
# `debug` overrides this.
_QUIET: dict[str, str] = {"log_level": "2"}

_CONSUMER_DEFAULTS: dict[str, str] = {
    **_DEFAULTS,
    "isolation.level": "read_uncommitted",
    "check.crcs": "true",
    # How long the broker holds a fetch at the end of the log, where a range ends.
    "fetch.wait.max.ms": "100",
    # With librdkafka's 1 s, a reader whose queue was full stalls once it has emptied the queue.
    "fetch.queue.backoff.ms": "20",
    "fetch.error.backoff.ms": "100",
}

_CONSUMER_FIXED: dict[str, str] = {
    # A missing offset must be reported, never replaced by another.
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # This event is the only sign that a range ends in control or aborted records, which librdkafka
    # hides.
    "enable.partition.eof": "true",
}

_PRODUCER_DEFAULTS: dict[str, str] = {
    **_DEFAULTS,
    "enable.idempotence": "true",
    # Java's murmur2: a key must go to the same partition as with the JVM connector's sink.
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": str(_DELIVERY_TIMEOUT_MS),
    "message.max.bytes": str(_MAX_REQUEST_BYTES),
}

_PRODUCER_FIXED: dict[str, str] = {"acks": "-1"}


def consumer_config(
    kafka: KafkaSettings, *, group_id: str, isolation_level: str | None = None
) -> dict[str, str]:
    """
    Return a consumer's configuration; the user's group id takes precedence over ``group_id``.

    Raises :class:`OptionsError` if a setting is invalid.
    """
    user = _translated(kafka, Role.CONSUMER)
    config = {**_CONSUMER_DEFAULTS, "group.id": group_id, **user, **_CONSUMER_FIXED}
    if isolation_level is not None:
        config["isolation.level"] = isolation_level
    return _with_socket_timeout(config)


def group_config(kafka: KafkaSettings, group: str) -> dict[str, str]:
    """
    Return the configuration of the driver's consumer that only fetches and commits offsets.

    Raises :class:`OptionsError` if a setting is invalid.
    """
    return {**_QUIET, **consumer_config(kafka, group_id=group)}


def producer_config(kafka: KafkaSettings) -> dict[str, str]:
    """
    Return a producer's configuration: idempotent, all acknowledgements, Java's partitioning.

    Raises :class:`OptionsError` if a setting is invalid.
    """
    config = {**_PRODUCER_DEFAULTS, **_translated(kafka, Role.PRODUCER), **_PRODUCER_FIXED}
    # The buffer must hold the largest request, or that request could never be sent.
    largest = 2 * int(config["message.max.bytes"]) // 1024
    config.setdefault("queue.buffering.max.kbytes", str(max(_BUFFER_KBYTES, largest)))
    return _with_socket_timeout(config)


def admin_config(kafka: KafkaSettings) -> dict[str, str]:
    """
    Return the configuration of the driver's admin client, for metadata and offsets.

    Raises :class:`OptionsError` if a setting is invalid.
    """
    return _with_socket_timeout({**_DEFAULTS, **_QUIET, **_translated(kafka, Role.ANY)})


def max_block_ms(kafka: KafkaSettings) -> int:
    """
    Return how long a producer waits for free buffer memory, or for a topic's metadata.
    """
    return _connector_setting(kafka, "max.block.ms")


def api_timeout_ms(kafka: KafkaSettings) -> int:
    """
    Return the timeout of the driver's metadata requests, retries included.
    """
    return _connector_setting(kafka, "default.api.timeout.ms")


def delivery_timeout_ms(kafka: KafkaSettings) -> int:
    """
    Return the timeout of a record from the producer's buffer to its acknowledgement (KIP-91).
    """
    return int(producer_config(kafka)["delivery.timeout.ms"])


def transaction_timeout_ms(kafka: KafkaSettings) -> int:
    """
    Return the transaction timeout, in ms. It must cover the time from a task's first record until
    the driver has committed, after all tasks have finished.

    The default equals the default of the brokers' limit, ``transaction.max.timeout.ms``. Java's
    default of one minute suits a process that commits its own transactions.
    """
    return int(producer_config(kafka).get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))


def _connector_setting(kafka: KafkaSettings, name: str) -> int:
    return int(kafka.get(name, str(CONNECTOR_SETTINGS[name])))


def _translated(kafka: KafkaSettings, role: Role) -> dict[str, str]:
    translation = translate(kafka, role)
    if translation.mistakes:
        raise OptionsError(translation.mistakes)
    return translation.properties


def _with_socket_timeout(config: dict[str, str]) -> dict[str, str]:
    # librdkafka rejects a fetch wait that is longer than the socket timeout.
    min_timeout = int(config.get("fetch.wait.max.ms", "0")) + 1_000
    config.setdefault("socket.timeout.ms", str(max(_REQUEST_TIMEOUT_MS, min_timeout)))
    return config
