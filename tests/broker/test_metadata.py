"""
The driver's metadata requests: one suite for both engines.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import NewPartitions
from tests.support.metadata_backends import metadata_backend_of

from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.errors import TimeoutExceededError, UnknownTopicError
from pyspark_pykafka.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_pykafka.options import Assign, Subscribe, SubscribePattern
from pyspark_pykafka.retry import RetryPolicy
from pyspark_pykafka.settings import KafkaSettings
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from confluent_kafka import Producer

    from pyspark_pykafka.engines.metadata_contract import MetadataBackend

ENGINES = ("wire", "librdkafka")
SECONDS = 30


def metadata(
    bootstrap: str, engine: str, level: str = "read_uncommitted", **settings: str
) -> MetadataBackend:
    """
    Return a metadata backend; settings have underscores for dots.
    """
    kafka = {name.replace("_", "."): value for name, value in settings.items()}
    return metadata_backend_of(
        KafkaSettings.of({"bootstrap.servers": bootstrap, **kafka}), level, engine
    )


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """
    Return the name of each engine in turn.
    """
    return str(request.param)


@pytest.fixture
def backend(kafka_cluster: KafkaCluster, engine: str) -> MetadataBackend:
    """
    Return the engine under test's metadata backend for the shared broker.
    """
    return metadata(kafka_cluster.bootstrap, engine)


@pytest.fixture
def client(backend: MetadataBackend) -> MetadataClient:
    """
    Return a MetadataClient for the shared broker, without retries.
    """
    return MetadataClient(backend, RetryPolicy(1, 0))


def partitions_of(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def deleted(kafka: KafkaCluster, topic: str) -> None:
    """
    Delete a topic, and return once the broker no longer lists it.
    """
    admin = kafka.admin()
    admin.delete_topics([topic])[topic].result(SECONDS)
    wait_until(lambda: topic if topic in admin.list_topics(timeout=10).topics else None, SECONDS)


def test_topics_have_their_partitions_in_order(
    backend: MetadataBackend, topic: Callable[..., str]
) -> None:
    """
    Existing topics are returned with their ids; no topic is created.
    """
    single_partition, many = topic(), topic(12)

    partitions = backend.describe_topics({single_partition, many, "no-such-topic"})

    assert sorted(partitions) == sorted([single_partition, many])
    assert list(partitions[many].partitions) == list(range(12))
    assert partitions[single_partition].id != partitions[many].id
    assert not partitions[single_partition].is_internal
    assert backend.describe_topics({"no-such-topic"}) == {}


def test_engines_return_the_same_topic_ids(
    kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Both engines return the same topic ids, so that a checkpoint works with either of them.
    """
    names = {topic() for _ in range(12)}
    wire, librdkafka = (
        metadata(kafka_cluster.bootstrap, engine).describe_topics(names) for engine in ENGINES
    )

    assert wire == librdkafka


