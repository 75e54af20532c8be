"""
The recorded progress of a query while it runs, fails and ends, as other clients see it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from tests.support.group_tool import describe_group
from tests.support.proxied import ProxiedCluster
from tests.support.streams import SECONDS, Stream, texts, values

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_recorder, read_progress_records
from pyspark_pykafka.progress.listener import ProgressListener
from pyspark_pykafka.spark.compat import PASSES_START_OFFSET, arrow_schema, source_schema
from pyspark_pykafka.spark.stream_reader import KafkaStreamReader
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.record import ProgressRecord
    from pyspark_pykafka.testing import KafkaCluster, ZooKeeper
    from pyspark_pykafka.testing.plugin import TopicFactory

OFFSET_COMMIT = 8


@pytest.fixture(params=["consumerGroup", "zookeeper"])
def store_options(request: pytest.FixtureRequest, topic: TopicFactory) -> dict[str, str]:
    """
    Return a topic of two partitions and the options of each store in turn.
    """
    name = topic(2)
    if request.param == "consumerGroup":
        store = {"kafka.group.id": name, "kafka.session.timeout.ms": "3000"}
    else:
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        store = {
            "zookeeperHosts": zookeeper.hosts,
            "zookeeperId": name,
            "zookeeperSessionTimeoutMs": "3000",
        }
    return {"subscribe": name, "progressStore": request.param, **store}


#: Runs of `make test` with one store: test_progress_stores.py shows that all stores do the same.
one_store = pytest.mark.parametrize(
    "store_options",
    ["consumerGroup", pytest.param("zookeeper", marks=pytest.mark.soak)],
    indirect=True,
)


@pytest.fixture
def listening(spark: SparkSession) -> Iterator[Callable[[Stream], None]]:
    """
    Return a function that adds a listener for a stream; all are removed at the end.
    """
    added: list[ProgressListener] = []

    def add(query: Stream) -> None:
        added.append(ProgressListener(query.options))
        spark.streams.addListener(added[-1])

    yield add
    for listener in added:
        spark.streams.removeListener(listener)


def records(query: Stream) -> list[ProgressRecord]:
    """
    Return the records of the query's store, by partition.
    """
    return [
        record
        for _, record in sorted(read_progress_records(parse_stream_source(query.options)).items())
    ]


def offsets(query: Stream) -> list[int]:
    """
    Return the recorded offsets, by partition.
    """
    return [record.offset for record in records(query)]


def await_offsets(query: Stream, expected: list[int]) -> None:
    """
    Wait until these offsets are recorded.
    """

    def missing() -> str | None:
        recorded = offsets(query)
        return None if recorded == expected else f"recorded is {recorded}, not {expected}"

    wait_until(missing, SECONDS)


@pytest.mark.smoke
def test_last_batch_of_a_run_is_recorded(
    kafka_cluster: KafkaCluster,
    stream: Callable[..., Stream],
    store_options: dict[str, str],
    listening: Callable[[Stream], None],
) -> None:
    """
    After the run everything is recorded, with its owner; before Spark 4.2 by the listener.
    """
    kafka_cluster.produce(store_options["subscribe"], values(0, 10))
    query = stream(**store_options)
    if not PASSES_START_OFFSET:
        listening(query)

    query.drain()

    await_offsets(query, _ends(kafka_cluster, store_options["subscribe"]))
    owners = {record.owner.query for record in records(query) if record.owner}
    assert owners == {query.logged_offsets()[-1]["@query"]["id"]}


def test_kafka_tool_shows_the_lag(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], topic: TopicFactory
) -> None:
    """
    The lag is 0 while the query waits for new data, and grows while the query is stopped.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 10))
    query = stream(subscribe=name, progressStore="consumerGroup", **{"kafka.group.id": name})
    query.start()
    query.await_values(texts(0, 10))
    await_offsets(query, _ends(kafka_cluster, name))

    rows = describe_group(kafka_cluster.bootstrap, name)
    query.stop()
    kafka_cluster.produce(name, values(10, 13))
    later = describe_group(kafka_cluster.bootstrap, name)

    query_id = query.logged_offsets()[-1]["@query"]["id"]
    assert {row.lag for row in rows.values()} == {"0"}
    assert all(row.client.startswith(f"pykafka-{query_id}-") for row in rows.values())
    assert sum(int(row.lag) for row in later.values()) == 3
    assert sum(int(row.current) for row in later.values()) == 10


