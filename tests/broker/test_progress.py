"""
What others see of a query's progress while it runs, fails and ends.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from tests.support.group_tool import described
from tests.support.proxied import ProxiedCluster
from tests.support.streams import SECONDS, Stream, texts, values

from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import QueryIdentity, StreamOffset, TopicPartition
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.progress.factory import make_progress_sink, read_records
from pyspark_pykafka.progress.listener import ProgressListener
from pyspark_pykafka.spark.compat import PASSES_START_OFFSET, arrow_schema, source_schema
from pyspark_pykafka.spark.stream_reader import KafkaStreamReader
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pyspark_pykafka.options import SourceOptions
    from pyspark_pykafka.progress.record import Record
    from pyspark_pykafka.testing import KafkaCluster, ZooKeeper
    from pyspark_pykafka.testing.plugin import NewTopicName

OFFSET_COMMIT = 8


@pytest.fixture(params=["consumerGroup", "zookeeper"])
def kept(request: pytest.FixtureRequest, topic: NewTopicName) -> dict[str, str]:
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


@pytest.fixture
def listening(spark: SparkSession) -> Iterator[Callable[[Stream], None]]:
    """
    Return the way to add a listener for a stream; all are taken away at the end.
    """
    added: list[ProgressListener] = []

    def add(query: Stream) -> None:
        added.append(ProgressListener(query.options))
        spark.streams.addListener(added[-1])

    yield add
    for listener in added:
        spark.streams.removeListener(listener)


def records(query: Stream) -> list[Record]:
    """
    Return what the query's store holds, by partition.
    """
    return [
        record for _, record in sorted(read_records(parse_stream_source(query.options)).items())
    ]


def offsets(query: Stream) -> list[int]:
    """
    Return the recorded offsets, by partition.
    """
    return [record.offset for record in records(query)]


def await_offsets(query: Stream, wanted: list[int]) -> None:
    """
    Wait until these are recorded.
    """

    def missing() -> str | None:
        found = offsets(query)
        return None if found == wanted else f"recorded is {found}, not {wanted}"

    wait_until(missing, SECONDS)


@pytest.mark.smoke
def test_the_last_batch_of_a_run_is_recorded(
    kafka_cluster: KafkaCluster,
    stream: Callable[..., Stream],
    kept: dict[str, str],
    listening: Callable[[Stream], None],
) -> None:
    """
    When the run has ended all is recorded, with who did it; before Spark 4.2 by the listener.
    """
    kafka_cluster.produce(kept["subscribe"], values(0, 10))
    query = stream(**kept)
    if not PASSES_START_OFFSET:
        listening(query)

    query.drain()

    await_offsets(query, _ends(kafka_cluster, kept["subscribe"]))
    owners = {record.owner.query for record in records(query) if record.owner}
    assert owners == {query.logged_offsets()[-1]["@query"]["id"]}


def test_kafkas_tool_shows_no_lag(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], topic: NewTopicName
) -> None:
    """
    While the query waits for more, without new data; and the lag there is while it is stopped.
    """
    name = topic(2)
    kafka_cluster.produce(name, values(0, 10))
    query = stream(subscribe=name, progressStore="consumerGroup", **{"kafka.group.id": name})
    query.start()
    query.await_values(texts(0, 10))
    await_offsets(query, _ends(kafka_cluster, name))

    shown = described(kafka_cluster.bootstrap, name)
    query.stop()
    kafka_cluster.produce(name, values(10, 13))
    later = described(kafka_cluster.bootstrap, name)

    query_id = query.logged_offsets()[-1]["@query"]["id"]
    assert {(row.lag, row.client) for row in shown.values()} == {("0", f"pykafka-{query_id}")}
    assert sum(int(row.lag) for row in later.values()) == 3
    assert sum(int(row.current) for row in later.values()) == 10


def test_nothing_is_recorded_before_its_batch_is_complete(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], kept: dict[str, str]
) -> None:
    """
    A batch that fails leaves the offsets as they were, and its next attempt is counted.
    """
    kafka_cluster.produce(kept["subscribe"], values(0, 6))
    query = stream(**kept)
    query.start()
    query.await_values(texts(0, 6))
    before = _ends(kafka_cluster, kept["subscribe"])
    await_offsets(query, before)

    def counted() -> set[int]:
        return {record.failing.attempts for record in records(query) if record.failing}

    query.fail = True
    kafka_cluster.produce(kept["subscribe"], values(6, 12))
    for expected in (set(), {2}, {3}):
        # What the store has not heard of when the batch fails is not counted.
        query.before_failing = partial(await_counted, counted, expected)
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
    await_offsets(query, _ends(kafka_cluster, kept["subscribe"]))
    assert {record.failing for record in records(query)} == {None}


def await_counted(counted: Callable[[], set[int]], expected: set[int]) -> None:
    """
    Return once the store has counted so many attempts.
    """
    wait_until(lambda: None if counted() == expected else f"{counted()} attempts", SECONDS)


def test_commit_writes_the_offsets(kafka_cluster: KafkaCluster, kept: dict[str, str]) -> None:
    """
    Spark's commit is enough: no later question is needed to show that the batch is complete.
    """
    kafka_cluster.produce(kept["subscribe"], values(0, 6))
    given = {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap,
        "startingOffsets": "earliest",
        **kept,
    }
    options = parse_stream_source(given)
    reader = KafkaStreamReader(options, arrow_schema(source_schema(include_headers=False)))
    start = reader.initialOffset()
    end = reader._stream.latest_offset(start)
    reader.partitions(start, end)
    assert read_records(options) == {}

    for _ in range(2):
        reader.commit(end)
    reader._stream._progress.finish()

    assert {tp.partition: record.offset for tp, record in read_records(options).items()} == dict(
        enumerate(_ends(kafka_cluster, kept["subscribe"]))
    )


def test_what_a_group_costs_the_brokers() -> None:
    """
    One commit for each completed batch that read something, and none for those told of again.
    """
    with ProxiedCluster(brokers=1) as cluster:
        cluster.kafka.create_topic("costs", 3)
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": "costs",
            "progressStore": "consumerGroup",
            "kafka.group.id": "costs",
        }
        options = parse_stream_source(given)
        progress = make_progress_sink(options)
        for batch in range(4):
            done = {TopicPartition("costs", at): batch for at in range(3)}
            for _ in range(3):
                progress.record_completed(StreamOffset(done, query=QueryIdentity("q", batch)))
            wait_until(partial(unrecorded, options, batch), SECONDS)
        progress.finish()

        assert cluster.proxies[1].requests[OFFSET_COMMIT] == 4


def unrecorded(options: SourceOptions, offset: int) -> str | None:
    """
    Return what is missing until all partitions are recorded at an offset.
    """
    found = {record.offset for record in read_records(options).values()}
    return None if found == {offset} else f"recorded is {found}, not {offset}"


def test_another_query_goes_on_where_one_left(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], kept: dict[str, str]
) -> None:
    """
    With a checkpoint of its own and startingOffsets=committed, in a stream and in a batch.
    """
    kafka_cluster.produce(kept["subscribe"], values(0, 6))
    first = stream(**kept)
    first.start()
    first.await_values(texts(0, 6))
    await_offsets(first, _ends(kafka_cluster, kept["subscribe"]))
    first.stop()
    kafka_cluster.produce(kept["subscribe"], values(6, 9))

    second = stream(**{**kept, "startingOffsets": "committed"})
    second.start()

    second.await_values(texts(6, 9))
    await_offsets(second, _ends(kafka_cluster, kept["subscribe"]))


def test_two_queries_cannot_record_in_one_place(
    kafka_cluster: KafkaCluster, stream: Callable[..., Stream], kept: dict[str, str]
) -> None:
    """
    The second ends with an error that names the first, which goes on.
    """
    kafka_cluster.produce(kept["subscribe"], values(0, 6))
    first, second = stream(**kept), stream(**kept)
    first.start()
    first.await_values(texts(0, 6))
    await_offsets(first, _ends(kafka_cluster, kept["subscribe"]))

    refused = second.start()
    with pytest.raises(Exception, match="PROGRESS_OWNED") as caught:
        refused.awaitTermination(SECONDS)

    assert first.logged_offsets()[-1]["@query"]["id"] in str(caught.value)
    kafka_cluster.produce(kept["subscribe"], values(6, 9))
    first.await_values(texts(0, 9))
    await_offsets(first, _ends(kafka_cluster, kept["subscribe"]))


def test_the_listener_records_what_a_stopped_query_could_not(
    kafka_cluster: KafkaCluster,
    stream: Callable[..., Stream],
    kept: dict[str, str],
    listening: Callable[[Stream], None],
) -> None:
    """
    A query that is stopped in the pause after its batch, and one that fails: its cause is kept.
    """
    kafka_cluster.produce(kept["subscribe"], values(0, 6))
    query = stream(**kept)
    listening(query)
    running = query.start(processingTime="1 hour")
    query.await_values(texts(0, 6))
    wait_until(lambda: None if running.lastProgress else "no progress yet", SECONDS)
    running.stop()

    await_offsets(query, _ends(kafka_cluster, kept["subscribe"]))

    query.fail = True
    query.start()
    kafka_cluster.produce(kept["subscribe"], values(6, 9))
    with pytest.raises(Exception, match="planted failure"):
        query.query.awaitTermination(SECONDS)  # type: ignore[union-attr]

    def missing() -> str | None:
        found = [record.failing for record in records(query) if record.failing]
        return None if found and found[0].cause else f"no cause: {found}"

    wait_until(missing, SECONDS)


def test_a_listener_without_a_store_is_told() -> None:
    """
    It would have nothing to do.
    """
    with pytest.raises(OptionsError, match="progressStore is 'none'; it must be: consumerGroup or"):
        ProgressListener({"kafka.bootstrap.servers": "b:1", "subscribe": "t"})


def test_zookeeper_has_the_records_of_storms_spout(
    kafka_cluster: KafkaCluster,
    zookeeper: ZooKeeper,
    stream: Callable[..., Stream],
    topic: NewTopicName,
) -> None:
    """
    One node per id, topic and partition, with the article's fields and ours.
    """
    name = topic(1)
    kafka_cluster.produce(name, values(0, 3))
    query = stream(
        subscribe=name, progressStore="zookeeper", zookeeperHosts=zookeeper.hosts, zookeeperId=name
    )
    query.start()
    await_offsets(query, [3])

    node = _node(zookeeper, f"/pykafka/{name}/{name}/partition_0")

    mark = query.logged_offsets()[-1]
    host, port = kafka_cluster.bootstrap.split(":")
    assert node["topology"] == {"id": mark["@query"]["id"], "name": mark["@query"]["id"]}
    assert (node["offset"], node["partition"], node["topic"]) == (3, 0, name)
    assert node["broker"] == {"host": host, "port": int(port)}
    assert (node["batch"], node["topicId"]) == (0, mark["@topicIds"][name])


def _node(zookeeper: ZooKeeper, path: str) -> dict[str, Any]:
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        found: dict[str, Any] = json.loads(client.get(path)[0])
        return found
    finally:
        client.stop()
        client.close()


def _ends(kafka: KafkaCluster, topic: str) -> list[int]:
    """
    Return the end of each partition, as a plain consumer sees it.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "ends"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, p), SECONDS)[1] for p in (0, 1)]
    consumer.close()
    return found