def test_matching_covers_all_topics(
    backend: MetadataBackend, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Internal topics are marked as such, so that the caller can leave them out.
    """
    name = topic(2)
    with_offsets(kafka_cluster, name)

    matching = backend.describe_matching_topics({name, "__consumer_offsets"}.__contains__)

    assert sorted(matching) == sorted([name, "__consumer_offsets"])
    assert matching["__consumer_offsets"].is_internal
    assert list(matching[name].partitions) == [0, 1]


def with_offsets(kafka: KafkaCluster, topic: str) -> None:
    """
    Commit an offset, which creates the internal offsets topic.
    """
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    consumer.commit(offsets=[Position(topic, 0, 1)], asynchronous=False)
    consumer.close()


def test_subscription_strategies(
    client: MetadataClient, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    A subscription selects whole topics, some partitions, or topics by a pattern, which never
    matches an internal topic.
    """
    name = topic(3)
    with_offsets(kafka_cluster, name)

    assert client.assignment(Subscribe((name,))).partitions == tuple(partitions_of(name, 0, 1, 2))
    assert client.assignment(Assign(tuple(partitions_of(name, 2, 7)))).partitions == tuple(
        partitions_of(name, 2)
    )
    selected = client.assignment(SubscribePattern(f"{name}|__consumer_offsets"))
    assert selected.partitions == tuple(partitions_of(name, 0, 1, 2))
    assert list(selected.topic_ids) == [name]
    with pytest.raises(UnknownTopicError, match="do not have the topic 'no-such-topic'"):
        client.assignment(Subscribe((name, "no-such-topic")))


def test_offsets_of_many_partitions(
    backend: MetadataBackend, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Start, end and timestamp offsets of two topics are read at once; -1 means that no record is that
    recent.
    """
    one, two = topic(), topic(200)
    kafka_cluster.produce(one, [Record(b"x", timestamp=1_000 * n) for n in range(1, 6)])
    kafka_cluster.produce(two, [Record(b"x", partition=p) for p in range(0, 200, 2)])
    first, rest = TopicPartition(one, 0), partitions_of(two, *range(200))

    latest = backend.list_offsets(dict.fromkeys([first, *rest], LATEST))
    assert latest == {first: 5, **{tp: 1 - tp.partition % 2 for tp in rest}}
    earliest = backend.list_offsets(dict.fromkeys([first, *rest], EARLIEST))
    assert earliest == dict.fromkeys([first, *rest], 0)
    assert backend.list_offsets({first: 2_500, rest[0]: 2**41, rest[1]: 0}) == {
        first: 2,
        rest[0]: -1,
        rest[1]: -1,
    }


def test_log_start_offset_follows_deletions(
    backend: MetadataBackend, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    The log start offset is that of the first record that was not deleted.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"x")] * 5)
    admin = kafka_cluster.admin()
    (deletion,) = admin.delete_records([Position(name, 0, 3)]).values()
    deletion.result(SECONDS)

    assert backend.list_offsets({TopicPartition(name, 0): EARLIEST}) == {TopicPartition(name, 0): 3}


def test_end_offsets_depend_on_the_isolation_level(
    kafka_cluster: KafkaCluster,
    engine: str,
    topic: Callable[..., str],
    transaction: Callable[[], AbstractContextManager[Producer]],
) -> None:
    """
    With an open transaction, read_committed ends before it and read_uncommitted after it.
    """
    name = topic()
    kafka_cluster.produce(name, [Record(b"x")] * 2)
    last = {TopicPartition(name, 0): LATEST}
    with transaction() as producer:
        producer.produce(name, b"open")
        producer.flush(SECONDS)
        ends = [
            metadata(kafka_cluster.bootstrap, engine, level).list_offsets(last)[
                TopicPartition(name, 0)
            ]
            for level in ("read_committed", "read_uncommitted")
        ]

    assert ends == [2, 3]


def test_missing_topic_has_no_offsets(backend: MetadataBackend, topic: Callable[..., str]) -> None:
    """
    A missing topic is left out, and other topics have their offsets.
    """
    name = topic(2)
    tps = [*partitions_of(name, 0, 1), TopicPartition("no-such-topic", 0)]

    assert backend.list_offsets(dict.fromkeys(tps, LATEST)) == dict.fromkeys(
        partitions_of(name, 0, 1), 0
    )


def test_missing_partition_has_no_offset(
    kafka_cluster: KafkaCluster, engine: str, topic: Callable[..., str]
) -> None:
    """
    A missing partition is left out, except by librdkafka, whose cached metadata may be old.
    """
    positions = dict.fromkeys(partitions_of(topic(2), 1, 2), LATEST)
    (existing, _) = positions
    backend = metadata(kafka_cluster.bootstrap, engine, default_api_timeout_ms="3000")

    if engine == "wire":
        assert backend.list_offsets(positions) == {existing: 0}
    else:
        with pytest.raises(UnknownTopicError, match="_UNKNOWN_PARTITION"):
            backend.list_offsets(positions)


def test_added_partition_has_an_offset(
    kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Cached metadata of the topic is not used for a partition that it lacks.
    """
    name = topic()
    backend = metadata(kafka_cluster.bootstrap, "wire")
    assert list(backend.describe_topics({name})[name].partitions) == [0]
    admin = kafka_cluster.admin()
    (future,) = admin.create_partitions([NewPartitions(name, 2)]).values()
    future.result(SECONDS)

    added = {TopicPartition(name, 1): LATEST}
    wait_until(lambda: None if backend.list_offsets(added) else "no partition 1", SECONDS)


def test_recreated_topic_has_new_offsets(
    backend: MetadataBackend, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    Cached metadata is used neither for a recreated topic, nor while the topic is deleted.
    """
    name = topic()
    positions = {TopicPartition(name, 0): LATEST}
    before = backend.describe_topics({name})[name]
    deleted(kafka_cluster, name)
    assert backend.list_offsets(positions) == {}

    backend.describe_topics({name})
    kafka_cluster.create_topic(name, 1)
    kafka_cluster.produce(name, [Record(b"x")])
    assert backend.list_offsets(positions) == {TopicPartition(name, 0): 1}
    assert backend.describe_topics({name})[name].id != before.id


def test_leader_addresses(
    backend: MetadataBackend, kafka_cluster: KafkaCluster, topic: Callable[..., str]
) -> None:
    """
    The single broker leads every partition.
    """
    name = topic(2)
    host, port = kafka_cluster.bootstrap.split(":")

    assert backend.leader_addresses({name}) == dict.fromkeys(
        partitions_of(name, 0, 1), (host, int(port))
    )


def test_invalid_topic_name_is_reported(kafka_cluster: KafkaCluster, engine: str) -> None:
    """
    An invalid topic name is an error that is not retried.
    """
    # Retries would exceed the time limit of the test.
    backend = metadata(kafka_cluster.bootstrap, engine, default_api_timeout_ms="3600000")

    with pytest.raises(UnknownTopicError, match="partitions of no topic: .*TOPIC_EXCEPTION"):
        backend.describe_topics({"no topic"})


@pytest.mark.parametrize(
    "send",
    [
        lambda backend: backend.describe_topics({"t"}),
        lambda backend: backend.describe_matching_topics(lambda _: True),
        lambda backend: backend.list_offsets({TopicPartition("t", 0): LATEST}),
    ],
    ids=["topics", "matching", "offsets"],
)
def test_unreachable_brokers_end_the_request(
    engine: str, send: Callable[[MetadataBackend], object]
) -> None:
    """
    The request ends after its timeout, with an error that says so.
    """
    started_at = time.monotonic()

    with pytest.raises(TimeoutExceededError) as caught:
        send(metadata("127.0.0.1:1", engine, default_api_timeout_ms="1500"))
    assert caught.value.retriable
    assert time.monotonic() - started_at > 1
