"""
A topic that is deleted and recreated after a read was planned is not read in its place.

The brokers here take topic names in Fetch requests, as those before 3.1 do, and their leader epochs
show nothing either: the new topic has the same one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster, record_batch

from pyspark_pykafka.engines.selection import fetch
from pyspark_pykafka.engines.wire.consumer import range_reader
from pyspark_pykafka.engines.wire.consumer.topics import format_topic_id
from pyspark_pykafka.errors import DataLossError
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = TopicPartition("t", 0)
METADATA = 3
POLL_MS = 3_000


class Recreated(Behaviour):
    """
    A topic whose records hold its generation; ``recreate_at`` recreates it, and ``delete_at``
    deletes it, before the response to the first Fetch at or after this offset.
    """

    def __init__(self, **attributes: Any) -> None:
        self.id = uuid4()
        self.generation = b"old"
        self.recreate_at: int | None = None
        self.delete_at: int | None = None
        super().__init__(**attributes)

    def topic_id(self, _topic: str) -> UUID:
        return self.id

    def fetch(self, _node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if self.recreate_at is not None and offset >= self.recreate_at:
            self.recreate_at, self.id, self.generation = None, uuid4(), b"new"
        end = self.end(topic, partition)
        last = min(offset + self.batch_records, end)
        records = (
            record_batch(offset, [self.generation] * (last - offset)) if last > offset else b""
        )
        if self.delete_at is not None and offset >= self.delete_at:
            self.topics = {}
        return FetchAnswer(0, end, records)


#: librdkafka with a setting that wire does not support, so that librdkafka reads the metadata too.
ALONE = "librdkafka-alone"


@pytest.fixture(params=["wire", "librdkafka", ALONE])
def engine(request: pytest.FixtureRequest) -> str:
    """
    Return the name of each engine in turn.
    """
    return str(request.param)


@pytest.fixture
def stubs() -> Iterator[StubCluster]:
    """
    Return a cluster with a topic of one partition and 1,000 records.
    """
    with StubCluster(Recreated()) as cluster:
        yield cluster


def planned(stubs: StubCluster, start: int = 0, end: int = 1000) -> OffsetRange:
    """
    Return a range of the topic that has the name now.
    """
    return OffsetRange(T0, start, end, format_topic_id(stubs.get("id")))


def read(stubs: StubCluster, requested: OffsetRange, engine: str, **changes: Any) -> list[bytes]:
    """
    Return the values of the records in a range.
    """
    changes = {"poll_timeout_ms": POLL_MS, "end_retry_ms": 1, **changes}
    if engine == ALONE:
        servers = {"bootstrap.servers": stubs.bootstrap, "topic.blacklist": "none"}
        changes["kafka"], engine = KafkaSettings.of(servers), "librdkafka"
    fetch_settings = fetching.settings(stubs.bootstrap, engine, schema=fetching.VALUES, **changes)
    batches = fetch(requested, fetch_settings)
    return [value for batch in batches for value in batch["value"].to_pylist()]


def recreate(stubs: StubCluster, **attributes: Any) -> None:
    """
    Delete the topic, and create another one of the same name.
    """
    stubs.set(id=uuid4(), generation=b"new", **attributes)


LIMITS = [(0, 1000), (EARLIEST, LATEST)]


@pytest.mark.parametrize(("start", "end"), LIMITS, ids=["offsets", "sentinels"])
def test_the_planned_topic_is_read(stubs: StubCluster, engine: str, start: int, end: int) -> None:
    """
    A topic with the id of the plan is read whole.
    """
    assert read(stubs, planned(stubs, start, end), engine) == [b"old"] * 1000


@pytest.mark.parametrize("cached", [False, True], ids=["new-worker", "cached-metadata"])
@pytest.mark.parametrize(("start", "end"), LIMITS, ids=["offsets", "sentinels"])
def test_a_topic_recreated_before_the_read_is_data_loss(
    stubs: StubCluster, engine: str, start: int, end: int, *, cached: bool
) -> None:
    """
    No record of the new topic is read, whether or not the worker has read the old one before.
    """
    requested = planned(stubs, start, end)
    if cached:
        read(stubs, requested, engine)
    recreate(stubs)

    with pytest.raises(DataLossError, match="recreated") as raised:
        read(stubs, requested, engine)
    assert raised.value.condition == "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"


@pytest.mark.parametrize(("start", "end"), LIMITS, ids=["offsets", "sentinels"])
def test_an_allowed_loss_of_a_recreated_topic_gives_no_rows(
    stubs: StubCluster, engine: str, start: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    """
    With failOnDataLoss=false the loss is logged, and no record of the new topic takes the place of
    the lost ones.
    """
    requested = planned(stubs, start, end)
    read(stubs, requested, engine)
    recreate(stubs)

    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        assert read(stubs, requested, engine, fail_on_data_loss=False) == []
    assert "recreated" in caplog.text


@pytest.mark.parametrize("cached", [False, True], ids=["new-worker", "cached-metadata"])
def test_an_empty_new_topic_does_not_hide_the_loss(
    stubs: StubCluster, engine: str, *, cached: bool
) -> None:
    """
    If the new topic has no records yet, the range seems to be empty; its loss is reported.
    """
    requested = planned(stubs, EARLIEST, LATEST)
    if cached:
        read(stubs, requested, engine)
    recreate(stubs, high_watermark=0)

    with pytest.raises(DataLossError, match="recreated"):
        read(stubs, requested, engine)


def test_a_topic_recreated_during_the_read_is_data_loss(stubs: StubCluster, engine: str) -> None:
    """
    A range of both topics is not complete: its task fails.
    """
    requested = planned(stubs)
    stubs.set(recreate_at=500)

    with pytest.raises(DataLossError, match="recreated"):
        read(stubs, requested, engine)


def test_an_allowed_loss_during_the_read_mixes_no_records(stubs: StubCluster, engine: str) -> None:
    """
    With failOnDataLoss=false a range of one batch has no record of the new topic.
    """
    requested = planned(stubs)
    stubs.set(recreate_at=500)

    assert b"new" not in read(stubs, requested, engine, fail_on_data_loss=False)


def test_a_topic_deleted_after_its_last_record_was_read_is_no_data_loss(
    stubs: StubCluster, engine: str
) -> None:
    """
    A topic that is deleted once its records have arrived has no successor, so they are its own.
    """
    requested = planned(stubs)
    stubs.set(delete_at=900)

    assert read(stubs, requested, engine) == [b"old"] * 1000


def test_a_range_without_a_topic_id_accepts_any_topic(stubs: StubCluster, engine: str) -> None:
    """
    Checkpoints of the JVM connector have no topic ids: such ranges are read from any topic.
    """
    read(stubs, planned(stubs), engine)
    recreate(stubs)

    assert read(stubs, OffsetRange(T0, 0, 1000), engine) == [b"new"] * 1000


def test_the_check_costs_one_request_for_each_range(stubs: StubCluster) -> None:
    """
    A range costs one Metadata request before it, if metadata was cached, and one after it.
    """
    requested = planned(stubs)
    read(stubs, requested, "wire")
    before = stubs.stats()["requests"][METADATA]
    read(stubs, requested, "wire")

    assert stubs.stats()["requests"][METADATA] - before == 2


class Old(Recreated):
    """
    Its second response has records in the format before record batches.
    """

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        answer = super().fetch(node, topic, partition, offset)
        magic_position = 16
        records = bytearray(answer.records)
        if offset and records:
            records[magic_position] = 1
        return answer._replace(records=bytes(records))


def test_the_rest_of_a_range_in_the_old_format_keeps_its_topic() -> None:
    """
    The range that is left to librdkafka has the topic id of the whole one.
    """
    with StubCluster(Old()) as cluster:
        requested = planned(cluster)
        fetch_settings = fetching.settings(cluster.bootstrap, "wire", schema=fetching.VALUES)
        with pytest.raises(range_reader.OldFormatError) as raised:
            list(range_reader.fetch(requested, fetch_settings))

    assert raised.value.rest == OffsetRange(T0, 100, 1000, requested.topic_id)