@one_store
def test_failed_batch_is_not_recorded(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], store_options: dict[str, str]
) -> None:
    """
    A failing batch leaves the offsets unchanged, and its next attempt is counted.
    """
    kafka_cluster.produce(store_options["subscribe"], values(0, 6))
    query = stream(**store_options)
    query.start()
    query.await_values(texts(0, 6))
    before = _ends(kafka_cluster, store_options["subscribe"])
    await_offsets(query, before)

    def counted() -> set[int]:
        return {record.failing.attempts for record in records(query) if record.failing}

    query.fail = True
    kafka_cluster.produce(store_options["subscribe"], values(6, 12))
    for expected in (set(), {2}, {3}):
        # A batch that is not recorded before the failure is not counted.
        query.before_failing = partial(await_attempts, counted, expected)
        assert query.query is not None
        with pytest.raises(Exception, match="planted failure"):
            query.query.awaitTermination(SECONDS)
        assert counted() == expected
        assert offsets(query) == before
        query.start()
    query.stop()
    query.fail = False
    query.start()

    query.await_values(texts(0, 12))
    await_offsets(query, _ends(kafka_cluster, store_options["subscribe"]))
    assert {record.failing for record in records(query)} == {None}


def await_attempts(counted: Callable[[], set[int]], expected: set[int]) -> None:
    """
    Wait until the store has counted this many attempts.
    """
    wait_until(lambda: None if counted() == expected else f"{counted()} attempts", SECONDS)


def test_commit_writes_the_offsets(
    kafka_cluster: KafkaCluster, store_options: dict[str, str]
) -> None:
    """
    Spark's commit is enough: no later call is needed to show that the batch is complete.
    """
    kafka_cluster.produce(store_options["subscribe"], values(0, 6))
    source_options = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "startingOffsets": "earliest",
        **store_options,
    }
    options = parse_stream_source(source_options)
    reader = KafkaStreamReader(options, arrow_schema(source_schema(include_headers=False)))
    start = reader.initialOffset()
    end = reader._stream.latest_offset(start)
    reader.partitions(start, end)
    assert read_progress_records(options) == {}

    for _ in range(2):
        reader.commit(end)
    reader._stream._progress.finish()

    assert {
        tp.partition: record.offset for tp, record in read_progress_records(options).items()
    } == dict(enumerate(_ends(kafka_cluster, store_options["subscribe"])))


def test_one_commit_request_per_batch() -> None:
    """
    Each completed batch with new records costs one commit request; repeated reports cost none.
    """
    with ProxiedCluster(brokers=1) as cluster:
        cluster.kafka.create_topic("costs", 3)
        source_options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": "costs",
            "progressStore": "consumerGroup",
            "kafka.group.id": "costs",
        }
        options = parse_stream_source(source_options)
        progress = make_progress_recorder(options)
        for batch in range(4):
            done = {TopicPartition("costs", number): batch for number in range(3)}
            for _ in range(3):
                progress.record_completed(StreamOffset(done, query=QueryIdentity("q", batch)))
            wait_until(partial(missing_offsets, options, batch), SECONDS)
        progress.finish()

        assert cluster.proxies[1].requests[OFFSET_COMMIT] == 4


def missing_offsets(options: SourceOptions, offset: int) -> str | None:
    """
    Return the partitions that are not yet recorded at an offset, as text, or None.
    """
    recorded = {record.offset for record in read_progress_records(options).values()}
    return None if recorded == {offset} else f"recorded is {recorded}, not {offset}"


@one_store
def test_committed_continues_from_another_query(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], store_options: dict[str, str]
) -> None:
    """
    With its own checkpoint and startingOffsets=committed, a query continues from the recorded
    offsets.
    """
    kafka_cluster.produce(store_options["subscribe"], values(0, 6))
    first = stream(**store_options)
    first.start()
    first.await_values(texts(0, 6))
    await_offsets(first, _ends(kafka_cluster, store_options["subscribe"]))
    first.stop()
    kafka_cluster.produce(store_options["subscribe"], values(6, 9))

    second = stream(**{**store_options, "startingOffsets": "committed"})
    second.start()

    second.await_values(texts(6, 9))
    await_offsets(second, _ends(kafka_cluster, store_options["subscribe"]))


