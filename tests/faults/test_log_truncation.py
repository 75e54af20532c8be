"""
A log that lost its last records and has other records at their offsets: only leader epochs show the
loss.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import NewTopic
from tests.support import fetching
from tests.support.metadata_backends import metadata_backend_of
from tests.support.streams import Stream

from pyspark_pykafka.engines.log_truncation import LOG_TRUNCATED
from pyspark_pykafka.engines.metadata import MetadataClient
from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.errors import DataLossError
from pyspark_pykafka.offsets import LEADER_EPOCHS
from pyspark_pykafka.options import parse_stream_source
from pyspark_pykafka.source.micro_batch_stream import MicroBatchStream
from pyspark_pykafka.testing import KafkaCluster, Record
from pyspark_pykafka.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyspark_pykafka.offsets import OffsetRange

SECONDS = 90.0
ENGINES = ("wire", "librdkafka")
#: The number of records before the lost ones, up to the streams' offsets, and in all.
KEPT, SEEN, GROWN = 100, 200, 250
AGED = "aged"
BASE_OFFSET, LENGTH, BEFORE_LENGTH = slice(0, 8), slice(8, 12), 12


@dataclass
class Scene:
    """
    A topic whose log was replaced, and the offsets that a stream of each engine had before.
    """

    cluster: KafkaCluster
    topic: str
    first: dict[str, Any]
    seen: dict[str, Any]
    planned: dict[str, OffsetRange]
    query: Stream
    aged: dict[str, Any]

    def batches(self, engine: str, **changed: str) -> MicroBatchStream:
        """
        Return a stream's planning process.
        """
        return batches(self.cluster, self.topic, engine, **changed)

    def read(self, offset_range: OffsetRange, engine: str, *, fail: bool = True) -> list[bytes]:
        """
        Return the values that a task reads.
        """
        return read(self.cluster, offset_range, engine, fail=fail)


def read(
    cluster: KafkaCluster, offset_range: OffsetRange, engine: str, *, fail: bool = True
) -> list[bytes]:
    """
    Return the values that a task reads.
    """
    fetch_settings = fetching.settings(
        cluster.bootstrap, engine, schema=fetching.VALUES, fail_on_data_loss=fail
    )
    return [
        value
        for batch in fetch(offset_range, fetch_settings)
        for value in batch["value"].to_pylist()
    ]


def batches(cluster: KafkaCluster, topic: str, engine: str, **changed: str) -> MicroBatchStream:
    """
    Return the planning process of a stream, with the metadata of an engine.
    """
    source_options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "engine": engine,
        **changed,
    }
    options = parse_stream_source(source_options)
    backend = metadata_backend_of(options.kafka, options.isolation_level, engine)
    client = MetadataClient(backend, options.fetch_offset_retry)
    return MicroBatchStream(options, client, lambda _: {})


def numbered(prefix: str, start: int, end: int) -> list[Record]:
    """
    Return numbered records.
    """
    return [Record(f"{prefix} {number}".encode()) for number in range(start, end)]


def values(prefix: str, start: int, end: int) -> list[bytes]:
    """
    Return the values of numbered records.
    """
    return [f"{prefix} {number}".encode() for number in range(start, end)]


def cut(data_folder: Path, topic: str, end: int) -> None:
    """
    Remove the records from an offset on from a stopped broker's log, as a lost disk cache would.
    """
    (segment,) = data_folder.glob(f"{topic}-0/*.log")
    data, position = segment.read_bytes(), 0
    while int.from_bytes(data[position:][BASE_OFFSET], "big") < end:
        position += BEFORE_LENGTH + int.from_bytes(data[position:][LENGTH], "big")
    assert 0 < position < len(data)
    segment.write_bytes(data[:position])
    for index in segment.parent.glob("*index"):
        index.unlink()


def aging(cluster: KafkaCluster) -> dict[str, Any]:
    """
    Fill a topic whose log is not truncated, and return the offset that a stream has reached in it.
    """
    cluster.create_topic(AGED)
    cluster.produce(AGED, numbered("old", 0, SEEN))
    stream = batches(cluster, AGED, "wire")
    return stream.latest_offset(stream.initial_offset())


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """
    Return a topic whose broker lost the second hundred records after a stream had seen them.
    """
    with KafkaCluster() as cluster:
        topic = cluster.create_topic("replaced")
        cluster.produce(topic, numbered("old", 0, KEPT))
        streams = {engine: batches(cluster, topic, engine) for engine in ENGINES}
        first = {
            engine: stream.latest_offset(stream.initial_offset())
            for engine, stream in streams.items()
        }
        cluster.produce(topic, numbered("old", KEPT, SEEN))
        ends = {engine: stream.latest_offset(first[engine]) for engine, stream in streams.items()}
        planned = {
            engine: stream.plan(first[engine], ends[engine]).ranges[0]
            for engine, stream in streams.items()
        }
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
        query = Stream(spark, options, str(tmp_path_factory.mktemp("checkpoint")))
        query.options["startingOffsets"] = "earliest"
        assert len(query.drain()) == SEEN
        aged = aging(cluster)
        cluster.stop(1)
        cut(cluster.data_folder(1), topic, KEPT)
        cluster.restart(1)
        cluster.produce(topic, numbered("new", KEPT, GROWN))
        yield Scene(cluster, topic, first, ends, planned, query, aged)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """
    Return the name of each engine in turn.
    """
    return str(request.param)


def test_engines_record_the_same_epochs(scene: Scene) -> None:
    """
    A checkpoint written with one engine is valid for the other.
    """
    assert scene.seen["wire"] == scene.seen["librdkafka"]
    assert json.loads(json.dumps(scene.seen["wire"]))[LEADER_EPOCHS][scene.topic]["0"] >= 0
    assert scene.planned["wire"] == scene.planned["librdkafka"]


def test_driver_detects_truncation(scene: Scene) -> None:
    """
    The driver checks the leader epoch of its offsets before it plans a batch, and reports the loss.
    """
    with pytest.raises(DataLossError, match=r"offset 200 in leader epoch \d.* 100 now") as caught:
        scene.batches("wire").latest_offset(scene.seen["wire"])
    assert caught.value.condition == LOG_TRUNCATED


def test_allowed_truncation_is_counted(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """
    The stream continues at its offset, and its progress reports the lost records.
    """
    stream = scene.batches("wire", failOnDataLoss="false")

    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        end = stream.latest_offset(scene.seen["wire"])

    assert f"[{LOG_TRUNCATED}]" in caplog.text
    assert stream.report_latest_offset() == {
        scene.topic: {"0": GROWN},
        "@lost": {scene.topic: {"0": 100}},
    }
    (offset_range,) = stream.plan(scene.seen["wire"], end).ranges
    assert scene.read(offset_range, "wire") == values("new", SEEN, GROWN)
    assert stream.latest_offset(end) == end


def test_task_detects_truncation_since_planning(scene: Scene) -> None:
    """
    A task detects that the log was truncated after planning, before it reads a record of the new
    log; if loss is allowed, it logs a warning.
    """
    offset_range = scene.planned["wire"]

    with pytest.raises(DataLossError, match="200 in leader epoch") as caught:
        scene.read(offset_range, "wire")

    assert caught.value.condition == LOG_TRUNCATED
    assert scene.read(offset_range, "wire", fail=False) == values("new", KEPT, SEEN)


def test_librdkafka_task_detects_truncation_before_its_start(scene: Scene) -> None:
    """
    With librdkafka the driver plans the batch, and the task detects the truncation when it starts
    to read.
    """
    stream = scene.batches("librdkafka")
    end = stream.latest_offset(scene.seen["librdkafka"])
    (offset_range,) = stream.plan(scene.seen["librdkafka"], end).ranges

    with pytest.raises(DataLossError, match="truncated") as caught:
        scene.read(offset_range, "librdkafka")

    assert caught.value.condition == LOG_TRUNCATED
    assert scene.read(offset_range, "librdkafka", fail=False) == values("new", SEEN, GROWN)


def test_new_leader_epoch_alone_is_no_loss(scene: Scene, engine: str) -> None:
    """
    A new leader epoch without lost records is not data loss.
    """
    stream = scene.batches(engine)
    end = stream.latest_offset(scene.first[engine])
    (offset_range,) = stream.plan(scene.first[engine], end).ranges

    assert offset_range.start_epoch < offset_range.end_epoch
    assert scene.read(offset_range, engine) == values("new", KEPT, GROWN)


def test_query_fails_and_continues_if_loss_is_allowed(scene: Scene) -> None:
    """
    A query that failed with data loss continues from its checkpoint once failOnDataLoss is false.
    """
    query = scene.query
    before = query.values

    with pytest.raises(Exception, match=LOG_TRUNCATED):
        query.drain()
    assert query.values == before

    query.options["failOnDataLoss"] = "false"
    assert set(query.drain()) - set(before) == {v.decode() for v in values("new", SEEN, GROWN)}
    query.options["failOnDataLoss"] = "true"
    assert len(query.drain()) == GROWN


@pytest.mark.parametrize("first", [150, SEEN, SEEN + 20])
def test_aged_out_records_are_no_truncation(scene: Scene, first: int) -> None:
    """
    Aged-out records are not taken for a truncation, although the leader no longer has their epoch;
    those that were not read yet are out of range.
    """
    position = Position(AGED, 0, first)
    if first > SEEN:
        scene.cluster.produce(AGED, numbered("new", SEEN, GROWN))
    admin = scene.cluster.admin()
    admin.delete_records([position])[position].result(SECONDS)
    stream = batches(scene.cluster, AGED, "wire")

    end = stream.latest_offset(scene.aged)

    ranges = stream.plan(scene.aged, end).ranges
    assert [(r.start, r.end) for r in ranges] == ([(SEEN, GROWN)] if first > SEEN else [])
    for offset_range in ranges:
        assert offset_range.start_epoch < offset_range.end_epoch
        with pytest.raises(DataLossError, match="out of range"):
            scene.read(offset_range, "wire")


def leads(cluster: KafkaCluster, topic: str, *, by: int, from_broker: int) -> str | None:
    """
    Return None once a broker says that it leads the partition, or the reason why not.
    """
    admin = cluster.admin(cluster.nodes[from_broker - 1].address)
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    leader = partitions[0].leader if partitions else None
    return None if leader == by else f"{topic}-0 is led by {leader}, not by {by}"


@pytest.mark.soak
def test_unclean_election_is_detected() -> None:
    """
    If a replica that was down becomes the leader and appends records at the offsets of lost ones,
    driver and task detect that; if loss is allowed, the lost records are counted.
    """
    topic = "unclean"
    new_topic = NewTopic(
        topic,
        replica_assignment=[[1, 2]],
        num_partitions=1,
        config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )
    with KafkaCluster(3) as cluster:
        admin = cluster.admin()
        admin.create_topics([new_topic])[topic].result(SECONDS)
        wait_until(lambda: leads(cluster, topic, by=1, from_broker=3), SECONDS)
        cluster.produce(topic, numbered("old", 0, KEPT))
        stream = batches(cluster, topic, "wire")
        first = stream.latest_offset(stream.initial_offset())
        cluster.kill(2)
        cluster.produce(topic, numbered("old", KEPT, SEEN), {"delivery.timeout.ms": 60_000})
        end = stream.latest_offset(first)
        (planned,) = stream.plan(first, end).ranges
        cluster.kill(1)
        cluster.restart(2)
        wait_until(lambda: leads(cluster, topic, by=2, from_broker=3), SECONDS)
        cluster.produce(topic, numbered("new", KEPT, SEEN), {"delivery.timeout.ms": 60_000})
        with pytest.raises(DataLossError, match="100 now"):
            stream.latest_offset(end)
        with pytest.raises(DataLossError, match="100 now"):
            read(cluster, planned, "wire")
        lossy = batches(cluster, topic, "wire", failOnDataLoss="false")
        assert lossy.latest_offset(end) == end
        latest = lossy.report_latest_offset()
        assert latest is not None
        assert latest["@lost"] == {topic: {"0": SEEN - KEPT}}
        assert read(cluster, planned, "wire", fail=False) == values("new", KEPT, SEEN)
