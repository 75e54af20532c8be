"""Asks a Kafka cluster how it is: the only way we know that it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, PartitionMetadata

ASK_SECONDS = 5.0

# A client goes on to ask other brokers once it knows them, so each question gets a new client.
NewAdmin = Callable[[], AdminClient]


def client(bootstrap: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's settings for one of our own clients: quiet, and quick to try again."""
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
    Say what keeps these brokers from being a whole cluster, or None if nothing does.

    With a cluster id, an answer from another cluster that has taken the port does not count.
    """
    try:
        metadata = new_admin().list_topics(timeout=ASK_SECONDS)
    except KafkaException as error:
        return f"no answer ({error.args[0].str()})."
    if cluster_id not in {None, metadata.cluster_id}:
        return f"another cluster, {metadata.cluster_id}, answers there."
    if metadata.controller_id < 0:
        return "the cluster has no controller."
    absent = expected - set(metadata.brokers)
    if absent:
        return f"brokers {sorted(absent)} have not joined, {sorted(metadata.brokers)} have."
    return _unserved(metadata, metadata.topics, expected)


def missing_topic(
    new_admin: NewAdmin, name: str, partitions: int, expected: set[int]
) -> str | None:
    """Say why a broker doesn't serve a whole topic yet, or None if it does."""
    try:
        metadata = new_admin().list_topics(timeout=ASK_SECONDS)
    except KafkaException as error:
        return f"no answer ({error.args[0].str()})."
    unserved = _unserved(metadata, [name], expected)
    if unserved is None and len(metadata.topics[name].partitions) < partitions:
        return f"topic {name} has not all of its {partitions} partitions yet."
    return unserved


def creation_blocker(new_admin: NewAdmin, topic: NewTopic) -> str | None:
    """
    Create a topic; say why it could not be done if it is worth another try, else raise.

    A broker that hangs is what another try gets around. Whether it did create the topic can't be
    known then, so the caller may find that the topic exists.
    """
    admin = new_admin()
    future = admin.create_topics([topic], request_timeout=ASK_SECONDS)[topic.topic]
    try:
        future.result(timeout=2 * ASK_SECONDS)
    except FutureTimeoutError:
        return "no answer."
    except KafkaException as error:
        if error.args[0].code() in _WORTH_ANOTHER_TRY:
            return f"{error.args[0].str()}."
        raise
    return None


def is_already_there(error: KafkaException) -> bool:
    """Tell whether a topic could not be created because it exists."""
    return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)


def _unserved(metadata: ClusterMetadata, topics: Iterable[str], expected: set[int]) -> str | None:
    for name in topics:
        topic = metadata.topics.get(name)
        if topic is None or topic.error is not None or not topic.partitions:
            return f"topic {name} is not known yet."
        for partition in topic.partitions.values():
            if not _is_as_whole_as_can_be(partition, expected):
                return f"partition {partition.id} of {name} lacks a leader or an in-sync copy."
    return None


def _is_as_whole_as_can_be(partition: PartitionMetadata, expected: set[int]) -> bool:
    copies = set(partition.replicas)
    wanted = copies & expected if expected else copies
    if not wanted:
        # All its copies are on brokers that are down.
        return True
    return partition.leader in wanted and wanted <= set(partition.isrs)


_WORTH_ANOTHER_TRY = {
    # So are the client's own codes called, by an underscore.
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
}
