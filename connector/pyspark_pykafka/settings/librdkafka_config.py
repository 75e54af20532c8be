"""
From the user's settings to a librdkafka client's configuration, with the Java client's defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.settings import CONNECTOR_SETTINGS, Role, translate

if TYPE_CHECKING:
    from pyspark_pykafka.settings import KafkaSettings

_REQUEST_TIMEOUT_MS = 30_000
_MAX_REQUEST_BYTES = 1_048_576
_DELIVERY_TIMEOUT_MS = 120_000
_BUFFER_KBYTES = 65_536
_TRANSACTION_TIMEOUT_MS = 900_000

# Every one of these gives way to the user's own setting.
_DEFAULTS: dict[str, str] = {
    "client.id": "pykafka",
    "socket.keepalive.enable": "true",
    # Java's; with librdkafka's 10 s a broker that is back is noticed late.
    "reconnect.backoff.max.ms": "1000",
    # Clients live for a task: metrics pushed to the brokers (KIP-714) would double their requests.
    "enable.metrics.push": "false",
}

_CONSUMER_DEFAULTS: dict[str, str] = {
    **_DEFAULTS,
    "isolation.level": "read_uncommitted",
    "check.crcs": "true",
    # The broker holds a fetch at the end of the log so long, and the end is all a range waits for.
    "fetch.wait.max.ms": "100",
    # librdkafka's 1 s stalls a reader that has emptied its full queue.
    "fetch.queue.backoff.ms": "20",
    "fetch.error.backoff.ms": "100",
}

_CONSUMER_OWN: dict[str, str] = {
    # An offset that is gone must be told, never be replaced by another.
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # The only sign that a range ends in control or aborted records, which are never delivered.
    "enable.partition.eof": "true",
}

_PRODUCER_DEFAULTS: dict[str, str] = {
    **_DEFAULTS,
    "enable.idempotence": "true",
    # Java's murmur2: the same key must go where the JVM connector's sink puts it.
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": str(_DELIVERY_TIMEOUT_MS),
    "message.max.bytes": str(_MAX_REQUEST_BYTES),
}

_PRODUCER_OWN: dict[str, str] = {"acks": "-1"}


def consumer_config(
    kafka: KafkaSettings, *, group_id: str, isolation_level: str | None = None
) -> dict[str, Any]:
    """
    Return the configuration of a reader; the user's own group id wins over ``group_id``.

    Raises :class:`OptionsError` if no client can be made of the settings.
    """
    user = _translated(kafka, Role.CONSUMER)
    config = {**_CONSUMER_DEFAULTS, "group.id": group_id, **user, **_CONSUMER_OWN}
    if isolation_level is not None:
        config["isolation.level"] = isolation_level
    return _with_socket_timeout(config)


def producer_config(kafka: KafkaSettings) -> dict[str, Any]:
    """
    Return the configuration of a writer: idempotent, all acknowledgements, Java's partitioning.

    Raises :class:`OptionsError` if no client can be made of the settings.
    """
    config = {**_PRODUCER_DEFAULTS, **_translated(kafka, Role.PRODUCER), **_PRODUCER_OWN}
    # The buffer must hold the largest request at least, or that one could never be sent.
    largest = 2 * int(config["message.max.bytes"]) // 1024
    config.setdefault("queue.buffering.max.kbytes", str(max(_BUFFER_KBYTES, largest)))
    return _with_socket_timeout(config)


def admin_config(kafka: KafkaSettings) -> dict[str, Any]:
    """
    Return the configuration of the driver's client for metadata and offsets.

    Raises :class:`OptionsError` if no client can be made of the settings.
    """
    return _with_socket_timeout({**_DEFAULTS, **_translated(kafka, Role.ANY)})


def max_block_ms(kafka: KafkaSettings) -> int:
    """
    Return how long a writer waits for room in its buffer, or for a topic's metadata.
    """
    return _kept(kafka, "max.block.ms")


def api_timeout_ms(kafka: KafkaSettings) -> int:
    """
    Return how long a question of the driver's may take in all.
    """
    return _kept(kafka, "default.api.timeout.ms")


def delivery_timeout_ms(kafka: KafkaSettings) -> int:
    """
    Return how long a record may take from the writer's hand to its acknowledgement.
    """
    return int(producer_config(kafka)["delivery.timeout.ms"])


def transaction_timeout_ms(kafka: KafkaSettings) -> int:
    """
    Return how long a transaction may be open: from a task's first record to the end of all tasks.

    The brokers' usual most (``transaction.max.timeout.ms``), where the user gave none: Java's
    minute is for one process that commits by itself.
    """
    return int(producer_config(kafka).get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))


def _kept(kafka: KafkaSettings, name: str) -> int:
    return int(kafka.get(name, str(CONNECTOR_SETTINGS[name])))


def _translated(kafka: KafkaSettings, role: Role) -> dict[str, str]:
    translation = translate(kafka, role)
    if translation.mistakes:
        raise OptionsError(translation.mistakes)
    return translation.properties


def _with_socket_timeout(config: dict[str, Any]) -> dict[str, Any]:
    # librdkafka refuses a fetch that may outlast its socket.
    patience = int(config.get("fetch.wait.max.ms", "0")) + 1_000
    config.setdefault("socket.timeout.ms", str(max(_REQUEST_TIMEOUT_MS, patience)))
    return config
