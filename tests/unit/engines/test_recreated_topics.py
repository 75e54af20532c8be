"""
A topic that is deleted and recreated after a read was planned is not read in its place.

The brokers here take topic names in Fetch requests, as those before 3.1 do, and their leader epochs
do not show the change either: the new topic has the same epoch.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster, record_batch

from pyspark_pykafka.engines.selection import fetch, fetch_many
from pyspark_pykafka.engines.wire.consumer import range_reader
from pyspark_pykafka.engines.wire.consumer.leader_fetches import LeaderFetches
from pyspark_pykafka.engines.wire.consumer.topics import format_topic_id
from pyspark_pykafka.engines.wire.network.cluster_pool import borrowed_cluster
from pyspark_pykafka.errors import DataLossError, TimeoutExceededError
from pyspark_pykafka.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_pykafka.settings import KafkaSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = TopicPartition("t", 0)
FETCH, METADATA = 1, 3
NOT_LEADER, UNKNOWN_LEADER_EPOCH = 6, 75
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


class StaleFollowers(Recreated):
    """
    Three brokers, of which only the leader learns that the topic was recreated.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(brokers=3, **attributes)
        self.first_id = self.id

    def leader(self, _topic: str, _partition: int) -> int:
        return 0

    def _topic(self, node: int, name: str, partition_counts: dict[str, int]) -> Any:
        current = self.id
        self.id = current if node == 0 else self.first_id
        try:
            return super()._topic(node, name, partition_counts)
        finally:
            self.id = current


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


def read_many(
    stubs: StubCluster, requested: list[OffsetRange], engine: str, **changes: Any
) -> dict[int, list[bytes]]:
    """
    Return the values of the records in several ranges, by partition.
    """
    changes = {"poll_timeout_ms": POLL_MS, "end_retry_ms": 1, **changes}
    if engine == ALONE:
        servers = {"bootstrap.servers": stubs.bootstrap, "topic.blacklist": "none"}
        changes["kafka"], engine = KafkaSettings.of(servers), "librdkafka"
    fetch_settings = fetching.settings(stubs.bootstrap, engine, schema=fetching.VALUES, **changes)
    values: dict[int, list[bytes]] = {}
    for offset_range, batch in fetch_many(requested, fetch_settings):
        values.setdefault(offset_range.tp.partition, []).extend(batch["value"].to_pylist())
    return values


def all_ranges(topic_id: str | None = None) -> list[OffsetRange]:
    """
    Return the ranges of three partitions, with or without the id of their topic.
    """
    return [OffsetRange(TopicPartition("t", n), 0, 1000, topic_id) for n in range(3)]


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


