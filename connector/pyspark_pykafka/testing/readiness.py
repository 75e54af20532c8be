"""
Checks with an admin client whether a Kafka cluster or a topic is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, PartitionMetadata

REQUEST_SECONDS = 5.0

# A client may switch to other brokers once it knows them, so each check gets a new client.
NewAdmin = Callable[[], AdminClient]


def client_settings(bootstrap: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return librdkafka's settings for a test client: no log, short reconnect backoff.
    """
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        **config,
    }


def missing_brokers(
    new_admin: NewAdmin, expected: set[int], cluster_id: str | None = None
) -> str | None:
    """
    Return why these brokers do not form a cluster yet, or None if they do.

    With a cluster id, a response of another cluster that has taken the port does not count.
    """
    try:
        metadata = new_admin().list_topics(timeout=REQUEST_SECONDS)
    except KafkaException as error:
        return f"no response ({error.args[0].str()})."
    if cluster_id not in {None, metadata.cluster_id}:
        return f"another cluster, {metadata.cluster_id}, listens there."
    if metadata.controller_id < 0:
        return "the cluster has no controller."
    absent = expected - set(metadata.brokers)
    if absent:
        return f"brokers {sorted(absent)} have not joined, {sorted(metadata.brokers)} have."
    return _missing_partition(metadata, metadata.topics, expected)


def missing_topic(
    new_admin: NewAdmin, name: str, partitions: int, expected: set[int]
) -> str | None:
    """
    Return why a broker does not serve all partitions of a topic yet, or None if it does.
    """
    try:
        metadata = new_admin().list_topics(timeout=REQUEST_SECONDS)
    except KafkaException as error:
        return f"no response ({error.args[0].str()})."
    missing = _missing_partition(metadata, [name], expected)
    if missing is None and len(metadata.topics[name].partitions) < partitions:
        return f"topic {name} does not have all of its {partitions} partitions yet."
    return missing


def creation_blocker(new_admin: NewAdmin, topic: NewTopic) -> str | None:
    """
    Create a topic; return why that failed if a retry may succeed, and raise if not.

    If a broker hangs, a retry may reach another one. The broker that hangs may have created the
    topic all the same, so the retry can find that the topic exists.
    """
    admin = new_admin()
    future = admin.create_topics([topic], request_timeout=REQUEST_SECONDS)[topic.topic]
    try:
        future.result(timeout=2 * REQUEST_SECONDS)
    except FutureTimeoutError:
        return "no response."
    except KafkaException as error:
        if error.args[0].code() in _RETRIABLE:
            return f"{error.args[0].str()}."
        raise
    return None


def already_exists(error: KafkaException) -> bool:
    """
    Return whether a topic could not be created because it exists.
    """
    return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)


def is_missing(error: KafkaException) -> bool:
    """
    Return whether a topic could not be deleted because it does not exist.
    """
    return bool(error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)


def _missing_partition(
    metadata: ClusterMetadata, topics: Iterable[str], expected: set[int]
) -> str | None:
    for name in topics:
        topic = metadata.topics.get(name)
        if topic is None or topic.error is not None or not topic.partitions:
            return f"topic {name} is not known yet."
        for partition in topic.partitions.values():
            if not _is_fully_replicated(partition, expected):
                return f"partition {partition.id} of {name} lacks a leader or an in-sync replica."
    return None


def _is_fully_replicated(partition: PartitionMetadata, expected: set[int]) -> bool:
    replicas = set(partition.replicas)
    running = replicas & expected if expected else replicas
    if not running:
        # All replicas are on brokers that are down.
        return True
    return partition.leader in running and running <= set(partition.isrs)


_RETRIABLE = {
    # librdkafka's own codes begin with an underscore.
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
}