@one_store
def test_two_queries_cannot_share_a_store(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], store_options: dict[str, str]
) -> None:
    """
    The second query fails with an error that names the first, which continues.
    """
    kafka_cluster.produce(store_options["subscribe"], values(0, 6))
    first, second = stream(**store_options), stream(**store_options)
    first.start()
    first.await_values(texts(0, 6))
    await_offsets(first, _ends(kafka_cluster, store_options["subscribe"]))

    query = second.start()
    with pytest.raises(Exception, match="PROGRESS_OWNED") as caught:
        query.awaitTermination(SECONDS)

    assert first.logged_offsets()[-1]["@query"]["id"] in str(caught.value)
    kafka_cluster.produce(store_options["subscribe"], values(6, 9))
    first.await_values(texts(0, 9))
    await_offsets(first, _ends(kafka_cluster, store_options["subscribe"]))


@one_store
def test_listener_records_the_end_of_a_query(
    kafka_cluster: KafkaCluster,
    stream: Callable[..., Stream],
    store_options: dict[str, str],
    listening: Callable[[Stream], None],
) -> None:
    """
    The listener records the end of a query that is stopped between batches, and of one that fails,
    with its error.
    """
    kafka_cluster.produce(store_options["subscribe"], values(0, 6))
    query = stream(**store_options)
    listening(query)
    running = query.start(processingTime="1 hour")
    query.await_values(texts(0, 6))
    wait_until(lambda: None if running.lastProgress else "no progress yet", SECONDS)
    running.stop()

    await_offsets(query, _ends(kafka_cluster, store_options["subscribe"]))

    query.fail = True
    query.start()
    kafka_cluster.produce(store_options["subscribe"], values(6, 9))
    with pytest.raises(Exception, match="planted failure"):
        query.query.awaitTermination(SECONDS)  # type: ignore[union-attr]

    def missing() -> str | None:
        failing = [record.failing for record in records(query) if record.failing]
        return None if failing and failing[0].cause else f"no cause: {failing}"

    wait_until(missing, SECONDS)


def test_listener_requires_a_store() -> None:
    """
    A listener without a progress store is rejected.
    """
    with pytest.raises(OptionsError, match="progressStore is 'none'; it must be: consumerGroup or"):
        ProgressListener({"kafka.bootstrap.servers": "b:1", "subscribe": "t"})


def test_zookeeper_nodes_have_the_fields_of_storms_spout(
    kafka_cluster: KafkaCluster,
    zookeeper: ZooKeeper,
    stream: Callable[..., Stream],
    topic: TopicFactory,
) -> None:
    """
    There is one node per id, topic and partition, with the fields of Storm's spout and ours.
    """
    name = topic(1)
    kafka_cluster.produce(name, values(0, 3))
    query = stream(
        subscribe=name, progressStore="zookeeper", zookeeperHosts=zookeeper.hosts, zookeeperId=name
    )
    query.start()
    await_offsets(query, [3])

    node = _node(zookeeper, f"/pykafka/{name}/{name}/partition_0")

    end = query.logged_offsets()[-1]
    host, port = kafka_cluster.bootstrap.split(":")
    assert node["topology"] == {"id": end["@query"]["id"], "name": end["@query"]["id"]}
    assert (node["offset"], node["partition"], node["topic"]) == (3, 0, name)
    assert node["broker"] == {"host": host, "port": int(port)}
    assert (node["batch"], node["topicId"]) == (0, end["@topicIds"][name])


def _node(zookeeper: ZooKeeper, path: str) -> dict[str, Any]:
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        node: dict[str, Any] = json.loads(client.get(path)[0])
        return node
    finally:
        client.stop()
        client.close()


def _ends(kafka: KafkaCluster, topic: str) -> list[int]:
    """
    Return the end offset of each partition, as a plain consumer sees it.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "ends"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), SECONDS)[1] for p in (0, 1)]
    consumer.close()
    return ends