class Shorter(Recreated):
    """
    A topic that is recreated with fewer records when its end is requested.
    """

    def offsets(self, node: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        if self.generation == b"old":
            self.id, self.generation, self.high_watermark = uuid4(), b"new", 100
        return super().offsets(node, topic, partition, timestamp)


@pytest.mark.parametrize("fails", [True, False])
def test_a_new_topic_that_ends_before_the_start_is_data_loss(engine: str, *, fails: bool) -> None:
    """
    If the new topic ends before the range starts, its recreation is reported, not the offsets.
    """
    changes = {"fail_on_data_loss": fails, "poll_timeout_ms": 1_000}
    with StubCluster(Shorter()) as stubs:
        requested = planned(stubs, 500, LATEST)
        with pytest.raises(DataLossError, match="recreated") if fails else nullcontext():
            assert read(stubs, requested, engine, **changes) == []


def test_a_topic_recreated_during_the_read_is_data_loss(stubs: StubCluster, engine: str) -> None:
    """
    A range with records of both topics is not complete, so its task fails.
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
    If a topic is deleted after its last record has arrived, no other topic has its name, so all
    records are those of the deleted topic.
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
    The check costs one Metadata request before the range, if metadata was cached, and one after it.
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


@pytest.mark.parametrize("has_id", [True, False])
def test_the_rest_of_a_range_in_the_old_format_keeps_its_topic(*, has_id: bool) -> None:
    """
    The range that is left to librdkafka has the topic id of the records before it.
    """
    with StubCluster(Old()) as cluster:
        whole = planned(cluster)
        requested = whole if has_id else replace(whole, topic_id=None)
        fetch_settings = fetching.settings(cluster.bootstrap, "wire", schema=fetching.VALUES)
        with pytest.raises(range_reader.OldFormatError) as raised:
            list(range_reader.fetch(requested, fetch_settings))

    assert raised.value.rest == OffsetRange(T0, 100, 1000, whole.topic_id)


class OldAndStale(Old, StaleFollowers):
    """
    Only the leader learns that the topic was recreated; its second response is in the old format.
    """


def test_records_before_the_old_format_are_of_one_topic() -> None:
    """
    Before the rest is left to librdkafka, the broker that has returned records by name is asked
    whether the topic was recreated: librdkafka may ask another one.
    """
    with StubCluster(OldAndStale(recreate_at=0)) as cluster:
        requested = planned(cluster)
        fetch_settings = fetching.settings(
            cluster.bootstrap, "wire", schema=fetching.VALUES, poll_timeout_ms=1_000
        )
        with pytest.raises(DataLossError, match="deleted or recreated"):
            list(range_reader.fetch(requested, fetch_settings))


@pytest.fixture
def many() -> Iterator[StubCluster]:
    """
    Return a cluster with a topic of three partitions.
    """
    with StubCluster(Recreated(topics={"t": 3})) as cluster:
        yield cluster


def test_the_planned_topic_is_read_with_few_requests(many: StubCluster, engine: str) -> None:
    """
    Several ranges with the id of the current topic are read whole; the wire engine sends one
    request for all of them at a time.
    """
    topic_id = planned(many).topic_id

    assert read_many(many, all_ranges(topic_id), engine) == dict.fromkeys(range(3), [b"old"] * 1000)
    if engine == "wire":
        # Ten requests for each partition; the last partition is read individually in the end.
        assert many.stats()["requests"][FETCH] < 20


def test_ranges_of_a_topic_recreated_before_the_read_are_data_loss(
    many: StubCluster, engine: str
) -> None:
    """
    No record of the new topic is read in place of several ranges that were planned.
    """
    topic_id = planned(many).topic_id
    recreate(many)

    with pytest.raises(DataLossError, match="recreated"):
        read_many(many, all_ranges(topic_id), engine)


def test_ranges_of_a_topic_recreated_during_the_read_are_data_loss(
    many: StubCluster, engine: str
) -> None:
    """
    Several ranges that were planned are not complete if some of their records are of another topic.
    """
    topic_id = planned(many).topic_id
    many.set(recreate_at=500)

    with pytest.raises(DataLossError, match="recreated"):
        read_many(many, all_ranges(topic_id), engine)


@pytest.mark.parametrize("end", [100, 1000])
def test_ranges_without_a_topic_id_are_of_one_topic(many: StubCluster, end: int) -> None:
    """
    The first response fixes the topic of several ranges without a topic id: if the topic is
    recreated after that response, this is data loss, even if no later request follows.
    """
    many.set(recreate_at=end - 100)
    requested = [replace(offset_range, end=end) for offset_range in all_ranges()]

    with pytest.raises(DataLossError, match="recreated"):
        read_many(many, requested, "wire")


def test_an_allowed_loss_of_several_ranges_is_logged(
    many: StubCluster, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    With failOnDataLoss=false several ranges of a recreated topic give no rows, and a warning.
    """
    topic_id = planned(many).topic_id
    recreate(many)

    with caplog.at_level(logging.WARNING, "pyspark_pykafka"):
        assert read_many(many, all_ranges(topic_id), engine, fail_on_data_loss=False) == {}
    assert "recreated" in caplog.text


class Elected(Recreated):
    """
    A topic that is recreated when half of it is read; brokers reject the old leader epochs then.
    """

    def leader_epoch(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return 7 if self.generation == b"old" else 0

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        before = self.generation
        answer = super().fetch(node, topic, partition, offset)
        return answer if self.generation == before else FetchAnswer(UNKNOWN_LEADER_EPOCH, -1)


def test_new_leaders_of_another_topic_are_not_asked() -> None:
    """
    After an error, several ranges without a topic id are not continued in a topic that has been
    recreated meanwhile.
    """
    with (
        StubCluster(Elected(topics={"t": 3}, recreate_at=500)) as cluster,
        pytest.raises(DataLossError, match="recreated"),
    ):
        read_many(cluster, all_ranges(), "wire")


def test_ranges_of_two_topics_of_one_name(many: StubCluster) -> None:
    """
    Of several ranges with different topic ids, only those of the current topic are read.
    """
    current, other = planned(many).topic_id, format_topic_id(uuid4())
    requested = [*all_ranges(other)[:1], *all_ranges(current)[1:]]

    values = read_many(many, requested, "wire", fail_on_data_loss=False)

    assert values == {1: [b"old"] * 1000, 2: [b"old"] * 1000}


@pytest.mark.parametrize("recreate_at", [0, 500], ids=["before the read", "during the read"])
@pytest.mark.parametrize("reads_many", [False, True], ids=["one range", "many ranges"])
def test_brokers_that_return_no_records_do_not_confirm_the_topic(
    recreate_at: int, *, reads_many: bool
) -> None:
    """
    Two brokers do not know yet that the topic was recreated, but the leader does, and has returned
    records of both topics: that is data loss, whatever the other two say.
    """
    with StubCluster(StaleFollowers(recreate_at=recreate_at, topics={"t": 3})) as stubs:
        ranges = all_ranges(format_topic_id(stubs.get("id")))
        with pytest.raises(DataLossError, match="deleted or recreated"):
            read_many(stubs, ranges if reads_many else ranges[:1], "wire")


class SilentLeader(StaleFollowers):
    """
    The leader that knows the new topic returns its id only once.
    """

    answers = 0

    def delay(self, node: int, api_key: int) -> float:
        if node or api_key != METADATA or self.id == self.first_id:
            return 0.0
        self.answers += 1
        return 60.0 if self.answers > 1 else 0.0


@pytest.mark.parametrize("reads_many", [False, True], ids=["one range", "many ranges"])
def test_the_id_of_a_server_that_falls_silent_counts(*, reads_many: bool) -> None:
    """
    The leader, which has returned records of both topics, returns the new id once, and then does
    not answer any more: that is data loss, too, although the other brokers have the old id.
    """
    with StubCluster(SilentLeader(recreate_at=500, topics={"t": 3})) as stubs:
        ranges = all_ranges(format_topic_id(stubs.get("id")))
        with pytest.raises(DataLossError, match="deleted or recreated"):
            read_many(stubs, ranges if reads_many else ranges[:1], "wire", poll_timeout_ms=1_000)


def test_the_servers_are_asked_through_another_cluster_object() -> None:
    """
    While the cluster object of many ranges is lent to another thread, a new one, which has no
    metadata yet, finds the brokers that have returned records.
    """
    with StubCluster(StaleFollowers(recreate_at=0)) as stubs:
        fetch_settings = fetching.settings(stubs.bootstrap, "wire")
        fetches = LeaderFetches(fetch_settings, 32 * 1024)
        assert [tp for tp, _ in fetches.fetch({T0: 0})] == [T0]
        with borrowed_cluster(fetch_settings.kafka):
            assert fetches.recreated_topics() == {"t"}


class GoneLeader(Recreated):
    """
    Three brokers, of which the leader is gone once it has been asked for ``gone_at``.
    """

    gone_at = 500
    new_leader = 1
    is_gone = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(brokers=3, topics={"t": 3}, **attributes)

    def leader(self, _topic: str, _partition: int) -> int:
        return self.new_leader if self.is_gone else 0

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if node == 0 and self.is_gone:
            return FetchAnswer(NOT_LEADER, -1)
        self.is_gone = self.is_gone or offset >= self.gone_at
        return super().fetch(node, topic, partition, offset)

    def _on_3(self, node: int, request: Any) -> Any:
        response = super()._on_3(node, request)
        if self.is_gone:
            response.brokers = [broker for broker in response.brokers if broker.node_id]
        return response


@pytest.mark.parametrize("reads_many", [False, True], ids=["one range", "many ranges"])
def test_a_server_that_is_gone_does_not_fail_the_read(*, reads_many: bool) -> None:
    """
    If a broker that has returned records has left the cluster, the other ones confirm the topic.
    """
    with StubCluster(GoneLeader()) as stubs:
        ranges = all_ranges(format_topic_id(stubs.get("id")))[: 3 if reads_many else 1]
        values = read_many(stubs, ranges, "wire")

    assert values == {r.tp.partition: [b"old"] * 1000 for r in ranges}


class LastLeader(GoneLeader):
    """
    No other broker leads the partitions of the broker that is gone, which is silent.
    """

    gone_at = 900
    new_leader = -1

    def delay(self, node: int, api_key: int) -> float:  # noqa: ARG002
        return 60.0 if node == 0 and self.is_gone else 0.0


def test_a_topic_is_confirmed_without_a_leader() -> None:
    """
    If the broker that has returned a whole range is gone, other brokers confirm the topic, although
    none of them leads the partition.
    """
    with StubCluster(LastLeader()) as stubs:
        assert read(stubs, planned(stubs), "wire") == [b"old"] * 1000


class AllSilent(GoneLeader):
    """
    No broker answers requests for metadata once the range has been read.
    """

    gone_at = 900

    def delay(self, _node: int, api_key: int) -> float:
        return 60.0 if self.is_gone and api_key == METADATA else 0.0


def test_an_id_that_no_broker_returns_is_a_timeout() -> None:
    """
    If no broker returns the topic's id after the last record, the error says so.
    """
    with (
        StubCluster(AllSilent()) as stubs,
        pytest.raises(TimeoutExceededError, match="did not get the id of the topic t"),
    ):
        read(stubs, planned(stubs), "wire", poll_timeout_ms=1_000)


class FormerLeader(Recreated):
    """
    Three brokers, of which the first leader has the id of a former topic, and returns no records.
    """

    has_failed = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(brokers=3, **attributes)
        self.former_id = uuid4()

    def leader(self, _topic: str, _partition: int) -> int:
        return 1 if self.has_failed else 0

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if node == 0:
            self.has_failed = True
            return FetchAnswer(NOT_LEADER, -1)
        return super().fetch(node, topic, partition, offset)

    def _topic(self, node: int, name: str, partition_counts: dict[str, int]) -> Any:
        current = self.id
        self.id = self.former_id if node == 0 else current
        try:
            return super()._topic(node, name, partition_counts)
        finally:
            self.id = current


def test_a_broker_that_returned_no_records_is_not_asked() -> None:
    """
    A broker that has rejected each request does not know yet that the topic was recreated. That is
    no data loss: all records come from another broker, and are those of the planned topic.
    """
    with StubCluster(FormerLeader()) as stubs:
        assert read(stubs, planned(stubs), "wire") == [b"old"] * 1000


class LateIds(Recreated):
    """
    Brokers that return the topic's id only after it was recreated.
    """

    def topic_id(self, _topic: str) -> UUID:
        return UUID(int=0) if self.generation == b"old" else self.id


@pytest.mark.parametrize("reads_many", [False, True], ids=["one range", "many ranges"])
def test_metadata_without_an_id_do_not_confirm_the_topic(*, reads_many: bool) -> None:
    """
    If brokers return no topic ids for a while, as during an upgrade from Kafka 2.7, the id of the
    plan is compared with the one that they return after the last record.
    """
    with StubCluster(LateIds(recreate_at=500, topics={"t": 3})) as stubs:
        ranges = all_ranges(format_topic_id(stubs.get("id")))
        with pytest.raises(DataLossError, match="deleted or recreated"):
            read_many(stubs, ranges if reads_many else ranges[:1], "wire", poll_timeout_ms=1_000)
